"""Change points of many series together: which of them chance would not bring. Pure.

Every change point is a test, and every series without one too (with p 1) if it has values enough for one; q is that of
Benjamini and Hochberg (1995) over them all. The more series there are, the smaller a p must be, and the more orders are
tried of those in doubt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.estimation.false_discoveries import false_discoveries
from orchestrator.history.change_points import ChangePoint, ChangeRules, change_points

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
    own_rules = {name: replace(rules, floor=floors.get(name, rules.floor)) for name in series}
    found = {name: change_points(values, name, own_rules[name]) for name, values in series.items()}
    testable = sum(1 for values in series.values() if len(values) >= 2 * rules.least)
    qs = _q_values(found, testable)
    unsure = [name for name, own in qs.items() if any(q > DISCOVERIES for q in own)]
    if unsure:
        # Twice as fine as the p that a single change point among all needs.
        fine = math.ceil(2 * testable / DISCOVERIES)
        found |= {
            name: change_points(series[name], name, replace(own_rules[name], fine_orders=fine)) for name in unsure
        }
        qs = _q_values(found, testable)
    return {
        name: tuple(Change(point, q) for point, q in zip(points, qs[name], strict=True))
        for name, points in found.items()
    }


def _q_values(found: Mapping[str, Sequence[ChangePoint]], testable: int) -> dict[str, tuple[float, ...]]:
    """The q of every point; `testable` series had values enough for one."""
    tests = [point.p for points in found.values() for point in points]
    if not tests:
        return dict.fromkeys(found, ())
    without = testable - sum(1 for points in found.values() if points)
    qs = iter(false_discoveries([*tests, *([1.0] * without)]))
    return {name: tuple(next(qs) for _ in points) for name, points in found.items()}
