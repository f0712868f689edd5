"""The parts of a night in a report: its series, what speaks for them, their pairs, the builds, the rules. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.documents.report_document import (
    Axis,
    Block,
    Cell,
    Code,
    Column,
    Fold,
    Items,
    Paragraph,
    Plot,
    Section,
    Series,
    Table,
    Tone,
)
from orchestrator.documents.report_numbers import NOTHING, count, rounded
from orchestrator.nightly.night_pairs import PairCount
from orchestrator.nights.night import FEASIBLE, Kind, Measured, Night, SeriesKey, SeriesNight, Verdict, unit_of
from orchestrator.nights.night_evidence import share_text
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_text import in_order, noise_text, pairs_text, plain_title, sizes_text, strongest
from orchestrator.shown_text import capitalised
from orchestrator.supported_digits import plain

TONES: dict[Verdict, Tone] = {
    Verdict.REGRESSED: "bad", Verdict.IMPROVED: "good", Verdict.SAME: "good", Verdict.INCONCLUSIVE: "warn",
}  # fmt: skip
_MEAN = "Geometric mean over the pairs (arithmetic where a value is 0)."
_SERIES = Column("series", numeric=False, help="What is compared, and under which load: C=8 is 8 requests in flight.")
_CONFIG = Column("config", numeric=False)
_WHY = (
    "p: how likely so bad a difference is if nothing changed. Floor: a smaller worsening is no regression. Noise: "
    "standard deviation of a pair, and of what a whole night has by luck."
)
_MOST_PLOTS = 24
# Series whose evidence is open; the others say mostly the same.
_MOST_OPEN = 3
_MOST_TOLD = 12


def has_several_configs(measured: Sequence[Measured]) -> bool:
    """Whether a series must be told with its config."""
    return len({one.key.config for one in measured}) > 1


def series_section(night: Night, rules: NightRules) -> Section:
    """Every series with its verdict, those that decide first."""
    ordered = in_order(night.series)
    measured = [one.measured for one in ordered]
    several = has_several_configs(measured)
    columns = (  # what a telephone has no room for comes last
        Column("verdict", numeric=False),
        _SERIES,
        Column("difference", help="Candidate against reference, from the ratio within each pair, with its interval."),
        Column("reference", help=_MEAN),
        Column("candidate", help=_MEAN),
        *((_CONFIG,) if several else ()),
        Column("pairs", help="Fresh starts of both builds, one after the other on the same hardware."),
        Column("why", numeric=False, help=_WHY),
    )
    rows = tuple(_row(one, i, measured, several=several) for i, one in enumerate(ordered))
    marked = tuple(i for i, one in enumerate(ordered) if one.verdict is Verdict.REGRESSED)
    of = "" if several or not ordered else f" of {ordered[0].measured.label}"
    table = Table("night-series", f"{len(rows)} series{of}", columns, rows, marked, note=sizes_text(night, rules))
    return Section("series", "Series", (table,))


def _row(one: SeriesNight, place: int, measured: Sequence[Measured], *, several: bool) -> tuple[Cell, ...]:
    before, now = _means(one.measured)
    return (
        Cell(one.verdict.value, sort=place, tone=TONES[one.verdict]),
        _named(one.key, measured),
        _difference(one),
        _value(before, one.key.metric),
        _value(now, one.key.metric),
        *((Cell(one.measured.label),) if several else ()),
        count(len(one.measured.pairs) or len(one.measured.starts)),
        Cell(one.reason, note=_by_what(one)),
    )


def _by_what(one: SeriesNight) -> str:
    p = [] if one.p is None or one.noise is None else [f"p {one.p:.2g}"]
    floor = [f"floor {100 * one.floor:g}%"] if one.floor else []
    return ", ".join([*p, *floor, *([f"noise {noise}"] if (noise := noise_text(one)) else [])])


def _named(key: SeriesKey, all_of: Sequence[Measured]) -> Cell:
    """With the name that settings and machines know, and the class of hosts where there are several."""
    name = "" if key.metric == FEASIBLE else key.metric
    on = key.host_class if len({one.key.host_class for one in all_of}) > 1 else ""
    return Cell(plain_title(key), note=" on ".join(filter(None, (name, on))))


def _means(one: Measured) -> tuple[float | None, float | None]:
    """Geometric, whose ratio is the difference that stands beside them; arithmetic where a value is not positive."""
    if not one.pairs:
        return None, None
    members = [p.reference for p in one.pairs], [p.candidate for p in one.pairs]
    if min(map(min, members)) > 0:
        before, now = (math.exp(math.fsum(map(math.log, of)) / len(of)) for of in members)
    else:
        before, now = (math.fsum(of) / len(of) for of in members)
    return before, now


def _value(value: float | None, metric: str) -> Cell:
    return NOTHING if value is None else Cell(number(value), sort=value, note=unit_of(metric))


def number(value: float) -> str:
    """`278.1`, `423,191`."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else plain(value)


