"""How long a forward pass takes and how many tokens it yields. Pure: no clock, no randomness without a seed.

A decode step of `batch` requests at speculation depth d costs `base(d) + slope(d) * (batch - 1) ** exponent`.
A verify yields 1 token plus the accepted drafts; their number follows a truncated geometric law (each draft is
accepted with the same probability, given that the one before was) whose mean is the calibrated accept length.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class DepthSpeed:
    """One speculation depth: accept length in tokens per verify, step base and slope in milliseconds."""

    accept_length: float
    base_ms: float
    slope_ms: float


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """Depth 0 is plain decoding. Depths between two given ones are interpolated; beyond the last they continue
    its trend in time, while the accept length stays flat (drafts that far ahead are hardly ever right).

    Prefill is a roofline: never below `prefill_floor_ms` (weights are read once), then `prefill_ms_per_token`.
    A batch above the captured graphs runs `eager_penalty` times longer.
    """

    depths: tuple[tuple[int, DepthSpeed], ...]
    exponent: float = 1.1
    prefill_floor_ms: float = 12.0
    prefill_ms_per_token: float = 0.046875
    eager_penalty: float = 1.35

    def at(self, depth: int) -> DepthSpeed:
        """The three numbers of a speculation depth."""
        below = max((p for p in self.depths if p[0] <= depth), key=lambda p: p[0])
        above = min((p for p in self.depths if p[0] >= depth), key=lambda p: p[0], default=None)
        if above is None:
            return self._beyond(depth)
        if above[0] == below[0]:
            return below[1]
        share = (depth - below[0]) / (above[0] - below[0])
        return _blend(below[1], above[1], share)

    def _beyond(self, depth: int) -> DepthSpeed:
        (d0, first), (d1, last) = self.depths[-2:]
        further = _blend(first, last, (depth - d0) / (d1 - d0))
        return DepthSpeed(last.accept_length, further.base_ms, further.slope_ms)

    def step_time_s(self, batch: int, num_steps: int, tree: float = 1.0, captured: bool = True) -> float:
        """Seconds of one decode or draft-and-verify step. `tree` is draft tokens / (steps + 1), 1 for a chain."""
        speed = self.at(num_steps)
        milliseconds: float = speed.base_ms + speed.slope_ms * tree * (batch - 1) ** self.exponent
        return milliseconds * (1.0 if captured else self.eager_penalty) / 1000

    def accept_length(self, num_steps: int) -> float:
        """Mean tokens per verify, the bonus token included; 1 without speculation."""
        return self.at(num_steps).accept_length

    def prefill_time_s(self, new_tokens: int) -> float:
        """Seconds to compute `new_tokens` prompt tokens in one batch."""
        return max(self.prefill_floor_ms, self.prefill_ms_per_token * new_tokens) / 1000


def _blend(a: DepthSpeed, b: DepthSpeed, share: float) -> DepthSpeed:
    def between(x: float, y: float) -> float:
        return x + (y - x) * share

    return DepthSpeed(
        between(a.accept_length, b.accept_length), between(a.base_ms, b.base_ms), between(a.slope_ms, b.slope_ms)
    )


@lru_cache(maxsize=64)
def acceptance_thresholds(mean_accepted: float, depth: int) -> tuple[float, ...]:
    """P(at least k drafts accepted) for k = 1..depth: p, p^2, ... with p such that they sum to the mean."""
    if depth < 1:
        return ()
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        total = sum(p**k for k in range(1, depth + 1))
        low, high = (p, high) if total < mean_accepted else (low, p)
    return tuple(low**k for k in range(1, depth + 1))


class AcceptanceDraws:
    """Accepted drafts of one request, verify by verify.

    Draws are stratified by a golden-ratio sequence with a random phase, so that already a few dozen verifies
    have the right mean: a short measurement is not blurred by luck that a real server would average out.
    """

    __slots__ = ("_point", "_thresholds")

    def __init__(self, thresholds: tuple[float, ...], rng: random.Random) -> None:
        self._thresholds = thresholds
        self._point = rng.random()

    def draw(self) -> int:
        """Accepted drafts of the next verify, 0 .. depth."""
        self._point = (self._point + GOLDEN) % 1.0
        accepted = 0
        for threshold in self._thresholds:
            if self._point >= threshold:
                break
            accepted += 1
        return accepted
