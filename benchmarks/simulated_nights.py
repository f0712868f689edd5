"""A simulated quarter of nights: hosts that differ, drift and are replaced, starts that differ, noise with heavy tails.

Every number is a raw speed (tok/s). A speed is base x host x start x measurement: hosts have an sd of 4 %, wander by
0.4 % a night (sd) and are replaced every 25 nights or so; fresh starts of a config differ by 1.0 % (shared by all its
series), measurements by 1.1 % with the tails of Student's t with 3 degrees of freedom; one start in 300 is 10 % slow.
Together a value has a coefficient of variation of 1.5 % (1.6 with the slow ones) on one host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from orchestrator.nights.night import Build, Measured, Night, Pair, SeriesKey
from orchestrator.nights.night_luck import LuckBook
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_verdict import judge_night, undecided

CONFIGS = 5
SERIES_OF_CONFIG = 10
HOSTS = 4
HOST_SD, DRIFT_SD, START_SD, NOISE_SD = 0.04, 0.004, 0.010, 0.011
SLOW_SHARE, SLOW_BY = 1 / 300, 0.10
REPLACED_SHARE = 1 / 25
NOISE_TAIL_DF = 3
# Nights of the history that any rule looks at.
KEPT = 60


@dataclass
class Quarter:
    """Nights of one simulated world. `steps`: by config, how much slower the candidate is from night `step_at` on.
    `luck`: sd of what all pairs of a config share in a night; `common`: of all configs, as an image has it.
    """

    seed: int
    nights: int
    steps: Mapping[int, float] = field(default_factory=dict)
    step_at: int = 60
    pairs: int = 3
    luck: float = 0.0
    common: bool = False
    rules: NightRules = field(default_factory=NightRules)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._luck_rng = np.random.default_rng((self.seed, 1))  # of its own: the same worlds with and without luck
        self._night_luck = np.zeros(CONFIGS)
        self._hosts = self._rng.normal(0, HOST_SD, HOSTS)
        self.history: list[Night] = []
        self.raw: dict[str, list[float]] = {key.series_id: [] for config in range(CONFIGS) for key in keys(config)}
        self.more_pairs = 0

    def run(self) -> None:
        """All nights, each judged with the nights before it, as `nightly` does."""
        for night in range(self.nights):
            self._hosts += self._rng.normal(0, DRIFT_SD, HOSTS)
            replaced = self._rng.random(HOSTS) < REPLACED_SHARE
            self._hosts[replaced] = self._rng.normal(0, HOST_SD, int(replaced.sum()))
            self.history.append(self._night(night))

    def _night(self, night: int) -> Night:
        measured: dict[str, Measured] = {}
        self._night_luck = self._luck_rng.normal(0, self.luck, 1 if self.common else CONFIGS)
        places = [self._rng.permutation(HOSTS) for _ in range(CONFIGS)]
        for config in range(CONFIGS):
            self._measure(measured, config, int(places[config][0]), night)
            for key in keys(config):
                values = [pair.candidate for pair in measured[key.series_id].pairs]
                self.raw[key.series_id].append(float(np.mean(values)))
        earlier = self.history[-KEPT:]
        lucks = LuckBook.of(earlier, self.rules)
        series = judge_night(list(measured.values()), earlier, self.rules, lucks=lucks)
        open_configs = {one.key.config for one in undecided(series, self.rules)}
        if open_configs:
            for config in range(CONFIGS):
                if str(config) in open_configs:
                    self.more_pairs += 1
                    self._measure(measured, config, int(places[config][1]), night)
            series = judge_night(list(measured.values()), earlier, self.rules, lucks=lucks)
        return Night(f"{night:04d}", "simulated", "", Build("reference"), Build("candidate"), series=series)

    def _measure(self, measured: dict[str, Measured], config: int, host: int, night: int) -> None:
        """`pairs` more pairs of a config on a host."""
        slower = math.log1p(-self.steps.get(config, 0.0)) if night >= self.step_at else 0.0
        slower += float(self._night_luck[0 if self.common else config])
        members = []
        for shift in (0.0, slower):
            starts = self._rng.normal(0, START_SD, (self.pairs, 1))
            starts -= SLOW_BY * (self._rng.random((self.pairs, 1)) < SLOW_SHARE)
            scale = NOISE_SD / math.sqrt(NOISE_TAIL_DF / (NOISE_TAIL_DF - 2))
            noise = self._rng.standard_t(NOISE_TAIL_DF, (self.pairs, SERIES_OF_CONFIG)) * scale
            members.append(np.exp(self._hosts[host] + shift + starts + noise) * 1000)
        for i, key in enumerate(keys(config)):
            known = measured.get(key.series_id)
            pairs = tuple(
                Pair(str(host), bool(n % 2), float(members[0][n, i]), float(members[1][n, i]))
                for n in range(self.pairs)
            )
            measured[key.series_id] = Measured(key, str(config), (known.pairs if known else ()) + pairs)


def keys(config: int) -> list[SeriesKey]:
    """The series of a config, all throughputs, so that less is worse."""
    return [SeriesKey("output_throughput_tok_s", str(config), "w", f"C={i}", "") for i in range(SERIES_OF_CONFIG)]
