"""Numbers of a report: as many digits as say something, in cells that sort by their value. Pure."""

from __future__ import annotations

import math

from orchestrator.report_document import Cell, Tone
from orchestrator.supported_digits import shown

DIGITS = 4
NOTHING = Cell("-")


def rounded(value: float | None, digits: int = DIGITS) -> float | None:
    """Four significant digits, so that a document of hundreds of trials stays small; None for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    return float(f"{value:.{digits}g}")


def cell(value: float | None, low: float | None = None, high: float | None = None, *, tone: Tone = "plain") -> Cell:
    """A number with the digits that its interval supports."""
    short = rounded(value)
    if value is None or short is None:
        return NOTHING
    return Cell(shown(float(value), low, high), sort=short, tone=tone)


def count(value: float | None) -> Cell:
    """A whole number."""
    return NOTHING if value is None else Cell(f"{int(value):,}", sort=int(value))


def seconds(value: float | None) -> str:
    """`2.3 s`, `4 min 10 s`, `3 h 5 min`."""
    if value is None:
        return "-"
    if value < 120:
        return f"{value:.3g} s"
    minutes = round(value / 60) if value >= 7200 else int(value // 60)
    return f"{minutes // 60} h {minutes % 60} min" if value >= 7200 else f"{minutes} min {round(value % 60)} s"


def gib(value: float | None) -> Cell:
    """GiB, two decimals at most."""
    return NOTHING if value is None else Cell(f"{value:.2f}", sort=round(value, 2))


def plural(number: int, one: str, more: str = "") -> str:
    """`1 trial`, `2 trials`."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def clipped(text: str, most: int) -> str:
    """At most so many letters, with the number of those that were left out."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text) - most:,} more characters)"
