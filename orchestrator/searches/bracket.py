"""The largest value of a list that still holds, by as few probes as can be. Pure.

`yes` and `no` are indices known to hold and not to hold; what holds at one index holds at all below. -1 and `count`
stand for the ends. One probe at a time bisects; k at once cut what is left into k + 1 parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Bracket:
    """The ceiling lies in [yes, no): `yes` holds or is -1, `no` does not or is `count`."""

    count: int
    yes: int = -1
    no: int = -1

    @classmethod
    def of(cls, count: int, holds: Sequence[int], fails: Sequence[int]) -> Bracket:
        """Of what was told so far; the caller has checked that nothing holds above what fails."""
        return cls(count, max(holds, default=-1), min(fails, default=count))

    @property
    def closed(self) -> bool:
        return self.no == self.yes + 1

    def probes(self, wanted: int, guess: int | None, pending: Sequence[int] = ()) -> list[int]:
        """At most `wanted` indices to try next, those that are `pending` aside, the most useful first.

        With a guess and nothing known it goes there, then away from it in doubled steps until the verdict flips.
        """
        if self.closed or wanted <= 0:
            return []
        first = [i for i in self._gallop(guess) if i not in pending]
        if not first and not pending:
            parts = min(wanted, self.no - self.yes - 1) + 1
            first = [self.yes + (self.no - self.yes) * i // parts for i in range(1, parts)]
        chosen = first[:wanted]
        taken = {i for i in (*pending, *chosen) if self.yes < i < self.no}
        while len(chosen) < wanted:
            pick = _widest_middle(self.yes, self.no, sorted(taken))
            if pick is None:
                break
            chosen.append(pick)
            taken.add(pick)
        return chosen

    def _gallop(self, guess: int | None) -> list[int]:
        """The next step from the guess, while one side of the bracket is still the end of the list."""
        if guess is None:
            return []
        guess = min(max(guess, 0), self.count - 1)
        if self.yes < 0 and self.no == self.count:
            return [guess]
        if self.no == self.count and self.yes >= guess:
            return [min(self.yes + max(1, self.yes - guess + 1), self.count - 1)]
        if self.yes < 0 and self.no <= guess:
            return [max(self.no - max(1, guess - self.no + 1), 0)]
        return []


def _widest_middle(yes: int, no: int, taken: list[int]) -> int | None:
    """The middle of the widest gap between what is known and what is asked."""
    edges = [yes, *taken, no]
    low, high = max(pairwise(edges), key=lambda e: (e[1] - e[0], -e[0]))
    return (low + high) // 2 if high - low > 1 else None
