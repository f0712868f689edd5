"""What the trials of configs say together: a value for each config, how sure it is, and how far apart two are. Pure.

The trial is the unit. Model, on the log scale (speeds and latencies are ratio scales): log y = config + host + error,
by least squares (two_way.py); one variance for all configs, since that of three trials is worthless; t intervals.
Values that are not all positive are taken as they are, and `scale` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from orchestrator.estimation import two_way
from orchestrator.estimation.outliers import Outlier, huber_means, outliers
from orchestrator.estimation.student import quantile_t
from orchestrator.estimation.two_way import Floats, Ints
from orchestrator.objectives.aim import Observation
from orchestrator.points.batch_means import WithinRun

Kind = Literal["replicates", "within_run", "single"]
# From so many hosts on they are taken as a sample of many hosts, and their effects are shrunk.
MANY_HOSTS = 11


class NotComparable(ValueError):
    """Configs that share no host, not even by others: their difference cannot be told from that of their hosts."""


@dataclass(frozen=True, slots=True)
class Gap:
    """How much worse one config is than another, as a share of the other's value (0.02: 2 % worse, negative: better).

    `low` and `high` bound it; None where there is nothing to tell the spread from.
    """

    share: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Estimates of n configs. `means` (n,) and `sigma`, the standard deviation of a trial, are logs or plain (`scale`).

    kind: "replicates" if trials were repeated, so that the spread between starts is known (`df` degrees of freedom);
    "within_run" if there is one trial each and the spread is only that of its time slices; "single" if nothing is known
    of it (sigma NaN, no intervals). The covariance of the means is diag(own) + shared shared', (n,) and (n, r).
    `parts`: configs of one number can be compared. `robust`: the means with Huber weights if there are outliers.
    """

    config_ids: tuple[str, ...]
    hosts: tuple[str, ...]
    means: Floats
    host_effects: Floats
    parts: Ints
    trials: Ints
    hosts_of: tuple[tuple[str, ...], ...]
    own: Floats
    shared: Floats
    sigma: float
    df: int
    kind: Kind
    scale: Literal["log", "linear"]
    maximize: bool
    outliers: tuple[Outlier, ...] = ()
    robust: Floats | None = None
    index: Mapping[str, int] = field(default_factory=dict)

    def value(self, config_id: str) -> float:
        """The config's value in its unit, on the average of the hosts. KeyError if it has none."""
        return self._plain(float(self.means[self.index[config_id]]))

    def robust_value(self, config_id: str) -> float | None:
        """The same with outliers weighing less; None if there are no outliers."""
        return None if self.robust is None else self._plain(float(self.robust[self.index[config_id]]))

    def interval(self, config_id: str, level: float = 0.95) -> tuple[float, float] | None:
        """Bounds of the value at this confidence; None if the spread is not known."""
        if self.kind == "single":
            return None
        i = self.index[config_id]
        half = quantile_t(self.df, (1 + level) / 2) * math.sqrt(self.own[i] + float((self.shared[i] ** 2).sum()))
        return self._plain(float(self.means[i]) - half), self._plain(float(self.means[i]) + half)

    def error_of_difference(self, config_id: str, other: str) -> float:
        """Standard error of the difference of two means, 0 of a config and itself; or NotComparable."""
        i, j = self.index[config_id], self.index[other]
        if self.parts[i] != self.parts[j]:
            raise NotComparable(f"{config_id} and {other} were measured on hosts that no config has in common")
        if i == j:
            return 0.0
        return math.sqrt(self.own[i] + self.own[j] + float(((self.shared[i] - self.shared[j]) ** 2).sum()))

    def gap(self, config_id: str, other: str, level: float = 0.95) -> Gap:
        """How much worse the first is than the other. NotComparable as above; infinite where the other's value is 0."""
        error = self.error_of_difference(config_id, other)
        ahead = float(self.means[self.index[other]] - self.means[self.index[config_id]])
        behind = ahead if self.maximize else -ahead
        if self.kind == "single":
            return Gap(self._share(behind, other), None, None)
        half = quantile_t(self.df, (1 + level) / 2) * error
        return Gap(*(self._share(x, other) for x in (behind, behind - half, behind + half)))

    def errors(self, rng: np.random.Generator, count: int, which: Ints) -> Floats:
        """(count, len(which)) errors of means: normal, over one chi for each set, since all share one variance."""
        errors = rng.standard_normal((count, len(which))) * np.sqrt(self.own[which])
        if self.shared.shape[1]:
            errors += rng.standard_normal((count, self.shared.shape[1])) @ self.shared[which].T
        errors /= np.sqrt(rng.chisquare(self.df, count) / self.df)[:, None]
        return errors

    def _plain(self, mean: float) -> float:
        # Twelve digits, so that the logarithm of 277 and back is 277.
        return float(f"{math.exp(min(mean, 700.0)) if self.scale == 'log' else mean:.12g}")

    def _share(self, behind: float, other: str) -> float:
        if self.scale == "log":
            return -math.expm1(-behind) if self.maximize else math.expm1(min(behind, 700.0))
        best = abs(float(self.means[self.index[other]]))
        return behind / best if best else math.copysign(math.inf, behind) if behind else 0.0


