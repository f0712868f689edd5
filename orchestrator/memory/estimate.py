"""A predicted amount of memory and how far it may be off. Pure."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Estimate:
    """GiB, and the bound of its error in GiB. Bounds add: what is sure must be sure if all errors go one way."""

    gib: float
    error_gib: float = 0.0

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.gib + other.gib, self.error_gib + other.error_gib)

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.gib - other.gib, self.error_gib + other.error_gib)

    def holds(self, gib: float) -> bool:
        """Whether a true value lies within the bound."""
        return abs(gib - self.gib) <= self.error_gib


ZERO = Estimate(0.0)
