"""A history as lines: one a series, with its segments, its change points, and what changed there. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.history.change_points import ChangeRules
from orchestrator.history.history_changes import Change, changes
from orchestrator.history.night_history import History, Mark
from orchestrator.nights.expected_changes import ExpectedChange, expected_shift
from orchestrator.nights.night import End, Kind, Night, SeriesKey, SeriesNight, Verdict, better_sign
from orchestrator.nights.night_evidence import share_text
from orchestrator.nights.night_rules import FLOORS
from orchestrator.nights.night_segments import Segment, between, segments
from orchestrator.nights.night_text import ORDER

# A change point is news for so many nights.
RECENT_NIGHTS = 7


@dataclass(frozen=True, slots=True)
class PlacedChange:
    """A change point of a line: `at` is the position of the first night with the new level. `between`: what changed
    from the night before to it. `mark`: what people said of it.
    """

    at: int
    change: Change
    between: tuple[str, ...]
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a config began or ceased to be served by the candidate."""

    at: int
    text: str
    worse: bool


@dataclass(frozen=True, slots=True)
class SeriesLine:
    """One series of a scenario: its measured nights, oldest first, and what is told of them. `missed`: how many
    measured nights of the scenario came after its last.
    """

    scenario: str
    key: SeriesKey
    label: str
    nights: tuple[Night, ...]
    values: tuple[SeriesNight, ...]
    segments: tuple[Segment, ...]
    changes: tuple[PlacedChange, ...] = ()
    turns: tuple[Turn, ...] = ()
    shifts: tuple[str, ...] = ()
    missed: int = 0

    @property
    def is_current(self) -> bool:
        """What is not measured any more is no news."""
        return self.missed < RECENT_NIGHTS

    @property
    def last(self) -> SeriesNight:
        return self.values[-1]

    def is_worse(self, change: PlacedChange) -> bool:
        return change.change.point.difference * better_sign(self.key.metric) < 0

    def news(self, nights: int = RECENT_NIGHTS) -> tuple[PlacedChange, ...]:
        """Sure worsenings among the last nights."""
        if not self.is_current:
            return ()
        return tuple(
            c for c in self.changes if c.change.sure and self.is_worse(c) and c.at >= len(self.values) - nights
        )

    @property
    def death(self) -> Turn | None:
        """How it ceased to be served, if it still does not."""
        return self.turns[-1] if self.is_current and self.turns and self.turns[-1].worse else None


def by_urgency(lines: Sequence[SeriesLine]) -> list[SeriesLine]:
    """What a reader must see first: what no longer serves, what got worse of late, then by the verdict of the newest
    night, the largest difference first; what is not measured any more last.
    """
    return sorted(lines, key=_urgency)


def _urgency(line: SeriesLine) -> tuple[bool, bool, bool, bool, int, bool, float]:
    news = line.news()
    sizes = [change.change.point.difference for change in news] or [line.last.difference or 0.0]
    verdict = line.last.verdict
    is_quiet = verdict is Verdict.SAME and not news  # these stay as they were
    return (
        not line.is_current, line.death is None, all(change.mark is not None for change in news), not news,
        ORDER.index(verdict), not (line.changes or line.turns), 0.0 if is_quiet else -max(map(abs, sizes)),
    )  # fmt: skip


def needs_attention(line: SeriesLine) -> bool:
    """Whether it is not what it was, or nobody can tell."""
    is_open = line.last.verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE)
    return line.death is not None or bool(line.news()) or (line.is_current and is_open)


