"""For all tests: no example of a property test fails for being slow; a busy machine says nothing about the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no-clock", deadline=None)
settings.load_profile("no-clock")
