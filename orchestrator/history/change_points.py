"""Where a series of nightly values changed its level: E-divisive means with a permutation test. Pure.

Of n values split into L (first k) and R (the other m):
q = k m / n * (2 mean|l - r| - mean|l - l'| - mean|r - r'|), means over all pairs, those of a value with itself as well
(Matteson and James 2014). The best split is tested against the best splits of the same values in random order:
p = (1 + those that reach its q) / (1 + orders tried). What is significant is split further on both sides. Trying ends
as soon as p can no longer be significant (Besag and Clifford 1991).

The test keeps its level whatever the distribution of noise, but not if neighbours are alike: slow drift must be taken
out before, which is why nights are ratios to a reference on the same host.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.estimation.student import quantile_t

Floats = NDArray[np.float64]

# Random orders tried at once: the first such batch decides most series that did not change.
_BATCH = 16
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """`least`: values on either side. `window`: the most values looked at together. `floor` is a share: smaller changes
    are none. What is significant by `orders` is tried with `fine_orders`, if they are more, for a p that small.
    """

    alpha: float = 0.01
    orders: int = 499
    fine_orders: int = 0
    least: int = 3
    window: int = 60
    floor: float = 0.03
    confidence: float = 0.99


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """`index` is the first value of the new level. `difference`: mean after - mean before, up to the change points
    beside it, with its interval (pooled t).
    """

    index: int
    p: float
    before: float
    after: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        return self.after - self.before


def change_points(values: Sequence[float], series_id: str, rules: ChangeRules | None = None) -> tuple[ChangePoint, ...]:
    """Change points of log values, in their order. The same values, id and rules give the same points.

    Long series are looked at in windows that overlap by half, the newest first.
    """
    rules = rules or ChangeRules()
    data = np.asarray(values, dtype=np.float64)
    found: dict[int, float] = {}
    end = len(data)
    while end >= 2 * rules.least:
        begin = max(0, end - rules.window)
        for index, p in _split(data[begin:end], begin, _seed(series_id), rules):
            if all(abs(index - known) >= rules.least for known in found):
                found[index] = p
        if begin == 0:
            break
        end -= rules.window // 2
    return _large_enough(data, found, rules)


def split_scores(values: Floats, least: int) -> Floats:
    """q of every split with at least `least` values on both sides: of the first `least` against the rest, and on."""
    scores: Floats = _scores(values[None, :], least)[0]
    return scores


def _scores(orders: Floats, least: int) -> Floats:
    """(orders, n) -> (orders, splits)."""
    n = orders.shape[1]
    distances = np.abs(orders[:, :, None] - orders[:, None, :])
    k = np.arange(least, n - least + 1)
    m = n - k
    # Sums of distances from each value to those before it, and to all.
    before = np.einsum("oij,ij->oi", distances, np.tri(n, k=-1))
    to_all = distances.sum(axis=2).cumsum(axis=1)
    left = 2 * before.cumsum(axis=1)[:, k - 1]
    across = to_all[:, k - 1] - left
    right = to_all[:, -1:] - left - 2 * across
    scores: Floats = k * m / n * (2 * across / (k * m) - left / k**2 - right / m**2)
    return scores


def _split(values: Floats, offset: int, rng: np.random.Generator, rules: ChangeRules) -> list[tuple[int, float]]:
    """(index, p) of the significant splits of these values, recursively."""
    if len(values) < 2 * rules.least or float(np.ptp(values)) <= _TINY:
        return []
    scores = split_scores(values, rules.least)
    best = int(scores.argmax())
    p = _p_value(values, float(scores[best]), rng, rules)
    if p > rules.alpha:
        return []
    k = best + rules.least
    return [
        *_split(values[:k], offset, rng, rules),
        (offset + k, p),
        *_split(values[k:], offset + k, rng, rules),
    ]


def _p_value(values: Floats, score: float, rng: np.random.Generator, rules: ChangeRules) -> float:
    """Of the best split. Two scores that differ by rounding are equal."""
    reached = tried = 0
    for most in (rules.orders, rules.fine_orders):
        enough = math.floor(rules.alpha * (most + 1))
        while tried < most and reached < enough:
            batch = _BATCH if tried < 4 * _BATCH else 4 * _BATCH
            orders = rng.permuted(np.tile(values, (min(batch, most - tried), 1)), axis=1)
            reached += int((_scores(orders, rules.least).max(axis=1) >= score * (1 - 1e-9)).sum())
            tried += len(orders)
        if (1 + reached) / (1 + tried) > rules.alpha:
            break
    return (1 + reached) / (1 + tried)


def _large_enough(data: Floats, found: dict[int, float], rules: ChangeRules) -> tuple[ChangePoint, ...]:
    """Drop the smallest change until all reach the floor; the levels beside it become one each time."""
    limit = math.log1p(rules.floor)
    indices = sorted(found)
    while True:
        points = [_point(data, indices, i, found[index], rules) for i, index in enumerate(indices)]
        if not points:
            return ()
        smallest = min(range(len(points)), key=lambda i: abs(points[i].difference))
        if abs(points[smallest].difference) >= limit:
            return tuple(points)
        del indices[smallest]


def _point(data: Floats, indices: Sequence[int], i: int, p: float, rules: ChangeRules) -> ChangePoint:
    begin = indices[i - 1] if i else 0
    end = indices[i + 1] if i + 1 < len(indices) else len(data)
    left, right = data[begin : indices[i]], data[indices[i] : end]
    df = len(left) + len(right) - 2
    squares = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
    error = math.sqrt(squares / df * (1 / len(left) + 1 / len(right)))
    half = quantile_t(df, 0.5 + rules.confidence / 2) * error
    before, after = float(left.mean()), float(right.mean())
    return ChangePoint(indices[i], p, before, after, after - before - half, after - before + half)


def _seed(series_id: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.sha256(series_id.encode()).digest()[:8], "big"))
