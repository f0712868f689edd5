"""A distribution as lines of text. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_WIDTH = 50
_MOST_LINES = 16
# More than this between the smallest and the largest value: lines grow by a factor, not by a step.
_WIDE = 20.0


def histogram(values: Sequence[float] | npt.NDArray[np.float64], unit: str) -> list[str]:
    """A line for each range of values: its bounds, a bar, the count. NaN is left out; no lines without values.

    The ranges hold every value once: the lower bound is inside, the upper one is not, but for the last.
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return []
    edges = _edges(float(known.min()), float(known.max()), len(known))
    counts, _ = np.histogram(known, edges)
    most = int(counts.max())
    texts = [f"{edge:.4g}" for edge in edges]
    wide = max(map(len, texts))
    return [
        f"{low:>{wide}} - {high:>{wide}} {unit} |{'#' * math.ceil(count / most * _WIDTH):<{_WIDTH}} {count}"
        for low, high, count in zip(texts[:-1], texts[1:], counts.tolist(), strict=True)
    ]


def _edges(low: float, high: float, count: int) -> npt.NDArray[np.float64]:
    lines = min(_MOST_LINES, max(math.ceil(math.sqrt(count)), 1))
    if low == high:
        return np.array([low, high])
    if low > 0 and high / low > _WIDE:
        return np.geomspace(low, high, lines + 1)
    return np.linspace(low, high, lines + 1)
