"""Change points of many series together: which of them chance would not bring. Pure.

Every change point is a test, and every series without one too (with p 1); q is that of Benjamini and Hochberg (1995)
over them all. So many tests need a p that small, so the more series there are, the more orders are tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.change_points import ChangePoint, ChangeRules, change_points

# A q above this may be chance.
DISCOVERIES = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """A change point with its q; `sure` if q is small enough."""

    point: ChangePoint
    q: float

    @property
    def sure(self) -> bool:
        return self.q <= DISCOVERIES


def changes(
    series: Mapping[str, Sequence[float]], rules: ChangeRules | None = None, floors: Mapping[str, float] | None = None
) -> dict[str, tuple[Change, ...]]:
    """Change points by series, in their order. `floors`: of series whose floor is not that of the rules."""
    rules, floors = rules or ChangeRules(), floors or {}
    # Twice as fine as the p that a single change point among all needs.
    rules = replace(rules, fine_orders=math.ceil(2 * max(len(series), 1) / DISCOVERIES))
    found = {
        name: change_points(values, name, replace(rules, floor=floors.get(name, rules.floor)))
        for name, values in series.items()
    }
    tests = [point.p for points in found.values() for point in points]
    if not tests:
        return dict.fromkeys(found, ())
    from scipy.stats import false_discovery_control

    without = sum(1 for points in found.values() if not points)
    qs = iter(false_discovery_control([*tests, *([1.0] * without)]))
    return {name: tuple(Change(point, float(next(qs))) for point in points) for name, points in found.items()}