def _difference(one: SeriesNight) -> Cell:
    if one.difference is None:
        return NOTHING
    interval = "" if one.low is None or one.high is None else f"{share_text(one.low)} to {share_text(one.high)}"
    return Cell(share_text(one.difference), sort=one.difference, note=interval)


def evidence_sections(night: Night) -> list[Section]:
    """What else speaks for or against what regressed or improved; log lines as they are."""
    several = has_several_configs([one.measured for one in night.series])
    told = [*strongest(night.series, Verdict.REGRESSED), *strongest(night.series, Verdict.IMPROVED)][:_MOST_TOLD]
    found = [_evidence(one, several=several) for one in told if one.evidence]
    blocks = [block for own in found[:_MOST_OPEN] for block in own]
    if rest := found[_MOST_OPEN:]:
        title = f"Evidence of {len(rest)} more series"
        blocks.append(Fold(title, tuple(block for own in rest for block in own)))
    return [Section("evidence", "Evidence", tuple(blocks))] if blocks else []


def _evidence(one: SeriesNight, *, several: bool) -> list[Block]:
    blocks: list[Block] = [Paragraph(f"{short_line(one, several=several)}:")]
    if one.kind is not Kind.FEASIBLE:
        return [*blocks, Items(one.evidence)]
    own = [start.evidence for start in one.measured.starts if start.evidence]
    if log := tuple(text for text in one.evidence if text in own):
        blocks.append(Code("\n".join(log), "from its log"))
    if beside := tuple(text for text in one.evidence if text not in own):
        blocks.append(Items(beside))
    return blocks


def short_line(one: SeriesNight, *, several: bool) -> str:
    """`output throughput at chat C=8: -4.7% (-7.2% to -2.2%)`: a series for somebody who reads it first."""
    name = plain_title(one.key) + (f" ({one.measured.label})" if several else "")
    if one.kind is Kind.FEASIBLE or one.difference is None:
        return f"{name}: {one.reason}"
    told, (before, now) = _difference(one), _means(one.measured)
    values = ""
    if before is not None and now is not None:
        values = f"{number(before)} → {number(now)} {unit_of(one.key.metric)}".rstrip() + ", "
    interval = f" ({told.note})" if told.note else ""
    return f"{name}: {values}{told.text}{interval}"


def pairs_section(night: Night) -> Section:
    """The ratio of each pair in time order, series by series; those that are as they were, and noise, are folded."""
    shown = [one for one in in_order(night.series) if one.measured.pairs]
    several = has_several_configs([one.measured for one in night.series])
    drawn = shown[:_MOST_PLOTS]
    first = [one for one in drawn if _decides(one) or (one.verdict is Verdict.INCONCLUSIVE and not one.too_noisy)]
    blocks: list[Block] = [_pair_plot(one, several=several) for one in first]
    if rest := [one for one in drawn if one not in first]:
        title = f"Pairs of {len(rest)} series that are the same or too noisy to tell"
        blocks.append(Fold(title, tuple(_pair_plot(one, several=several) for one in rest)))
    if left := len(shown) - len(drawn):
        blocks.append(Paragraph(f"{left} more series are in the table above."))
    return Section("pairs", "Pairs", tuple(blocks) or (Paragraph("No pair has values to compare."),))


def _decides(one: SeriesNight) -> bool:
    return one.verdict in {Verdict.REGRESSED, Verdict.IMPROVED}


def _pair_plot(one: SeriesNight, *, several: bool) -> Plot:
    pairs, title = one.measured.pairs, plain_title(one.key)
    names = tuple(f"{i + 1}" for i in range(len(pairs)))
    unit = unit_of(one.key.metric)
    ratios = tuple(
        None if pair.reference <= 0 else rounded(100 * (pair.candidate / pair.reference - 1)) for pair in pairs
    )
    labels = tuple(
        f"{pair.host}: {plain(pair.candidate)} {unit} against {plain(pair.reference)} {unit}"
        f" ({'candidate' if pair.candidate_first else 'reference'} first)"
        for pair in pairs
    )
    floor = 100 * one.floor
    series = [Series("pairs", names, ratios, labels=labels, tone=TONES[one.verdict])]
    if floor:
        for name, value in (("floor", -floor), ("floor", floor)):
            series.append(Series(name, names, (value,) * len(names), dashed=True, tone="muted", group="floor"))
    said = "no value" if one.difference is None else share_text(one.difference)
    return Plot(
        f"pairs-{one.key.series_id}",
        f"{capitalised(title)}{f' of {one.measured.label}' if several else ''}: {one.verdict.value}",
        "line",
        Axis("pair", categories=names),
        Axis("candidate against reference", "%"),
        tuple(series),
        f"{pairs_text(one)}, {said} in the mean; {one.reason}",
        height_px=260,
    )


