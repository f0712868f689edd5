"""A night as a report: the verdict first, then every series, what differs between the builds, and the pairs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.history.change_alarms import NO_GATE, ChangeGate, how_to_mark
from orchestrator.nights.night import Kind, Night, SeriesNight, Verdict, unit_of
from orchestrator.nights.night_evidence import share_text
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_text import (
    headline,
    in_order,
    pairs_text,
    series_line,
    series_title,
    sizes_text,
    strongest,
)
from orchestrator.reports.report_document import (
    Axis,
    Block,
    Cell,
    Code,
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
from orchestrator.supported_digits import plain

_TONES: dict[Verdict, Tone] = {
    Verdict.REGRESSED: "bad", Verdict.IMPROVED: "good", Verdict.SAME: "good", Verdict.INCONCLUSIVE: "warn",
}  # fmt: skip
_MOST_PLOTS = 24
_SHOWN_LINES = 12


def nightly_report(
    night: Night, rules: NightRules, notes: Sequence[str] = (), gate: ChangeGate = NO_GATE
) -> ReportDocument:
    """`notes`: what to know besides, e.g. of the history; `gate`: what the nights together show, if that decides."""
    verdict = night.verdict
    tone: Tone = "warn" if verdict is None else _TONES[verdict]
    decided = strongest(night.series, verdict) if verdict in {Verdict.REGRESSED, Verdict.INCONCLUSIVE} else []
    lines = tuple(map(series_line, decided[:_SHOWN_LINES]))
    top = Headline(
        label=night.scenario,
        verdict="gap" if verdict is None else verdict.value,
        text=headline(night).partition(": ")[2],
        tone=tone,
        details=(Items(lines),) if len(lines) > 1 else (),
    )
    sections = [] if night.gap else [_series(night, rules), *_evidence(night), _pairs(night)]
    return ReportDocument(
        title=f"Night of {night.at[:10]}: {night.scenario}",
        subtitle=f"{night.candidate.name} against {night.reference.name}; run {night.run or 'none'}",
        headlines=(top, *_over_nights(gate)) if night.gap is None else (top,),
        sections=(*sections, _builds(night), _rules(rules)),
        made_at=night.at,
        warnings=tuple(notes),
    )


def _over_nights(gate: ChangeGate) -> list[Headline]:
    if not gate.fails:
        return []
    first, *others = gate.alarms
    lines = (*(alarm.line for alarm in others[:_SHOWN_LINES]), how_to_mark(first))
    return [Headline("Over the nights", "changed", first.line, tone="bad", details=(Items(lines),))]


def _series(night: Night, rules: NightRules) -> Section:
    columns = (
        Column("verdict", numeric=False),
        Column("series", numeric=False),
        Column("config", numeric=False),
        Column("difference", help="Candidate against reference, with its interval."),
        Column("pairs"),
        Column("floor", help="A smaller difference is no regression."),
        Column("p", help="How likely so bad a difference is if nothing changed."),
        Column("why", numeric=False),
    )
    ordered = in_order(night.series)
    several = len({one.key.host_class for one in ordered}) > 1
    rows = tuple(
        (
            Cell(one.verdict.value, sort=i, tone=_TONES[one.verdict]),
            Cell(series_title(one), note=one.key.host_class if several else ""),
            Cell(one.measured.label),
            _difference(one),
            Cell(pairs_text(one), sort=len(one.measured.pairs) or len(one.measured.starts)),
            Cell(f"{one.floor:.0%}" if one.floor else "", sort=one.floor),
            Cell("" if one.p is None or one.noise is None else f"{one.p:.2g}", sort=one.p),
            Cell(one.reason),
        )
        for i, one in enumerate(ordered)
    )
    marked = tuple(i for i, one in enumerate(ordered) if one.verdict is Verdict.REGRESSED)
    table = Table("night-series", f"{len(rows)} series", columns, rows, marked, note=sizes_text(night, rules))
    return Section("series", "Series", (table,))


def _difference(one: SeriesNight) -> Cell:
    if one.difference is None:
        return Cell("")
    interval = "" if one.low is None or one.high is None else f"{share_text(one.low)} to {share_text(one.high)}"
    return Cell(share_text(one.difference), sort=one.difference, note=interval)


def _evidence(night: Night) -> list[Section]:
    """What else speaks for or against what regressed or improved; log lines as they are."""
    blocks: list[Block] = []
    for one in (*strongest(night.series, Verdict.REGRESSED), *strongest(night.series, Verdict.IMPROVED))[:_SHOWN_LINES]:
        if one.evidence:
            blocks.append(Paragraph(series_line(one)))
            if one.kind is Kind.FEASIBLE:
                own = [start.evidence for start in one.measured.starts if start.evidence]
                log = tuple(text for text in one.evidence if text in own)
                if log:
                    blocks.append(Code("\n".join(log), "from its log"))
                if beside := tuple(text for text in one.evidence if text not in own):
                    blocks.append(Items(beside))
            else:
                blocks.append(Items(one.evidence))
    return [Section("evidence", "Evidence", tuple(blocks))] if blocks else []


def _pairs(night: Night) -> Section:
    """The ratio of each pair in time order, series by series; those that decide first."""
    shown = [one for one in in_order(night.series) if one.measured.pairs]
    plots = tuple(_pair_plot(one) for one in shown[:_MOST_PLOTS])
    left = len(shown) - len(plots)
    more: tuple[Block, ...] = (Paragraph(f"{left} more series are in the table above."),) if left > 0 else ()
    return Section("pairs", "Pairs", (*plots, *more) or (Paragraph("No pair has values to compare."),))


def _pair_plot(one: SeriesNight) -> Plot:
    pairs = one.measured.pairs
    names = tuple(f"{i + 1}" for i in range(len(pairs)))
    unit = unit_of(one.key.metric)
    ratios = tuple(None if pair.reference <= 0 else 100 * (pair.candidate / pair.reference - 1) for pair in pairs)
    labels = tuple(
        f"{pair.host}: {plain(pair.candidate)} {unit} against {plain(pair.reference)} {unit}"
        f" ({'candidate' if pair.candidate_first else 'reference'} first)"
        for pair in pairs
    )
    floor = 100 * one.floor
    series = [Series("pairs", names, ratios, labels=labels, tone=_TONES[one.verdict])]
    if floor:
        for name, value in (("floor", -floor), ("floor", floor)):
            series.append(Series(name, names, (value,) * len(names), dashed=True, tone="muted", group="floor"))
    said = "no value" if one.difference is None else share_text(one.difference)
    return Plot(
        f"pairs-{one.key.series_id}",
        f"{series_title(one)}, {one.measured.label}: {one.verdict.value}",
        "line",
        Axis("pair", categories=names),
        Axis("difference", "%"),
        tuple(series),
        f"{pairs_text(one)}, {said} in the mean; {one.reason}",
        height_px=260,
    )


def _builds(night: Night) -> Section:
    """What is different first."""
    before, now = dict(night.reference.facts), dict(night.candidate.facts)
    names = sorted({*before, *now}, key=lambda name: (before.get(name) == now.get(name), name))
    rows = tuple(
        (
            Cell(name, tone="warn" if name in before and name in now and before[name] != now[name] else "plain"),
            Cell(before.get(name, "not known")),
            Cell(now.get(name, "not known")),
        )
        for name in names
    )
    columns = tuple(Column(name, numeric=False) for name in ("", "reference", "candidate"))
    top = (Cell("build"), Cell(night.reference.name), Cell(night.candidate.name))
    hosts = tuple(
        f"{host.name} ({host.host_class}): {', '.join(f'{k} {v}' for k, v in host.facts) or 'nothing more is known'}"
        for host in night.hosts
    )
    return Section(
        "builds",
        "Builds and hosts",
        (Table("night-builds", "What was compared", columns, (top, *rows)), Items(hosts or ("no host measured",))),
    )


def _rules(rules: NightRules) -> Section:
    text = (
        f"Regressed: worse by more than the floor, with p below {rules.alarm_p:.1e}, which is what "
        f"{rules.false_alarms:g} false alarms a series in {rules.nights} nights allow, and with a false discovery rate "
        f"below {rules.discoveries:g} over all series of the night. Same: the {rules.confidence:.0%} interval lies "
        f"within {rules.same_within:g} floors. Else it is left open. A death needs no statistics."
    )
    return Section("rules", "How it was judged", (Paragraph(text),))
