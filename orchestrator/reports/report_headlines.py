"""What a run decided, as large as a page allows: one headline an objective, and what stands above all. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.documents.report_document import Block, Code, Facts, Fold, Headline, Items, Paragraph, Tone
from orchestrator.documents.report_numbers import clipped
from orchestrator.plural import plural
from orchestrator.points.metric_title import aim_title
from orchestrator.rankings.explanation import Explanation, runner_up
from orchestrator.rankings.explanation_text import explanation_lines
from orchestrator.rankings.ranking_cells import heading, value_text
from orchestrator.rankings.ranking_reason import probability
from orchestrator.rankings.ranking_row import Ranking, Row
from orchestrator.reports.report_part import PartMaterial, RunMaterial
from orchestrator.run_files.run_notes import DAMAGED, engine_notes
from orchestrator.supported_digits import percent, shown

# Below this the pick may well be another one.
SURE = 0.9
# A note on a card: of a run on sixteen hosts some name hundreds of configs; `ranking.json` has all of it.
MOST_LETTERS = 360


def headlines(part: PartMaterial) -> tuple[Headline, ...]:
    """One for each ranking of a class of hosts."""
    explained = {e.objective: e for e in part.ranking.explanations}
    return tuple(_headline(ranking, part, explained.get(ranking.objective)) for ranking in part.ranking.rankings)


def _headline(ranking: Ranking, part: PartMaterial, why: Explanation | None) -> Headline:
    label = heading(ranking, aim_title(str(ranking.aim)))
    winner = ranking.winner
    if winner is None:
        return Headline(label, "no pick", ranking.reason, "bad", tuple(_notes(ranking)))
    details: list[Block] = [Facts(f"pick-{_index(ranking, part)}{part.mark}", _facts(ranking, winner, part))]
    details += _notes(ranking)
    if why is not None:
        details.append(Fold("Why, and what would change it", (Items(tuple(explanation_lines(why))),)))
    if winner.config_id in part.commands:
        details.append(Fold("How to start it", (Code(part.commands[winner.config_id], "A shell script; "
                       "specsweep deploy writes systemd, Compose and Kubernetes forms too."),)))  # fmt: skip
    return Headline(label, part.name(winner.config_id), ranking.reason, _tone(winner, part), tuple(details))


def _index(ranking: Ranking, part: PartMaterial) -> int:
    return part.ranking.rankings.index(ranking)


def _tone(winner: Row, part: PartMaterial) -> Tone:
    """Good only where real servers were measured and the data say that no other is better."""
    if engine_notes(part.scenario, emulated=False) or winner.doubtful:
        return "warn"
    return "good" if winner.near or winner.p_best is None or winner.p_best >= SURE else "warn"


def _facts(ranking: Ranking, winner: Row, part: PartMaterial) -> tuple[tuple[str, str], ...]:
    value = value_text(winner)
    if winner.low is not None and winner.high is not None:
        low, high = (shown(bound, winner.low, winner.high) for bound in (winner.low, winner.high))
        value += f" (95%: {low} to {high}{', noise within one run only' if _within(ranking) else ''})"
    second = runner_up(ranking, winner)
    trials = plural(winner.trials, "start") + (f" on {winner.hosts} hosts" if winner.hosts > 1 else "")
    rows = [("value", value), ("measured by", trials)]
    if second is not None:
        rows.append(("runner-up", f"{part.name(second.config_id)}: {_behind(second, winner, ranking)}"))
    else:
        rows.append(("runner-up", "none: no other config was measured and passes"))
    if winner.p_best is not None:
        why = " to have the best value; it was picked among near-ties" if winner.near and winner.gap_to_best else ""
        rows.append(("P(best)", probability(winner.p_best) + why))
    if winner.doubtful:
        rows.append(("in doubt", "; ".join(winner.doubtful)))
    rows.append(("config", winner.config_id))
    return tuple(rows)


def _within(ranking: Ranking) -> bool:
    return ranking.spread.kind == "within_run"


def _behind(second: Row, winner: Row, ranking: Ranking) -> str:
    """How far the runner-up is behind the pick, which need not have the best value."""
    if second.value is None or not winner.value:
        return "-"
    share = (winner.value - second.value if ranking.maximize else second.value - winner.value) / abs(winner.value)
    told = "as good" if abs(share) < 0.0005 else f"{abs(share):.1%} {'worse' if share > 0 else 'better'}"
    if winner.gap_to_best == 0 and second.gap_to_best is not None and second.gap_low is not None:
        low, high = (percent(b or 0.0, second.gap_low, second.gap_high) for b in (second.gap_low, second.gap_high))
        told = f"{percent(second.gap_to_best, second.gap_low, second.gap_high)} worse (95%: {low} to {high})"
    return f"{value_text(second)}, {told}"


def _notes(ranking: Ranking) -> list[Paragraph]:
    return [Paragraph(clipped(note, MOST_LETTERS), "warn") for note in ranking.notes]


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
