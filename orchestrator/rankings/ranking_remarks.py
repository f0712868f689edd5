"""What is remarked on a row of a ranking, and what may help a config that could not run: in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.plural import plural
from orchestrator.rankings.not_measured import NotMeasured
from orchestrator.rankings.ranking_row import Row
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.recoveries.recovery import repair_text

_TIES = {
    "near_tie": "near-tie",
    "not_told_apart": "not told apart from the best",
    "near_tie_not_told_apart": "near-tie, not told apart from the best",
}


def remarks(row: Row, result: RunRanking, labels: Mapping[str, str]) -> str:
    """Of a row of a ranking: ties, failed gates, doubts, repairs, and what its servers ran otherwise than asked."""
    told = [_TIES[row.tie_kind]] if row.eligible and row.tie else list(row.gates_failed)
    if row.gap_to_best == 0:
        told = [remark.replace("from the best", "from others") for remark in told]
    if not row.comparable:
        told.append("ran on other hosts than the best: not comparable")
    told += row.doubtful
    if row.out:
        told.append(f"left behind by the search: {row.out}")
    if row.config_id in result.repairs:
        told.append(result.repairs[row.config_id].text)
    for died in result.stands_for(row.config_id):
        if row.config_id not in result.repairs or result.repairs[row.config_id].asked_id != died.config_id:
            told.append(f"also serves for {labels[died.config_id]}, which died ({died.label})")
    told += [str(change) for change in result.changes.get(row.config_id, ())]
    told += [f"same server as {labels[other]}" for other in result.same_as(row.config_id)]
    return "; ".join(told)


def what_helps(config: NotMeasured) -> str:
    """A repair that was not made, or why none was and what the user may do."""
    suggested = repair_text(config.story.suggestion)
    died = len(config.story.attempts)
    tried = f"{plural(died, 'repair')} died as well; " if died else ""
    if suggested:
        return f"{tried}try {suggested}"
    return tried + "; ".join(filter(None, (config.story.reason, *config.advice[:1])))
