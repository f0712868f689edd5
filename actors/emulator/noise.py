"""What makes two measurements of one config differ on real servers: the host, the start, the moment. Pure.

Each is a factor on the time of every step, log-normal around 1: drawn once for a host, once for a start of a server,
and anew for each point (a point begins by flushing the cache). All are fixed by the seed, so that a test knows the
truth that a measurement does not show.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, fields
from typing import Self

HIDDEN_FLAG = "--emulator-noise"


@dataclass(frozen=True, slots=True)
class NoiseLevels:
    """Standard deviations of the logarithms: 0.05 is about 5 %."""

    seed: int
    host: float
    start: float
    point: float

    @classmethod
    def of_text(cls, text: str) -> Self:
        """`SEED:HOST:START:POINT`; ValueError for anything else."""
        seed, *spreads = text.split(":")
        numbers = [float(word) for word in spreads]
        if len(numbers) != len(fields(cls)) - 1 or not all(0 <= number <= 1 for number in numbers):
            raise ValueError(f"{text!r} is not SEED:HOST:START:POINT with spreads from 0 to 1")
        return cls(int(seed), *numbers)


class Noise:
    """The noise of one start of a server. `start` tells it from all others: the same one is equally slow again."""

    def __init__(self, levels: NoiseLevels, host: str, start: str) -> None:
        self._levels = levels
        self._host = host
        self._start = start
        self._points = 0

    @property
    def factor(self) -> float:
        """How much longer than modelled a step takes now."""
        levels = self._levels
        return (
            self._drawn(levels.host, f"host {self._host}")
            * self._drawn(levels.start, f"start {self._start}")
            * self._drawn(levels.point, f"point {self._host} {self._start} {self._points}")
        )

    def next_point(self) -> None:
        """Another moment."""
        self._points += 1

    def _drawn(self, spread: float, what: str) -> float:
        return math.exp(random.Random(f"{self._levels.seed} {what}").gauss(0.0, spread))
