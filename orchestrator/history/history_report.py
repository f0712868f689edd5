"""A history as a report: what is new, a table of all series, and their curves over the nights. Pure."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.documents.report_document import (
    Axis,
    Block,
    Cell,
    Column,
    Fold,
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
from orchestrator.history.history_lines import SeriesLine, by_urgency
from orchestrator.history.history_text import (
    change_text,
    gap_lines,
    headline,
    is_bad,
    line_remarks,
    mark_text,
    night_text,
    record_text,
    value_text,
)
from orchestrator.history.night_history import History
from orchestrator.nights.night import Kind, Night, Verdict, better_sign
from orchestrator.nights.night_text import plain_title
from orchestrator.plural import plural
from orchestrator.shown_text import capitalised

_TONES: dict[Verdict, Tone] = {
    Verdict.REGRESSED: "bad",
    Verdict.IMPROVED: "good",
    Verdict.SAME: "plain",
    Verdict.INCONCLUSIVE: "warn",
}
_COLUMNS = (
    Column("series", numeric=False, help="A metric of a config at a load level."),
    Column("config", numeric=False),
    Column("newest", help="Candidate against reference in the newest night, with its interval."),
    Column("verdict", numeric=False, help="Of the newest night."),
    Column("nights", help="In which it was measured."),
    Column("changes", help="Change points in all its nights."),
    Column(
        "newest change",
        numeric=False,
        help="The first night of the newest level, and its size with its 99% "
        "interval. p: how often chance alone makes such a step; q: the share of false ones among all that look so.",
    ),
)


def history_report(history: History, lines: Sequence[SeriesLine], *, place: str, made_at: str) -> ReportDocument:
    """`lines` as they are shown; of `history` the nights, gaps and marks."""
    said = headline(lines, history)
    bad = is_bad(lines, history)
    is_gap = not history.nights or history.nights[-1].gap is not None  # which is never a pass
    verdict, tone = ("worse", _TONES[Verdict.REGRESSED]) if bad else ("nothing new", _TONES[Verdict.IMPROVED])
    if is_gap and not bad:
        verdict, tone = "not measured", "warn"
    decision = Headline(
        "Did anything get worse in the last nights?", verdict, f"{capitalised(said)}.",
        tone=tone, details=(Paragraph(record_text(history.alarm_record()), "muted"),),
    )  # fmt: skip
    lines = by_urgency(lines)
    sections = [Section("series", "Series", (_table(lines),))]
    telling = [line for line in lines if _is_telling(line)]
    if telling:
        sections.append(Section("changes", "What changed", tuple(b for line in telling for b in _own(line, history))))
    if steady := [line for line in lines if line not in telling and _drawn(line)]:
        sections.append(Section("steady", "Without a change", tuple(_together(steady))))
    sections.append(Section("nights", "Nights", tuple(_nights(history))))
    nights = len(history.nights)
    span = " to ".join(dict.fromkeys(night_text(night.at) for night in (*history.nights[:1], *history.nights[-1:])))
    return ReportDocument(
        title="Nightly history",
        subtitle=f"{', '.join(history.scenarios)}: {plural(nights, 'night')}, {span or 'none yet'}; {place}",
        headlines=(decision,),
        sections=tuple(sections),
        made_at=made_at,
        warnings=(
            *([history.emulated] if history.emulated else []),
            *(f"Not read: {line}" for line in history.skipped),
        ),
    )


def _table(lines: Sequence[SeriesLine]) -> Table:
    rows = []
    for line in lines:
        last = line.last
        newest = line.changes[-1] if line.changes else None
        rows.append(
            (
                Cell(
                    plain_title(last.key),
                    note="" if last.key.metric == Kind.FEASIBLE else last.key.metric,
                    anchor=_anchor(line) if _is_drawn_apart(line) else "",
                ),
                Cell(line.label or line.key.config, note=line.key.host_class),
                Cell(value_text(line), sort=None if last.difference is None else math.expm1(last.difference)),
                Cell(last.verdict.value, tone=_TONES[last.verdict], note=last.reason),
                Cell(str(len(line.values)), sort=len(line.values)),
                Cell(str(len(line.changes) + len(line.turns)), sort=len(line.changes) + len(line.turns)),
                Cell(
                    change_text(line, newest) if newest else line.turns[-1].text if line.turns else "",
                    tone="bad" if newest and line.is_worse(newest) and newest.change.sure else "plain",
                ),
            )
        )
    note = "Differences are candidate against reference, by pairs of fresh starts on one host."
    return Table("history-series", "All series", _COLUMNS, tuple(rows), note=note)


def _is_drawn_apart(line: SeriesLine) -> bool:
    """Whether it has a plot of its own."""
    return _is_telling(line) and _drawn(line)


def _is_telling(line: SeriesLine) -> bool:
    return bool(line.changes or line.turns) or line.last.verdict is Verdict.REGRESSED


def _own(line: SeriesLine, history: History) -> list[Block]:
    """The curve of a line that changed, and what is said of it."""
    if _drawn(line):
        return [_plot(line, history)]
    remarks = line_remarks(line)
    return [Paragraph(f"{_title(line)}:"), *([Items(tuple(remarks))] if remarks else [])]


def _plot(line: SeriesLine, history: History) -> Plot:
    times = [_seconds(night) for night in line.nights]
    curve = Series(
        "night",
        tuple(times),
        tuple(_percent(v.difference) for v in line.values),
        tuple(_percent(v.low) for v in line.values),
        tuple(_percent(v.high) for v in line.values),
        tuple(
            f"{night_text(n.at)}: {v.verdict.value}, {v.reason}" for n, v in zip(line.nights, line.values, strict=True)
        ),
    )
    series = [curve, *_levels(line, times)]
    told = {t: (_percent(v.difference), v.reason) for t, v in zip(times, line.values, strict=True)
            if v.verdict is Verdict.REGRESSED}  # fmt: skip
    gaps = {_seconds(n): (0.0, n.gap.reason) for n in history.gaps if n.scenario == line.scenario and n.gap is not None}
    every = sorted({*times, *gaps})
    if told:
        series.append(_marked("regressed", every, told, "bad"))
    if gaps:
        series.append(_marked("gap", every, gaps, "muted"))
    better = "more is better" if better_sign(line.key.metric) > 0 else "less is better"
    summary = f"Newest {value_text(line)} in {plural(len(line.values), 'night')}; {better}."
    if remarks := line_remarks(line):
        summary += f" Changes: {'; '.join(remarks)}."
    return Plot(
        _anchor(line), _title(line), "line", Axis("night", times=True), Axis("candidate against reference", "%"),
        tuple(series), summary, bands=True,
    )  # fmt: skip


def _title(line: SeriesLine) -> str:
    """For a reader who does not know the names of metrics."""
    title = plain_title(line.key)
    return f"{capitalised(title)}, {line.label or line.key.config} on {line.key.host_class or 'unknown hosts'}"


def _marked(name: str, every: Sequence[float], told: Mapping[float, tuple[float | None, str]], tone: Tone) -> Series:
    """Some of the nights (time -> value and label), joined where they follow each other: None lies between others."""
    x: list[float] = []
    y: list[float | None] = []
    labels: list[str] = []
    for time, after in zip(every, [*every[1:], None], strict=True):
        if time in told:
            x.append(time)
            y.append(told[time][0])
            labels.append(told[time][1])
            if after not in told:
                x.append(time)
                y.append(None)
                labels.append("")
    return Series(name, tuple(x), tuple(y), labels=tuple(labels), tone=tone)


def _levels(line: SeriesLine, times: Sequence[float]) -> list[Series]:
    """The mean of every stretch between change points and segment borders, and where segments begin."""
    borders = sorted({0, len(times), *(s.begin for s in line.segments), *(c.at for c in line.changes)})
    found = []
    for begin, end in itertools.pairwise(borders):
        known = [v.difference for v in line.values[begin:end] if v.difference is not None]
        if known:
            mean = _percent(math.fsum(known) / len(known))
            found.append(
                Series("level", (times[begin], times[end - 1]), (mean, mean), group="level", dashed=True)
            )  # fmt: skip
    starts = [s for s in line.segments if s.why]
    if starts:
        found.append(
            Series("new segment", tuple(times[s.begin] for s in starts), (0.0,) * len(starts),
                   labels=tuple(s.why for s in starts), tone="warn")
        )  # fmt: skip
    return found


def _together(lines: Sequence[SeriesLine]) -> list[Block]:
    """One plot a metric, closed until it is asked for."""
    metrics: dict[str, list[SeriesLine]] = {}
    for line in lines:
        metrics.setdefault(line.key.metric, []).append(line)
    plots = {name: _metric_plot(name, own) for name, own in metrics.items()}
    return [Fold(f"{plot.title} ({len(metrics[name])} series)", (plot,)) for name, plot in plots.items()]


def _metric(lines: Sequence[SeriesLine]) -> str:
    return plain_title(replace(lines[0].key, workload="", level=""))


def _metric_plot(metric: str, lines: Sequence[SeriesLine]) -> Plot:
    series = tuple(
        Series(
            f"{line.label or line.key.config} {line.key.place}".strip(),
            tuple(_seconds(night) for night in line.nights),
            tuple(_percent(value.difference) for value in line.values),
        )
        for line in lines
    )
    title = _metric(lines)
    told = f"{len(lines)} series in which no change was found"
    axes = Axis("night", times=True), Axis("candidate against reference", "%")
    return Plot(f"history-{metric}", capitalised(title), "line", *axes, series, told)


def _nights(history: History) -> list[Block]:
    rows = [
        (
            Cell(night_text(night.at), sort=night.at, note=night.night_id),
            Cell(night.scenario),
            Cell("gap" if night.verdict is None else night.verdict.value,
                 tone="warn" if night.verdict is None else _TONES[night.verdict],
                 note=night.gap.reason if night.gap else ""),
            Cell(night.reference.name),
            Cell(night.candidate.name),
            Cell(str(len(night.of(Verdict.REGRESSED))), sort=len(night.of(Verdict.REGRESSED))),
            Cell("; ".join(mark_text(m.verdict, m.marked_by, m.note)
                           for m in history.marks if m.night_id == night.night_id)),
        )
        for night in reversed(history.nights)
    ]  # fmt: skip
    columns = (
        Column("night", numeric=False), Column("scenario", numeric=False), Column("verdict", numeric=False),
        Column("reference", numeric=False), Column("candidate", numeric=False), Column("regressed"),
        Column("marked", numeric=False),
    )  # fmt: skip
    blocks: list[Block] = [Table("history-nights", "All nights, newest first", columns, tuple(rows))]
    if gaps := gap_lines(history):
        blocks.append(Paragraph("Nights that could not be measured; none of them is a pass:"))
        blocks.append(Items(tuple(gaps)))
    return blocks


def _drawn(line: SeriesLine) -> bool:
    return line.key.metric != Kind.FEASIBLE and any(v.difference is not None for v in line.values)


def _anchor(line: SeriesLine) -> str:
    return f"series-{line.key.series_id}-{line.scenario}"


def _percent(difference: float | None) -> float | None:
    return None if difference is None else round(math.expm1(difference) * 100, 3)


def _seconds(night: Night) -> float:
    return datetime.datetime.fromisoformat(night.at).timestamp()
