"""What the types cannot say: names that must exist, things that contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.limits import parse_limit
from orchestrator.metric_names import METRICS
from orchestrator.options import canonical_name, nearest, setting_fault
from orchestrator.scenario import At, Criterion, Scenario, Workload
from orchestrator.settings import SettingsFault
from orchestrator.sweep_space import expand, is_comparison

Fault = tuple[tuple[str | int, ...], str]

NEEDS_SLO = frozenset({"goodput_rps", "attainment"})
DATASETS = ("random_text", "code", "repetitive", "random_ids")


def check_scenario(scenario: Scenario) -> Fault | None:
    """The first fault, as (path of keys, message), or None."""
    checks: tuple[Callable[[Scenario], Fault | None], ...] = (
        _check_engine,
        _check_slots,
        _check_setting_names,
        _check_zip,
        _check_exclude,
        _check_workloads,
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


def _check_setting_names(scenario: Scenario) -> Fault | None:
    for name, value in scenario.engine.settings.items():
        fault = setting_fault(name, value)
        if fault:
            return ("engine", "settings", name), fault
    groups: list[tuple[tuple[str | int, ...], dict[str, list[Any]]]] = [(("sweep", "axes"), scenario.sweep.axes)]
    groups += [(("sweep", "zip", i), group) for i, group in enumerate(scenario.sweep.zip)]
    for path, group in groups:
        fault_in_group = _check_axes(path, group)
        if fault_in_group:
            return fault_in_group
    for part in ("configs", "include"):
        for i, config in enumerate(getattr(scenario.sweep, part)):
            for name, value in config.items():
                fault = setting_fault(name, value)
                if fault:
                    return ("sweep", part, i, name), fault
    return _check_axis_twice(groups)


def _check_axes(path: tuple[str | int, ...], group: dict[str, list[Any]]) -> Fault | None:
    for name, values in group.items():
        if not values:
            return (*path, name), "is an empty axis; give at least one value, or leave it out"
        for i, value in enumerate(values):
            fault = setting_fault(name, value)
            if fault:
                return (*path, name, i), fault
            if value in values[:i] and any(value == v and type(value) is type(v) for v in values[:i]):
                return (*path, name, i), f"has {value!r} twice"
    return None


def _check_axis_twice(groups: list[tuple[tuple[str | int, ...], dict[str, list[Any]]]]) -> Fault | None:
    seen: dict[str, str] = {}
    for path, group in groups:
        for name in group:
            canonical = canonical_name(name)
            if canonical in seen:
                return (*path, name), f"is varied twice (also as '{seen[canonical]}')"
            seen[canonical] = name
    return None


def _check_zip(scenario: Scenario) -> Fault | None:
    for i, group in enumerate(scenario.sweep.zip):
        lengths = {name: len(values) for name, values in group.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {n}" for name, n in lengths.items())
            return ("sweep", "zip", i), f"has lists of different lengths: {shown}"
    return None


def _check_exclude(scenario: Scenario) -> Fault | None:
    varied = {canonical_name(n) for n in scenario.sweep.axes}
    varied |= {canonical_name(n) for group in scenario.sweep.zip for n in group}
    varied |= {canonical_name(n) for config in scenario.sweep.configs for n in config}
    for i, condition in enumerate(scenario.sweep.exclude):
        for name, wanted in condition.items():
            path = ("sweep", "exclude", i, name)
            if canonical_name(name) not in varied:
                hint = nearest(canonical_name(name), sorted(varied))
                meant = f"; did you mean '{hint}'?" if hint else ""
                return path, f"is not varied by this sweep{meant}"
            values = wanted if isinstance(wanted, list) else [wanted]
            if any(isinstance(v, str) and v.strip()[:1] in tuple("<>=!") and not is_comparison(v) for v in values):
                return path, f'is {wanted!r}; write a value, a list of values, or a comparison such as ">= 8"'
    return None


def _check_workloads(scenario: Scenario) -> Fault | None:
    names: set[str] = set()
    for i, workload in enumerate(scenario.workloads):
        path = ("workloads", i)
        if workload.name in names:
            return (*path, "name"), f"'{workload.name}' is used twice; objectives refer to workloads by name"
        names.add(workload.name)
        fault = _check_levels(path, workload) or _check_prompts(path, workload)
        if fault:
            return fault
        if workload.slo is not None and not workload.slo.limits():
            return (*path, "slo"), "has no limit; give ttft_ms, tpot_ms or e2e_ms"
    return None


def _check_levels(path: tuple[str | int, ...], workload: Workload) -> Fault | None:
    if not workload.concurrency and not workload.rates:
        return path, "has no load level; give `concurrency: [...]` or `rates: [...]`"
    for key in ("concurrency", "rates"):
        levels = getattr(workload, key)
        if len(set(levels)) < len(levels):
            return (*path, key), f"has a level twice: {levels}"
    if workload.max_concurrency is not None and not workload.rates:
        return (*path, "max_concurrency"), "is for open loop; with `concurrency` the level is the limit"
    return None


def _check_prompts(path: tuple[str | int, ...], workload: Workload) -> Fault | None:
    if workload.dataset not in DATASETS and not workload.dataset.startswith("file:"):
        hint = nearest(workload.dataset, list(DATASETS))
        meant = f"; did you mean '{hint}'?" if hint else ""
        return (*path, "dataset"), f"is '{workload.dataset}', allowed: {', '.join(DATASETS)}, file:PATH{meant}"
    if workload.dataset == "random_ids" and workload.api != "generate":
        return (*path, "dataset"), "random_ids sends token ids, which only api `generate` takes"
    if workload.shared_prefix_tokens >= workload.input_tokens:
        return (*path, "shared_prefix_tokens"), f"must be below input_tokens {workload.input_tokens}"
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
    if (at.concurrency is None) == (at.rate is None):
        return path, "wants one of concurrency and rate"
    levels: list[Any] = list(workload.concurrency if at.concurrency is not None else workload.rates)
    wanted = at.concurrency if at.concurrency is not None else at.rate
    if wanted not in levels:
        key = "concurrency" if at.concurrency is not None else "rate"
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
    if limit.level is not None and workload is not None:
        levels = workload.concurrency if limit.level.kind == "concurrency" else workload.rates
        if limit.level.value not in levels:
            return path, f"looks at {limit.level}, which workload '{workload.name}' does not measure"
    return None


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