def estimate(
    observations: Sequence[Observation],
    *,
    maximize: bool,
    within: Mapping[tuple[str, str], WithinRun] | None = None,
) -> Estimates:
    """Estimates from one value for each trial; configs in the order of their first trials.

    `within` (by config and trial id) is used only if no trial was repeated and each has its entry.
    """
    configs, config_ids = _numbered([seen.config_id for seen in observations])
    hosts, names = _numbered([seen.host for seen in observations])
    values = np.array([seen.value for seen in observations], dtype=np.float64)
    log = bool((values > 0).all())
    values = np.log(values) if log else values
    weights, df_within = _weights(observations, within, log)
    fitted, variance = two_way.fit(configs, hosts, values), math.nan
    kind: Kind = "single"
    if fitted.df > 0:
        variance, kind = fitted.rss / fitted.df, "replicates"
        if len(names) >= MANY_HOSTS:
            fitted = two_way.fit(configs, hosts, values, ridge=two_way.shrinkage(fitted, variance))
    elif weights is not None:
        fitted, variance, kind = two_way.fit(configs, hosts, values, weights), 1.0, "within_run"
    odd = outliers(observations, fitted, variance) if kind == "replicates" else ()
    return Estimates(
        config_ids=config_ids,
        hosts=names,
        means=fitted.means,
        host_effects=fitted.host_effects,
        parts=fitted.parts,
        trials=np.bincount(configs, minlength=len(config_ids)),
        hosts_of=_hosts_of(observations, config_ids),
        own=fitted.own * variance,
        shared=fitted.shared * math.sqrt(variance),
        sigma=_sigma(weights, variance, kind),
        df=df_within if kind == "within_run" else fitted.df,
        kind=kind,
        scale="log" if log else "linear",
        maximize=maximize,
        outliers=odd,
        robust=huber_means(configs, hosts, values, fitted) if odd else None,
        index={config_id: i for i, config_id in enumerate(config_ids)},
    )


def parts_of(observations: Sequence[Observation]) -> dict[str, int]:
    """`Estimates.parts` by config id, without estimating anything."""
    configs, config_ids = _numbered([seen.config_id for seen in observations])
    hosts, _ = _numbered([seen.host for seen in observations])
    return dict(zip(config_ids, two_way.parts(configs, hosts).tolist(), strict=True))


def _numbered(names: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    numbers: dict[str, int] = {}
    coded = [numbers.setdefault(name, len(numbers)) for name in names]
    return np.array(coded, dtype=np.int64), tuple(numbers)


def _hosts_of(observations: Sequence[Observation], config_ids: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    found: dict[str, dict[str, None]] = {config_id: {} for config_id in config_ids}
    for seen in observations:
        found[seen.config_id][seen.host] = None
    return tuple(tuple(found[config_id]) for config_id in config_ids)


def _weights(
    observations: Sequence[Observation], within: Mapping[tuple[str, str], WithinRun] | None, log: bool
) -> tuple[Floats | None, int]:
    """(1 / variance of each value, the least degrees of freedom behind them); (None, 0) if one is not known."""
    found = [(within or {}).get((seen.config_id, seen.trial_id)) for seen in observations]
    known = [precision for precision in found if precision is not None and precision.relative_error > 0]
    if not known or len(known) < len(found):
        return None, 0
    scale = [1.0 if log else abs(seen.value) or 1.0 for seen in observations]
    errors = np.array([p.relative_error * s for p, s in zip(known, scale, strict=True)])
    return 1 / errors**2, min(p.df for p in known)


def _sigma(weights: Floats | None, variance: float, kind: Kind) -> float:
    if kind == "within_run" and weights is not None:
        return math.sqrt(float(np.mean(1 / weights)))
    return math.sqrt(variance)
