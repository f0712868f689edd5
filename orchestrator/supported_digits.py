"""Numbers with as many digits as their intervals support. Pure."""

from __future__ import annotations

import math

_DIGITS = 4


def shown(value: float, low: float | None = None, high: float | None = None) -> str:
    """At most four digits, and none below the first one of half the interval (the second one where that is a 1)."""
    if low is None or high is None or not high > low or not math.isfinite(high - low) or not value:
        return plain(value)
    half = (high - low) / 2
    place = math.floor(math.log10(half))
    if half / 10**place < 1.95:
        place -= 1
    place = max(place, _last_place(value))
    # A value below its own uncertainty keeps its first digit.
    return _to_place(value, min(place, math.floor(math.log10(abs(value)))))


def plain(value: float) -> str:
    """Four digits (`14.00`, `188.0`, `12350`), so that a column reads straight; never `1.235e+04` in place of a speed.
    Whole numbers stay whole."""
    size = abs(value)
    if not math.isfinite(value) or not 1e-4 <= size < 1e15:
        return f"{value:.{_DIGITS}g}"
    if value == int(value):
        return f"{value:.0f}"
    return _to_place(value, _last_place(value))


def _last_place(value: float) -> int:
    """Of the fourth digit: 99.997 becomes 100.0, not 100.00."""
    place = math.floor(math.log10(abs(value))) - _DIGITS + 1
    return place + (abs(round(value, -place)) >= 10.0 ** (place + _DIGITS))


def _to_place(value: float, place: int) -> str:
    """Rounded to a power of ten: 0 for whole numbers, -1 for one decimal."""
    return f"{round(value, -place):.{max(-place, 0)}f}"


def percent(share: float, low: float | None = None, high: float | None = None) -> str:
    """A share as percent: one decimal, none where the interval is wider than 10 points."""
    wide = low is not None and high is not None and high - low > 0.10
    return f"{share:.{0 if wide else 1}%}"
