"""A report as Markdown: for pull requests, summaries of jobs, and terminals. Pure.

All texts are escaped: no HTML, no links, no mentions come from data. Tables are cut, and say so; plots are their words
and main values.
"""

from __future__ import annotations

import html
import re

from orchestrator.documents.plot_values import plot_values
from orchestrator.documents.report_document import (
    Block,
    Cell,
    Code,
    Facts,
    Fold,
    Headline,
    Items,
    Paragraph,
    Plot,
    ReportDocument,
    Table,
    Tone,
)
from orchestrator.documents.report_numbers import clock
from orchestrator.shown_text import cut, harmless

MOST_ROWS = 40
# A plot with more values is told in words alone.
PLOT_ROWS = 24
CELL_CHARACTERS = 400
_MARKS: dict[Tone, str] = {"plain": "", "good": "✅ ", "bad": "❌ ", "warn": "⚠️ ", "muted": ""}
# An underscore within a word is one: names stay readable.
_ACTS = re.compile(r"([\\`*\[\]<>#|~&$]|(?<![^\W_])_|_(?![^\W_]))")
# What makes a line a list, a rule or a title.
_STARTS = re.compile(r"^(?:(?=[-+](?:\s|$)|[-=]+\s*$)|(\d+)(?=[.)](?:\s|$)))")
# Makes neither a link nor a mention of it, and is not seen.
_APART = "\u200b"
_LINKS = re.compile(r"(?i)\b(https?|ftp|mailto|www)(?=[:.])|(?<=\S)?@(?=\w)")


def markdown(document: ReportDocument) -> str:
    """The whole report; ends with a newline."""
    parts = [f"# {text_of(document.title)}"]
    parts += [text_of(document.subtitle)] if document.subtitle else []
    parts += [f"> {_MARKS['warn']}{text_of(warning)}" for warning in document.warnings]
    for headline in document.headlines:
        parts += _headline(headline)
    for section in document.sections:
        parts.append(f"## {text_of(section.title)}")
        parts += _blocks(section.blocks)
    parts.append(f"Made {text_of(clock(document.made_at))}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def text_of(text: str) -> str:
    """One line whose letters mean themselves."""
    return _STARTS.sub(lambda found: (found[1] or "") + "\\", _within(text))


def _within(text: str, most: int | None = None) -> str:
    """The same for what does not begin a line."""
    flat = " ".join(harmless(text).split())
    escaped = _ACTS.sub(r"\\\1", flat if most is None else cut(flat, most))
    return _LINKS.sub(_break_link, escaped)


def _break_link(found: re.Match[str]) -> str:
    return found[0] + _APART


def _headline(headline: Headline) -> list[str]:
    after = "" if headline.label.endswith("?") else ":"
    figure = f", {_within(headline.figure)}" if headline.figure else ""
    verdict = f"**{_MARKS[headline.tone]}{text_of(headline.label)}{after} {text_of(headline.verdict)}{figure}**"
    return [f"{verdict}\n{text_of(headline.text)}", *_blocks(headline.details)]


def _blocks(blocks: tuple[Block, ...]) -> list[str]:
    return [part for block in blocks for part in _block(block)]


def _block(block: Block) -> list[str]:
    match block:
        case Table():
            return _table(block)
        case Plot():
            return _plot(block)
        case Facts():
            return ["\n".join(f"- {text_of(name)}: {text_of(value)}" for name, value in block.rows)]
        case Code():
            return ([f"{text_of(block.caption.rstrip('.'))}:"] if block.caption else []) + [_fenced(block.text)]
        case Paragraph():
            mark = _MARKS[block.tone]
            return [f"> {mark}{text_of(block.text)}" if block.tone in ("bad", "warn") else mark + text_of(block.text)]
        case Items():
            return ["\n".join(f"- {text_of(item)}" for item in block.items)]
        case Fold():
            title = f"<details><summary>{_html(block.title)}</summary>"
            return [title, *_blocks(block.blocks), "</details>"]


def _html(text: str) -> str:
    return html.escape(" ".join(harmless(text).split()), quote=False)


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{harmless(text)}\n{fence}"


def _table(table: Table) -> list[str]:
    parts = [f"**{text_of(table.caption)}**"]
    if not table.rows:
        return [*parts, "Nothing here."]
    heads = [_within(f"{c.name} ({c.unit})" if c.unit else c.name) for c in table.columns]
    rules = ["---:" if c.numeric else "---" for c in table.columns]
    rows = [_row([_cell(c) for c in row], is_marked=i in table.marked) for i, row in enumerate(table.rows[:MOST_ROWS])]
    parts.append("\n".join([_row(heads), _row(rules), *rows]))
    if len(table.rows) > MOST_ROWS:
        parts.append(f"{len(table.rows) - MOST_ROWS} more rows are in the report.")
    return [*parts, text_of(table.note)] if table.note else parts


def _row(cells: list[str], *, is_marked: bool = False) -> str:
    shown = [f"**{c}**" if is_marked and i == 0 and c else c for i, c in enumerate(cells)]
    return "| " + " | ".join(shown) + " |"


def _cell(cell: Cell) -> str:
    text = _MARKS[cell.tone] + _within(cell.text, CELL_CHARACTERS)
    return f"{text} ({_within(cell.note, CELL_CHARACTERS)})" if cell.note else text


def _plot(plot: Plot) -> list[str]:
    parts = [f"**{text_of(plot.title)}**", text_of(plot.summary)]
    values = plot_values(plot)
    if len(values.rows) + values.left_out > PLOT_ROWS:
        return [*parts, "The plot is in the HTML report."]
    heads = [_within(head) for head in values.heads]
    rows = [_row([_within(text, CELL_CHARACTERS) for text in row]) for row in values.rows]
    return [*parts, "\n".join([_row(heads), _row(["---"] * len(heads)), *rows])] if rows else parts
