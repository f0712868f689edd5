"""Which worsenings over the nights end a command with exit code 1, where that is asked for. Pure.

A change point that is sure, worse, among the last nights of its series, and that nobody has marked; or a config that
the candidate ceased to serve in them while the reference still did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.history.change_points import ChangeRules
from orchestrator.history.history_lines import RECENT_NIGHTS, SeriesLine
from orchestrator.history.history_text import change_text, line_name, night_text
from orchestrator.history.night_history import History
from orchestrator.nights.night import Night, Verdict
from orchestrator.nights.night_text import exit_code

REGRESSED_EXIT_CODE = 1
# A level begins with so many nights, so nothing newer can be found.
LEAST_NIGHTS = ChangeRules().least


@dataclass(frozen=True, slots=True)
class ChangeAlarm:
    """`night_id`: the first night of the new level."""

    series_id: str
    night_id: str
    name: str
    text: str

    @property
    def line(self) -> str:
        return f"{self.name}: {self.text}"

    def as_json(self) -> dict[str, Any]:
        return {"series_id": self.series_id, "night_id": self.night_id, "series": self.name, "text": self.text}


@dataclass(frozen=True, slots=True)
class ChangeGate:
    """`alarms` of a history with tonight's night, and whether they decide the exit code."""

    is_on: bool = False
    alarms: tuple[ChangeAlarm, ...] = ()

    @property
    def fails(self) -> bool:
        return self.is_on and bool(self.alarms)

    def exit_code(self, night: Night) -> int:
        """That of the night; 1 for what only the nights together show. A gap stays one: tonight measured nothing."""
        return REGRESSED_EXIT_CODE if self.fails and night.gap is None else exit_code(night)

    def as_json(self) -> dict[str, Any]:
        return {"fail_on_change": self.is_on, "change_alarms": [alarm.as_json() for alarm in self.alarms]}


NO_GATE = ChangeGate()


def gate_of_json(told: Mapping[str, Any]) -> ChangeGate:
    """What `as_json` made; that of a night that was kept before there was one."""
    alarms = (
        ChangeAlarm(one["series_id"], one["night_id"], one["series"], one["text"])
        for one in told.get("change_alarms", ())
    )
    return ChangeGate(bool(told.get("fail_on_change", False)), tuple(alarms))


def how_to_mark(alarm: ChangeAlarm) -> str:
    """What ends an alarm that people have looked at."""
    return (
        f"fail_on_change: exit code 1 until it is old, or marked: specsweep history DIR --mark {alarm.night_id} "
        f"true|false|fixed --series {alarm.series_id}"
    )


def change_alarms(
    lines: Sequence[SeriesLine], history: History, nights: int = RECENT_NIGHTS
) -> tuple[ChangeAlarm, ...]:
    """The surest first, then what is served no longer."""
    changed = [(line, change) for line in lines for change in line.news(nights)]
    changed.sort(key=lambda pair: pair[1].change.q)
    found = [(line, change.at, change_text(line, change)) for line, change in changed]
    for line in lines:
        turn = line.death
        if turn is None or turn.at < len(line.values) - nights:
            continue
        if line.values[turn.at].verdict is Verdict.REGRESSED:  # else the reference died too: the hosts changed
            found.append((line, turn.at, f"{night_text(line.nights[turn.at].at)} {turn.text}"))
    return tuple(
        ChangeAlarm(line.key.series_id, line.nights[at].night_id, line_name(line), text)
        for line, at, text in found
        if not _is_marked(history, line, at)
    )


def _is_marked(history: History, line: SeriesLine, at: int) -> bool:
    """By a mark of the night; or one of this very series in a night beside it: where a level is seen to begin moves by
    a night or two as nights are added, and what was marked must not come back for that.
    """
    series_id = line.key.series_id
    if history.mark_of(line.nights[at], series_id) is not None:
        return True
    beside = line.nights[max(0, at - LEAST_NIGHTS + 1) : at + LEAST_NIGHTS]
    ids = {night.night_id for night in beside}
    return any(mark.series_id == series_id and mark.night_id in ids for mark in history.marks)
