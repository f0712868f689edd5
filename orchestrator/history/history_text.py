"""A history in words and as JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from orchestrator.history.change_points import ChangeRules
from orchestrator.history.history_lines import PlacedChange, SeriesLine
from orchestrator.history.night_history import AlarmRecord, History
from orchestrator.nights.night import Verdict
from orchestrator.nights.night_evidence import series_name, share_text
from orchestrator.plural import plural

# Of what got worse over the nights, a morning's message names so many.
MOST_NEWS = 5


def night_text(at: str) -> str:
    """The date of a night."""
    return at[:10]


def value_text(line: SeriesLine) -> str:
    """`-8.0% (-9.5 to -6.4)` of the newest night; what it says where there is no value."""
    last = line.last
    if last.difference is None:
        return last.reason if last.verdict is not Verdict.SAME else "served"
    if last.low is None or last.high is None:
        return share_text(last.difference)
    return f"{share_text(last.difference)} ({_interval(last.low, last.high)})"


def _interval(low: float, high: float) -> str:
    """`-9.5 to -6.4`, in percent, of log ratios."""
    return f"{math.expm1(low) * 100:+z.1f} to {math.expm1(high) * 100:+z.1f}"


def change_text(line: SeriesLine, change: PlacedChange) -> str:
    """`2026-11-21 worse: -7.7% (99%: -8.4 to -7.0), p 0.002, q 0.01; between: candidate: commit a -> b`."""
    text = f"{night_text(line.nights[change.at].at)} {size_text(line, change)}"
    return f"{text}; between: {', '.join(change.between)}" if change.between else text


def size_text(line: SeriesLine, change: PlacedChange) -> str:
    """The same without the night and what changed in it."""
    point = change.change.point
    text = (
        f"{'worse' if line.is_worse(change) else 'better'}: {share_text(point.difference)} "
        f"(99%: {_interval(point.low, point.high)}), p {point.p:.2g}, q {change.change.q:.2g}"
    )
    if not change.change.sure:
        text += ", may be chance among so many series"
    if change.mark is not None:
        text += f"; {mark_text(change.mark.verdict, change.mark.marked_by, change.mark.note)}"
    return text


def mark_text(verdict: str, by: str, note: str) -> str:
    """`marked false by ana: a noisy neighbour`."""
    return f"marked {verdict}{f' by {by}' if by else ''}{f': {note}' if note else ''}"


def line_name(line: SeriesLine) -> str:
    """`tpot_mean_ms at chat C=16, depth 3 on 8x H100`."""
    return f"{series_name(line.last)}, {line.label or line.key.config} on {line.key.host_class or 'unknown hosts'}"


def short_remark(line: SeriesLine) -> str:
    """`worse since 2026-11-21`, `not served since ...`: the newest of what happened to it, and whether it is
    measured still; empty if nothing did.
    """
    found = [(line.nights[0].at, "")]
    for c in line.changes:
        word = "worse" if line.is_worse(c) else "better"
        sure, marked = "" if c.change.sure else " perhaps", f", marked {c.mark.verdict}" if c.mark else ""
        found.append((line.nights[c.at].at, f"{word}{sure} since {night_text(line.nights[c.at].at)}{marked}"))
    for turn in line.turns:
        word = "not served" if turn.worse else "served again"
        found.append((line.nights[turn.at].at, f"{word} since {night_text(line.nights[turn.at].at)}"))
    newest = max(found, key=lambda one: one[0])[1]
    last = f"last measured {night_text(line.nights[-1].at)}" if line.missed else ""
    return ", ".join(filter(None, (newest, last)))


def line_remarks(line: SeriesLine) -> list[str]:
    """All that is to be said of a line, in the order of its nights."""
    told = [(c.at, change_text(line, c)) for c in line.changes]
    told += [(t.at, f"{night_text(line.nights[t.at].at)} {t.text}") for t in line.turns]
    told += [(s.begin, f"{night_text(line.nights[s.begin].at)} new segment: {s.why}") for s in line.segments if s.why]
    return [text for _, text in sorted(told)] + list(line.shifts)


def events(lines: Sequence[SeriesLine]) -> list[str]:
    """What happened, night by night: what came in one night, in one way, stands together, the largest first."""
    by_night: dict[str, list[str]] = {}
    changed: dict[tuple[str, str], list[tuple[SeriesLine, PlacedChange]]] = {}
    segments: dict[tuple[str, str], int] = {}
    for line in lines:
        for change in line.changes:
            changed.setdefault((line.nights[change.at].night_id, ", ".join(change.between)), []).append((line, change))
        for turn in line.turns:
            by_night.setdefault(line.nights[turn.at].night_id, []).append(
                f"{line.label or line.key.config} {turn.text}"
            )
        for part in line.segments:
            if part.why:
                place = (line.nights[part.begin].night_id, part.why)
                segments[place] = segments.get(place, 0) + 1
    for (night_id, why), count in segments.items():
        series = "series" if count == 1 else "series each"
        by_night.setdefault(night_id, []).append(f"new segment ({count} {series}): {why}")
    for (night_id, why), pairs in changed.items():
        own = by_night.setdefault(night_id, [])
        own.append(f"{len(pairs)} series changed{f'; between: {why}' if why else ''}")
        pairs.sort(key=lambda pair: -abs(pair[1].change.point.difference))
        own += [f"  {line_name(line)} {size_text(line, change)}" for line, change in pairs]
    return [
        text
        for night_id, own in sorted(by_night.items())
        for text in (f"{night_id[:4]}-{night_id[4:6]}-{night_id[6:8]} ({night_id})", *(f"  {t}" for t in own))
    ]


def gap_lines(history: History) -> list[str]:
    """Nights that could not be measured, with the reason."""
    return [f"{night_text(n.at)} {n.scenario}: {n.gap.reason}" for n in history.nights if n.gap is not None]


def too_few_text(lines: Sequence[SeriesLine]) -> str:
    """That no change can be seen yet, so that nobody takes silence for good news; empty where one can."""
    longest = max((len(line.values) for line in lines), default=0)
    needed = 2 * ChangeRules().least
    if not longest or longest >= needed:
        return ""
    return (
        f"A change over the nights is seen from {needed} measured nights on; there {'are' if longest > 1 else 'is'} "
        f"{longest}. Until then only the verdicts of single nights tell."
    )


def headline(lines: Sequence[SeriesLine], history: History) -> str:
    """What is new, in one sentence."""
    if not history.nights:
        return "nothing was measured"
    fresh = [(line, change) for line in lines for change in line.news()]
    dead = [(line, turn) for line in lines if (turn := line.death) is not None]
    told = []
    if dead:
        line, turn = dead[0]
        told.append(f"{plural(len(dead), 'config')} no longer served: {line.label or line.key.config} {turn.text}")
    if fresh:
        line, change = min(fresh, key=lambda pair: pair[1].change.q)
        count = plural(len(fresh), "new worsening")
        told.append(f"{count}, surest {line_name(line)}: {change_text(line, change)}")
    newest = history.nights[-1]
    regressed = len(newest.of(Verdict.REGRESSED))
    if newest.gap is not None:
        gaps = len(list(takewhile(lambda night: night.gap is not None, reversed(history.nights))))
        which = "the newest night is a gap" if gaps == 1 else f"the newest {gaps} nights are gaps, the last of them"
        told.append(f"{which}: {newest.gap.reason}")
    elif regressed:
        told.append(f"{regressed} series regressed in the newest night, {night_text(newest.at)}")
    return "; ".join(told) or "nothing got worse in the last nights"


def history_news(lines: Sequence[SeriesLine]) -> tuple[str, ...]:
    """What single nights may not show: sure worsenings of the last nights, the surest first."""
    found = [(line, change) for line in lines for change in line.news()]
    found.sort(key=lambda pair: pair[1].change.q)
    told = [f"over the nights: {line_name(line)}: {change_text(line, change)}" for line, change in found[:MOST_NEWS]]
    more = len(found) - len(told)
    return (*told, *([f"over the nights: {more} more series got worse (specsweep history)"] if more else []))


def is_bad(lines: Sequence[SeriesLine], history: History) -> bool:
    """Something got worse of late, or the newest night says so."""
    newest = history.nights[-1] if history.nights else None
    return any(line.news() or line.death for line in lines) or (
        newest is not None and newest.verdict is Verdict.REGRESSED
    )


def record_text(record: AlarmRecord) -> str:
    """How often alarms were false, by those that people marked."""
    if not record.alarms:
        return f"No alarm in {plural(record.looked_at, 'series-night')}."
    judged = record.true + record.false
    if not judged:
        return (
            f"{plural(record.alarms, 'alarm')} in {plural(record.looked_at, 'series-night')}, none marked: "
            "`specsweep history DIR --mark NIGHT true|false|fixed` measures how many are false."
        )
    return (
        f"{plural(record.alarms, 'alarm')} in {plural(record.looked_at, 'series-night')}; of {judged} that were marked "
        f"{record.false} were false ({record.false_share:.0%}), {record.false_in_90_nights:.3f} a series in 90 nights."
    )


def history_json(history: History, lines: Sequence[SeriesLine]) -> dict[str, Any]:
    """For machines."""
    record = history.alarm_record()
    return {
        "nights": [
            {
                "night_id": night.night_id,
                "at": night.at,
                "scenario": night.scenario,
                "run": night.run,
                "verdict": None if night.verdict is None else night.verdict.value,
                "gap": None if night.gap is None else night.gap.reason,
                "reference": night.reference.name,
                "candidate": night.candidate.name,
            }
            for night in history.nights
        ],
        "series": [_line_json(line) for line in lines],
        "alarms": {
            "alarms": record.alarms,
            "marked_true": record.true,
            "marked_false": record.false,
            "series_nights": record.looked_at,
            "false_share": record.false_share,
            "false_per_series_in_90_nights": record.false_in_90_nights,
        },
        "marks": [mark.as_json() for mark in history.marks],
        "skipped": list(history.skipped),
    }


def _line_json(line: SeriesLine) -> dict[str, Any]:
    return {
        "series_id": line.key.series_id,
        "scenario": line.scenario,
        "metric": line.key.metric,
        "config": line.key.config,
        "label": line.label,
        "workload": line.key.workload,
        "level": line.key.level,
        "host_class": line.key.host_class,
        "nights": [
            {"at": night.at, "difference": v.difference, "low": v.low, "high": v.high, "verdict": v.verdict.value}
            for night, v in zip(line.nights, line.values, strict=True)
        ],
        "segments": [{"from": line.nights[s.begin].at, "nights": s.end - s.begin, "why": s.why} for s in line.segments],
        "change_points": [_change_json(line, change) for change in line.changes],
        "turns": [{"at": line.nights[t.at].at, "text": t.text, "worse": t.worse} for t in line.turns],
        "expected_shifts": list(line.shifts),
    }


def _change_json(line: SeriesLine, change: PlacedChange) -> dict[str, Any]:
    point = change.change.point
    return {
        "at": line.nights[change.at].at,
        "night_id": line.nights[change.at].night_id,
        "difference": point.difference,
        "low": point.low,
        "high": point.high,
        "p": point.p,
        "q": change.change.q,
        "sure": change.change.sure,
        "worse": line.is_worse(change),
        "between": list(change.between),
        "marked": None if change.mark is None else change.mark.verdict,
    }
