"""Percentiles that a scenario names and its points cannot support: told before anything is measured. Pure."""

from __future__ import annotations

from orchestrator.objectives.aim import Aim, aim_of
from orchestrator.objectives.limits import parse_limit
from orchestrator.points.metric_names import parts, values_needed
from orchestrator.scenarios.scenario import Scenario
from orchestrator.trial import LoadLevel


def thin_percentiles(scenario: Scenario) -> list[str]:
    """One text for each objective, limit or tie-breaker whose percentile will have no value, with what to do."""
    told: list[str] = []
    for i, objective in enumerate(scenario.objectives):
        aim = aim_of(objective, objective.workload or "")
        told += _thin_of(scenario, f"objectives[{i}]", aim)
        for j, text in enumerate(objective.limits):
            told += _thin_of(scenario, f"objectives[{i}].limits[{j}]", aim.limited(parse_limit(text)))
        for j, breaker in enumerate(objective.tie_breakers):
            told += _thin_of(scenario, f"objectives[{i}].tie_breakers[{j}]", aim_of(breaker, ""))
    return told


def _thin_of(scenario: Scenario, where: str, aim: Aim) -> list[str]:
    """Each metric that it looks at, once."""
    places = ((reading.metric, reading.level or aim.level) for reading in aim.readings)
    return [text for metric, level in dict.fromkeys(places) if level for text in _thin(scenario, where, metric, level)]


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
