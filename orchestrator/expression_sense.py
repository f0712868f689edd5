"""Whether an expression makes sense: which way of it is better, and in which unit it is. Pure."""

from __future__ import annotations

from typing import Literal

from orchestrator.expression import Arithmetic, Expression, Fold, Number, Reading, parse
from orchestrator.metric_names import metric_named

Direction = Literal["max", "min", "none"]
_TURNED: dict[Direction, Direction] = {"max": "min", "min": "max", "none": "none"}


def direction(expression: Expression) -> Direction:
    """Which way is better; "none" if it says nothing of good or bad. ValueError where parts pull both ways.

    A divisor and what is subtracted count the other way round. Values are taken to be above 0, as all metrics are.
    """
    if isinstance(expression, Number):
        return "none"
    if isinstance(expression, Reading):
        return metric_named(expression.metric).direction
    if isinstance(expression, Fold):
        ways = [direction(part) for _, part in expression.parts]
    else:
        right = direction(expression.right)
        ways = [direction(expression.left), _TURNED[right] if expression.sign in "-/" else right]
    if "max" in ways and "min" in ways:
        up, down = _first(expression, "max"), _first(expression, "min")
        raise ValueError(
            f"mixes {up}, which is better when larger, with {down}, which is better when smaller; turn one round, e.g. "
            f"1 / {down.metric}"
        )
    return "max" if "max" in ways else "min" if "min" in ways else "none"


def _first(expression: Expression, way: Direction) -> Reading:
    """The first metric that is better in that direction where it stands."""
    return next(reading for reading, found in _ways(expression, "max") if found == way)


def _ways(expression: Expression, sense: Direction) -> list[tuple[Reading, Direction]]:
    if isinstance(expression, Number):
        return []
    if isinstance(expression, Reading):
        own = metric_named(expression.metric).direction
        return [(expression, own if sense == "max" else _TURNED[own])]
    if isinstance(expression, Fold):
        return [found for _, part in expression.parts for found in _ways(part, sense)]
    turned = _TURNED[sense] if expression.sign in "-/" else sense
    return _ways(expression.left, sense) + _ways(expression.right, turned)


def unit(expression: Expression) -> str:
    """Its unit, empty for none or one that has no name. ValueError where unlike units are added or averaged."""
    return _unit(expression) or ""


def _unit(expression: Expression) -> str | None:
    """None for a plain number, which goes with every unit."""
    if isinstance(expression, Number):
        return None
    if isinstance(expression, Reading):
        return metric_named(expression.metric).unit
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


def unit_of(text: str) -> str:
    """The unit of an expression that was checked."""
    return unit(parse(text))
