"""Objectives that look at what is not there: unknown metrics, workloads and load levels. Pure."""

from __future__ import annotations

from orchestrator.limits import parse_limit
from orchestrator.metric_names import METRICS
from orchestrator.options import nearest
from orchestrator.scenario import Scenario, Workload
from orchestrator.scenario_objective import At, Criterion
from orchestrator.sweep_check import Fault
from orchestrator.workload_check import measured_levels
from orchestrator.workload_traffic import load_levels

NEEDS_SLO = frozenset({"goodput_rps", "attainment"})


def check_objectives(scenario: Scenario) -> Fault | None:
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
