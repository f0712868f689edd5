"""Which points of a running trial can still matter, the one that decides most first. Pure.

A config that has lost an objective beyond doubt is not asked for its tie-breakers and limits; one that fails a limit
beyond doubt is not asked how fast it is. What no objective looks at is measured while the config is in the race.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.objectives.aim import Aim, TrialPoints, aim_of, is_fact
from orchestrator.objectives.limits import Limit, parse_limit
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.scenarios.scenario import Scenario
from orchestrator.trial import LoadLevel

# (workload, load level)
Place = tuple[str, LoadLevel]


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit and the metric at the level that it looks at."""

    limit: Limit
    aim: Aim


@dataclass(frozen=True, slots=True)
class Goal:
    """One objective as a search sees it. `near_tie`: share of the best within which `ties` decide."""

    name: str
    aim: Aim
    gates: tuple[Gate, ...] = ()
    ties: tuple[Aim, ...] = ()
    near_tie: float = 0.02


@dataclass(frozen=True, slots=True)
class PointNeed:
    """What is still to be measured in this trial, in order, and what is not: place -> why."""

    wanted: tuple[Place, ...]
    spared: Mapping[Place, str]


class Judge(Protocol):
    """Says what is beyond doubt."""

    def lost(self, goal: Goal, done: Sequence[TrialPoints], trial: TrialPoints) -> str | None:
        """Why this trial's config is beyond doubt behind the best of those that pass, and no near-tie."""

    def fails(self, gate: Gate, trial: TrialPoints) -> str | None:
        """Why this trial's config beyond doubt does not pass."""


def goal_of(objective: Objective, workload: str) -> Goal:
    """An objective's aims; `workload` is the one that counts where it names none."""
    aim = aim_of(objective, workload)
    limits = [parse_limit(text) for text in objective.limits]
    gates = tuple(Gate(limit, aim.limited(limit)) for limit in limits)
    return Goal(
        objective.name, aim, gates, tuple(aim_of(tie, workload) for tie in objective.tie_breakers), objective.near_tie
    )


def goals_of(scenario: Scenario) -> tuple[Goal, ...]:
    """All objectives; the first workload counts where one names none."""
    return tuple(goal_of(o, o.workload or scenario.workloads[0].name) for o in scenario.objectives)


def point_need(
    goals: Sequence[Goal], done: Sequence[TrialPoints], trial: TrialPoints, planned: Sequence[Place], judge: Judge
) -> PointNeed:
    """What of `planned` this trial still needs. `done`: all other trials so far; `trial`: what it measured itself.

    First what decides an objective or lets a config pass, then tie-breakers, then the rest; each as planned. Trials
    go by the id of the config that was asked, also where a repair of it was served.
    """
    out = {goal.name: _why_out(goal, done, trial, judge) for goal in goals}
    rank: dict[Place, int] = {}
    for goal in goals:
        for place, order in _looked_at(goal):
            if out[goal.name] is None:
                rank[place] = min(order, rank.get(place, order))
    in_race = not goals or any(why is None for why in out.values())
    left = [place for place in planned if place not in trial.points]
    wanted = sorted((p for p in left if in_race or p in rank), key=lambda p: rank.get(p, _NOBODY))
    told = "; ".join(dict.fromkeys(why for why in out.values() if why is not None))
    return PointNeed(tuple(wanted), {place: told for place in left if place not in wanted})


_DECIDES, _BREAKS_TIES, _NOBODY = range(3)


def _looked_at(goal: Goal) -> list[tuple[Place, int]]:
    decides = [goal.aim, *(gate.aim for gate in goal.gates)]
    return [(place, _DECIDES) for aim in decides for place in places_of_aim(aim)] + [
        (place, _BREAKS_TIES) for aim in goal.ties for place in places_of_aim(aim)
    ]


def places_of_aim(aim: Aim) -> tuple[Place, ...]:
    """The points that an aim needs for its value; none for facts of the trial."""
    found = [
        (reading.workload or aim.workload, reading.level or aim.level)
        for reading in aim.readings
        if not is_fact(reading.metric)
    ]
    return tuple(dict.fromkeys((workload, level) for workload, level in found if level is not None))


def _why_out(goal: Goal, done: Sequence[TrialPoints], trial: TrialPoints, judge: Judge) -> str | None:
    failed = next((why for gate in goal.gates if (why := judge.fails(gate, trial)) is not None), None)
    return failed or judge.lost(goal, done, trial)
