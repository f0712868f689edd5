"""Searches that cannot work: keys of another method, settings without a direction, grids with holes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_search import HEEDED_BY, Direction, SearchKeys, SpaceRange
from orchestrator.scenarios.sweep_check import Fault, SettingJudge, setting_judge
from orchestrator.searches.ceiling_lines import default_knobs
from orchestrator.searches.memory_order import directions_with, is_amount
from orchestrator.sglang.options import canonical_name, did_you_mean

# Finer steps are none: six digits of a value are kept.
_MOST_STEPS = 1_000_000
# Whole numbers beyond it are not told apart by floating point.
_LARGEST = 2.0**53


def check_search(scenario: Scenario) -> Fault | None:
    keys = scenario.search
    for name in sorted(keys.model_fields_set - {"method"}):
        if keys.method not in HEEDED_BY[name]:
            return ("search", name), f"is heeded by {' and '.join(HEEDED_BY[name])} only, not by {keys.method}"
    if keys.method == "pairs" and scenario.nightly is None:
        return ("search", "method"), "is `pairs`, which measures the two builds of `nightly`: give that key"
    if keys.method not in {"grid", "pairs"} and "repeats" in scenario.measure.model_fields_set:
        return ("measure", "repeats"), f"is for a grid; search {keys.method} decides how often a config is started"
    fault = _idle_key(keys) or _check_directions(scenario, keys)
    if fault is None and keys.method == "ceiling":
        fault = _check_knobs(scenario, keys)
    if fault is None and keys.method == "optuna":
        fault = _check_space(scenario, keys)
    return fault


def _idle_key(keys: SearchKeys) -> Fault | None:
    """A key that another one leaves nothing to say."""
    given = keys.model_fields_set
    if keys.method == "halving" and "directions" in given and not keys.infer:
        return ("search", "directions"), "says what `infer` is to infer, which is off: leave one out"
    if "best" in given and keys.best_repeats == 1:
        return ("search", "best"), "says how many are measured again, but with best_repeats 1 none is"
    idle = next((name for name in ("eta", "finalists") if name in given and keys.max_repeats == 1), None)
    return None if idle is None else (("search", idle), "chooses who is started again, but with max_repeats 1 none is")


def _check_directions(scenario: Scenario, keys: SearchKeys) -> Fault | None:
    varied = _varied(scenario)
    knobs = {canonical_name(name) for name in keys.knobs}
    for name, direction in keys.directions.items():
        of = [values for other, values in varied.items() if canonical_name(other) == canonical_name(name)]
        if not of:
            return ("search", "directions", name), f"is not varied by the sweep{did_you_mean(name, list(varied))}"
        if knobs and canonical_name(name) not in knobs:
            return (
                "search",
                "directions",
                name,
            ), "has no say: `knobs` names what is searched, and it is not among them"
        if direction != "none" and not any(is_amount(value) for values in of for value in values):
            return ("search", "directions", name), f"is `{direction}`, but its values are no numbers"
    return None


def _varied(scenario: Scenario) -> dict[str, list[Any]]:
    """All values of each setting that the sweep varies."""
    sweep = scenario.sweep
    found: dict[str, list[Any]] = {}
    for group in (sweep.axes, *sweep.zip):
        for name, values in group.items():
            found.setdefault(name, []).extend(values)
    for config in (*sweep.configs, *sweep.include):
        for name, value in config.items():
            found.setdefault(name, []).append(value)
    return found


def _check_knobs(scenario: Scenario, keys: SearchKeys) -> Fault | None:
    sweep, directions = scenario.sweep, directions_with(keys.directions)
    axes = {canonical_name(name): values for name, values in sweep.axes.items()}
    part = next((part for part in ("zip", "configs", "include", "exclude") if getattr(sweep, part)), None)
    if part is not None:
        return ("sweep", part), "cannot be combined with search ceiling, which wants whole axes"
    for i, name in enumerate(keys.knobs):
        if canonical_name(name) not in axes:
            return ("search", "knobs", i), f"is '{name}', which is no axis of the sweep{did_you_mean(name, list(axes))}"
    knobs = [canonical_name(name) for name in keys.knobs] or default_knobs(list(axes), directions)
    if len(knobs) != 1 and not keys.knobs:
        found = f"{len(knobs)} axes have one: {', '.join(knobs)}" if knobs else "no axis has one"
        return (
            "search",
            "knobs",
        ), f"must name one or two axes: left out, it is the one of known direction, but {found}"
    if len(set(knobs)) < len(knobs):
        return ("search", "knobs"), f"names '{knobs[0]}' twice"
    return next((fault for name in knobs if (fault := _knob_fault(name, axes[name], directions, knobs))), None)


def _knob_fault(name: str, values: list[Any], directions: Mapping[str, Direction], knobs: list[str]) -> Fault | None:
    direction = directions.get(name, "none")
    if direction == "none":
        return ("search", "directions"), f"must say how '{name}' bears on memory (up, down or interval)"
    if direction == "interval" and len(knobs) > 1:
        return ("search", "knobs"), f"has '{name}', an interval, which is searched alone: make one run of each"
    if len(values) < 2 or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return ("sweep", "axes", name), "is searched for its ceiling and wants two or more numbers"
    return None


def _check_space(scenario: Scenario, keys: SearchKeys) -> Fault | None:
    sweep, judge = scenario.sweep, setting_judge(scenario)
    for part in ("zip", "configs", "include"):
        if getattr(sweep, part):
            return ("sweep", part), "cannot be combined with search optuna, which draws from axes and search.space"
    if not sweep.axes and not keys.space:
        return ("search", "space"), "has nothing to search: give it ranges, or the sweep axes"
    for name, of in keys.space.items():
        message = _range_fault(name, of, judge)
        if message is None and canonical_name(name) in map(canonical_name, sweep.axes):
            message = "is an axis of the sweep too; leave one out"
        if message is not None:
            return ("search", "space", name), message
    if keys.best * (keys.best_repeats - 1) >= keys.optuna_starts:
        return ("search", "budget_trials"), "leaves no start for draws: best x (best_repeats - 1) take all of it"
    return None


def _range_fault(name: str, of: SpaceRange, judge: SettingJudge) -> str | None:
    if of.low >= of.high:
        return f"goes from {of.low:g} to {of.high:g}; low must be below high"
    if of.log and of.step is not None:
        return "wants one of log and step"
    if of.log and of.low <= 0:
        return f"begins at {of.low:g}; a log range begins above 0"
    if of.step is not None and of.step > of.high - of.low:
        return f"has steps of {of.step:g}, wider than the range"
    if of.step is not None and of.step * _MOST_STEPS < of.high - of.low:
        return f"has steps of {of.step:g}, more than {_MOST_STEPS:,} of them; leave the step out"
    if max(abs(of.low), abs(of.high)) > _LARGEST:
        return f"goes from {of.low:g} to {of.high:g}; bounds end at {_LARGEST:g}"
    ends = [of.low, of.high] if of.step is None else [of.low, of.low + of.step, of.high]
    bounds = [int(bound) if float(bound).is_integer() else bound for bound in ends]
    return next((fault for bound in bounds if (fault := judge(name, bound))), None)
