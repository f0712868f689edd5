"""How sure a mean or a median is within one run, from its time slices (batch means). Pure: numpy only.

Requests share batches and queues, so they are no independent sample; slices of many requests nearly are. With k slices
of means x the error is s(x) / sqrt(k), with k - 1 degrees of freedom (Conway 1963; Law and Kelton, Simulation Modeling
and Analysis). If neighbouring slices are still alike (lag-1 correlation above 0.3), slices of twice the length are
taken, down to 5. It sees what changes within one run only: not that two starts of one server differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.points.request_columns import Floats, Integers

SLICES = (20, 10, 5)
ALIKE = 0.3


@dataclass(frozen=True, slots=True)
class WithinRun:
    """What the time slices of one trial say of its value: relative standard error (0.01 = 1 %), degrees of freedom."""

    relative_error: float
    df: int


def of_rate(amounts: Floats) -> WithinRun | None:
    """Of a rate, from what fell into each of 20 slices of equal length."""
    for count in SLICES:
        found = amounts.reshape(count, -1).sum(axis=1)
        if not _alike(found) or count == SLICES[-1]:
            return _judged(float(found.mean()), _error(found), count)
    return None


def of_mean(slices: Integers, values: Floats) -> WithinRun | None:
    """Of the mean of values, each with the number of its time slice (0 to 19); a slice may have any number of them.

    The mean is a ratio, total / number, and so is its error: of totals less mean x number.
    """
    mean = float(values.mean()) if len(values) else 0.0
    for count in SLICES:
        where = slices * count // SLICES[0]
        numbers = np.bincount(where, minlength=count)
        filled = numbers > 0
        if filled.sum() < max(SLICES[-1], count * 0.8):
            continue
        excess = np.bincount(where, values - mean, count)
        if not _alike(excess[filled] / numbers[filled]) or count == SLICES[-1]:
            k = int(filled.sum())
            error = math.sqrt(float((excess**2).sum()) * k / (k - 1)) / len(values)
            return _judged(mean, error, k)
    return None


def of_median(slices: Integers, values: Floats) -> WithinRun | None:
    """Of the median of values, from the medians of slices of at least 3 of them."""
    order = np.lexsort((values, slices))
    slices, values = slices[order], values[order]
    for count in SLICES:
        where = slices * count // SLICES[0]
        numbers = np.bincount(where, minlength=count)
        if numbers.min() < 3:
            continue
        if count < SLICES[0]:
            values = values[np.lexsort((values, where))]
        first = np.cumsum(numbers) - numbers
        medians = (values[first + (numbers - 1) // 2] + values[first + numbers // 2]) / 2
        if not _alike(medians) or count == SLICES[-1]:
            return _judged(float(medians.mean()), _error(medians), count)
    return None


def lag_1(series: Floats) -> float:
    """Correlation of neighbours; 0 for a series that does not vary."""
    centred = series - series.mean()
    total = float((centred**2).sum())
    return float((centred[1:] * centred[:-1]).sum()) / total if total > 0 else 0.0


def _alike(series: Floats) -> bool:
    return lag_1(series) > ALIKE


def _error(series: Floats) -> float:
    return float(series.std(ddof=1)) / math.sqrt(len(series))


def _judged(mean: float, error: float, count: int) -> WithinRun | None:
    return WithinRun(error / abs(mean), count - 1) if mean and math.isfinite(error / mean) else None
