"""What the trials of a run say about the configs for one objective: estimates of every aim, and what is odd. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.estimation.drift_check import Drift, find_drifts, repeats_of
from orchestrator.estimation.estimates import Estimates, Kind, estimate
from orchestrator.objectives.aim import Aim, Observation, PointValue, TrialPoints, observations, trials_of
from orchestrator.objectives.aim_precision import precisions
from orchestrator.objectives.limits import Limit
from orchestrator.supported_digits import plain


@dataclass(frozen=True, slots=True)
class Spread:
    """What the intervals of a ranking come from. `kind` as of Estimates; `noise` is the standard deviation of one trial
    as a share of its value (None where nothing is known), `df` its degrees of freedom; `hosts` how much more than their
    average each host yields, as a share (empty for one host, and for values that are not all positive).
    """

    kind: Kind
    noise: float | None
    df: int
    hosts: tuple[tuple[str, float], ...] = ()


UNKNOWN = Spread("single", None, 0)


class Evidence:
    """The trials of each config. Blocks on hosts that drifted are left out where others measured the same."""

    def __init__(self, points: Iterable[PointValue], aim: Aim) -> None:
        self._trials = trials_of(points)
        self._of: dict[str, list[TrialPoints]] = {}
        for trial in self._trials:
            self._of.setdefault(trial.config_id, []).append(trial)
        self._estimates: dict[tuple[Aim, bool], Estimates] = {}
        self.drifts: tuple[Drift, ...] = find_drifts(observations(aim, self._trials), repeats_of(self._trials))
        self._left_out = {drift.host for drift in self.drifts if drift.left_out}
        self.main = self.estimates(aim, within_run=True)

    def estimates(self, aim: Aim, *, within_run: bool = False) -> Estimates:
        """The estimates of an aim, computed once. `within_run`: slices of single runs count where there is no more."""
        if (aim, within_run) not in self._estimates:
            seen = [s for s in observations(aim, self._trials) if s.host not in self._left_out]
            single = _single(seen)
            within = precisions(aim, self._trials) if within_run and single else None
            found = self._estimates[aim, within_run] = estimate(seen, maximize=aim.maximize, within=within)
            if not single:  # slices are not looked at
                self._estimates[aim, not within_run] = found
        return self._estimates[aim, within_run]

    def value(self, config_id: str, aim: Aim) -> float | None:
        """The config's estimate, None if nothing valid was measured."""
        found = self.estimates(aim)
        return found.value(config_id) if config_id in found.index else None

    def counted(self, config_id: str) -> tuple[int, int]:
        """(trials with a value, hosts they ran on)."""
        i = self.main.index.get(config_id)
        return (0, 0) if i is None else (int(self.main.trials[i]), len(self.main.hosts_of[i]))

    def why_absent(self, config_id: str, aim: Aim) -> str:
        return aim.why_absent(self._of.get(config_id, ()))

    def why_fails(self, config_id: str, limit: Limit, aim: Aim) -> str | None:
        """Why the config fails a limit on what `aim` looks at."""
        value = self.value(config_id, aim)
        if value is None:
            return f"{limit.text} ({self.why_absent(config_id, aim)})"
        return None if limit.holds(value) else f"{limit.text} (is {plain(value)})"

    @property
    def kept(self) -> list[TrialPoints]:
        """The trials that count."""
        return [trial for trial in self._trials if trial.host not in self._left_out]

    @property
    def spread(self) -> Spread:
        found = self.main
        noise = None if found.kind == "single" else found.sigma
        if found.scale == "linear" or len(found.hosts) < 2:
            return Spread(found.kind, noise if found.scale == "log" else None, found.df)
        hosts = zip(found.hosts, np.expm1(found.host_effects).tolist(), strict=True)
        return Spread(found.kind, noise, found.df, tuple(hosts))


def _single(seen: Sequence[Observation]) -> bool:
    return len({s.config_id for s in seen}) == len(seen)
