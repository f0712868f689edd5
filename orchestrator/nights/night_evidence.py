"""What else speaks for or against a verdict: the night before, and other series of the same config. Pure.

It is told, and changes no verdict: a clear regression is not hidden because it stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.nights.night import Kind, Night, SeriesNight, Verdict, last_measured

# From here on a series leans to one side.
_LEANS_P = 0.05
_SHOWN = 3


def with_evidence(series: Sequence[SeriesNight], earlier: Sequence[Night]) -> tuple[SeriesNight, ...]:
    """The same series; those that regressed or improved, with what the others say."""
    told = {Verdict.REGRESSED, Verdict.IMPROVED}
    return tuple(
        replace(one, evidence=(*one.evidence, *_nights(one, earlier), *_others(one, series)))
        if one.verdict in told
        else one
        for one in series
    )


def share_text(difference: float) -> str:
    """`-8.0%` of a log ratio; never `-0.0%`."""
    return f"{math.expm1(difference):+z.1%}"


def series_name(one: SeriesNight) -> str:
    """`tpot_mean_ms at chat C=16`."""
    return f"{one.key.metric} at {one.key.place}" if one.key.place else one.key.metric


def _nights(one: SeriesNight, earlier: Sequence[Night]) -> list[str]:
    before = last_measured(earlier)
    seen = None if before is None else next(
        (s for s in before.series if s.key == one.key), None
    )  # fmt: skip
    if seen is None:
        return []
    if seen.verdict is one.verdict:
        return [f"{one.verdict.value} in the night before too{_by(seen)}"]
    return [f"the night before: {seen.verdict.value}{_by(seen)}"]


def _by(seen: SeriesNight) -> str:
    return "" if seen.difference is None else f" ({share_text(seen.difference)})"


def _others(one: SeriesNight, series: Sequence[SeriesNight]) -> list[str]:
    beside = [
        other
        for other in series
        if other is not one
        and (other.key.config, other.key.host_class) == (one.key.config, one.key.host_class)
        and other.kind is not Kind.FEASIBLE
        and other.difference is not None
    ]
    agreeing = [other for other in beside if _leans(other, one.verdict)]
    if not agreeing:
        return [f"none of the other {len(beside)} series of this config leans that way"] if beside else []
    agreeing.sort(key=lambda other: -abs(other.difference or 0.0))
    shown = ", ".join(f"{series_name(o)} {share_text(o.difference or 0.0)}" for o in agreeing[:_SHOWN])
    more = ", ..." if len(agreeing) > _SHOWN else ""
    return [f"{len(agreeing)} of {len(beside)} other series of this config lean that way: {shown}{more}"]


def _leans(other: SeriesNight, verdict: Verdict) -> bool:
    if other.verdict is verdict:
        return True
    if other.p is None or other.noise is None:
        return False
    return other.p < _LEANS_P if verdict is Verdict.REGRESSED else other.p > 1 - _LEANS_P
