"""Which of the configs within the declared margin of the best comes first: the tie-breakers, in turn. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.objectives.aim import Aim
from orchestrator.rankings.ranking_row import Row, gap, order


def break_ties(rows: Sequence[Row], breakers: Sequence[Aim], aim: Aim, near_tie: float) -> list[Row]:
    """Order near-ties: by each tie-breaker in turn, whose own near-ties go to the next; at last by value."""
    return _break(list(rows), breakers, 0, aim, near_tie)


def _break(rows: list[Row], breakers: Sequence[Aim], depth: int, aim: Aim, near_tie: float) -> list[Row]:
    if len(rows) < 2:
        return rows
    if depth == len(breakers):
        return sorted(rows, key=lambda r: order(r, aim))
    maximize = breakers[depth].maximize
    known = [row for row in rows if row.tie_values[depth] is not None]
    unknown = [row for row in rows if row.tie_values[depth] is None]
    ordered: list[Row] = []
    while known:
        values = [v for row in known if (v := row.tie_values[depth]) is not None]
        best = max(values) if maximize else min(values)
        level = [r for r in known if (v := r.tie_values[depth]) is not None and gap(v, best, maximize) <= near_tie]
        ordered += _break(level, breakers, depth + 1, aim, near_tie)
        left = {row.config_id for row in level}
        known = [row for row in known if row.config_id not in left]
    return ordered + _break(unknown, breakers, depth + 1, aim, near_tie)
