"""What the types cannot say: names that must exist, things that contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.scenarios.command_check import check_command
from orchestrator.scenarios.faked_check import check_faked
from orchestrator.scenarios.launch_check import launch_fault
from orchestrator.scenarios.nightly_check import nightly_fault
from orchestrator.scenarios.objective_check import check_objectives
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.span_check import span_fault
from orchestrator.scenarios.sweep_check import Fault, check_exclude, check_setting_names, check_zip
from orchestrator.scenarios.sweep_space import config_of, expand
from orchestrator.scenarios.workload_check import check_workloads
from orchestrator.searches.search_check import check_search
from orchestrator.searches.search_space import search_space
from orchestrator.sglang.dialect import release_numbers
from orchestrator.sglang.options import SettingsFault, canonical_name

# Of a space of more combinations some can be served, or its search says why none.
_MOST_DRAWS = 200


def check_scenario(scenario: Scenario) -> Fault | None:
    """The first fault, as (path of keys, message), or None."""
    checks: tuple[Callable[[Scenario], Fault | None], ...] = (
        _check_engine,
        _check_version,
        launch_fault,
        check_command,
        _check_slots,
        span_fault,
        check_setting_names,
        check_faked,
        check_zip,
        check_exclude,
        check_workloads,
        _check_measure,
        check_objectives,
        check_search,
        _check_configs,
    )
    for check in checks:
        fault = check(scenario)
        if fault:
            return fault
    of_engine = (_check_engine, _check_version, launch_fault, check_command, _check_slots, span_fault)
    return nightly_fault(scenario, (*of_engine, check_setting_names, check_faked))


def _check_engine(scenario: Scenario) -> Fault | None:
    engine = scenario.engine
    if engine.kind == "attach" and scenario.measure.repeats > 1:
        return ("measure", "repeats"), "are fresh server starts, and `attach` starts none"
    if engine.kind == "attach" and engine.url is None:
        return ("engine", "url"), "is missing; `attach` loads the server that runs there"
    if engine.kind != "attach" and engine.url is not None:
        return ("engine", "url"), f"is for kind `attach`; a server of kind `{engine.kind}` gets its address from us"
    if engine.kind == "attach" and (scenario.sweep.axes or scenario.sweep.zip or scenario.sweep.configs):
        return ("sweep",), "has settings to vary, but `attach` never starts a server; leave the sweep out"
    if engine.kind != "emulator":
        for key in ("profile", "faults", "noise", "start_speedup"):
            if getattr(engine, key) != type(engine).model_fields[key].default:
                return ("engine", key), f"is for the emulator, but engine.kind is `{engine.kind}`"
    return None


def _check_version(scenario: Scenario) -> Fault | None:
    engine = scenario.engine
    if engine.version is None:
        return None
    if engine.kind != "sglang":
        return ("engine", "version"), f"is for kind `sglang`, but engine.kind is `{engine.kind}`"
    if not release_numbers(engine.version):
        return ("engine", "version"), f"is '{engine.version}'; write an SGLang version such as 0.5.15"
    return None


def _check_slots(scenario: Scenario) -> Fault | None:
    slots = scenario.slots
    if slots.emulated_gpus and scenario.engine.kind != "emulator":
        return ("slots", "emulated_gpus"), f"is for the emulator, but engine.kind is `{scenario.engine.kind}`"
    if slots.emulated_gpus and slots.gpus > slots.emulated_gpus:
        return ("slots", "gpus"), f"is {slots.gpus}, but slots.emulated_gpus gives only {slots.emulated_gpus}"
    if slots.gpus and slots.per_host is not None:
        return ("slots", "per_host"), "is for slots without GPUs; with GPUs a host has as many slots as its GPUs allow"
    if slots.gpus == 0 and scenario.engine.kind == "sglang" and scenario.engine.settings.get("device") != "cpu":
        return ("slots", "gpus"), "is 0, which needs `device: cpu` in engine.settings"
    return None


def _check_measure(scenario: Scenario) -> Fault | None:
    measure = scenario.measure
    if (measure.duration_s is None) == (measure.requests is None):
        both = measure.duration_s is not None
        return ("measure",), f"wants one of duration_s and requests{', not both' if both else ''}"
    return None


def _check_configs(scenario: Scenario) -> Fault | None:
    if scenario.search.method == "pairs":  # looked at with `nightly`
        return None
    if scenario.search.method == "optuna":
        return _check_draws(scenario) or _check_reference(scenario)
    count = 0
    try:
        for _ in expand(scenario):
            count += 1
    except SettingsFault as fault:
        included = _faulty_include(scenario, canonical_name(fault.name))
        return included or _place_of(scenario, fault.name), fault.message
    return _check_reference(scenario) if count else (("sweep", "exclude"), "leaves no config to try")


def _check_draws(scenario: Scenario) -> Fault | None:
    """A draw that cannot be served is drawn again; some must be left. A large space is not looked through."""
    space, why = search_space(scenario), ""
    for draw in space.draws(_MOST_DRAWS) or ():
        made = space.make(draw)
        if not isinstance(made, str):
            return None
        why = f": {', '.join(f'{name}={value}' for name, value in draw.items())} {made}"
    return (("sweep",), f"leaves no config to try{why}") if why else None


def _check_reference(scenario: Scenario) -> Fault | None:
    reference = scenario.measure.reference
    if isinstance(reference, str):
        return None
    try:
        config_of(scenario, reference)
    except SettingsFault as fault:
        named = [key for key in reference if canonical_name(key) == canonical_name(fault.name)]
        return ("measure", "reference", *named[:1]), fault.message
    return None


def _faulty_include(scenario: Scenario, name: str) -> tuple[str | int, ...]:
    """The included config that cannot be served for a setting: others may have it too, and be sound. Empty for none."""
    for i, config in enumerate(scenario.sweep.include):
        try:
            config_of(scenario, dict(config))
        except SettingsFault as fault:
            if canonical_name(fault.name) == name:
                return ("sweep", "include", i, *[key for key in config if canonical_name(key) == name][:1])
    return ()


def _place_of(scenario: Scenario, name: str) -> tuple[str | int, ...]:
    """Where a setting is given: in the sweep before the base, since the sweep is what varies."""
    same = canonical_name(name)
    for key in scenario.sweep.axes:
        if canonical_name(key) == same:
            return ("sweep", "axes", key)
    for i, group in enumerate(scenario.sweep.zip):
        for key in group:
            if canonical_name(key) == same:
                return ("sweep", "zip", i, key)
    for part in ("configs", "include"):
        for i, config in enumerate(getattr(scenario.sweep, part)):
            for key in config:
                if canonical_name(key) == same:
                    return ("sweep", part, i, key)
    return ("engine", "settings", name)
