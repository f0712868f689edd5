"""A night as `night.json` has it, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.history.change_alarms import NO_GATE, ChangeAlarm, ChangeGate, gate_of_json
from orchestrator.history.night_rows import SERIES_COLUMNS, night_rows, nights_of
from orchestrator.nights.night import Night
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_text import headline

# What `night.json` has besides the night itself.
_BESIDES = {"series", "notes", "seconds", "fail_on_change", "change_alarms"}


@dataclass(frozen=True, slots=True)
class NightTold:
    """All that is told of a night: how long it took, what to know besides, and what the nights together show."""

    night: Night
    rules: NightRules
    seconds: float = 0.0
    notes: Sequence[str] = ()
    gate: ChangeGate = NO_GATE

    @property
    def alarms(self) -> tuple[ChangeAlarm, ...]:
        """Changes over the nights that decide the exit code; none of a gap, which measured nothing."""
        return self.gate.alarms if self.gate.fails and self.night.gap is None else ()


def night_json(told: NightTold) -> dict[str, Any]:
    """For machines: the night, and its series as the history has them."""
    night, rows = told.night, night_rows(told.night)
    shared = {name: value for name, value in rows[0].items() if name not in SERIES_COLUMNS}
    return {
        "verdict": None if night.verdict is None else night.verdict.value,
        "exit_code": told.gate.exit_code(night),
        "headline": headline(night),
        **shared,
        **told.gate.as_json(),
        "seconds": round(told.seconds, 1),
        "series": [{name: row[name] for name in SERIES_COLUMNS} for row in rows if row["series_id"]],
        "notes": list(told.notes),
    }


def night_of_json(told: Mapping[str, Any], rules: NightRules) -> NightTold:
    """What `night_json` made. KeyError, TypeError or ValueError for what is none."""
    shared = {name: value for name, value in told.items() if name not in _BESIDES}
    rows = [{**shared, **own} for own in told["series"]] or [{**shared, "series_id": None}]
    (night,) = nights_of(rows)
    return NightTold(night, rules, float(told["seconds"]), tuple(map(str, told["notes"])), gate_of_json(told))