def history_lines(
    history: History, expected: Sequence[ExpectedChange] = (), rules: ChangeRules | None = None
) -> tuple[SeriesLine, ...]:
    """Every series, by scenario and then as the newest night has them; false discoveries are controlled over all."""
    lines = []
    for scenario in history.scenarios:
        lines += _bare_lines(scenario, history.of_scenario(scenario), expected)
    rules = rules or ChangeRules()
    stretches: dict[str, tuple[int, list[int]]] = {}
    values: dict[str, list[float]] = {}
    floors: dict[str, float] = {}
    for number, line in enumerate(lines):
        for part in line.segments:
            places = [i for i in range(part.begin, part.end) if line.values[i].difference is not None]
            name = f"{line.scenario} {line.key.series_id} {line.nights[part.begin].night_id}"
            stretches[name] = (number, places)
            values[name] = [line.values[i].difference or 0.0 for i in places]
            floors[name] = floor_of(line.last, rules)
    found = changes(values, rules, floors)
    placed: dict[int, list[PlacedChange]] = {}
    for name, own in found.items():
        number, places = stretches[name]
        for change in own:
            placed.setdefault(number, []).append(_placed(history, lines[number], places[change.point.index], change))
    return tuple(replace(line, changes=tuple(placed.get(i, ()))) for i, line in enumerate(lines))


def floor_of(last: SeriesNight, rules: ChangeRules) -> float:
    """That of the rules, or that of its nights where they ask for more (high percentiles, floors of the scenario); of
    start-up and cache size, which differ by nature, that of its nights.
    """
    if last.kind in {Kind.START, Kind.KV_TOKENS}:
        return last.floor or FLOORS[last.kind]
    return max(rules.floor, last.floor)


def _bare_lines(scenario: str, history: History, expected: Sequence[ExpectedChange]) -> list[SeriesLine]:
    seen: dict[SeriesKey, list[tuple[Night, SeriesNight]]] = {}
    for night in reversed(history.nights):
        for one in () if night.gap is not None else night.series:
            seen.setdefault(one.key, []).append((night, one))
    measured = [night.night_id for night in reversed(history.nights) if night.gap is None]
    lines = []
    for key, pairs in seen.items():
        nights = tuple(night for night, _ in reversed(pairs))
        values = tuple(one for _, one in reversed(pairs))
        label = values[-1].measured.label
        line = SeriesLine(scenario, key, label, nights, values, segments(nights, key, label, expected))
        told = replace(line, turns=tuple(_turns(line)), shifts=tuple(_shifts(line, expected)))
        lines.append(replace(told, missed=measured.index(nights[-1].night_id)))
    return lines


def _placed(history: History, line: SeriesLine, at: int, change: Change) -> PlacedChange:
    what = between(line.nights[at - 1], line.nights[at], line.key.host_class) if at else ()
    return PlacedChange(at, change, what, history.mark_of(line.nights[at], line.key.series_id))


def _turns(line: SeriesLine) -> list[Turn]:
    """Nights in which the candidate served while it had not before, or the other way round."""
    if line.key.metric != Kind.FEASIBLE:
        return []
    turns, before = [], None
    for i, one in enumerate(line.values):
        ends = [start for start in one.measured.starts if start.candidate is not End.FAILED]
        if not ends:
            continue
        served = all(start.candidate is End.SERVED for start in ends)
        if before is not None and served is not before:
            why = next((s.diagnosis for s in ends if s.diagnosis), "no diagnosis")
            turns.append(Turn(i, "serves again" if served else f"dies ({why})", worse=not served))
        before = served
    return turns


def _shifts(line: SeriesLine, expected: Sequence[ExpectedChange]) -> list[str]:
    """How large the expected shifts came, where both sides were measured."""
    told = []
    for before, after in zip(line.segments, line.segments[1:], strict=False):
        nights = (line.nights[before.end - 1], line.nights[after.begin])
        asked = [expected_shift(expected, line.key, line.label, line.scenario, night.at) for night in nights]
        if math.isclose(asked[0], asked[1]):
            continue
        means = [_mean(line.values[part.begin : part.end]) for part in (before, after)]
        if means[0] is None or means[1] is None:
            continue
        came, wanted = means[1] - means[0], asked[1] - asked[0]
        told.append(f"{nights[1].at[:10]}: expected {share_text(wanted)}, came {share_text(came)}")
    return told


def _mean(values: Sequence[SeriesNight]) -> float | None:
    known = [one.difference for one in values if one.difference is not None]
    return math.fsum(known) / len(known) if known else None
