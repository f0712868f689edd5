"""What a run decided, as large as a page allows: one headline an objective, and what stands above all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.documents.report_document import Block, Code, Facts, Fold, Headline, Items, Paragraph, Tone
from orchestrator.documents.report_numbers import clipped
from orchestrator.plural import plural
from orchestrator.points.metric_title import aim_title
from orchestrator.rankings.explanation import Explanation, runner_up
from orchestrator.rankings.explanation_text import explanation_lines
from orchestrator.rankings.not_measured import NotMeasured
from orchestrator.rankings.ranking_cells import gap_texts, half_share, heading, value_text
from orchestrator.rankings.ranking_reason import probability
from orchestrator.rankings.ranking_remarks import what_helps
from orchestrator.rankings.ranking_row import Ranking, Row
from orchestrator.reports.report_part import PartMaterial, RunMaterial
from orchestrator.run_files.run_notes import DAMAGED, engine_notes
from orchestrator.scenarios.config_label import listed
from orchestrator.supported_digits import shown

# Below this the pick may well be another one.
SURE = 0.9
# A note on a card: of a run on sixteen hosts some name hundreds of configs; below "Why" it is longer, and
# `ranking.json` has all of it.
MOST_LETTERS, MOST_BELOW = 160, 2000
# Configs that one sentence names.
MOST_NAMED = 2
# Letters of their names; of longer ones only the number is told, and the tables below have the names.
MOST_NAMES = 100
# Diagnoses that stand below a decision that could not be made.
MOST_CAUSES = 4


def headlines(part: PartMaterial) -> tuple[Headline, ...]:
    """One for each ranking of a class of hosts."""
    explained = {e.objective: e for e in part.ranking.explanations}
    return tuple(_headline(ranking, part, explained.get(ranking.objective)) for ranking in part.ranking.rankings)


def _headline(ranking: Ranking, part: PartMaterial, why: Explanation | None) -> Headline:
    label = heading(ranking, aim_title(str(ranking.aim)))
    winner = ranking.winner
    if winner is None:
        return Headline(label, "no pick", ranking.reason, "bad", (*_causes(part), *_notes(ranking)))
    details: list[Block] = [Facts(f"pick-{_index(ranking, part)}{part.mark}", _facts(ranking, winner, part))]
    details += _notes(ranking)
    told = (ranking.reason, *(explanation_lines(why) if why else ()), *_long_notes(ranking))
    details.append(Fold("Why, and what would change it", (Items(tuple(dict.fromkeys(told))),)))
    if winner.config_id in part.commands:
        details.append(Fold("How to start it", (Code(part.commands[winner.config_id], "A shell script; "
                       "specsweep deploy writes systemd, Compose and Kubernetes forms too."),)))  # fmt: skip
    half = half_share(winner)
    figure = value_text(winner) + ("" if half is None else f" ± {half:.1%}")
    name, said = part.name(winner.config_id), _said(ranking, winner, part, why)
    return Headline(label, name, said, _tone(winner, part), tuple(details), figure)


def _said(ranking: Ranking, winner: Row, part: PartMaterial, why: Explanation | None) -> str:
    """How it stands to the others, in a sentence that can be read at once; the whole reason is below."""
    rest = [row for row in ranking.rows if row.eligible and row is not winner]
    if not rest:
        return "No other config was measured there and passes every limit."
    near = [row for row in rest if row.near] if winner.near else []
    if near:
        margin = f" (within {why.near_tie:.1%} of the best value)" if why else ""
        return f"A near-tie{margin} with {_named(near, part)}{_unsure(rest, near)}."
    second = rest[0]
    if second.told_apart is False:
        doubtful = [row for row in rest if row.told_apart is False]
        return f"The data do not tell it apart from {_named(doubtful, part)}."
    if second.gap_to_best is None or winner.gap_to_best != 0:
        return f"Ahead of {part.name(second.config_id)} ({value_text(second)})."
    worse, interval = gap_texts(second)
    return f"The next, {part.name(second.config_id)}, is {worse} worse{f' (95%: {interval})' if interval else ''}."


def _named(rows: Sequence[Row], part: PartMaterial) -> str:
    """The first by name, the others by their number."""
    names = [part.name(row.config_id) for row in rows]
    if sum(map(len, names[:MOST_NAMED])) > MOST_NAMES:
        return plural(len(names), "other config")
    if len(names) > MOST_NAMED + 1:
        return f"{'; '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED:,} more"
    return listed(names)


def _unsure(rest: Sequence[Row], near: Sequence[Row]) -> str:
    more = sum(row.told_apart is False for row in rest if row not in near)
    return f"; the data do not tell it apart from {more:,} more" if more else ""


def _causes(part: PartMaterial) -> list[Block]:
    """Why there is nothing to pick from: what servers died of, and what to try."""
    dead = [*part.ranking.infeasible, *part.ranking.failed]
    kinds: dict[str, list[NotMeasured]] = {}
    for config in dead:
        kinds.setdefault(config.label, []).append(config)
    most = sorted(kinds.items(), key=lambda kind: -len(kind[1]))[:MOST_CAUSES]
    told = [f"{plural(len(of), 'config')} died of {label}: {what_helps(of[0])}" for label, of in most]
    return [Items(tuple(clipped(text, MOST_LETTERS * 2) for text in told))] if told else []


def _index(ranking: Ranking, part: PartMaterial) -> int:
    return part.ranking.rankings.index(ranking)


def _tone(winner: Row, part: PartMaterial) -> Tone:
    """Good only where real servers were measured and the data say that no other is better."""
    if engine_notes(part.scenario, emulated=False) or winner.doubtful:
        return "warn"
    return "good" if winner.near or winner.p_best is None or winner.p_best >= SURE else "warn"


def _facts(ranking: Ranking, winner: Row, part: PartMaterial) -> tuple[tuple[str, str], ...]:
    rows = []
    if winner.low is not None and winner.high is not None:
        low, high = (shown(bound, winner.low, winner.high) for bound in (winner.low, winner.high))
        of_run = ", noise within one run only" if _within(ranking) else ""
        rows.append(("95% interval", f"{low} to {high} {winner.unit}".rstrip() + of_run))
    second = runner_up(ranking, winner)
    trials = plural(winner.trials, "start") + (f" on {winner.hosts} hosts" if winner.hosts > 1 else "")
    rows.append(("measured by", trials))
    if second is not None:
        rows.append(("runner-up", f"{part.name(second.config_id)}: {_behind(second, winner, ranking)}"))
    if winner.p_best is not None:
        why = ", picked among near-ties" if winner.near and winner.gap_to_best else ""
        rows.append(("P(best)", probability(winner.p_best) + why))
    if winner.doubtful:
        rows.append(("in doubt", "; ".join(winner.doubtful)))
    rows.append(("config id", winner.config_id))
    return tuple(rows)


def _within(ranking: Ranking) -> bool:
    return ranking.spread.kind == "within_run"


def _behind(second: Row, winner: Row, ranking: Ranking) -> str:
    """Its value, and where the sentence above does not say it, how it stands to the pick, which need not have the best
    value.
    """
    if second.value is None or not winner.value or not (second.near or second.told_apart is False):
        return value_text(second)
    share = (winner.value - second.value if ranking.maximize else second.value - winner.value) / abs(winner.value)
    told = "as good" if abs(share) < 0.0005 else f"{abs(share):.1%} {'worse' if share > 0 else 'better'}"
    return f"{value_text(second)}, {told}"


def _notes(ranking: Ranking) -> list[Paragraph]:
    return [Paragraph(clipped(note, MOST_LETTERS), "warn") for note in ranking.notes]


def _long_notes(ranking: Ranking) -> list[str]:
    """Those that the card has no room for."""
    return [clipped(note, MOST_BELOW) for note in ranking.notes if len(note) > MOST_LETTERS]


def warnings(run: RunMaterial, *, is_live: bool = False) -> tuple[str, ...]:
    """What stands above everything: no evidence, damage, an end that was none, picks on void points."""
    told = notes_above(run)
    if is_live:
        told.append("The run goes on: what is missing may change the picks.")
    elif not run.complete:
        told.append(
            f"The run is not complete: what is missing may change the picks (specsweep run --resume {run.place})"
        )
    return (*told, *_void(run))


def notes_above(run: RunMaterial) -> list[str]:
    """What the ranking notes that stands above everything."""
    evidence = set(engine_notes(run.scenario, emulated=True)) | set(engine_notes(run.scenario, emulated=False))
    return [note for note in run.ranking.notes if note in evidence or DAMAGED in note]


def _void(run: RunMaterial) -> Iterable[str]:
    """Picks of which some points do not count."""
    for part in run.parts:
        for pick in part.picks:
            own = [p for p in part.points if part.standing(p["config_id"]) == pick]
            void = [p for p in own if not p["valid"]]
            if void:
                yield (
                    f"{len(void)} of {plural(len(own), 'point')} of the pick {part.name(pick)} are void and do not "
                    f"count: {'; '.join(void[0]['void_reasons'])}"
                )


def notes(run: RunMaterial) -> tuple[str, ...]:
    """All that the ranking notes and neither a warning nor the section about the search says."""
    above = set(notes_above(run))
    return tuple(n for n in run.ranking.notes if n not in above and not n.startswith(("search:", "search, ")))
