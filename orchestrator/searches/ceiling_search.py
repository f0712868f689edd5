"""The search for the largest values of settings that still serve. Pure.

Every combination of the other settings has a line (one searched setting) or a grid (two) of its own, and all go on at
the same time. A start that broke says nothing: another is made. Where something holds above what does not, the line
stops and both are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.searches.ceiling_line import Guess, Line, LineState, Seen, no_guess
from orchestrator.searches.search import Ask, Step, Told
from orchestrator.searches.search_table import SearchTable, in_turns
from orchestrator.searches.staircase import Cell
from orchestrator.trial import EngineConfig

_WHAT_TO_DO = "what to do: docs/search.md, `When starts disagree`"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What was found on one row of a line. `value` is None where nothing holds, `lowest` is that of an interval.

    `served`: the starts of the value, `beyond` those of the first that does not hold, None where nothing larger was
    asked for. `production`: one step below.
    """

    others: str
    knob: str
    value: Any
    lowest: Any
    production: Any
    first_that_dies: Any
    served: Seen
    beyond: Seen | None
    text: str

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        names = ("others", "knob", "value", "lowest", "production", "first_that_dies")
        beyond = None if self.beyond is None else self.beyond.as_json()
        return {**{n: getattr(self, n) for n in names}, "served": self.served.as_json(), "beyond": beyond}


class CeilingSearch:
    """`verify`: more starts of both sides of each edge, elsewhere if there is another host. `guess`: of the configs of
    a line, the index that should be its ceiling.
    """

    def __init__(self, lines: Sequence[Line], verify: int = 1, guess: Guess = no_guess) -> None:
        self._verify = verify
        self._guesses = [guess(line.cells[0]) if len(line.cells) == 1 else None for line in lines]
        self._table = SearchTable()
        self._states = [LineState(line, self._table) for line in lines]
        self._line_of = {c.config_id: i for i, line in enumerate(lines) for row in line.cells for c in row}
        self._steps: list[Step] = []
        self._told_lines: set[int] = set()

    def tell(self, config: EngineConfig, repeat: int, told: Told) -> None:
        i = self._line_of.get(config.config_id)
        if i is None:
            return
        self._table.tell(config, repeat, told)
        self._states[i] = LineState(self._states[i].line, self._table)

    def ask(self, slots: int) -> tuple[Ask, ...]:
        again = self._table.recalled()
        room = slots - self._table.waiting
        if room <= 0:
            return again
        wanted = [self._wanted(i, state, room) for i, state in enumerate(self._states)]
        return (*again, *self._table.give(in_turns(wanted)[:room]))

    def recall(self, config: EngineConfig, repeat: int, *, broke: bool = False) -> None:
        if config.config_id in self._line_of and not broke:
            self._table.recall(config, repeat, elsewhere=repeat > 0)

    @property
    def done(self) -> bool:
        if self._table.waiting:
            return False
        return not any(self._wanted(i, state, 1) for i, state in enumerate(self._states))

    @property
    def steps(self) -> tuple[Step, ...]:
        for i, state in enumerate(self._states):
            self._tell_step(i, state)
        return tuple(self._steps)

    @property
    def ceilings(self) -> tuple[Ceiling, ...]:
        """One for each row of each line that is closed and without contradiction."""
        return tuple(
            _ceiling(state, row)
            for state in self._states
            if state.closed and state.contradiction is None
            for row in range(len(state.line.cells))
        )

    def _wanted(self, i: int, state: LineState, room: int) -> list[Ask]:
        if state.contradiction is not None or self._stuck(state):
            return []
        if state.closed:
            return self._verifying(state)
        pending = [cell for cell in state.cells("unknown") if self._table.pending(state.line.at(cell).config_id)]
        cells = state.wanted(room, self._guesses[i], pending)
        return [self._ask(state.line, cell, "probe") for cell in cells]

    def _ask(self, line: Line, cell: Cell, why: str) -> Ask:
        config = line.at(cell)
        return Ask(config, self._table.next_repeat(config.config_id), f"{why} {line.name(cell)}")

    def _verifying(self, state: LineState) -> list[Ask]:
        asks = []
        for cell in state.edge:
            config_id = state.line.at(cell).config_id
            said = len(self._table.told.get(config_id, {})) - self._table.broken(config_id)
            had = said + self._table.pending(config_id)
            # An edge that follows from other cells has not been started at all.
            if had < 1 + self._verify and self._table.broken(config_id) <= self._verify and self._verify:
                asks.append(replace(self._ask(state.line, cell, "verify"), elsewhere=True))
        return asks

    def _waits(self, state: LineState) -> bool:
        """Whether a verification is under way: its result belongs into what is told."""
        return any(self._table.pending(state.line.at(cell).config_id) for cell in state.edge)

    def _stuck(self, state: LineState) -> bool:
        """Whether a probe broke again and again: the line cannot be told."""
        return not state.closed and any(
            self._table.set_aside(state.line.at(cell).config_id) for cell in state.cells("unknown")
        )

    def _tell_step(self, i: int, state: LineState) -> None:
        if i in self._told_lines:
            return
        line, found = state.line, state.contradiction
        where = f"{line.others}: " if line.others else ""
        if found is not None:
            held, failed = found
            said = (
                f"{where}stopped: {line.name(held)} {state.evidence(held)}, but {line.name(failed)}, which needs no "
                f"more, {state.evidence(failed)}; {_WHAT_TO_DO}"
            )
            self._steps.append(Step("contradiction", said))
        elif self._stuck(state):
            self._steps.append(Step("stuck", f"{where}stopped: a probe broke again and again"))
        elif state.closed and not self._verifying(state) and not self._waits(state):
            self._steps += [_disagreement(state, cell) for cell in state.edge if state.seen(cell).disagrees]
            for row in range(len(line.cells)):
                found_here = _ceiling(state, row)
                self._steps.append(Step("ceiling", found_here.text, facts=found_here.as_json()))
        else:
            return
        self._told_lines.add(i)


