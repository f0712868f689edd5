"""A simulated quarter of nights: hosts that differ, drift and are replaced, starts that differ, noise with heavy tails.

Every number is a raw speed (tok/s). A speed is base x host x start x measurement: hosts have an sd of 4 %, wander by
0.4 % a night (sd) and are replaced every 25 nights or so; fresh starts of a config differ by 1.0 % (shared by all its
series), measurements by 1.1 % with the tails of Student's t with 3 degrees of freedom; one start in 300 is 10 % slow.
Together a value has a coefficient of variation of 1.5 % (1.6 with the slow ones) on one host.

What a night measures depends on the seed and the night alone, not on what rules made of the nights before: all rules
are tried on the same numbers, with a step and without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.nights.night import Build, Measured, Night, Pair, SeriesKey
from orchestrator.nights.night_luck import LuckBook
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_verdict import judge_night, undecided

CONFIGS = 5
LEVELS = 10
HOSTS = 4
HOST_SD, DRIFT_SD, START_SD, NOISE_SD = 0.04, 0.004, 0.010, 0.011
SLOW_SHARE, SLOW_BY = 1 / 300, 0.10
REPLACED_SHARE = 1 / 25
NOISE_TAIL_DF = 3
# Nights of the history that any rule looks at.
KEPT = 60


@dataclass(frozen=True)
class World:
    """What is measured. `steps`: by config, how much slower the candidate is from night `step_at` on. `luck`: sd of
    what all pairs of a config share in a night; `common`: of all configs, as an image has it. `future`: from `step_at`
    on another one of the same past.
    """

    seed: int
    configs: int = CONFIGS
    levels: int = LEVELS
    pairs: int = 3
    luck: float = 0.0
    common: bool = False
    steps: Mapping[int, float] = field(default_factory=dict)
    step_at: int = 60
    future: int = 0

    def keys(self, config: int) -> list[SeriesKey]:
        """The series of a config, all throughputs, so that less is worse."""
        metric = "output_throughput_tok_s"
        return [SeriesKey(metric, str(config), "w", f"C={i}", "") for i in range(self.levels)]

    def hosts(self, nights: int) -> NDArray[np.float64]:
        """(nights, hosts): log speeds."""
        rng = np.random.default_rng((self.seed, 0))
        speeds, found = rng.normal(0, HOST_SD, HOSTS), np.empty((nights, HOSTS))
        for night in range(nights):
            speeds = speeds + rng.normal(0, DRIFT_SD, HOSTS)
            replaced, others = rng.random(HOSTS) < REPLACED_SHARE, rng.normal(0, HOST_SD, HOSTS)
            speeds = found[night] = np.where(replaced, others, speeds)
        return found

    def night(self, night: int, hosts: NDArray[np.float64]) -> list[tuple[list[Measured], list[Measured]]]:
        """By config: the series of its first pairs, and the same with as many pairs more on another host."""
        future = (self.future,) if night >= self.step_at else ()
        rng = np.random.default_rng((self.seed, 1, night, *future))
        shared, found = rng.normal(0, self.luck), []
        for config in range(self.configs):
            luck, places = rng.normal(0, self.luck), rng.permutation(HOSTS)
            shift = float(shared if self.common else luck)
            shift += math.log1p(-self.steps.get(config, 0.0)) if night >= self.step_at else 0.0
            first, more = (self._pairs(rng, int(host), float(hosts[host]), shift) for host in places[:2])
            keys = self.keys(config)
            found.append(
                (
                    [Measured(key, str(config), one) for key, one in zip(keys, first, strict=True)],
                    [Measured(key, str(config), a + b) for key, a, b in zip(keys, first, more, strict=True)],
                )
            )
        return found

    def _pairs(self, rng: np.random.Generator, name: int, host: float, shift: float) -> list[tuple[Pair, ...]]:
        """Of every level."""
        members = []
        for slower in (0.0, shift):
            starts = rng.normal(0, START_SD, (self.pairs, 1))
            starts -= SLOW_BY * (rng.random((self.pairs, 1)) < SLOW_SHARE)
            scale = NOISE_SD / math.sqrt(NOISE_TAIL_DF / (NOISE_TAIL_DF - 2))
            noise = rng.standard_t(NOISE_TAIL_DF, (self.pairs, self.levels)) * scale
            members.append(np.exp(host + slower + starts + noise) * 1000)
        return [
            tuple(
                Pair(str(name), bool(n % 2), float(members[0][n, i]), float(members[1][n, i]))
                for n in range(self.pairs)
            )
            for i in range(self.levels)
        ]


@dataclass
class Quarter:
    """Nights of one world, each judged with the nights before it, as `nightly` does."""

    world: World
    rules: NightRules = field(default_factory=NightRules)
    history: list[Night] = field(default_factory=list)
    raw: dict[str, list[float]] = field(default_factory=dict)
    more_pairs: int = 0

    def run(self, nights: int) -> Quarter:
        """Until there are so many nights."""
        hosts = self.world.hosts(nights)
        for night in range(len(self.history), nights):
            self.history.append(self._night(night, hosts[night]))
        return self

    def ahead(self, **changes: object) -> Quarter:
        """The same past; what is changed of the world must be of its nights from `step_at` on."""
        world = replace(self.world, **changes)  # type: ignore[arg-type]
        at = world.step_at
        raw = {name: values[:at] for name, values in self.raw.items()}
        return Quarter(world, self.rules, self.history[:at], raw)

    def _night(self, night: int, hosts: NDArray[np.float64]) -> Night:
        drawn = self.world.night(night, hosts)
        earlier = self.history[-KEPT:]
        lucks = LuckBook.of(earlier, self.rules)
        measured = [one for first, _ in drawn for one in first]
        for one in measured:
            speeds = [pair.candidate for pair in one.pairs]
            self.raw.setdefault(one.key.series_id, []).append(float(np.mean(speeds)))
        series = judge_night(measured, earlier, self.rules, lucks=lucks)
        open_configs = {one.key.config for one in undecided(series, self.rules)}
        if open_configs:
            self.more_pairs += len(open_configs)
            measured = [one for i, pairs in enumerate(drawn) for one in pairs[str(i) in open_configs]]
            series = judge_night(measured, earlier, self.rules, lucks=lucks)
        return Night(f"{night:04d}", "simulated", "", Build("reference"), Build("candidate"), series=series)
