"""Which config leads each objective of a grid, while it runs. What searches ask for is scored where they are told."""

from __future__ import annotations

import queue
from collections.abc import Callable
from statistics import fmean

from orchestrator.happening import BestSoFar, Happening, TrialEnded
from orchestrator.outcome import Measured
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.searches.point_need import Goal
from orchestrator.searches.search import Scored
from orchestrator.supported_digits import plain
from orchestrator.sweeps.sweep import Watcher
from orchestrator.sweeps.trial_score import TrialScores, scored
from orchestrator.trial import Trial

# objective, class of hosts -> config asked -> its values, one a trial
_Values = dict[tuple[str, str], dict[str, list[float]]]


class GridLeaders:
    """A Watcher in front of another. Trials that were measured are scored when `look` is called, by another thread:
    that reads files, and what runs must not wait for it.
    """

    def __init__(
        self, scenario: Scenario, run: RunDirectory, watcher: Watcher, tell: Callable[[BestSoFar], None]
    ) -> None:
        self._watcher, self._tell = watcher, tell
        self._scores = TrialScores(scenario, run)
        self._ended: queue.SimpleQueue[Trial] = queue.SimpleQueue()
        self._values: _Values = {}
        self._told: dict[tuple[str, str], BestSoFar] = {}
        self._is_needed = not run.is_adaptive
        if self._is_needed:
            for trial in run.plan(scenario, ()).trials:  # of earlier starts of the run
                if run.state.outcomes.get(trial.trial_id, {}).get("outcome") == "measured":
                    self._ended.put(trial)

    def saw(self, slot: str, happening: Happening) -> None:
        """Hand it on; remember what is to be scored."""
        if self._is_needed and isinstance(happening, TrialEnded) and isinstance(happening.outcome, Measured):
            self._ended.put(happening.trial)
        self._watcher.saw(slot, happening)

    def look(self) -> None:
        """Score what has ended since the last time, and tell what leads now."""
        while not self._ended.empty():
            trial = self._ended.get()
            told = scored(self._scores.goals, self._scores.points_of(trial.asked_id, trial))
            if isinstance(told, Scored):
                self._take_in(trial, told)

    def _take_in(self, trial: Trial, told: Scored) -> None:
        for goal in self._scores.goals:
            own = told.values[goal.name]
            if own.value is not None and own.passes:
                values = self._values.setdefault((goal.name, trial.host_class), {})
                values.setdefault(trial.asked_id, []).append(own.value)
                self._tell_leader(goal, trial.host_class, values)

    def _tell_leader(self, goal: Goal, host_class: str, values: dict[str, list[float]]) -> None:
        means = {config_id: fmean(of) for config_id, of in values.items()}
        best = (max if goal.aim.maximize else min)(means, key=lambda config_id: means[config_id])
        leads = best_so_far(goal, best, means[best], host_class)
        if self._told.get((goal.name, host_class)) != leads:
            self._told[goal.name, host_class] = leads
            self._tell(leads)


def best_so_far(goal: Goal, config_id: str, value: float, host_class: str) -> BestSoFar:
    """The lead of a config, in words."""
    where = goal.aim.where if goal.aim.where.startswith("at ") else ""  # a formula would fill the line
    return BestSoFar(goal.name, config_id, f"{plain(value)} {goal.aim.unit} {where}".strip(), host_class, value)
