"""What a history holds: nights, gaps, and what people said of alarms. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from orchestrator.nights.night import Night, Verdict

Word = Literal["true", "false", "fixed"]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a person found out about a night's alarm: true, false, or fixed (true, and over). `series_id`: of one
    series; empty for all of the night that regressed. The newest mark counts.
    """

    night_id: str
    series_id: str
    verdict: Word
    note: str
    marked_by: str
    marked_at: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AlarmRecord:
    """Alarms of a history and how they were judged: `alarms` series-nights that regressed, of `looked_at`."""

    alarms: int
    true: int
    false: int
    looked_at: int

    @property
    def false_share(self) -> float | None:
        """Of those that people judged; None if none was."""
        judged = self.true + self.false
        return self.false / judged if judged else None

    @property
    def false_in_90_nights(self) -> float | None:
        """False alarms a series in 90 nights, if those that nobody judged are false as often as those that were; None
        if nothing was looked at or no alarm was judged.
        """
        if not self.looked_at or (self.alarms and self.false_share is None):
            return None
        return 90 * self.alarms * (self.false_share or 0.0) / self.looked_at


@dataclass(frozen=True, slots=True)
class History:
    """Nights oldest first, each once. `skipped` are parts that could not be read, with the reason."""

    nights: tuple[Night, ...] = ()
    marks: tuple[Mark, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def emulated(self) -> str:
        """What to know of nights of modelled servers, which are no evidence; empty if there are none."""
        modelled = sum(night.reference.is_emulated for night in self.nights)
        if not modelled:
            return ""
        all_of = "all" if modelled == len(self.nights) else f"{modelled} of {len(self.nights)}"
        return f"engine=emulator: {all_of} nights are of modelled servers; no GPU was measured in them"

    @classmethod
    def of(cls, nights: Iterable[Night], marks: Iterable[Mark], skipped: Iterable[str] = ()) -> History:
        """A night that was kept twice (stopped, then resumed) counts once, as it was measured most."""
        by_id: dict[str, Night] = {}
        for night in nights:
            known = by_id.get(night.night_id)
            if known is None or _measured_of(night) >= _measured_of(known):
                by_id[night.night_id] = night
        ordered = sorted(by_id.values(), key=lambda night: (night.at, night.night_id))
        return cls(tuple(ordered), tuple(sorted(marks, key=lambda mark: mark.marked_at)), tuple(skipped))

    @property
    def scenarios(self) -> tuple[str, ...]:
        return tuple(sorted({night.scenario for night in self.nights}))

    @property
    def gaps(self) -> tuple[Night, ...]:
        return tuple(night for night in self.nights if night.gap is not None)

    def of_scenario(self, scenario: str) -> History:
        """Only its nights; a series never goes on in another scenario."""
        return replace(self, nights=tuple(night for night in self.nights if night.scenario == scenario))

    def with_night(self, night: Night) -> History:
        """And one more night, or one that takes the place of its gap."""
        return History.of((*self.nights, night), self.marks, self.skipped)

    def since(self, at: str) -> History:
        """Nights from a time on (ISO; a date is its beginning)."""
        return replace(self, nights=tuple(night for night in self.nights if night.at >= at))

    def night(self, name: str) -> Night | None:
        """By its id or the beginning of it, or by its date; None unless it is exactly one."""
        found = [n for n in self.nights if n.night_id.startswith(name) or n.at.startswith(name)]
        return found[0] if len(found) == 1 else None

    def mark_of(self, night: Night, series_id: str) -> Mark | None:
        """The newest that is of this series in this night."""
        found = [m for m in self.marks if m.night_id == night.night_id and m.series_id in {"", series_id}]
        return found[-1] if found else None

    def alarm_record(self) -> AlarmRecord:
        """Over all nights and series that were measured."""
        looked_at = alarms = true = false = 0
        for night in self.nights:
            if night.gap is not None:
                continue
            looked_at += len(night.series)
            for one in night.of(Verdict.REGRESSED):
                alarms += 1
                mark = self.mark_of(night, one.key.series_id)
                if mark is not None:
                    true += mark.verdict != "false"
                    false += mark.verdict == "false"
        return AlarmRecord(alarms, true, false, looked_at)


def _measured_of(night: Night) -> tuple[bool, int]:
    """How much of it there is; names of parts tell nothing of their order."""
    pairs = sum(len(one.measured.pairs) + len(one.measured.starts) for one in night.series)
    return night.gap is None, pairs
