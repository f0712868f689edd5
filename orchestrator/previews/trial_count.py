"""How many trials buy which precision, before anything runs. Pure.

Half of the 95 % interval of a difference of two configs is t x error, where the error comes from the design itself
(two_way.py on trials without values): noise of one trial, trials of each config, the hosts that they share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.estimation import two_way
from orchestrator.estimation.drift_check import ASSUMED_NOISE
from orchestrator.estimation.student import quantile_t
from orchestrator.estimation.two_way import Floats, Ints, TwoWay
from orchestrator.plural import plural
from orchestrator.scenarios.scenario import Scenario

# Differences that one may want to tell apart.
TARGETS = (0.01, 0.02, 0.03, 0.05)
MOST_REPEATS = 100
# Of more configs, a difference is as sure as of so many.
_MOST_CONFIGS = 200


@dataclass(frozen=True, slots=True)
class Precision:
    """What a plan buys if one trial has the standard deviation `noise` (a share).

    `half_width`: of the 95 % interval of the difference of two configs, as a share; None where all configs have one
    trial, or share no host. `needed`: for each target the least `measure.repeats` that tell configs apart that differ
    by so much; None beyond 100.
    """

    noise: float
    configs: int
    hosts: int
    repeats: int
    half_width: float | None
    needed: tuple[tuple[float, int | None], ...]

    def as_json(self) -> dict[str, Any]:
        """For `plan --json`."""
        return {
            "assumed_noise": self.noise,
            "hosts": self.hosts,
            "repeats": self.repeats,
            "difference_half_width_95": None if self.half_width is None else round(self.half_width, 5),
            "repeats_needed": {f"{target:g}": count for target, count in self.needed},
        }

    def lines(self) -> list[str]:
        """For people; nothing where there is nothing to compare."""
        if self.configs < 2:
            return []
        trials = f"{plural(self.repeats, 'trial')} of each config"
        hosts = plural(self.hosts, "host")
        if self.half_width is None:
            give = "gives" if self.repeats == 1 else "give"
            now = f"{trials} on {hosts} {give} no interval: nothing is known of how starts differ"
        else:
            now = f"{trials} on {hosts} bound a difference of two to ±{self.half_width:.1%} (95%)"
        needed = ", ".join(f"±{target:.0%} {count or f'>{MOST_REPEATS}'}" for target, count in self.needed)
        return [f"Precision: {now}; measure.repeats for {needed}; assumed: starts differ by {self.noise:.1%} (sd)"]


def plan_precision(scenario: Scenario, configs: int, slots: int) -> Precision:
    """Of a plan over so many slots. Hosts are guessed from `slots.per_host`; how many there are matters little."""
    hosts = -(-slots // scenario.slots.per_host) if scenario.slots.per_host else 1
    return precision(configs, hosts, scenario.measure.repeats, scenario.search.noise)


def precision(configs: int, hosts: int, repeats: int, noise: float = ASSUMED_NOISE, references: int = 0) -> Precision:
    """What `repeats` trials of each config buy; `references`: further trials of one config on every host."""
    shown = min(configs, _MOST_CONFIGS)
    needed = tuple((target, _needed(target, shown, hosts, noise, references)) for target in TARGETS)
    width = half_width(shown, hosts, repeats, noise, references)
    return Precision(noise, configs, hosts, repeats, width, needed)


def half_width(configs: int, hosts: int, repeats: int, noise: float, references: int = 0) -> float | None:
    """Half of the 95 % interval of an average difference of two configs, as a share; None without any spread."""
    fitted = two_way.fit(*_design(configs, hosts, repeats, references))
    if configs < 2 or fitted.df < 1 or len(set(fitted.parts.tolist())) > 1:
        return None
    return math.expm1(quantile_t(fitted.df, 0.975) * noise * math.sqrt(_mean_variance(fitted)))


def _needed(target: float, configs: int, hosts: int, noise: float, references: int) -> int | None:
    low, high = 0, MOST_REPEATS
    if not _meets(target, half_width(configs, hosts, high, noise, references)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _meets(target, half_width(configs, hosts, middle, noise, references)):
            high = middle
        else:
            low = middle
    return high


def _meets(target: float, width: float | None) -> bool:
    return width is not None and width <= target


def _design(configs: int, hosts: int, repeats: int, references: int) -> tuple[Ints, Ints, Floats]:
    """Each config goes round the hosts in an order of its own, from a fixed seed."""
    config = np.repeat(np.arange(configs), repeats)
    turn = np.tile(np.arange(repeats), configs)
    orders = np.random.default_rng(1).permuted(np.tile(np.arange(hosts), (configs, 1)), axis=1)
    host = orders[config, turn % hosts]
    if references:
        config = np.concatenate([config, np.zeros(hosts * references, dtype=np.int64)])
        host = np.concatenate([host, np.tile(np.arange(hosts), references)])
    used = np.unique(host)
    return config, np.searchsorted(used, host), np.zeros(len(config))


def _mean_variance(fitted: TwoWay) -> float:
    """Of a difference of two means, averaged over all pairs, in units of the error variance."""
    n = len(fitted.own)
    spread = float((fitted.shared**2).sum()) - n * float((fitted.shared.mean(axis=0) ** 2).sum())
    return 2 * float(fitted.own.mean()) + 2 * spread / (n - 1)
