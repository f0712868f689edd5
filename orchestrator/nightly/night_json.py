"""A night as `night.json` has it, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.history.night_rows import SERIES_COLUMNS, night_rows, nights_of
from orchestrator.nights.night import Night
from orchestrator.nights.night_text import exit_code, headline


@dataclass(frozen=True, slots=True)
class KeptNight:
    """A night as it was judged, with what was told of the history then."""

    night: Night
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def night_json(night: Night, seconds: float, notes: Sequence[str]) -> dict[str, Any]:
    """For machines: the night, and its series as the history has them."""
    rows = night_rows(night)
    shared = {name: value for name, value in rows[0].items() if name not in SERIES_COLUMNS}
    return {
        "verdict": None if night.verdict is None else night.verdict.value,
        "exit_code": exit_code(night),
        "headline": headline(night),
        **shared,
        "seconds": round(seconds, 1),
        "series": [{name: row[name] for name in SERIES_COLUMNS} for row in rows if row["series_id"]],
        "notes": list(notes),
    }


def night_of_json(told: Mapping[str, Any]) -> KeptNight:
    """What `night_json` made. KeyError, TypeError or ValueError for what is none."""
    shared = {name: value for name, value in told.items() if name not in {"series", "notes", "seconds"}}
    rows = [{**shared, **own} for own in told["series"]] or [{**shared, "series_id": None}]
    (night,) = nights_of(rows)
    return KeptNight(night, tuple(map(str, told["notes"])), float(told["seconds"]))
