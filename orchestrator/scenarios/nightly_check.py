"""What cannot be right in `nightly`, and what either of its builds makes wrong in the rest of the scenario. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.points.metric_names import METRICS, START_S
from orchestrator.scenarios.engine_build import BUILDS, build_of, of_build, with_image
from orchestrator.scenarios.objective_check import NEEDS_SLO
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_nightly import Nightly
from orchestrator.scenarios.sweep_check import Fault
from orchestrator.scenarios.sweep_space import build_pairs
from orchestrator.sglang.options import SettingsFault, canonical_name, did_you_mean

Check = Callable[[Scenario], Fault | None]
# Of every night, whatever `metrics` names; they have floors of their own.
_ALWAYS = ("kv_tokens", START_S)


def nightly_fault(scenario: Scenario, checks: Sequence[Check]) -> Fault | None:
    """The first fault, as (path of keys, message); `checks` are those of an engine, asked for each build."""
    if (keys := scenario.nightly) is None:
        return None
    if scenario.engine.kind == "attach":
        return ("nightly",), "is for servers that Specsweep starts, and `attach` starts none"
    if keys.most_pairs < keys.pairs:
        return ("nightly", "most_pairs"), f"is {keys.most_pairs}, below pairs ({keys.pairs})"
    for build in BUILDS:
        fault = _build_fault(scenario, build, checks)
        if fault:
            return fault
    return _metric_fault(scenario, keys) or _config_fault(scenario)


def _build_fault(scenario: Scenario, build: str, checks: Sequence[Check]) -> Fault | None:
    told, place = build_of(scenario, build), ("nightly", build)
    assert told is not None
    if told.image and told.command:
        return (*place, "image"), "and command are given; the image stands in the command"
    if told.image and with_image(scenario.engine.command, told.image) is None:
        return (*place, "image"), "replaces the image of engine.command, which runs no container; give `command`"
    if told.faults and scenario.engine.kind != "emulator":
        return (*place, "faults"), f"is for the emulator, but engine.kind is `{scenario.engine.kind}`"
    for check in checks:
        fault = check(of_build(scenario, build))
        if fault is not None:
            return _of_build(fault, build, told.model_fields_set)
    return None


def _of_build(fault: Fault, build: str, given: set[str]) -> Fault:
    """A fault of the engine is told where the build gives that key; any other with the build in its message."""
    path, message = fault
    if len(path) > 1 and path[0] == "engine" and path[1] in given | ({"command"} if "image" in given else set()):
        key = "image" if path[1] == "command" and "command" not in given else path[1]
        return ("nightly", build, key, *(path[2:] if key == path[1] else ())), message
    return path, f"{message} (as nightly.{build} has it)"


def _metric_fault(scenario: Scenario, keys: Nightly) -> Fault | None:
    judged = [name for name, metric in METRICS.items() if metric.direction != "none"]
    for i, name in enumerate(keys.metrics):
        if name not in judged:
            why = "has no better side" if name in METRICS else f"is not a metric{did_you_mean(name, judged)}"
            return ("nightly", "metrics", i), f"'{name}' {why}"
        if name in NEEDS_SLO and not any(workload.slo for workload in scenario.workloads):
            return ("nightly", "metrics", i), f"'{name}' needs the `slo` of a workload"
    for name in keys.floors:
        if name not in judged and name not in _ALWAYS:
            return ("nightly", "floors", name), f"is no metric that is compared{did_you_mean(name, judged)}"
    return None


def _config_fault(scenario: Scenario) -> Fault | None:
    assert scenario.nightly is not None
    configs = scenario.nightly.configs
    if configs == []:
        return ("nightly", "configs"), "is empty; give settings, or leave it out"
    try:
        build_pairs(scenario)
    except SettingsFault as fault:
        same = canonical_name(fault.name)
        for i, config in enumerate(configs if isinstance(configs, list) else ()):
            for name in config:
                if canonical_name(name) == same:
                    return ("nightly", "configs", i, name), fault.message
        for build in BUILDS:
            told = build_of(scenario, build)
            for name in told.settings if told else ():
                if canonical_name(name) == same:
                    return ("nightly", build, "settings", name), fault.message
        return ("nightly",), f"{fault.name}: {fault.message}"
    return None
