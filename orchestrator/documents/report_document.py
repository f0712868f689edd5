"""A report as data: what it says, not how it looks. Pure. Pages, Markdown and live views are made from it.

All texts are plain: whoever shows them escapes them. Numbers of plots are in the units that their axes name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What a value means for the reader: colours and marks follow from it, and words never depend on colour alone.
Tone = Literal["plain", "good", "bad", "warn", "muted"]
Number = float | int


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table. `sort`: what its column is sorted by; None for the text. `note` is smaller, below it.

    `anchor`: the id of a section or block that it leads to. `share`: 0 to 1, drawn as a bar below the number.
    """

    text: str
    sort: Number | str | None = None
    tone: Tone = "plain"
    note: str = ""
    anchor: str = ""
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """`unit` is shown in the head; `help` says in a sentence what it is."""

    name: str
    unit: str = ""
    numeric: bool = True
    help: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as long as `columns`; `marked` are indices of rows that stand out (the pick). Sortable by the reader."""

    block_id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    marked: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """`times`: x is seconds since the Unix epoch. `log`: logarithmic. `categories`: order of a text axis."""

    title: str
    unit: str = ""
    log: bool = False
    times: bool = False
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """One trace of a plot: as many `y` as `x`; None leaves a gap. `low`, `high` bound each y (intervals), if given.

    `labels` are shown when one points at a value. `base` is where each bar begins (gantt, waterfall): the bar goes from
    base to base + the length (x in a gantt, y in bars). `group`: series of a group share a colour and one entry in the
    legend. `dashed`: a reference, a limit, or what was not measured. `look`: which colour, mark and dash, so that one
    config has the same in all plots; None for the next that is free.
    """

    name: str
    x: tuple[Number | str, ...]
    y: tuple[Number | str | None, ...]
    low: tuple[Number | None, ...] = ()
    high: tuple[Number | None, ...] = ()
    labels: tuple[str, ...] = ()
    base: tuple[Number, ...] = ()
    group: str = ""
    tone: Tone = "plain"
    dashed: bool = False
    look: int | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot and what it shows in words (`summary`, also for those who cannot see it).

    scatter: points (with intervals, where given); line: points joined; bars: side by side; stacked: bars on top of each
    other (with `base`: a waterfall); gantt: horizontal bars, y names the row, x is the length; steps: joined in steps.
    `bands`: intervals of a line are a band around it; else a bar at each point, as also where a point stands alone.
    `spans`: stretches of x that are shaded: from, to, and what they are.
    """

    block_id: str
    title: str
    kind: Literal["scatter", "line", "steps", "bars", "stacked", "gantt"]
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    summary: str
    height_px: int = 380
    bands: bool = False
    spans: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, such as versions."""

    block_id: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Text to be copied as it is: commands, log lines."""

    text: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences. `tone` other than plain makes a remark that stands out."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are closed until the reader opens them."""

    title: str
    blocks: tuple[Block, ...]


Block = Table | Plot | Facts | Code | Paragraph | Items | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """`section_id` is its anchor."""

    section_id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Headline:
    """One decision, as large as the page allows: `verdict` in a word or two, `text` the sentence, `details` below.

    `figure`: the number that decides, beside the verdict.
    """

    label: str
    verdict: str
    text: str
    tone: Tone = "plain"
    details: tuple[Block, ...] = ()
    figure: str = ""


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """A whole report: of a run, a comparison, a night, or a history. `warnings` stand above everything.

    `made_at`: UTC time in ISO form. `is_live`: more comes.
    """

    title: str
    subtitle: str
    headlines: tuple[Headline, ...]
    sections: tuple[Section, ...]
    made_at: str
    warnings: tuple[str, ...] = ()
    is_live: bool = False