def builds_section(night: Night) -> Section:
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
    columns = tuple(Column(name, numeric=False) for name in ("fact", "reference", "candidate"))
    top = (Cell("build"), Cell(night.reference.name), Cell(night.candidate.name))
    hosts = tuple(
        f"{host.name}{f' ({host.host_class})' if host.host_class else ''}: "
        f"{', '.join(f'{k} {v}' for k, v in host.facts) or 'nothing more is known'}"
        for host in night.hosts
    )
    return Section(
        "builds",
        "Builds and hosts",
        (
            Table("night-builds", "What was compared; what differs first", columns, (top, *rows)),
            Paragraph("Hosts that measured:" if hosts else "No host has measured."),
            *((Items(hosts),) if hosts else ()),
        ),
    )


def rules_section(rules: NightRules) -> Section:
    """What the verdicts mean."""
    text = (
        "Both builds are started in pairs, one after the other on the same hardware; judged is the ratio within a "
        f"pair. Regressed: worse by more than the floor, with p below {rules.alarm_p:.1e}, which is what "
        f"{rules.false_alarms:g} false alarms a series in {rules.nights} nights allow, tonight alone or together with "
        "a night before that was about as far off, and with a false discovery rate below "
        f"{rules.discoveries:g} over all series of the night. Improved: the same on the good side. Same: the "
        f"{100 * rules.confidence:g}% interval lies within {rules.same_within:g} floors. Else it is inconclusive. A "
        "death needs no statistics. The error of a mean is that of its pairs, and what whole nights differ by beyond "
        "them in the history (luck of an image, of a memory layout), which is the same in all pairs of a night."
    )
    return Section("rules", "How it is judged", (Paragraph(text),))


def so_far_section(counts: Sequence[PairCount], measured: Sequence[Measured]) -> Section:
    """Pairs that are there, and what they have of each series: no verdict, which is one look at all of them."""
    is_classed = any(one.host_class for one in counts)
    columns = (
        _CONFIG,
        *((Column("hosts", numeric=False),) if is_classed else ()),
        Column("measured", help="Pairs of which both builds served."),
        Column("wanted", help="At first; more where these leave a series open."),
        Column("died", help="Pairs of which a build cannot run."),
        Column("broken", help="Pairs that say nothing and are made anew."),
        Column("half", help="Pairs of which one build has ended."),
    )
    rows = tuple(
        (
            Cell(one.label),
            *((Cell(one.host_class),) if is_classed else ()),
            count(one.measured),
            count(one.wanted),
            Cell(str(one.died), sort=one.died, tone="bad" if one.died else "plain"),
            count(one.broken),
            count(one.half),
        )
        for one in counts
    )
    blocks: list[Block] = [Table("night-counts", "Pairs so far", columns, rows)]
    deaths = [
        Code(s.evidence, f"{s.diagnosis or 'no diagnosis'}: a start of {one.label}")
        for one in measured for s in one.starts if s.evidence
    ]  # fmt: skip
    blocks += deaths[:_MOST_OPEN]
    blocks += [_so_far(measured)] if any(one.pairs for one in measured) else []
    return Section("so-far", "So far", tuple(blocks))


def _so_far(measured: Sequence[Measured]) -> Table:
    known = [one for one in measured if one.pairs]
    several = has_several_configs(known)
    columns = (
        _SERIES, *((_CONFIG,) if several else ()), Column("reference"), Column("candidate"), Column("difference", "%"),
        Column("pairs"),
    )  # fmt: skip
    rows = []
    for one in known:
        before, now = _means(one)
        ratios = one.log_ratios
        mean = 100 * math.expm1(math.fsum(ratios) / len(ratios)) if ratios else None
        rows.append(
            (_named(one.key, known), *((Cell(one.label),) if several else ()), _value(before, one.key.metric),
             _value(now, one.key.metric), NOTHING if mean is None else Cell(f"{mean:+z.1f}", sort=mean),
             count(len(one.pairs)))
        )  # fmt: skip
    note = "Nothing of this is judged: whoever looks after every pair sees alarms that are none."
    return Table("night-so-far", "Means of the pairs so far", columns, tuple(rows), note=note)
