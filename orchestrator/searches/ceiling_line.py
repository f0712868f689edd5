"""One line (or grid) of configs whose ceiling is searched, and what is known of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from orchestrator.outcome import Label
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.search import Dead, Scored, Told
from orchestrator.searches.search_table import SearchTable
from orchestrator.searches.staircase import Cell, Staircase
from orchestrator.trial import EngineConfig

# These say that the KV cache came out too small: less of an interval setting would not help, more would.
TOO_LITTLE = frozenset({Label.KV_BUDGET, Label.OOM_KV_ALLOC})
State = Literal["holds", "fails", "too little", "unknown"]
Guess = Callable[[Sequence[EngineConfig]], int | None]


def no_guess(configs: Sequence[EngineConfig]) -> int | None:
    """Nothing is known beforehand."""
    del configs
    return None


@dataclass(frozen=True, slots=True)
class Line:
    """Configs that differ only in the searched settings. `rows` of a single setting is one row.

    `others` names the settings that are the same along it. `values`: of the columns; `row_values`: of the rows. Both go
    from what needs least memory to what needs most.
    """

    others: str
    knob: str
    values: tuple[Any, ...]
    cells: tuple[tuple[EngineConfig, ...], ...]
    interval: bool = False
    row_knob: str | None = None
    row_values: tuple[Any, ...] = (None,)

    def at(self, cell: Cell) -> EngineConfig:
        return self.cells[cell[0]][cell[1]]

    @property
    def all_cells(self) -> list[Cell]:
        return [(r, c) for r in range(len(self.cells)) for c in range(len(self.values))]

    def name(self, cell: Cell) -> str:
        """`speculative_num_steps=4, max_running_requests=64`."""
        row = "" if self.row_knob is None else f"{self.row_knob}={self.row_values[cell[0]]}, "
        return f"{row}{self.knob}={self.values[cell[1]]}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the starts of a config came to: the hosts on which it served, its deaths, and one that was only foreseen."""

    served: tuple[str, ...]
    died: tuple[Dead, ...]
    foreseen: Dead | None

    @property
    def starts(self) -> int:
        return len(self.served) + len(self.died)

    @property
    def disagrees(self) -> bool:
        """Whether one start served and another died."""
        return bool(self.served and self.died)

    @property
    def text(self) -> str:
        why = next((f"{death.label}: {death.evidence}" for death in (*self.died, self.foreseen) if death), "")
        if not self.starts:
            return f"would die of {why}" if self.foreseen else "not started"
        told = [f"served {len(self.served)} of {self.starts} {_on(self.served)}"] if self.served else []
        if self.died:
            told.append(f"died {len(self.died)} of {self.starts} {_on(death.host for death in self.died)} ({why})")
        return ", ".join(told)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "starts": self.starts,
            "served_on": list(self.served),
            "died_on": [death.host for death in self.died],
            "label": next((death.label for death in (*self.died, self.foreseen) if death), None),
        }


def _on(hosts: Iterable[str]) -> str:
    count = len(set(hosts))
    return f"on {count} host{'' if count == 1 else 's'}"


