"""A comparison of two runs as a report: the decision, what they differ in, and every ratio. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from orchestrator.documents.report_document import (
    Axis,
    Block,
    Cell,
    Column,
    Headline,
    Items,
    Paragraph,
    Plot,
    ReportDocument,
    Section,
    Series,
    Table,
    Tone,
)
from orchestrator.exchange.compared_row import ComparedRow, Standing
from orchestrator.exchange.run_comparison import RunComparison
from orchestrator.plural import plural
from orchestrator.points.metric_title import metric_title
from orchestrator.shown_text import capitalised
from orchestrator.supported_digits import shown

WORDS = {
    "worse": "worse",
    "better": "better",
    "mixed": "better and worse",
    "same": "the same",
    "open": "not told apart",
    "nothing": "nothing to compare",
}
_TONES: dict[str, Tone] = {
    "worse": "bad", "better": "good", "mixed": "warn", "same": "plain", "open": "muted", "nothing": "warn",
}  # fmt: skip
STANDINGS = {Standing.WORSE: "worse", Standing.BETTER: "better", Standing.SAME: "same", Standing.OPEN: "not told apart"}
NOTHING_DIFFERS = "Nothing: programs, hosts and scenarios are the same."
NOTHING_KNOWN = "Nothing that their files tell: neither names its server, its hosts or its load."
_NAMED = 3
_MOST_IN_PLOT = 40
# A page is sent by mail; --json has all.
_MOST_ROWS = 600


def comparison_document(found: RunComparison, made_at: str) -> ReportDocument:
    """`made_at`: UTC time in ISO form."""
    sections = [
        Section("environment", "What differs besides the results", tuple(_environment(found))),
        Section("served", "Who serves", tuple(_served(found))),
        Section("ratios", "Ratios", tuple(_ratios(found))),
        Section("plots", "Ratios with their intervals", tuple(_plots(found.rows))),
        Section("only", "What only one of them has", (Items(found.only),) if found.only else ()),
        Section("notes", "Notes", (Items(found.notes),) if found.notes else ()),
    ]
    headline = Headline(
        f"{found.second} against {found.first}",
        WORDS[found.verdict],
        summary(found),
        _TONES[found.verdict],
        (Items(tuple(_strongest(found))),) if found.rows or found.served else (),
    )
    return ReportDocument(
        title=f"{found.second} against {found.first}",
        subtitle=f"{plural(found.matches, 'matched config')}, {len(found.rows)} ratios",
        headlines=(headline,),
        sections=tuple(section for section in sections if section.blocks),
        made_at=made_at,
        warnings=found.warnings,
    )


def summary(found: RunComparison) -> str:
    """One sentence: how many of what."""
    if found.verdict == "nothing":
        return f"{found.first} and {found.second} have no config and load level in common."
    counts = {standing: len(found.of(standing)) for standing in Standing}
    told = [f"{n} {STANDINGS[standing]}" for standing, n in counts.items() if n]
    died = [config for config in found.served if config.standing is Standing.WORSE]
    ends = f"{plural(len(died), 'config')} served worse or not at all; " if died else ""
    return f"{ends}{', '.join(told) or 'none'} of {len(found.rows)} ratios."


def _strongest(found: RunComparison) -> list[str]:
    """Configs that serve otherwise, then the surest differences of each kind."""
    told = [f"{c.config}: {c.first}; now {c.second}" for c in found.served[:_NAMED]]
    for standing in (Standing.WORSE, Standing.BETTER):
        told += [f"{STANDINGS[standing]}: {row_text(row)}" for row in found.of(standing)[:_NAMED]]
    return told


def row_text(row: ComparedRow) -> str:
    """`ttft_p50_ms of steps=3 at C=16 of chat: 110 -> 121 ms, +10.0% (95%: +7.1% to +13.0%)`"""
    where = f" at {row.level} of {row.workload}" if row.level else ""
    values = f"{shown(row.first)} -> {shown(row.second)} {row.unit}".strip()
    return f"{row.metric} of {row.config}{where}: {values}, {change(row)}{interval(row, ' (95%: {})')}"


def change(row: ComparedRow) -> str:
    """+8.1%"""
    return f"{row.ratio - 1:+z.1%}"


def interval(row: ComparedRow, form: str = "{}") -> str:
    """From ... to, empty where nothing is known of the spread."""
    return "" if row.low is None or row.high is None else form.format(f"{row.low - 1:+z.1%} to {row.high - 1:+z.1%}")


def word(row: ComparedRow) -> str:
    """The verdict of a row; without an interval there is none."""
    return "one value each" if row.low is None else STANDINGS[row.standing]


def _environment(found: RunComparison) -> list[Block]:
    if not found.environment:
        return [Paragraph(NOTHING_KNOWN if found.of_files else NOTHING_DIFFERS)]
    columns = (
        Column("what", numeric=False), Column(found.first, numeric=False), Column(found.second, numeric=False),
        Column("may move results", numeric=False),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(d.name, tone="plain" if d.deciding else "muted"),
            Cell(d.first),
            Cell(d.second),
            Cell("yes" if d.deciding else "no", tone="warn" if d.deciding else "muted"),
        )
        for d in found.environment
    )
    return [Table("environment-table", "Programs, hosts and keys of the scenarios", columns, rows)]


def _served(found: RunComparison) -> list[Block]:
    if not found.served:
        return []
    columns = (
        Column("config", numeric=False), Column(found.first, numeric=False), Column(found.second, numeric=False),
        Column("verdict", numeric=False),
    )  # fmt: skip
    rows = tuple(
        (Cell(c.config), Cell(c.first), Cell(c.second), Cell(STANDINGS[c.standing], tone=tone(c.standing)))
        for c in found.served
    )
    return [Table("served-table", "Configs that ended otherwise", columns, rows)]


def tone(standing: Standing) -> Tone:
    """Of a verdict."""
    return _TONES[standing.value]


def ordered(rows: Sequence[ComparedRow]) -> list[ComparedRow]:
    """Worse, better, then what is the same or open; the surest first."""
    order = list(STANDINGS)
    return sorted(rows, key=lambda row: (order.index(row.standing), row.strength))


def _ratios(found: RunComparison) -> list[Block]:
    if not found.rows:
        return [Paragraph(summary(found), "warn")]
    columns = (
        Column("metric", numeric=False), Column("config", numeric=False), Column("at", numeric=False),
        Column("verdict", numeric=False), Column("change"), Column("95% interval", numeric=False),
        Column(found.first), Column(found.second),
        Column("q", help="The share of false alarms among all that have so small a q."),
        Column("starts", numeric=False, help="Of the first and of the second."),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(_title(row.metric), note=", ".join(filter(None, (row.metric, row.unit)))),
            Cell(row.config),
            Cell(f"{row.workload} at {row.level}" if row.level else "its start"),
            Cell(word(row), tone=tone(row.standing), note=row.reason if row.metric == "kv_tokens" else ""),
            Cell(change(row), row.ratio, tone(row.standing)),
            Cell(interval(row) or "not known", row.low),
            Cell(shown(row.first), row.first),
            Cell(shown(row.second), row.second),
            Cell("-" if row.q is None else f"{row.q:.2g}", row.q),
            Cell(f"{row.trials[0]} / {row.trials[1]}"),
        )
        for row in ordered(found.rows)[:_MOST_ROWS]
    )
    note = (
        f"Change is {found.second} / {found.first} - 1. Worse and better: q at most 0.05 over the whole table, and "
        f"beyond the floor ({found.doubt.floor:.1%}; kv_tokens 1%, start_s 10%)."
    )
    more = len(found.rows) - _MOST_ROWS
    if more > 0:
        note += f" {more:,} more rows, which say less, are in the JSON document (--json)."
    return [Table("ratio-table", "Every ratio", columns, rows, note=note)]


def _title(metric: str) -> str:
    """For a reader who does not know the names of metrics."""
    return {"kv_tokens": "KV cache", "start_s": "time to start"}.get(metric) or metric_title(metric)


def _plots(rows: Sequence[ComparedRow]) -> list[Block]:
    """One for each metric: the change of each config and load level with its interval, by verdict."""
    blocks: list[Block] = []
    for metric in dict.fromkeys(row.metric for row in rows if row.low is not None and row.metric != "kv_tokens"):
        own = [row for row in rows if row.metric == metric and row.low is not None and row.high is not None]
        blocks.append(_forest(metric, ordered(own)[:_MOST_IN_PLOT], len(own)))
    return blocks


def _forest(metric: str, rows: Sequence[ComparedRow], of: int) -> Plot:
    start = common_start([row.config for row in rows])
    several = len({row.workload for row in rows}) > 1
    names = {
        id(row): row.config[len(start) :]
        + (f" at {row.level}" if row.level else "")
        + (f" of {row.workload}" if several else "")
        for row in rows
    }
    kept = sorted(rows, key=lambda row: (row.workload, row.config, _load(row.level)))
    series = []
    # What is the same comes first: it has the first colour of every page, which is neither good nor bad.
    for standing, word in sorted(STANDINGS.items(), key=lambda item: item[0] is not Standing.SAME):
        own = [row for row in kept if row.standing is standing]
        if own:
            series.append(
                Series(
                    name=word,
                    x=tuple(names[id(row)] for row in own),
                    y=tuple(_percent(row.ratio) for row in own),
                    low=tuple(_percent(row.low) for row in own),
                    high=tuple(_percent(row.high) for row in own),
                    labels=tuple(row_text(row) for row in own),
                    tone=tone(standing),
                )
            )
    better = "more is better" if rows[0].maximize else "less is better"
    counts = ", ".join(f"{len(s.x)} {s.name}" for s in series)
    cut = f" The {len(rows)} surest of {of} are shown." if of > len(rows) else ""
    return Plot(
        block_id=f"forest-{metric.replace('_', '-')}",
        title=f"{capitalised(_title(metric))} ({better})",
        kind="scatter",
        x=Axis(f"{start or 'config'} ... at load", categories=tuple(dict.fromkeys(names[id(row)] for row in kept))),
        y=Axis("change", "%"),
        series=tuple(series),
        summary=f"Change with 95% intervals: {counts}.{cut}",
    )


def common_start(labels: Sequence[str]) -> str:
    """What all names of configs begin with, up to the end of a setting's name: `speculative_num_steps=`."""
    first, last = min(labels), max(labels)
    alike = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[: first.rfind("=", 0, alike) + 1] if first != last else ""


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None or not math.isfinite(ratio) else round(100 * (ratio - 1), 3)


def _load(level: str) -> float:
    """The number of a load level: of `C=16`, `4 req/s`, `trace x2`."""
    found = re.search(r"[\d.]+", level)
    return float(found[0]) if found else 0.0
