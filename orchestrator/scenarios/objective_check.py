"""Objectives that look at what is not there: unknown metrics, workloads and load levels; expressions that make no
sense. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.objectives.aim import is_fact
from orchestrator.objectives.expression import Expression, ExpressionFault, Reading, parse, readings
from orchestrator.objectives.expression_sense import direction, unit
from orchestrator.objectives.limits import parse_limit
from orchestrator.objectives.scenario_objective import At, Criterion, Objective
from orchestrator.points.metric_names import RANKABLE, TRIAL_METRICS, WORKLOAD_METRICS
from orchestrator.points.point_metrics import OF_POWER
from orchestrator.scenarios.objective_presets import PRESETS, preset_fault
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.scenarios.sweep_check import Fault
from orchestrator.scenarios.workload_check import measured_levels
from orchestrator.scenarios.workload_traffic import load_levels
from orchestrator.sglang.options import did_you_mean
from orchestrator.trial import LoadLevel

NEEDS_SLO = frozenset({"goodput_rps", "attainment", "attainment_n"})
NEEDS_COST = frozenset({"cost_per_million_output_tokens"})
NEEDS_GPUS = NEEDS_COST | {"output_throughput_tok_s_per_gpu", *OF_POWER}

_Path = tuple[str | int, ...]


def check_objectives(scenario: Scenario) -> Fault | None:
    names: set[str] = set()
    for i, objective in enumerate(scenario.objectives):
        path: _Path = ("objectives", i)
        if objective.name in names:
            return (*path, "name"), f"'{objective.name}' is used twice"
        names.add(objective.name)
        fault = _check_objective(scenario, path, objective)
        if fault:
            return fault
    return _check_fronts(scenario, names)


def _check_fronts(scenario: Scenario, names: set[str]) -> Fault | None:
    for i, front in enumerate(scenario.pareto):
        path: _Path = ("pareto", i)
        if front.name in names:
            return (*path, "name"), f"'{front.name}' is used twice, among objectives and fronts"
        names.add(front.name)
        axes = front.criteria
        for j, axis in enumerate(axes):
            fault = check_criterion(scenario, (*path, "axes", j), axis)
            if fault:
                return fault
        fault = _check_limits(scenario, path, front.limits, front.gated)
        if fault:
            return fault
    return None


def _check_objective(scenario: Scenario, path: _Path, objective: Objective) -> Fault | None:
    if objective.preset is not None and objective.maximize is None and objective.minimize is None:
        return _unresolved(scenario, path, objective)
    fault = check_criterion(scenario, path, objective)
    if fault:
        return fault
    fault = _check_limits(scenario, path, objective.limits, objective)
    if fault:
        return fault
    for j, tie_breaker in enumerate(objective.tie_breakers):
        fault = check_criterion(scenario, (*path, "tie_breakers", j), tie_breaker, objective.workload)
        if fault:
            return fault
    return None


def _unresolved(scenario: Scenario, path: _Path, objective: Objective) -> Fault:
    """Why a preset came to nothing."""
    preset = objective.preset or ""
    if preset not in PRESETS:
        meant = did_you_mean(preset, list(PRESETS))
        return (*path, "preset"), f"is '{preset}', allowed: {', '.join(PRESETS)}{meant}"
    workload = find_workload(scenario, objective.workload)
    if workload is None:
        return _no_workload(scenario, path, objective.workload)
    return (*path, "preset"), preset_fault(preset, workload.name)


def _no_workload(scenario: Scenario, path: _Path, name: str | None) -> Fault:
    known = ", ".join(w.name for w in scenario.workloads)
    if name is None:
        return path, f"must say which workload it looks at: {known}"
    return (*path, "workload"), f"is '{name}', but the workloads are: {known}"


def check_criterion(
    scenario: Scenario, path: _Path, criterion: Criterion, inherited: str | None = None
) -> Fault | None:
    """`inherited`: the workload that counts where it names none."""
    if (criterion.maximize is None) == (criterion.minimize is None):
        return path, "wants one of maximize and minimize"
    key = "maximize" if criterion.maximize is not None else "minimize"
    text = criterion.maximize or criterion.minimize or ""
    try:
        expression = parse(text)
    except ExpressionFault as fault:
        return (*path, key), str(fault)
    named = criterion.workload or inherited
    for reading in readings(expression):
        found = _check_reading(scenario, path, key, reading, criterion, named)
        if found:
            return found
    return _check_sense((*path, key), expression, key)


def _check_reading(
    scenario: Scenario, path: _Path, key: str, reading: Reading, criterion: Criterion, named: str | None
) -> Fault | None:
    if reading.metric not in RANKABLE:
        return (*path, key), _unknown_metric(reading.metric)
    if reading.metric in TRIAL_METRICS:
        told = f"looks at {reading}, but {reading.metric} is a fact of a server's start: write it without @ and of"
        return ((*path, key), told) if reading.level or reading.workload else None
    workload = find_workload(scenario, reading.workload or named)
    if workload is None:
        if reading.workload is None:
            return _no_workload(scenario, path, named)
        known = ", ".join(w.name for w in scenario.workloads)
        return (*path, key), f"looks at {reading}, but the workloads are: {known}"
    fault = _needs(scenario, workload, reading.metric)
    if fault:
        return (*path, key), f"is '{reading.metric}', which {fault}"
    if is_fact(reading.metric):
        told = f"looks at {reading}, but {reading.metric} is searched over all rates: write it without @"
        return ((*path, key), told) if reading.level else None
    if reading.level is None:
        return _check_open_level(path, criterion.at, workload, reading)
    if _measured(reading.level, workload):
        return None
    return (*path, key), f"looks at {reading}, but workload '{workload.name}' is measured at: {_levels(workload)}"


def _needs(scenario: Scenario, workload: Workload, metric: str) -> str | None:
    """What a metric needs that the scenario does not give."""
    if metric in NEEDS_SLO and workload.slo is None:
        return f"needs limits per request: give workload '{workload.name}' an slo"
    if metric in WORKLOAD_METRICS and workload.max_rate is None:
        return f"is searched for: give workload '{workload.name}' max_rate, e.g. {{low: 1, high: 64}}"
    if metric in NEEDS_COST and scenario.slots.gpu_hour_cost is None:
        return "needs the price of a GPU for an hour: give slots.gpu_hour_cost"
    if metric in NEEDS_GPUS and scenario.slots.gpus == 0:
        return "is per GPU, but slots.gpus is 0"
    return None


def _levels(workload: Workload) -> str:
    return ", ".join(map(str, load_levels(workload))) or "no fixed level"


def _check_open_level(path: _Path, at: At | None, workload: Workload, reading: Reading) -> Fault | None:
    if at is None:
        return path, f"does not say at which load level it looks: give `at`, or write {reading.metric} @ C=1"
    return _check_at((*path, "at"), at, workload)


def _check_sense(path: _Path, expression: Expression, key: str) -> Fault | None:
    try:
        way = direction(expression)
        unit(expression)
    except ValueError as fault:
        return path, str(fault)
    if not list(readings(expression)):
        return path, "looks at no metric; name one of docs/metrics.md"
    if way not in ("none", key[:3]):
        other = "minimize" if key == "maximize" else "maximize"
        better = "larger" if way == "max" else "smaller"
        return path, f"is better when {better}; write {other}"
    return None


def _unknown_metric(metric: str) -> str:
    return f"is '{metric}', which is not a metric{did_you_mean(metric, list(RANKABLE))}"


def _check_at(path: _Path, at: At, workload: Workload) -> Fault | None:
    given = {key: value for key, value in at.model_dump().items() if value is not None}
    if len(given) != 1:
        return path, "wants one of concurrency, rate and trace"
    ((key, wanted),) = given.items()
    levels = measured_levels(workload, key)
    if wanted not in levels:
        shown = ", ".join(f"{level:g}" for level in levels) or "none"
        return (*path, key), f"is {wanted:g}, but workload '{workload.name}' is measured at: {shown}"
    return None


def _check_limits(scenario: Scenario, path: _Path, texts: Sequence[str], objective: Criterion) -> Fault | None:
    """The gates of an objective or a front."""
    faults = (_check_limit(scenario, (*path, "limits", i), text, objective) for i, text in enumerate(texts))
    return next(filter(None, faults), None)


def _check_limit(scenario: Scenario, path: _Path, text: str, objective: Criterion) -> Fault | None:
    try:
        limit = parse_limit(text)
    except ValueError as error:
        return path, str(error)
    if limit.metric not in RANKABLE:
        return path, _unknown_metric(limit.metric)
    workload = find_workload(scenario, objective.workload)
    if is_fact(limit.metric) and limit.level is not None:
        return path, f"looks at {limit.metric} @ {limit.level}, which has no load level: write it without @"
    if workload is None:
        return None
    fault = _needs(scenario, workload, limit.metric)
    if fault:
        return path, f"looks at {limit.metric}, which {fault}"
    if is_fact(limit.metric) or (limit.level is not None and _measured(limit.level, workload)):
        return None
    if limit.level is None:
        told = f"does not say at which load level it holds: write '{limit.text} @ C=1'"
        return None if _has_level(objective) else (path, told)
    return path, f"looks at {limit.level}, but workload '{workload.name}' is measured at: {_levels(workload)}"


def _measured(level: LoadLevel, workload: Workload) -> bool:
    return level.value in measured_levels(workload, level.kind)


def _has_level(objective: Criterion) -> bool:
    """Whether the objective has one load level of its own, at which its gates hold."""
    if objective.at is not None:
        return True
    named = {r.level for r in readings(parse(objective.maximize or objective.minimize or "")) if r.level}
    return len(named) == 1


def find_workload(scenario: Scenario, name: str | None) -> Workload | None:
    """The named workload, or the only one if no name is given."""
    if name is None:
        return scenario.workloads[0] if len(scenario.workloads) == 1 else None
    return next((w for w in scenario.workloads if w.name == name), None)
