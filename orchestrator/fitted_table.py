"""Tables for a terminal of any width: where the columns have no room beside each other, names get lines of their own.

What a row is about is never cut: a table whose metrics and configs are all `output_th...` and `specul...` says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.shown_text import harmless

Kind = Literal["name", "number", "text"]
_GAP, _INDENT = 2, 2
# Texts are folded down to this; what is narrower is hard to read.
_LEAST_TEXT = 24


@dataclass(frozen=True, slots=True)
class FittedColumn:
    """`name`: what a row is about. `number`: to the right, never folded. `text`: to the left, folded."""

    title: str
    kind: Kind = "text"

    @property
    def least(self) -> int:
        """Of its title in two lines."""
        words = self.title.split()
        halves = ((" ".join(words[:at]), " ".join(words[at:])) for at in range(len(words)))
        return min((max(map(cell_len, half)) for half in halves), default=0)


class FittedTable:
    """Rows of cells; what is printed depends on the width of the terminal."""

    def __init__(self, columns: Sequence[FittedColumn], title: str = "") -> None:
        self._columns, self._title = tuple(columns), harmless(title)
        self._rows: list[tuple[tuple[Text, ...], str]] = []

    def add_row(self, *cells: str | Text, style: str | None = None) -> None:
        """A cell for each column; nothing in it is markup, or takes room that is not seen (codes of terminals)."""
        texts = tuple(cell if isinstance(cell, Text) else Text(harmless(cell)) for cell in cells)
        self._rows.append((texts, style or ""))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        del console
        if self._title:
            yield Text(self._title, style="bold")
        every = range(len(self._columns))
        beside = self._widths(every, options.max_width)
        if beside is not None:
            yield self._part(every, beside, self._rows, head=True)
            return
        yield from self._stacked(options.max_width)

    def _stacked(self, width: int) -> Iterator[RenderableType]:
        """Names in a line, what else there is below it; texts in lines of their own if they have to be."""
        names, numbers, texts = ([i for i, c in enumerate(self._columns) if c.kind == k] for k in _KINDS)
        long = [i for i in texts if self._widest(i) > _LEAST_TEXT]
        for below in ([], long):
            values = sorted({*numbers, *texts} - {*below})
            if widths := self._widths(values, width - _INDENT):
                break
        if widths:
            yield Padding(self._part(values, widths, [], head=True), (0, 0, 0, _INDENT))
        last = None
        for cells, style in self._rows:
            told = Text("  ").join(_in_line(cells[i]) for i in names if cells[i])
            if told != last:  # what several rows in a row are about is said once
                yield Text.assemble(told, style=style)
            last = told
            if widths:
                yield Padding(self._part(values, widths, [(cells, style)], head=False), (0, 0, 0, _INDENT))
            elif pairs := [self._pair(i, cells[i]) for i in values if cells[i].plain not in ("", "-")]:
                yield Padding(Text.assemble(Text(", ").join(pairs), style=style), (0, 0, 0, _INDENT))
            for i in below:
                if cells[i]:
                    yield Padding(Text.assemble(_in_line(cells[i]), style=style), (0, 0, 0, 2 * _INDENT))

    def _pair(self, i: int, cell: Text) -> Text:
        column = self._columns[i]
        return cell if column.kind == "text" else Text(f"{column.title} ").append_text(cell)

    def _widest(self, i: int) -> int:
        return max((_widest(row[i]) for row, _ in self._rows), default=0)

    def _part(
        self, which: Sequence[int], widths: Sequence[int], rows: Sequence[tuple[tuple[Text, ...], str]], *, head: bool
    ) -> Table:
        table = Table(box=None, pad_edge=False, show_header=head)
        for i, width in zip(which, widths, strict=True):
            is_number = self._columns[i].kind == "number"
            table.add_column(
                Text(self._columns[i].title), justify="right" if is_number else "left", overflow="fold", width=width
            )
        for cells, style in rows:
            table.add_row(*(cells[i] for i in which), style=style)
        return table

    def _widths(self, which: Sequence[int], room: int) -> list[int] | None:
        """Of these columns beside each other; None where they have no room. Titles are broken first, then texts."""
        cells = {i: self._widest(i) for i in which}
        whole = [max(cell_len(self._columns[i].title), cells[i]) for i in which]
        room -= _GAP * (len(whole) - 1)
        if sum(whole) <= room:
            return whole
        least = [max(self._columns[i].least, cells[i]) for i in which]
        if sum(least) > room:
            for at, i in enumerate(which):
                if self._columns[i].kind == "text":
                    least[at] = min(least[at], max(_LEAST_TEXT, self._columns[i].least))
        free = room - sum(least)
        if free < 0:
            return None
        for at in sorted(range(len(whole)), key=lambda at: whole[at] - least[at]):
            more = min(free, whole[at] - least[at])
            least[at], free = least[at] + more, free - more
        return least


_KINDS = ("name", "number", "text")


def _widest(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split("\n")), default=0)


def _in_line(cell: Text) -> Text:
    return Text(" ").join(cell.split("\n"))
