"""Whether an expression makes sense: which way of it is better, and in which unit it is. Pure."""

from __future__ import annotations

from typing import Literal

from orchestrator.objectives.expression import Arithmetic, Expression, Fold, Number, Reading
from orchestrator.points.metric_names import RANKABLE

Direction = Literal["max", "min", "none"]
_TURNED: dict[Direction, Direction] = {"max": "min", "min": "max", "none": "none"}


def direction(expression: Expression) -> Direction:
    """Which way is better; "none" if it says nothing of good or bad. ValueError where parts pull both ways.

    A divisor and what is subtracted count the other way round; a quotient or a difference of two alike (speed at C=16
    by speed at C=1) says nothing. Values are taken to be above 0, as all metrics are.
    """
    ways = _ways(expression)
    up = next((reading for reading, way in ways if way == "max"), None)
    down = next((reading for reading, way in ways if way == "min"), None)
    if up is None or down is None:
        return "max" if up is not None else "min" if down is not None else "none"
    if isinstance(expression, Arithmetic) and expression.sign in "-/":
        return "none"
    raise ValueError(
        f"mixes {up}, which is better when larger, with {down}, which is better when smaller; turn one round, e.g. "
        f"1 / {down.metric}"
    )


def _ways(expression: Expression) -> list[tuple[Reading, Direction]]:
    """The metrics that say which way the value is better, and which way by each."""
    if isinstance(expression, Number):
        return []
    if isinstance(expression, Reading):
        return [(expression, RANKABLE[expression.metric].direction)]
    if isinstance(expression, Fold):
        return [found for _, part in expression.parts for found in _telling(part)]
    right = _telling(expression.right)
    if expression.sign in "-/":
        right = [(reading, _TURNED[way]) for reading, way in right]
    return _telling(expression.left) + right


def _telling(part: Expression) -> list[tuple[Reading, Direction]]:
    return _ways(part) if direction(part) != "none" else []


def unit(expression: Expression) -> str:
    """Its unit, empty for none or one that has no name. ValueError where unlike units are added or averaged."""
    return _unit(expression) or ""


def _unit(expression: Expression) -> str | None:
    """None for a plain number, which goes with every unit."""
    if isinstance(expression, Number):
        return None
    if isinstance(expression, Reading):
        return RANKABLE[expression.metric].unit
    if isinstance(expression, Fold):
        units = [own for _, part in expression.parts if (own := _unit(part)) is not None]
        if len(set(units)) > 1 and expression.function != "geomean":
            raise ValueError(_unlike(expression.function, units))
        return None if not units else units[0] if len(set(units)) == 1 else ""
    return _unit_of_two(expression)


def _unit_of_two(expression: Arithmetic) -> str | None:
    left, right = _unit(expression.left), _unit(expression.right)
    if expression.sign in "+-":
        if left is not None and right is not None and left != right:
            raise ValueError(_unlike("adding" if expression.sign == "+" else "subtracting", [left, right]))
        return right if left is None else left
    if expression.sign == "*":
        return (right if left is None else left) if left is None or right is None else ""
    if right is None or left is None:
        return left if right is None else f"1/{right}" if right else ""
    return "" if left == right else f"{left} per {right}" if left and right else left or f"1/{right}"


def _unlike(what: str, units: list[str]) -> str:
    shown = " and ".join(dict.fromkeys(unit or "a share or number" for unit in units))
    return f"has {shown} in one {what}; use geomean, or divide each by a number of its own unit's size"
