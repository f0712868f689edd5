"""Percentiles that a scenario names and its points cannot support: told before anything is measured. Pure."""

from __future__ import annotations

from orchestrator.aim import level_of
from orchestrator.limits import parse_limit
from orchestrator.metric_names import parts, values_needed
from orchestrator.scenario import Scenario
from orchestrator.scenario_objective import Criterion
from orchestrator.trial import LoadLevel


def thin_percentiles(scenario: Scenario) -> list[str]:
    """One text for each objective, limit or tie-breaker whose percentile will have no value, with what to do."""
    told = []
    for i, objective in enumerate(scenario.objectives):
        told += _thin(scenario, f"objectives[{i}]", _metric(objective), level_of(objective.at))
        for j, text in enumerate(objective.limits):
            limit = parse_limit(text)
            where = f"objectives[{i}].limits[{j}]"
            told += _thin(scenario, where, limit.metric, limit.level or level_of(objective.at))
        for j, breaker in enumerate(objective.tie_breakers):
            told += _thin(scenario, f"objectives[{i}].tie_breakers[{j}]", _metric(breaker), level_of(breaker.at))
    return told


def _metric(criterion: Criterion) -> str:
    return criterion.maximize or criterion.minimize or ""


def _thin(scenario: Scenario, where: str, metric: str, level: LoadLevel) -> list[str]:
    needed, most = values_needed(metric), most_requests(scenario, level)
    gaps = (parts(metric) or ("", ""))[0] == "chunk_gap_ms"
    if gaps or most is None or most >= needed:
        return []
    return [
        f"{where}: {metric} needs {needed} requests, a point at {level} has at most {most}: it will have no value; "
        f"give measure.requests {needed} or more, or a longer measure.duration_s"
    ]


def most_requests(scenario: Scenario, level: LoadLevel) -> int | None:
    """How many requests a point can have; None where only the server's speed decides."""
    bounds = [] if scenario.measure.requests is None else [scenario.measure.requests]
    if scenario.measure.duration_s is not None and level.kind == "rate":
        bounds.append(max(round(level.value * scenario.measure.duration_s), 1))
    return min(bounds, default=None)
