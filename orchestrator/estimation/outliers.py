"""Trials that do not fit the others: told, never left out; and what the estimates are if they weigh less. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.estimation import two_way
from orchestrator.estimation.student import quantile_t
from orchestrator.estimation.two_way import Floats, Ints, TwoWay
from orchestrator.objectives.aim import Observation

# Studentised residuals above this are told. With many values, above what chance does to one of them in 20 such sets.
OUTLYING = 3.0
# Huber 1964: full weight up to so many standard deviations; 95 % as good as least squares where nothing is wrong.
_HUBER = 1.345
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Outlier:
    """A trial that does not fit the others: `deviates` in standard deviations (studentised, itself left out)."""

    config_id: str
    trial_id: str
    host: str
    deviates: float


def outliers(observations: Sequence[Observation], fitted: TwoWay, variance: float) -> tuple[Outlier, ...]:
    """Trials whose externally studentised residual is beyond 3 and chance (Cook and Weisberg 1982, Bonferroni)."""
    if fitted.df < 2 or variance <= 0:
        return ()
    free = 1 - fitted.leverage  # 0 for a trial that its config or host stands on alone: it fits itself
    usable = free > 1e-9
    inner = np.where(usable, fitted.residuals / np.sqrt(variance * np.where(usable, free, 1.0)), 0.0)
    outer = inner * np.sqrt((fitted.df - 1) / np.maximum(fitted.df - inner**2, 1e-12))
    limit = max(OUTLYING, quantile_t(fitted.df - 1, 1 - 0.05 / (2 * len(outer))))
    found = [(seen, float(d)) for seen, d in zip(observations, outer, strict=True) if abs(d) > limit]
    return tuple(Outlier(seen.config_id, seen.trial_id, seen.host, d) for seen, d in found)


def huber_means(configs: Ints, hosts: Ints, values: Floats, fitted: TwoWay) -> Floats:
    """Means with Huber weights, the scale from the median absolute residual."""
    for _ in range(_ROUNDS):
        spread = float(np.median(np.abs(fitted.residuals))) / 0.6745 * math.sqrt(len(values) / fitted.df)
        if spread <= 0:
            break
        weights = np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(fitted.residuals), 1e-300))
        fitted = two_way.fit(configs, hosts, values, weights)
    return fitted.means
