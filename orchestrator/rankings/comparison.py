"""How far each row of a ranking is from the best, and whether the data say so. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.estimation.contest import Contest, contest
from orchestrator.estimation.estimates import Estimates
from orchestrator.rankings.ranking_row import Row


def compared(rows: Sequence[Row], estimates: Estimates) -> list[Row]:
    """The rows with intervals of their gaps to the best, and the contest of those that pass and can be compared."""
    best = min((row for row in rows if row.eligible), key=_behind, default=None)
    if best is None:
        return list(rows)
    part = estimates.parts[estimates.index[best.config_id]]
    together = {c for c, i in estimates.index.items() if estimates.parts[i] == part}
    game = contest(estimates, [row.config_id for row in rows if row.eligible and row.config_id in together])
    return [_compared(row, best, estimates, game, row.config_id in together) for row in rows]


def _behind(row: Row) -> tuple[bool, float, str]:
    return (bool(row.out), math.inf if row.gap_to_best is None else row.gap_to_best, row.config_id)


def _compared(row: Row, best: Row, estimates: Estimates, game: Contest | None, together: bool) -> Row:
    if row.value is None:
        return row
    if not together:
        return replace(row, comparable=False)
    distance = estimates.gap(row.config_id, best.config_id)
    if distance.low is not None and distance.high is not None and math.isfinite(distance.high - distance.low):
        row = replace(row, gap_low=distance.low, gap_high=distance.high)
    if game is None or not row.eligible:
        return row
    alone = game.tie_group == {row.config_id}
    return replace(
        row,
        p_best=game.p_best[row.config_id],
        rank_low=game.rank_low[row.config_id],
        rank_high=game.rank_high[row.config_id],
        told_apart=None if alone else game.told_apart(row.config_id),
    )
