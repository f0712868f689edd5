"""Where a scenario sets variables that make results up without allowing it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.scenarios.scenario import Scenario
from orchestrator.sglang.faked_results import FAKING, faked_in_words, is_faking, refusal
from orchestrator.sglang.options import nearest

Place = tuple[str | int, ...]
_SETTING = "env."


def check_faked(scenario: Scenario) -> tuple[Place, str] | None:
    """The first place that sets such a variable, as (path of keys, message), or None."""
    engine = scenario.engine
    for i, name in enumerate(engine.allow_faked):
        if name not in FAKING:
            hint = nearest(name, list(FAKING))
            meant = f"; did you mean '{hint}'?" if hint else f"; there are: {', '.join(FAKING)}"
            return ("engine", "allow_faked", i), f"'{name}' is not a variable that makes results up{meant}"
    for place, name, value in _given(scenario):
        if name not in engine.allow_faked and is_faking(name, value):
            return place, refusal(name)
    for key, words in (("command", engine.command), ("extra_args", engine.extra_args)):
        found = faked_in_words(words, engine.allow_faked)
        if found is not None:
            return ("engine", key, found[0]), refusal(found[1])
    return None


def _given(scenario: Scenario) -> Iterator[tuple[Place, str, str]]:
    """Every variable that the scenario sets by name: its place, name and value."""
    for name, value in scenario.engine.env.items():
        yield ("engine", "env", name), name, value
    yield from _settings(("engine", "settings"), scenario.engine.settings)
    yield from _settings(("sweep", "axes"), scenario.sweep.axes)
    for i, group in enumerate(scenario.sweep.zip):
        yield from _settings(("sweep", "zip", i), group)
    for part in ("configs", "include"):
        for i, config in enumerate(getattr(scenario.sweep, part)):
            yield from _settings(("sweep", part, i), config)


def _settings(path: Place, settings: dict[str, Any]) -> Iterator[tuple[Place, str, str]]:
    for key, given in settings.items():
        if key.startswith(_SETTING):
            for value in given if isinstance(given, list) else [given]:
                yield (*path, key), key.removeprefix(_SETTING), str(value)
