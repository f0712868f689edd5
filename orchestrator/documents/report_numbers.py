"""Numbers of a report: as many digits as say something, in cells that sort by their value. Pure."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from orchestrator.documents.report_document import Cell, Tone
from orchestrator.supported_digits import shown

DIGITS = 4
_DIGITS = re.compile(r"(\d+)", re.ASCII)
NOTHING = Cell("-")


def rounded(value: float | None, digits: int = DIGITS) -> float | None:
    """Four significant digits, so that a document of hundreds of trials stays small; None for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    short = float(f"{value:.{digits}g}")
    return short if math.isfinite(short) else value  # the largest numbers have none above them


def cell(value: float | None, low: float | None = None, high: float | None = None, *, tone: Tone = "plain") -> Cell:
    """A number with the digits that its interval supports."""
    short = rounded(value)
    if value is None or short is None:
        return NOTHING
    return Cell(shown(float(value), low, high), sort=short, tone=tone)


def duration(value: float | None) -> Cell:
    """Seconds: hundredths below ten, tenths above; nobody asks for more of a start."""
    return NOTHING if value is None else Cell(f"{value:.{2 if value < 10 else 1}f}", sort=round(value, 3))


def count(value: float | None) -> Cell:
    """A whole number."""
    return NOTHING if value is None else Cell(f"{int(value):,}", sort=int(value))


def seconds(value: float | None) -> str:
    """`2.3 s`, `4 min 10 s`, `3 h 5 min`."""
    if value is None:
        return "-"
    if value < 99.5:
        return f"{value:.3g} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def clock(iso: str) -> str:
    """`2026-11-30 13:48:16 UTC`; what is no time in ISO form stays as it is."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{at.astimezone(UTC) if at.tzinfo else at:%Y-%m-%d %H:%M:%S} UTC"


def gib(value: float | None) -> Cell:
    """GiB, two decimals at most."""
    return NOTHING if value is None else Cell(f"{value:.2f}", sort=round(value, 2))


def more_in(left: int, place: str) -> str:
    """Where the rows are that a table has no room for; empty without any."""
    return f"{left:,} more are in {place}." if left > 0 else ""


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts names such that `h2` comes before `h10`."""
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(name) if part)


def clipped(text: str, most: int) -> str:
    """At most so many letters, with the number of those that were left out."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text) - most:,} more characters)"
