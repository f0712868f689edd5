"""What the trials of a run say beyond doubt: who has lost, who does not pass. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.objectives.aim import Aim, Observation, TrialPoints, observations
from orchestrator.searches.point_need import Gate, Goal
from orchestrator.searches.pooled_fit import Places, Spread, Standing, pooled_fit
from orchestrator.supported_digits import plain

# Standard deviations: one wrong word in 700 for a normal error.
SURE = 3.0
_MOST_KNOWN = 20
# A limit is failed beyond doubt by a third: percentiles of one trial vary more than its speed.
SURE_OF_LIMIT = math.log(4 / 3)


@dataclass
class Doubt:
    """A judge (`point_need.Judge`) by the pooled fit of all trials. Trials of unknown configs are not looked at."""

    places: Places
    spread: Spread = field(default_factory=Spread)
    _last: dict[tuple[Observation, ...], Standing] = field(default_factory=dict)

    def standing(self, aim: Aim, trials: Sequence[TrialPoints]) -> Standing | None:
        """The fit of an aim, None where there is nothing to fit or a value is not above 0."""
        known = set(self.places.config_ids)
        seen = [o for o in observations(aim, trials) if o.config_id in known]
        return self.standing_of(seen, maximize=aim.maximize)

    def standing_of(self, seen: Sequence[Observation], *, maximize: bool) -> Standing | None:
        if not seen or any(o.value <= 0 for o in seen):
            return None
        key = tuple(seen)
        if key not in self._last:  # asked for each objective and each point of a trial in turn
            if len(self._last) > _MOST_KNOWN:
                self._last.clear()
            self._last[key] = pooled_fit(seen, self.places, maximize=maximize, spread=self.spread)
        return self._last[key]

    def lost(self, goal: Goal, done: Sequence[TrialPoints], trial: TrialPoints) -> str | None:
        if goal.aim.of_trial(trial) is None:
            return None
        rivals = {t.config_id for t in done if self._may_lead(goal, t)} - {trial.config_id}
        standing = self.standing(goal.aim, [*done, trial]) if rivals else None
        if standing is None or trial.config_id not in standing.index:
            return None
        leader = standing.best(sorted(rivals))
        behind, sd = standing.behind(leader, [trial.config_id])
        if behind[0] - SURE * sd[0] <= -math.log1p(-goal.near_tie):
            return None
        return f"had lost {goal.aim} by {-math.expm1(-behind[0]):.0%}"

    def fails(self, gate: Gate, trial: TrialPoints) -> str | None:
        value, bound = gate.aim.of_trial(trial), gate.limit.bound
        if value is None or value <= 0 or bound <= 0 or gate.limit.holds(value):
            return None
        if abs(math.log(value / bound)) < SURE_OF_LIMIT:
            return None
        return f"had failed {gate.limit.text} (is {plain(value)})"

    def _may_lead(self, goal: Goal, trial: TrialPoints) -> bool:
        """Whether a trial has a value and no limit that it fails, as far as was measured."""
        value = goal.aim.of_trial(trial)
        if value is None or value <= 0 or trial.config_id not in self.places.config_ids:
            return False
        seen = [(gate.limit, gate.aim.of_trial(trial)) for gate in goal.gates]
        return all(value is None or limit.holds(value) for limit, value in seen)
