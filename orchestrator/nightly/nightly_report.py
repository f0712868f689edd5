"""A night as a report: the verdict first, then every series, what differs between the builds, and the pairs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.documents.report_document import Block, Headline, Items, Paragraph, ReportDocument, Section
from orchestrator.history.change_alarms import how_to_mark
from orchestrator.nightly.night_blocks import (
    TONES,
    builds_section,
    evidence_sections,
    has_several_configs,
    pairs_section,
    rules_section,
    series_section,
    short_line,
    so_far_section,
)
from orchestrator.nightly.night_json import NightTold
from orchestrator.nightly.night_pairs import PairCount, counts_line
from orchestrator.nights.night import Measured, Night, Verdict
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_text import strongest

_MOST_LINES = 12
GAP = "not measured"
_WORDS = {
    Verdict.REGRESSED: "got worse beyond doubt",
    Verdict.IMPROVED: "got better beyond doubt",
    Verdict.SAME: "are as in the reference",
    Verdict.INCONCLUSIVE: "are open: more pairs would tell whether they got worse",
}


def nightly_report(told: NightTold, made_at: str = "") -> ReportDocument:
    """The verdict and what is behind it. `made_at`: when the report was, if not with the night."""
    night = told.night
    sections = verdict_sections(night, told.rules) if night.gap is None else ()
    return ReportDocument(
        title=night_title(night),
        subtitle=f"{builds_text(night)}. Begun {night.at[:16]} UTC; run {night.run or 'none'}.",
        headlines=verdict_headlines(told),
        sections=(*sections, builds_section(night), rules_section(told.rules)),
        made_at=made_at or night.at,
        warnings=tuple(told.notes),
    )


def night_title(night: Night) -> str:
    """`Night of 2026-11-30: pinned`."""
    return f"Night of {night.at[:10]}: {night.scenario}"


def builds_text(night: Night) -> str:
    """What a night is about, for somebody who sees one for the first time."""
    return (
        f"{night.candidate.name} (candidate) against {night.reference.name} (reference), in pairs on the same hardware"
    )


def verdict_sections(night: Night, rules: NightRules) -> tuple[Section, ...]:
    """All that is behind a verdict but the builds and the rules."""
    return (series_section(night, rules), *evidence_sections(night), pairs_section(night))


def verdict_headlines(told: NightTold) -> tuple[Headline, ...]:
    """The verdict of a night; then what the nights together show, where that decides too."""
    verdict = verdict_headline(told.night)
    if not told.alarms:
        return (verdict,)
    first, *others = told.alarms
    lines = (*(alarm.line for alarm in others[:_MOST_LINES]), how_to_mark(first))
    return (verdict, Headline("Over the nights", "changed", first.line, tone="bad", details=(Items(lines),)))


def verdict_headline(night: Night) -> Headline:
    """The verdict of a night, or why there is none."""
    verdict = night.verdict
    if night.gap is not None or verdict is None:
        reason = night.gap.reason if night.gap else ""
        text = f"This night could not be measured, which is never a pass: {reason}"
        return Headline(_question(night), GAP, text, "warn")
    lines = _lines(night, verdict)
    blocks: list[Block] = [Items(lines)] if lines else []
    if night.cut:
        blocks.append(Paragraph(f"Cut short: {night.cut}.", "warn"))
    return Headline(_question(night), verdict.value, _counted(night, verdict), TONES[verdict], tuple(blocks))


def _question(night: Night) -> str:
    return f"Is {night.candidate.name} worse than {night.reference.name}?"


def _lines(night: Night, verdict: Verdict) -> tuple[str, ...]:
    """The series that decide, the surest first."""
    if verdict is Verdict.SAME:
        return ()
    several = has_several_configs([one.measured for one in night.series])
    deciding = strongest(night.series, verdict)
    lines = [short_line(one, several=several) for one in deciding[:_MOST_LINES]]
    more = len(deciding) - len(lines)
    return (*lines, *((f"and {more} more series, in the table below",) if more > 0 else ()))


def _counted(night: Night, verdict: Verdict) -> str:
    """`5 of 13 series got worse beyond doubt. 4 are as in the reference, 4 are too noisy to tell.`"""
    noisy = sum(one.too_noisy for one in night.of(Verdict.INCONCLUSIVE))
    found = {one: len(night.of(one)) for one in _WORDS}
    found[Verdict.INCONCLUSIVE] -= noisy
    told = {one: f"{n} {_verb(one, n)}" for one, n in found.items() if n and one is not verdict}
    rest = [*told.values(), *([f"{noisy} {_be(noisy)} too noisy to tell"] if noisy else [])]
    others = f" {', '.join(rest)}." if rest else ""
    if verdict is Verdict.INCONCLUSIVE and not found[verdict]:
        return f"Nothing that was measured under load can be told from noise.{others}"
    return f"{found[verdict]} of {len(night.series)} series {_verb(verdict, found[verdict])}.{others}"


def _verb(verdict: Verdict, number: int) -> str:
    return _WORDS[verdict].replace("are ", f"{_be(number)} ", 1)


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def open_headline(night: Night, counts: Sequence[PairCount], *, is_live: bool, resume: str) -> Headline:
    """Of a night that was not judged: it goes on, or it ended without; a report that is asked for cannot tell."""
    done = f"measured so far: {counts_line(counts)}"
    if is_live:
        text = f"The night goes on; {done}. It is judged once all pairs are there, not before."
        return Headline(_question(night), "no verdict yet", text, "plain")
    text = f"This night was not judged; {done}. If its run has ended, it goes on, or is judged, with: {resume}"
    return Headline(_question(night), "no verdict", text, "warn")


def open_sections(counts: Sequence[PairCount], measured: Sequence[Measured]) -> tuple[Section, ...]:
    """What there is of a night without a verdict."""
    return (so_far_section(counts, measured),)
