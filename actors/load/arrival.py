"""When requests are due, in nanoseconds from the start of a phase. Pure.

Times are absolute, so a late send does not move those after it. They are conditioned on their count: the first request
is due at once, and the gaps are scaled so that the last one is due when as many have come at the asked rate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from orchestrator.traffic import Arrival


@dataclass(frozen=True, slots=True)
class _Piece:
    """From `at_s` on the rate is `rate` + `slope` x seconds since then; `before` requests came earlier."""

    at_s: float
    before: float
    rate: float
    slope: float

    def requests_at(self, t_s: float) -> float:
        gone = t_s - self.at_s
        return self.before + self.rate * gone + self.slope * gone * gone / 2

    def time_of(self, requests: float) -> float:
        """The root of the quadratic that keeps its digits when the slope is small."""
        left = requests - self.before
        root = math.sqrt(max(self.rate * self.rate + 2 * self.slope * left, 0.0))
        return self.at_s + (2 * left / (self.rate + root) if left > 0 else 0.0)


class RateCurve:
    """The rate over time, piecewise linear: steps, and a ramp from 0. Turns times into counts of requests and back."""

    def __init__(self, rate: float, arrival: Arrival) -> None:
        ends = list(accumulate(seconds for seconds, _ in arrival.steps))[:-1]
        cuts = sorted({0.0, *ends, *([arrival.ramp_s] if arrival.ramp_s else [])})
        self._pieces: list[_Piece] = []
        for at_s in cuts:
            passed = sum(end <= at_s for end in ends)
            full = rate * (arrival.steps[passed][1] if arrival.steps else 1.0)
            ramping = at_s < arrival.ramp_s
            begin = full * at_s / arrival.ramp_s if ramping else full
            before = self._pieces[-1].requests_at(at_s) if self._pieces else 0.0
            self._pieces.append(_Piece(at_s, before, begin, full / arrival.ramp_s if ramping else 0.0))

    def requests_within(self, seconds: float) -> float:
        """How many requests are expected until then."""
        return next(p for p in reversed(self._pieces) if p.at_s <= seconds).requests_at(seconds)

    def time_of(self, requests: float) -> float:
        """Seconds until so many are expected."""
        piece = next((p for p in reversed(self._pieces) if p.before <= requests), self._pieces[0])
        return piece.time_of(requests)


def due_times(arrival: Arrival, rate: float, count: int, seed: str) -> list[int]:
    """When `count` requests are due under the asked rate per second. The arrival has been checked."""
    curve = RateCurve(rate, arrival)
    rng = random.Random(f"arrivals {seed}")
    between = range(count - 1)
    if arrival.kind == "constant":
        gaps = [1.0 for _ in between]
    elif arrival.kind == "gamma":
        gaps = [rng.gammavariate(arrival.burstiness, 1.0) for _ in between]
    else:
        gaps = [rng.expovariate(1.0) for _ in between]
    sums = list(accumulate(gaps, initial=0.0))[:count]
    total = sums[-1] if sums and sums[-1] > 0 else 1.0
    return [round(curve.time_of(at / total * (count - 1)) * 1e9) for at in sums]


def slot_starts(ramp_s: float, slots: int) -> list[int]:
    """When each slot of a closed loop sends its first request: evenly over the ramp, the first at once."""
    return [round(ramp_s * slot / slots * 1e9) for slot in range(slots)]


def trace_times(due_s: Sequence[float], scale: float) -> list[int]:
    """When the requests of a trace are due that is replayed `scale` times as fast; the first is due at once."""
    return [round((at - due_s[0]) / scale * 1e9) for at in due_s]
