"""The report of a run: what its directory tells, as a document. Pages and Markdown are made from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.documents.report_document import Block, Paragraph, ReportDocument, Section
from orchestrator.documents.report_numbers import clock
from orchestrator.nightly.night_blocks import builds_section, rules_section
from orchestrator.nightly.nightly_report import (
    builds_text,
    night_title,
    open_headline,
    open_sections,
    verdict_headlines,
    verdict_sections,
)
from orchestrator.plural import plural
from orchestrator.provenance import utc_now
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.reports.report_curves import curve_blocks, depth_blocks
from orchestrator.reports.report_failures import failure_blocks
from orchestrator.reports.report_headlines import headlines, notes, notes_above, warnings
from orchestrator.reports.report_latency import latency_blocks
from orchestrator.reports.report_material import read_latencies, read_material, read_predictions
from orchestrator.reports.report_memory import memory_blocks
from orchestrator.reports.report_pareto import front_blocks, speed_blocks
from orchestrator.reports.report_part import NightMaterial, PartMaterial, RunMaterial
from orchestrator.reports.report_provenance import (
    command_blocks,
    environment_blocks,
    note_blocks,
    settings_table,
    validity_blocks,
)
from orchestrator.reports.report_ranking import not_started, ranking_blocks
from orchestrator.reports.report_search import search_blocks
from orchestrator.reports.report_telemetry import MOST_POINTS, telemetry_blocks, telemetry_trials
from orchestrator.reports.report_timeline import slot_blocks, start_blocks
from orchestrator.reports.report_words import word_blocks
from orchestrator.reports.telemetry_series import telemetry_of
from orchestrator.scenarios.night_scenario import resume_command

# Letters of a sentence below a title.
MOST_ASKED = 200
# Load levels of objectives whose latencies are drawn.
MOST_PLACES = 4
_LIST = "; "
# Begins the sentence of a section that could not be made.
NOT_MADE = "This section could not be made"


def run_report(root: Path, ranking: RunRanking, *, is_live: bool = False, place: Path | None = None) -> ReportDocument:
    """The report of a run that `rank_run` has just ranked. BadInput for what is no run.

    `is_live`: the run goes on. `place`: where readers find it, if `root` is a copy.
    """
    run = read_material(root, ranking, place)
    if run.night is not None:
        return _night_report(run, run.night, is_live=is_live)
    return ReportDocument(
        title=run.scenario.name,
        subtitle=_subtitle(run),
        headlines=tuple(headline for part in run.parts for headline in headlines(part)),
        sections=_sections(run, tuple(_BUILDERS)),
        made_at=utc_now(),
        warnings=warnings(run, is_live=is_live),
        is_live=is_live,
    )


def _night_report(run: RunMaterial, material: NightMaterial, *, is_live: bool) -> ReportDocument:
    """The verdict, or how far its pairs have come; then what helps to understand it."""
    told, night = material.told, material.told.night
    resume = resume_command(run.scenario, run.place)
    if material.is_judged:
        top = verdict_headlines(told)
    else:
        top = (open_headline(night, material.counts, is_live=is_live, resume=resume),)
    first = open_sections(material.counts, material.measured)
    if material.is_judged and night.gap is None:
        first = verdict_sections(night, told.rules)
    return ReportDocument(
        title=night_title(night),
        subtitle=f"{builds_text(night)}. {_model(run)}. {_work(run)}",
        headlines=top,
        sections=(*first, builds_section(night), rules_section(told.rules), *_sections(run, _OF_NIGHTS)),
        made_at=utc_now(),
        warnings=tuple(dict.fromkeys((*told.notes, *notes_above(run)))),
        is_live=is_live,
    )


def _sections(run: RunMaterial, names: Sequence[str]) -> tuple[Section, ...]:
    """Those that have anything to tell."""
    found = (Section(name, _title(name, run), tuple(_made(_BUILDERS[name][1], run))) for name in names)
    return tuple(section for section in found if section.blocks)


def _title(name: str, run: RunMaterial) -> str:
    return "What was started, in order" if name == "search" and run.night else _BUILDERS[name][0]


def _subtitle(run: RunMaterial) -> str:
    repaired = {c for part in (run.ranking, *run.ranking.parts) for c in part.repairs}  # none of the sweep
    asked = question(run.scenario.description)
    return f"{asked}{_model(run)}. {plural(len(set(run.ranking.configs) - repaired), 'config')}, {_work(run)}"


def question(description: str) -> str:
    """The first sentence of what the scenario says of itself, which is mostly what its reader wants to know."""
    first = re.match(r".+?[.?!](?=\s|$)", " ".join(description.split()))
    return f"{first[0]} " if first and len(first[0]) <= MOST_ASKED else ""


def _model(run: RunMaterial) -> str:
    classes = [c for c in run.manifest.get("host_classes", ()) if c]
    return f"{run.scenario.model.path}{f' on {_LIST.join(classes)}' if classes else ''}"


def _work(run: RunMaterial) -> str:
    trials = sum(len(part.trials) for part in run.parts)
    points = sum(len(part.points) for part in run.parts)
    begun = run.manifest["starts"][0]["started_at"]
    return f"{plural(trials, 'start')}, {plural(points, 'point')}. Begun {clock(begun)}."


def _made(build: Callable[[RunMaterial], Sequence[Block]], run: RunMaterial) -> Sequence[Block]:
    """One odd row of a run must not cost its reader all the other sections."""
    try:
        return build(run)
    except Exception as error:  # noqa: BLE001
        return (Paragraph(f"{NOT_MADE}: {type(error).__name__}: {error}", "bad"),)


def _by_part(build: Callable[[PartMaterial], Sequence[Block]], run: RunMaterial) -> list[Block]:
    """The blocks of every class of hosts, with its name above where there are several."""
    blocks: list[Block] = []
    for part in run.parts:
        own = build(part)
        if own and len(run.parts) > 1:
            blocks.append(Paragraph(f"On hosts of the class {part.ranking.host_class}:"))
        blocks += own
    return blocks


def _ranking(run: RunMaterial) -> list[Block]:
    blocks = _by_part(ranking_blocks, run)
    left = [items for part in run.parts if (items := not_started(part)) is not None]
    return [*blocks, *left[:1], *note_blocks(notes(run))]


def _speed(run: RunMaterial) -> list[Block]:
    return _by_part(lambda part: [*speed_blocks(part, part.workloads), *front_blocks(part), *_left_out(part)], run)


def _left_out(part: PartMaterial) -> list[Block]:
    """Said where plots do not have all configs."""
    measured = len({row.config_id for r in part.ranking.rankings for row in r.rows if row.value is not None})
    if measured <= len(part.drawn):
        return []
    return [Paragraph(f"Plots have the first {len(part.drawn):,} of {measured:,} measured configs.", "muted")]


def _load(run: RunMaterial) -> list[Block]:
    return _by_part(lambda part: curve_blocks(part, part.workloads), run)


def _memory(run: RunMaterial) -> list[Block]:
    return _by_part(lambda part: memory_blocks(part, *read_predictions(run, part)), run)


def _latency(run: RunMaterial) -> list[Block]:
    def of(part: PartMaterial) -> list[Block]:
        found: list[Block] = []
        if not part.points:
            return found
        for number, (workload, level) in enumerate(part.places[:MOST_PLACES]):
            found += latency_blocks(part, workload, level, read_latencies(run.root, part, workload, level), number)
        return found

    return _by_part(of, run)


def _telemetry(run: RunMaterial) -> list[Block]:
    def of(part: PartMaterial) -> list[Block]:
        found = telemetry_of(run.root, telemetry_trials(part), MOST_POINTS, loads=part.loads)
        return telemetry_blocks(part, found)

    return _by_part(of, run)


def _environment(run: RunMaterial) -> list[Block]:
    return [*environment_blocks(run), *_by_part(lambda part: [settings_table(part)], run)]


def _points(run: RunMaterial) -> list[Block]:
    """What the ranking notes besides has no other place in the report of a night."""
    return [*_by_part(validity_blocks, run), *(note_blocks(notes(run)) if run.night else ())]


_BUILDERS: dict[str, tuple[str, Callable[[RunMaterial], Sequence[Block]]]] = {
    "ranking": ("Ranking", _ranking),
    "speed": ("Throughput against speed", _speed),
    "load": ("Over load", _load),
    "depth": ("By speculation depth", lambda run: _by_part(depth_blocks, run)),
    "memory": ("Memory", _memory),
    "latency": ("Latency of single requests", _latency),
    "failures": ("Failures", lambda run: _by_part(failure_blocks, run)),
    "slots": ("Slots over time", lambda run: _by_part(slot_blocks, run)),
    "starts": ("Server starts", lambda run: _by_part(start_blocks, run)),
    "telemetry": ("GPUs and servers over time", _telemetry),
    "search": ("Search", search_blocks),
    "points": ("Which points count", _points),
    "environment": ("Environment and provenance", _environment),
    "commands": ("Commands", lambda run: _by_part(command_blocks, run)),
    "words": ("Words", word_blocks),
}
# Of a night: nothing that ranks one build against the other. What died comes first.
_OF_NIGHTS = ("failures", "load", "latency", "memory", "starts", "slots", "telemetry", "search", "points",
              "environment", "commands", "words")  # fmt: skip