@dataclass
class LineState:
    """What the table says of a line by now."""

    line: Line
    table: SearchTable

    def __post_init__(self) -> None:
        self.states = {cell: self._state(cell) for cell in self.line.all_cells}

    def _state(self, cell: Cell) -> State:
        """A cell of which one start died does not hold, also if another served: the ceiling is the lower of the two."""
        results = self._results(cell)
        death = next((told for told in results if isinstance(told, Dead)), None)
        if death is not None:
            return "too little" if self.line.interval and death.label in TOO_LITTLE else "fails"
        return "holds" if any(isinstance(told, Scored) for told in results) else "unknown"

    def _results(self, cell: Cell) -> list[Told]:
        """What its starts came to, by their numbers: in whichever order they ended."""
        told = self.table.told.get(self.line.at(cell).config_id, {})
        return [told[repeat] for repeat in sorted(told)]

    def cells(self, *states: State) -> list[Cell]:
        return [cell for cell, state in self.states.items() if state in states]

    @cached_property
    def contradiction(self) -> tuple[Cell, Cell] | None:
        """(what holds, what does not although it needs no more), the nearest pair."""
        pairs = [
            (held, failed)
            for held in self.cells("holds", "too little")
            for failed in self.cells("fails")
            if failed[0] <= held[0] and failed[1] <= held[1] and failed != held
        ]
        pairs += [(h, t) for h in self.cells("holds") for t in self.cells("too little") if t[1] > h[1]]
        return min(pairs, key=lambda p: (p[0][0] - p[1][0], p[0][1] - p[1][1], p), default=None)

    def wanted(self, most: int, guess: int | None, pending: Sequence[Cell]) -> list[Cell]:
        """The next cells to probe, those that need less memory first; empty when the boundary is known."""
        if len(self.line.cells) > 1:
            return sorted(self.staircase.probes(most, pending))
        columns = [column for _, column in pending]
        found = self.upper.probes(most, guess, columns)
        if self.line.interval and not found and self.upper.closed:
            found = self.lower.probes(most, None, columns)
        return sorted((0, column) for column in found)

    @cached_property
    def staircase(self) -> Staircase:
        rows, columns = len(self.line.cells), len(self.line.values)
        return Staircase.of(rows, columns, self.cells("holds"), self.cells("fails"))

    @cached_property
    def upper(self) -> Bracket:
        """The largest value: what is too little of an interval lies below it."""
        holds = [c for _, c in self.cells("holds", "too little")]
        return Bracket.of(len(self.line.values), holds, [c for _, c in self.cells("fails")])

    @cached_property
    def lower(self) -> Bracket:
        """The smallest value of an interval, as the ceiling of what is too little; below what holds or dies of more."""
        above = [c for _, c in self.cells("holds", "fails")]
        return Bracket.of(len(self.line.values), [c for _, c in self.cells("too little")], above)

    @cached_property
    def closed(self) -> bool:
        if len(self.line.cells) > 1:
            return self.staircase.closed
        return self.upper.closed and (not self.line.interval or self.lower.closed)

    @cached_property
    def edge(self) -> list[Cell]:
        """Where a closed line is verified: the last values that hold and the first that do not. Of a staircase only its
        corners: they decide all others.
        """
        if not self.closed:
            return []
        if len(self.line.cells) == 1:
            return [(0, c) for c in self._edge_columns() if 0 <= c < len(self.line.values)]
        tops, columns = self.staircase.ceilings, len(self.line.values)
        last = len(tops) - 1
        inner = [(r, c) for r, c in enumerate(tops) if c >= 0 and (r == last or tops[r + 1] < c)]
        outer = [(r, c + 1) for r, c in enumerate(tops) if c + 1 < columns and (r == 0 or tops[r - 1] > c)]
        return inner + outer

    def _edge_columns(self) -> list[int]:
        top, bottom = self.upper, self.lower
        ends = [top.yes, top.no] if self.states.get((0, top.yes)) == "holds" else [top.no]
        if self.line.interval:
            ends += [bottom.yes, bottom.no]
        return list(dict.fromkeys(ends))

    def seen(self, cell: Cell) -> Seen:
        """Its starts; those that broke, and deaths that were foreseen, are none."""
        results = self._results(cell)
        served = tuple(told.host for told in results if isinstance(told, Scored))
        died = tuple(told for told in results if isinstance(told, Dead))
        foreseen = next((death for death in died if death.is_foreseen), None)
        return Seen(served, tuple(death for death in died if not death.is_foreseen), foreseen)

    def evidence(self, cell: Cell) -> str:
        """What its starts came to: `served 2 of 2 on 2 hosts`, `died 1 of 1 on 1 host (...)`."""
        return self.seen(cell).text
