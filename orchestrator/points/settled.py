"""Whether a point was settled: MSER-5 on its latencies and on its throughput, and whether what it finds is real. Pure.

MSER-5 (White 1997, Spratt 1998): of means of 5 consecutive values, leave out the first d that make the squared standard
error of the rest least. It always finds some d, on noise as well. So a beginning is told from the rest only if leaving
it out moves the mean by more than a near-tie and by many standard errors, which come from the differences between
neighbouring parts of the point, so that a trend does not hide itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from orchestrator.points.request_columns import Floats

BATCH = 5
# Leaving out a beginning that moves the mean by less is below what two starts of one server differ by.
REAL_SHIFT = 0.02
# Standard errors that are more than chance, of 20 parts: 5. The fewer parts they come from, the less they are known.
_REAL_ERRORS, _OF_FEW = 4.2, 4.0
_MOST_PARTS, _FEWEST_PARTS = 20, 10
_FEWEST_VALUES = 200
# MSER may cut up to half; a minimum this near to it is at the edge: it would have cut on.
_EDGE = 0.45


@dataclass(frozen=True, slots=True)
class Settling:
    """What MSER-5 says of a series. Leaving out the first `cut` values moves the mean by the share `shift`.

    moving: there is no settled part, the rest changes as well; beginning: the first values are not like the rest.
    """

    cut: int
    shift: float
    kind: Literal["settled", "beginning", "moving"]


def mser5(values: Floats) -> int:
    """How many of the first values to leave out: a multiple of 5, below half of them."""
    batches = values[: len(values) // BATCH * BATCH].reshape(-1, BATCH).mean(axis=1)
    if len(batches) < 2:
        return 0
    batches = batches - batches.mean()  # large offsets would eat the digits of the squares
    left = np.arange(len(batches), 0, -1)
    sums, squares = np.cumsum(batches[::-1])[::-1], np.cumsum(batches[::-1] ** 2)[::-1]
    error = (squares - sums**2 / left) / left.astype(np.float64) ** 2
    return int(np.argmin(error[: (len(batches) + 1) // 2])) * BATCH


def settling(values: Floats, together: int = 1) -> Settling | None:
    """Judge a series in which about `together` neighbours are served at once, and so are alike.

    None for fewer than 200 values or than 10 times `together`.
    """
    length = max(len(values) // _MOST_PARTS, together)
    parts = len(values) // max(length, 1)
    if len(values) < _FEWEST_VALUES or parts < _FEWEST_PARTS:
        return None
    means = values[: length * parts].reshape(parts, length).mean(axis=1)
    # Of one value, trends left out, times what is more than chance.
    noise = math.sqrt(float(np.mean(np.diff(means) ** 2)) / 2 * length) * _REAL_ERRORS * (1 + _OF_FEW / parts)
    cut = mser5(values)
    rest = values[cut:]
    shift = abs(float(values.mean()) / float(rest.mean()) - 1) if rest.mean() else 0.0
    differs = cut > 0 and shift > REAL_SHIFT and _differ(values[:cut], rest, noise)
    half = len(rest) // 2
    moves = (
        abs(float(rest[:half].mean()) / float(rest[half:].mean()) - 1) > 2 * REAL_SHIFT if rest[half:].any() else False
    )
    if (differs and cut >= _EDGE * len(values)) or (moves and _differ(rest[:half], rest[half:], noise)):
        return Settling(cut, shift, "moving")
    return Settling(cut, shift, "beginning" if differs else "settled")


def _differ(some: Floats, others: Floats, noise: float) -> bool:
    """Whether two means are further apart than `noise` of the single values can put them."""
    return abs(float(some.mean() - others.mean())) > noise * math.sqrt(1 / len(some) + 1 / len(others))
