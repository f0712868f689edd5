"""Series of a night, measured and judged."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.nights.night import (
    Build,
    Gap,
    Measured,
    Night,
    Pair,
    SeriesKey,
    SeriesNight,
    Verdict,
)
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_verdict import judge_night

SPEED = SeriesKey("output_throughput_tok_s", "c1", "chat", "C=16", "8x H100")
# Residuals of three pairs: sd 1.5 % of a pair.
QUIET = (-0.015, 0.0, 0.015)


def measured(key: SeriesKey, ratios: Sequence[float], *, mean: float = 0.0) -> Measured:
    pairs = (Pair("a", i % 2 == 0, 100.0, 100.0 * math.exp(mean + r)) for i, r in enumerate(ratios))
    return Measured(key, "depth 3", tuple(pairs))


def night_of(*series: SeriesNight | Measured, at: int = 1, gap: Gap | None = None) -> Night:
    judged = tuple(s if isinstance(s, SeriesNight) else SeriesNight(s, Verdict.SAME, "") for s in series)
    return Night(f"2026-11-{at:02d}T02:00:00+00:00", "s", "", Build("ref"), Build("cand"), series=judged, gap=gap)


def twenty_quiet_nights(key: SeriesKey = SPEED) -> list[Night]:
    return [night_of(measured(key, QUIET), at=day) for day in range(1, 21)]


def judge(one: Measured, earlier: Sequence[Night] = (), rules: NightRules | None = None) -> SeriesNight:
    (found,) = judge_night([one], earlier, rules)
    return found
