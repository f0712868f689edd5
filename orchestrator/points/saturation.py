"""Whether an open loop asked for more than the server can serve: then latencies only say how long it was asked. Pure.

The requests in flight and their latencies are followed over the offered load, once the first requests have ended (an
idle server fills up, which is no trend). Saturated: both rise, by the lower bound of Theil-Sen slopes; latency by more
than 10 % a minute; and more requests stay behind than the chance of arrivals and services explains, even for a server
that is loaded to exactly its capacity: 3 sqrt(2 n) of n requests. Not asked of fewer than 100 requests or less than
10 s, of which 5 s after the first have ended, nor of a load that is not offered evenly (steps, ramps, traces).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.points.request_columns import Flags, Floats, RequestColumns

_FEWEST_REQUESTS = 100
_SHORTEST_S, _SHORTEST_FOLLOWED_S = 10.0, 5.0
_SLICES = 20
_GROWTH_PER_MINUTE = 0.1
_CHANCE = 3.0
# Kolmogorov's bound at 0.1 %: arrivals that are further from an even pace are not of one rate.
_EVEN = 1.95
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Saturation:
    """How far a server fell behind: requests in flight and median latency, at first and at last, over `seconds`."""

    seconds: float
    in_flight: tuple[float, float]
    latency_s: tuple[float, float]


def saturation(columns: RequestColumns, ok: Flags) -> Saturation | None:
    """None if the server kept up, or if that cannot be told."""
    due, end = columns.scheduled_ns, columns.end_ns
    if len(due) < _FEWEST_REQUESTS or ok.sum() < _FEWEST_REQUESTS / 2 or not offered_evenly(due):
        return None
    if due.max() - due.min() < _SHORTEST_S * 1e9:
        return None
    order = np.argsort(due)
    first = order[ok[order]][: max(len(due) // 20, 5)]
    begin = float(due.min() + min(np.median((end - due)[first]), (due.max() - due.min()) / 2))
    seconds = float(due.max() - begin) / 1e9
    if seconds < _SHORTEST_FOLLOWED_S:
        return None
    edges = np.linspace(begin, float(due.max()), _SLICES + 1)
    sent, ended = np.sort(due), np.sort(end)
    in_flight = (np.searchsorted(sent, edges, "right") - np.searchsorted(ended, edges, "right")).astype(np.float64)
    latency_s = _slice_medians(due[ok], (end - due)[ok] / 1e9, edges)
    known = ~np.isnan(latency_s)
    behind = float(np.mean(in_flight[-3:]) - np.mean(in_flight[:3]))
    offered = float((due >= begin).sum())
    if behind <= _CHANCE * math.sqrt(2 * offered) or theil_sen(in_flight)[1] <= 0 or known.sum() < _SLICES / 2:
        return None
    slope, low = (x * _SLICES / seconds for x in theil_sen(latency_s[known]))
    if low <= 0 or slope * 60 <= _GROWTH_PER_MINUTE * float(np.median(latency_s[known])):
        return None
    seen = latency_s[known]
    return Saturation(seconds, (float(in_flight[0]), float(in_flight[-1])), (float(seen[0]), float(seen[-1])))


def offered_evenly(due: Floats) -> bool:
    """Whether due times are those of one rate: as far from an even pace as Poisson arrivals may be."""
    span = float(due.max() - due.min())
    if span <= 0:
        return False
    pace = np.sort(due - due.min()) / span
    return bool(np.abs(pace - np.arange(1, len(due) + 1) / len(due)).max() <= _EVEN / math.sqrt(len(due)))


def theil_sen(values: Floats) -> tuple[float, float]:
    """(median of the slopes between all pairs, lower bound of its 95 % interval), per step.

    The interval is the one that goes with Kendall's test (Sen 1968).
    """
    n = len(values)
    i, j = np.triu_indices(n, 1)
    slopes = np.sort((values[j] - values[i]) / (j - i))
    outside = (len(slopes) - _Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)) / 2
    return float(np.median(slopes)), float(slopes[max(math.floor(outside), 0)])


def _slice_medians(at: Floats, values: Floats, edges: Floats) -> Floats:
    which = np.searchsorted(edges, at, "right") - 1
    return np.array([np.median(values[which == k]) if (which == k).any() else np.nan for k in range(_SLICES)])
