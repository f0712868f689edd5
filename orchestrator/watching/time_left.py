"""How long a run will still take: the plan's estimates, corrected by what trials took. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.trial import Trial
from orchestrator.watching.live_view import TimeLeft

# More trials than these are only added up: how they are shared out does not matter any more.
_MANY = 2000


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """How many starts a search may make in all, over all classes of hosts; `before` of them in earlier starts.

    `each_void`: how many more there are for each step `void` of the search, a pair of a night that is made anew.
    """

    least: int
    most: int
    before: int = 0
    each_void: int = 0

    def after_void(self) -> SearchBounds:
        """With what was started in vain added."""
        return replace(self, least=self.least + self.each_void, most=self.most + self.each_void)


class TrialTimes:
    """What trials took, and what others like them will take. Seconds."""

    def __init__(self) -> None:
        self._took: dict[tuple[str, str, int], float] = {}
        self._took_s = self._estimated_s = 0.0
        self._count = 0

    def learn(self, trial: Trial, took_s: float) -> None:
        """A trial was measured."""
        self._took[_kind(trial)] = took_s
        self._took_s, self._estimated_s = self._took_s + took_s, self._estimated_s + trial.estimated_s
        self._count += 1

    def expected_s(self, trial: Trial) -> float:
        """As long as its config took before, else the plan's estimate by how wrong it was so far."""
        known = self._took.get(_kind(trial))
        if known is not None:
            return known
        return trial.estimated_s * (self._took_s / self._estimated_s if self._estimated_s else 1.0)

    def mean_s(self, otherwise: Iterable[Trial]) -> float | None:
        """Of a trial; before any was measured, that of the estimates of others."""
        if self._count:
            return self._took_s / self._count
        estimates = [trial.estimated_s for trial in otherwise]
        return sum(estimates) / len(estimates) if estimates else None


def _kind(trial: Trial) -> tuple[str, str, int]:
    # Points have the id at hand; that of a config is hashed anew each time.
    config_id = trial.points[0].config_id if trial.points else trial.config.config_id
    return config_id, trial.host_class, len(trial.points)


def plan_left_s(
    times: TrialTimes, running: Sequence[tuple[Trial, float]], waiting: Sequence[Trial], slots_of: dict[str, int]
) -> float:
    """Seconds until the last trial of a plan is through. `running`: with the seconds that each runs already.

    `slots_of`: class of hosts -> slots that work on its trials; a class with none counts as one slot, which may come.
    """
    classes = {trial.host_class for trial in waiting} | {trial.host_class for trial, _ in running}
    ends = []
    for host_class in classes:
        busy = [max(times.expected_s(t) - since_s, 0.0) for t, since_s in running if t.host_class == host_class]
        rest = [times.expected_s(t) for t in waiting if t.host_class == host_class]
        ends.append(_makespan_s(busy, rest, max(1, slots_of.get(host_class, 0), len(busy))))
    return max(ends, default=0.0)


def _makespan_s(busy: Sequence[float], rest: list[float], slots: int) -> float:
    """When the last of the slots is through, if each takes the longest that waits."""
    if len(rest) > _MANY:
        return (sum(busy) + sum(rest)) / slots
    free = [*busy, *[0.0] * (slots - len(busy))]
    heapq.heapify(free)
    for length in sorted(rest, reverse=True):
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def search_left(
    mean_s: float, ended: int, waiting: int, running_s: Sequence[float], bounds: SearchBounds, slots: int
) -> TimeLeft:
    """By the bounds of its starts; what it has asked for is started whatever comes. `running_s`: since when each trial
    runs that does.
    """
    least = max(bounds.least - bounds.before - ended, waiting + len(running_s))
    most = max(bounds.most - bounds.before - ended, least)
    done_s = sum(min(since_s, mean_s) for since_s in running_s)
    return TimeLeft(*((count * mean_s - done_s) / max(1, slots) for count in (least, most)))
