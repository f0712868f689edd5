"""What a search is going to do, as far as that is sure before it has seen anything. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.objectives.aim import TrialPoints
from orchestrator.planning.planner import is_probed, point_specs
from orchestrator.plural import plural
from orchestrator.scenarios.scenario import Scenario
from orchestrator.searches.ceiling_lines import ceiling_lines
from orchestrator.searches.halving_decision import first_count
from orchestrator.searches.memory_order import directions_with
from orchestrator.searches.point_need import goals_of, point_need
from orchestrator.searches.search_of import judge_of, optuna_rules, race_rules
from orchestrator.trial import EngineConfig


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Bounds of the starts on each class of hosts; `points` of a trial in the order in which they are asked first."""

    method: str
    configs: int
    least_starts: int
    most_starts: int
    points: tuple[str, ...]
    may_spare: bool

    def as_json(self) -> dict[str, Any]:
        """For `plan --json`."""
        names = ("method", "configs", "least_starts", "most_starts", "may_spare")
        return {**{name: getattr(self, name) for name in names}, "points": list(self.points)}

    def lines(self, server_hours_each: float, slots: int) -> list[str]:
        """For people; `server_hours_each` is what a start with all its points takes, on so many slots at once."""
        least, most = (n * server_hours_each for n in (self.least_starts, self.most_starts))
        rounds = (math.ceil(n / max(1, slots)) for n in (self.least_starts, self.most_starts))
        whole = " to ".join(dict.fromkeys(f"{60 * n * server_hours_each:.1f}" for n in rounds))
        asked = f"{plural(self.configs, 'config')} in question" if self.configs else "draws from the axes and the space"
        told = [
            f"Search {self.method}: {asked}, from {self.least_starts} to {self.most_starts} starts "
            f"({least:.2f} to {most:.2f} server-hours with all points, done in {whole} min); results decide which"
        ]
        if len(self.points) > 1:
            spared = "; what cannot matter any more is not measured" if self.may_spare else ""
            told.append(f"Points of a start, in this order: {', '.join(self.points)}{spared}")
        return told


def search_plan(scenario: Scenario, configs: Sequence[EngineConfig]) -> SearchPlan | None:
    """None for a grid, whose plan says all."""
    keys = scenario.search
    if keys.method == "grid":
        return None
    least, most = _starts(scenario, configs)
    judge = judge_of(scenario, configs)
    planned = [(spec.workload, spec.level) for spec in point_specs(scenario)]
    if judge is not None:
        fresh = TrialPoints(configs[0].config_id, "", "", {})
        planned = list(point_need(goals_of(scenario), (), fresh, planned, judge).wanted)
    named = len(scenario.workloads) > 1
    points = [f"{workload} {level}" if named else str(level) for workload, level in planned]
    points += ["rates as max_rate says"] if is_probed(scenario) else []
    count = 0 if keys.method == "optuna" and keys.space else len(configs)
    return SearchPlan(keys.method, count, least, most, tuple(points), judge is not None)


def _starts(scenario: Scenario, configs: Sequence[EngineConfig]) -> tuple[int, int]:
    keys, count = scenario.search, len(configs)
    if keys.method == "optuna":
        rules = optuna_rules(scenario)
        # The budget holds all starts; the best of each objective are started again at its end.
        draws = rules.first_starts if keys.space else min(count, rules.first_starts)
        return draws, min(rules.budget_trials, draws + rules.again * len(scenario.objectives))
    if keys.method == "pairs" and scenario.nightly is not None:
        return count * scenario.nightly.pairs, count * scenario.nightly.most_pairs
    if keys.method == "ceiling":
        lines = ceiling_lines(configs, keys.knobs, directions_with(keys.directions))
        edges = sum(len(line.cells) * (2 if line.interval else 1) for line in lines)
        return len(lines), count + 2 * keys.verify * edges
    least = min(count, first_count(race_rules(scenario, configs))) if keys.screen else count
    most = count * keys.max_repeats
    if keys.budget_trials is not None:
        least, most = min(least, keys.budget_trials), min(most, keys.budget_trials)
    return least, most
