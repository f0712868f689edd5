"""Objectives and fronts in words, as `specsweep plan` shows them: what a preset came to, what is searched. Pure."""

from __future__ import annotations

from typing import Any

from orchestrator.objectives.aim import Aim, aim_of, front_aims
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.plural import plural
from orchestrator.rankings.trial_facts import rate_goal
from orchestrator.scenarios.scenario import Scenario
from orchestrator.shown_text import capitalised


def objective_texts(scenario: Scenario) -> list[str]:
    """One for each objective, front and search over rates."""
    default = scenario.workloads[0].name
    told = [f"Objective {o.name}: {_objective(o, o.workload or default)}" for o in scenario.objectives]
    for front in scenario.pareto:
        axes = " against ".join(map(_aim, front_aims(front, default)))
        told.append(f"Front {front.name}: {axes}{_limits(front.limits)}")
    for workload in scenario.workloads:
        if (goal := rate_goal(workload)) is not None:
            told.append(
                f"Workload {workload.name}: the highest of {len(goal.rates())} rates from {goal.low_rps:g} to "
                f"{goal.high_rps:g} req/s at which {goal.attainment:.0%} of requests keep the slo is searched in each "
                f"trial, with at most {goal.most_probes} points a rate"
            )
    note = cost_note(scenario)
    return told if note is None else [*told, capitalised(note)]


def cost_note(scenario: Scenario) -> str | None:
    """In what cost is counted, if anything looks at it."""
    slots = scenario.slots
    default = scenario.workloads[0].name
    aims = [
        aim for o in scenario.objectives for aim in (aim_of(o, default), *(aim_of(t, default) for t in o.tie_breakers))
    ]
    aims += [aim for front in scenario.pareto for aim in front_aims(front, default)]
    if slots.gpu_hour_cost is None or not any("cost" in reading.metric for aim in aims for reading in aim.readings):
        return None
    price = f"{slots.gpu_hour_cost:g} {slots.currency}".rstrip()
    currency = slots.currency or "the unit of slots.gpu_hour_cost"
    return f"cost is in {currency}: {price} an hour for each of {plural(slots.server_gpus, 'GPU')}"


def objectives_json(scenario: Scenario) -> list[dict[str, Any]]:
    """The objectives as they count, presets written out."""
    return [objective.model_dump(exclude_none=True) for objective in scenario.objectives]


def _objective(objective: Objective, workload: str) -> str:
    preset = f"(preset {objective.preset}) " if objective.preset else ""
    ties = "; ".join(_aim(aim_of(breaker, workload)) for breaker in objective.tie_breakers)
    near = f"; near-ties within {objective.near_tie:.1%} by: {ties}" if ties else ""
    return f"{preset}{_aim(aim_of(objective, workload))}{_limits(objective.limits)}{near}"


def _aim(aim: Aim) -> str:
    return f"{'highest' if aim.maximize else 'lowest'} {aim}"


def _limits(limits: list[str]) -> str:
    return f", where {' and '.join(limits)}" if limits else ""
