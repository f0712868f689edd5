"""What the types cannot say: names that must exist, things that contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.command_check import check_command
from orchestrator.dialect import release_numbers
from orchestrator.faked_check import check_faked
from orchestrator.launch_check import launch_fault
from orchestrator.limits import parse_limit
from orchestrator.metric_names import METRICS
from orchestrator.options import SettingsFault, canonical_name, nearest
from orchestrator.scenario import At, Criterion, Scenario, Workload
from orchestrator.span_check import span_fault
from orchestrator.sweep_check import Fault, check_exclude, check_setting_names, check_zip
from orchestrator.sweep_space import expand
from orchestrator.workload_check import check_workloads, measured_levels
from orchestrator.workload_traffic import load_levels

NEEDS_SLO = frozenset({"goodput_rps", "attainment"})


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
        _check_objectives,
        _check_configs,
    )
    for check in checks:
        fault = check(scenario)
        if fault:
            return fault
    return None


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
        if engine.profile is not None:
            return ("engine", "profile"), f"is for the emulator, but engine.kind is `{engine.kind}`"
        if engine.faults is not None:
            return ("engine", "faults"), f"is for the emulator, but engine.kind is `{engine.kind}`"
        if engine.start_speedup != 1.0:
            return ("engine", "start_speedup"), f"is for the emulator, but engine.kind is `{engine.kind}`"
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


def _check_objectives(scenario: Scenario) -> Fault | None:
    names: set[str] = set()
    for i, objective in enumerate(scenario.objectives):
        path: tuple[str | int, ...] = ("objectives", i)
        if objective.name in names:
            return (*path, "name"), f"'{objective.name}' is used twice"
        names.add(objective.name)
        fault = _check_criterion(scenario, path, objective)
        if fault:
            return fault
        for j, limit in enumerate(objective.limits):
            fault = _check_limit(scenario, (*path, "limits", j), limit, objective)
            if fault:
                return fault
        for j, tie_breaker in enumerate(objective.tie_breakers):
            fault = _check_criterion(scenario, (*path, "tie_breakers", j), tie_breaker)
            if fault:
                return fault
    return None


def _check_criterion(scenario: Scenario, path: tuple[str | int, ...], criterion: Criterion) -> Fault | None:
    if (criterion.maximize is None) == (criterion.minimize is None):
        return path, "wants one of maximize and minimize"
    key = "maximize" if criterion.maximize is not None else "minimize"
    metric = criterion.maximize or criterion.minimize or ""
    if metric not in METRICS:
        return (*path, key), _unknown_metric(metric)
    workload = find_workload(scenario, criterion.workload)
    if workload is None:
        known = ", ".join(w.name for w in scenario.workloads)
        if criterion.workload is None:
            return path, f"must say which workload it looks at: {known}"
        return (*path, "workload"), f"is '{criterion.workload}', but the workloads are: {known}"
    if metric in NEEDS_SLO and workload.slo is None:
        return (*path, key), f"is '{metric}', which needs limits per request: give workload '{workload.name}' an slo"
    return _check_at((*path, "at"), criterion.at, workload)


def _unknown_metric(metric: str) -> str:
    hint = nearest(metric, list(METRICS))
    return f"is '{metric}', which is not a metric" + (f"; did you mean '{hint}'?" if hint else "")


def _check_at(path: tuple[str | int, ...], at: At, workload: Workload) -> Fault | None:
    given = {key: value for key, value in at.model_dump().items() if value is not None}
    if len(given) != 1:
        return path, "wants one of concurrency, rate and trace"
    ((key, wanted),) = given.items()
    levels = measured_levels(workload, key)
    if wanted not in levels:
        shown = ", ".join(f"{level:g}" for level in levels) or "none"
        return (*path, key), f"is {wanted:g}, but workload '{workload.name}' is measured at: {shown}"
    return None


def _check_limit(scenario: Scenario, path: tuple[str | int, ...], text: str, objective: Criterion) -> Fault | None:
    try:
        limit = parse_limit(text)
    except ValueError as error:
        return path, str(error)
    if limit.metric not in METRICS:
        return path, _unknown_metric(limit.metric)
    workload = find_workload(scenario, objective.workload)
    if limit.metric in NEEDS_SLO and workload is not None and workload.slo is None:
        return path, f"looks at {limit.metric}, which needs limits per request: give workload '{workload.name}' an slo"
    if limit.level is None or workload is None or limit.level.value in measured_levels(workload, limit.level.kind):
        return None
    shown = ", ".join(map(str, load_levels(workload)))
    return path, f"looks at {limit.level}, but workload '{workload.name}' is measured at: {shown}"


def find_workload(scenario: Scenario, name: str | None) -> Workload | None:
    """The named workload, or the only one if no name is given."""
    if name is None:
        return scenario.workloads[0] if len(scenario.workloads) == 1 else None
    return next((w for w in scenario.workloads if w.name == name), None)


def _check_configs(scenario: Scenario) -> Fault | None:
    count = 0
    try:
        for _ in expand(scenario):
            count += 1
    except SettingsFault as fault:
        return _place_of(scenario, fault.name), fault.message
    return None if count else (("sweep", "exclude"), "leaves no config to try")


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
