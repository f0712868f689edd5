"""A command below a guard, started as whoever does not wait for the server's log would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actors.guards.guard import Guarded


def guarded(command: Sequence[str], **orders: Any) -> Guarded:
    """`Guarded.boot`, once the command runs; ServerNotStarted if it cannot be run."""
    made = Guarded.boot(command, **orders)
    assert made.has_started(timeout_s=60.0), "the guard did not answer"
    return made
