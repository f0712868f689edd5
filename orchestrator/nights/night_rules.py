"""What counts as a regression of a night: floors, and the level of alarm that a budget of false alarms allows. Pure.

A night may raise a false alarm in a series with probability `alarm_p`, and not more, since it comes again every night:
half of the budget (0.05 a series in 90 nights) over 90 nights and 4 looks a night (the first pairs, and all; alone, and
with the night before) is 6.9e-5.
The other half is for the change points of the history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.nights.night import Kind, kind_of
from orchestrator.points.metric_names import parts

# Shares below which a change is nobody's business. Half of the smallest change that must be found, or less.
FLOORS: Mapping[Kind, float] = {
    Kind.SPEED: 0.02,
    Kind.ACCEPT_LENGTH: 0.02,
    Kind.KV_TOKENS: 0.01,
    Kind.START: 0.10,
    Kind.FEASIBLE: 0.0,
}
# High percentiles of latencies are a few requests each.
TAIL_FLOOR = 0.05
_TAILS = frozenset({"p90", "p95", "p99", "max", "p10", "p5", "min"})


@dataclass(frozen=True, slots=True)
class NightRules:
    """`floors` override the defaults by metric or by kind (shares). `confidence` is that of intervals.

    `same_within`: "same" means that the interval lies within so many floors; one floor is less than a few pairs can
    tell. `false_alarms` a series in `nights` nights, `tonight` of them for the verdicts of single nights.
    `history_nights` tell the noise of a pair, `luck_nights` what a night has by luck; before they do, that is taken for
    `assumed_luck` floors (sd), which fades as `assumed_luck_df` degrees of freedom do.
    """

    floors: Mapping[str, float] = field(default_factory=dict)
    confidence: float = 0.99
    same_within: float = 2.5
    most_pairs: int = 6
    false_alarms: float = 0.05
    nights: int = 90
    tonight: float = 0.5
    looks: int = 4
    discoveries: float = 0.05
    history_nights: int = 20
    luck_nights: int = 60
    assumed_luck: float = 0.375
    assumed_luck_df: float = 8.0

    @property
    def alarm_p(self) -> float:
        """The p that a worsening must stay below."""
        return self.false_alarms * self.tonight / self.nights / self.looks

    def same_margin(self, floor: float) -> float:
        """Within which an interval is the same, in logs: infinite where so many floors are all there is."""
        share = self.same_within * floor
        return -math.log1p(-share) if share < 1 else math.inf

    def floor(self, metric: str) -> float:
        """By the metric, then its kind, then the default."""
        kind = kind_of(metric)
        for name in (metric, kind.value):
            if name in self.floors:
                return self.floors[name]
        found = parts(metric)
        if found is not None and found[1] in _TAILS:
            return TAIL_FLOOR
        return FLOORS[kind]
