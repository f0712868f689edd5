"""Statistics of many values, and how many values a percentile needs. Pure: numpy only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Chance that the truth lies below the largest value seen; below it a percentile of a sample has no upper bound.
CONFIDENCE = 0.95


def fewest_values(percentile: float) -> int:
    """The n from which the largest of n independent values is, at 95 %, no less than the true percentile.

    P(all n values below it) = q^n <= 0.05, with q the percentile's share; for a low percentile its mirror image.
    """
    share = max(percentile, 100 - percentile) / 100
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(share))


# 29 for p90 and p10, 59 for p95 and p5, 299 for p99. A median is shown of any number: it is no statement about a tail.
FEWEST = {f"p{p}": fewest_values(p) for p in (5, 10, 90, 95, 99)}


@dataclass(frozen=True, slots=True)
class Distribution:
    """`n` values and their statistics; percentiles are linearly interpolated, None where `n` does not support them."""

    n: int
    mean: float
    p50: float
    p90: float | None
    p95: float | None
    p99: float | None
    max: float


@dataclass(frozen=True, slots=True)
class LowTail:
    """As Distribution, for values of which the low ones are the bad ones."""

    n: int
    mean: float
    p50: float
    p10: float | None
    p5: float | None
    min: float


def distribution(values: npt.NDArray[np.float64]) -> Distribution | None:
    """Of the values that are known (not NaN); None if none is."""
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    p50, p90, p95, p99 = _percentiles(values, 50, 90, 95, 99)
    return Distribution(len(values), float(values.mean()), float(p50 or 0.0), p90, p95, p99, float(values.max()))


def low_tail(values: npt.NDArray[np.float64]) -> LowTail | None:
    """Of the values that are known (not NaN); None if none is."""
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    p50, p10, p5 = _percentiles(values, 50, 10, 5)
    return LowTail(len(values), float(values.mean()), float(p50 or 0.0), p10, p5, float(values.min()))


def _percentiles(values: npt.NDArray[np.float64], *which: int) -> list[float | None]:
    ordered = np.sort(values)
    return [interpolated(ordered, q) if len(values) >= FEWEST.get(f"p{q}", 1) else None for q in which]


def interpolated(ordered: npt.NDArray[np.float64], percentile: float) -> float:
    """`np.percentile(values, percentile)` to the last bit, of values in order: it takes most of its time to begin."""
    place = (len(ordered) - 1) * (percentile / 100)
    below = math.floor(place)
    share = place - below
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def supported(values: npt.NDArray[np.float64], percentile: int) -> float | None:
    """One percentile of the known values, None if there are too few for it."""
    values = values[~np.isnan(values)]
    if len(values) < max(FEWEST.get(f"p{percentile}", 1), 1):
        return None
    return float(np.percentile(values, percentile))