def _disagreement(state: LineState, cell: Cell) -> Step:
    """What served once and died once, as it is told besides the ceiling, which is the lower value."""
    line, seen = state.line, state.seen(cell)
    where = f"{line.others}: " if line.others else ""
    served, died = (", ".join(sorted(set(hosts))) for hosts in (seen.served, [death.host for death in seen.died]))
    why = f"{seen.died[0].label}: {seen.died[0].evidence}"
    said = f"{where}starts of {line.name(cell)} disagree: it served on {served} and died on {died} ({why})"
    return Step("disagreement", f"{said}, so it counts as dead; {_WHAT_TO_DO}", facts=seen.as_json())


def _ceiling(state: LineState, row: int) -> Ceiling:
    line, columns = state.line, len(state.line.values)
    top = state.staircase.ceilings[row] if len(line.cells) > 1 else state.upper.yes
    low = 0
    if line.interval:
        low = state.lower.no
        top = top if low <= top else -1
    row_name = "" if line.row_knob is None else f"{line.row_knob}={line.row_values[row]}"
    others = ", ".join(part for part in (line.others, row_name) if part)
    where = f"{others}: " if others else ""
    if top < 0:
        first = state.seen((row, 0))
        text = f"{where}no {line.knob} serves: at {line.values[0]}: {first.text}"
        return Ceiling(others, line.knob, None, None, None, line.values[0], Seen((), (), None), first, text)
    value, production = line.values[top], line.values[max(low, top - 1)]
    lowest = line.values[low] if line.interval else None
    beyond = (row, top + 1) if top + 1 < columns else None
    text = f"{where}ceiling of {line.knob} is {value}, {state.evidence((row, top))}"
    text += "; nothing larger was asked for" if beyond is None else f"; at {line.values[top + 1]}: "
    text += "" if beyond is None else _why_not(state, beyond)
    if line.interval:
        text += f"; lowest is {lowest}"
        text += f"; at {line.values[low - 1]}: {state.evidence((row, low - 1))}" if low else ""
    text += f"; for production: {production}" if production != value else ""
    return Ceiling(
        others, line.knob, value, lowest, production, line.values[top + 1] if beyond else None,
        state.seen((row, top)), state.seen(beyond) if beyond else None, text,
    )  # fmt: skip


def _why_not(state: LineState, cell: Cell) -> str:
    """Why what lies beyond a ceiling does not hold: its own deaths, or those of a cell that needs no more."""
    died = [other for other in state.cells("fails") if other[0] <= cell[0] and other[1] <= cell[1]]
    if cell in died:
        return state.evidence(cell)
    by = max(died, default=None)
    return "not known" if by is None else f"{state.line.name(by)} {state.evidence(by)}"
