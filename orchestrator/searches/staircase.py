"""The boundary of a set of grid points that holds downward in both directions, by few probes. Pure.

If (row, column) holds, so does every point with no larger row and no larger column. So the boundary is one of the
monotone staircases between what is known; each probe is the one that splits their number best. A grid of 10 x 64 has
C(74, 10) of them: no method can do with less than log2 of that, 39.6 probes, on the average.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Cell = tuple[int, int]

# Answers of probes that are on their way: the next one is chosen for all of them, up to so many.
_MOST_BRANCHES = 16


@dataclass(frozen=True, slots=True)
class Staircase:
    """Row r has `low[r]` columns that are known to hold, and from `high[r]` on they are known not to."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @classmethod
    def of(cls, rows: int, columns: int, holds: Iterable[Cell] = (), fails: Iterable[Cell] = ()) -> Staircase:
        """Of what was told so far; the caller has checked that nothing holds above what fails."""
        known = cls((0,) * rows, (columns,) * rows)
        for cell in holds:
            known = known.told(cell, holds=True)
        for cell in fails:
            known = known.told(cell, holds=False)
        return known

    def told(self, cell: Cell, *, holds: bool) -> Staircase:
        """With one more answer, carried to all cells that it decides."""
        row, column = cell
        if holds:
            low = tuple(max(of, column + 1) if r <= row else of for r, of in enumerate(self.low))
            return Staircase(low, self.high)
        high = tuple(min(of, column) if r >= row else of for r, of in enumerate(self.high))
        return Staircase(self.low, high)

    @property
    def closed(self) -> bool:
        return self.low == self.high

    @property
    def ceilings(self) -> tuple[int, ...]:
        """For each row the largest column that is known to hold, -1 if none is."""
        return tuple(low - 1 for low in self.low)

    def probes(self, wanted: int, pending: Sequence[Cell] = ()) -> list[Cell]:
        """At most `wanted` cells to try next, the most useful first, each as if those before it and the `pending` were
        on their way.
        """
        branches, chosen = [self], list[Cell]()
        for known in pending:
            branches = _branched(branches, known)
        taken = set(pending)
        while len(chosen) < wanted:
            cell = _best(branches, taken)
            if cell is None:
                break
            chosen.append(cell)
            taken.add(cell)
            branches = _branched(branches, cell)
        return chosen

    def counts(self) -> list[list[int]]:
        """For each row r and each number of columns v: how many staircases have exactly v columns there that hold."""
        most = max(self.high) + 1
        above = self._ways(range(len(self.low)), most)
        below = self._ways(range(len(self.low) - 1, -1, -1), most)
        return [[a * b for a, b in zip(*pair, strict=True)] for pair in zip(above, below, strict=True)]

    def _ways(self, rows: Sequence[int], most: int) -> list[list[int]]:
        """For each row and each of its values: in how many ways the rows walked before it can lie."""
        down = rows[0] == 0
        found: list[list[int]] = [[]] * len(self.low)
        before: list[int] | None = None
        for r in rows:
            if before is None:
                ways = [1] * most
            elif down:  # a row further down holds no more than this one: the row above has v or more
                ways = list(accumulate(reversed(before)))[::-1]
            else:
                ways = list(accumulate(before))
            found[r] = ways
            before = [w if self.low[r] <= v <= self.high[r] else 0 for v, w in enumerate(ways)]
        return [
            [w if self.low[r] <= v <= self.high[r] else 0 for v, w in enumerate(found[r])] for r in range(len(self.low))
        ]


def _branched(branches: list[Staircase], cell: Cell) -> list[Staircase]:
    """Both answers of a probe in each branch that does not know it; the branches with most staircases, if too many."""
    found = []
    for known in branches:
        row, column = cell
        if known.low[row] <= column < known.high[row]:
            found += [known.told(cell, holds=True), known.told(cell, holds=False)]
        else:
            found.append(known)
    if len(found) > _MOST_BRANCHES:
        found.sort(key=lambda known: sum(known.counts()[0]), reverse=True)
    return found[:_MOST_BRANCHES]


def _best(branches: list[Staircase], taken: set[Cell]) -> Cell | None:
    """The cell whose answer tells most, in bits, over all branches by their number of staircases."""
    gain: dict[Cell, float] = {}
    for known in branches:
        counts = known.counts()
        total = sum(counts[0])
        for r, of in enumerate(counts):
            more = total
            for column in range(known.low[r], known.high[r]):
                more -= of[column]
                if (r, column) not in taken:
                    gain[r, column] = gain.get((r, column), 0.0) + total * _bits(more / total)
    best = max(gain, key=lambda cell: (gain[cell], cell), default=None)
    return best if best is not None and gain[best] > 0 else None


def _bits(p: float) -> float:
    return 0.0 if p <= 0 or p >= 1 else -p * math.log2(p) - (1 - p) * math.log2(1 - p)
