"""A ranking and its rows. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.objectives.aim import Aim
from orchestrator.rankings.evidence import UNKNOWN, Spread
from orchestrator.trial import LoadLevel

TieKind = Literal["", "near_tie", "not_told_apart", "near_tie_not_told_apart"]


@dataclass(frozen=True, slots=True)
class Row:
    """One config in one ranking. `gap_to_best` is a share (0.02 = 2 % worse than the best value).

    `low` and `high` bound the value, `gap_low` and `gap_high` the gap, at 95 %; `p_best` is the probability that no
    other that passes is better, `rank_low` and `rank_high` the places it may have (5 to 95 %). All None where nothing
    is known of the spread, or the config shares no host with the best (`comparable`). `near`: within the objective's
    near_tie of the best; `told_apart`: the data say that it is worse than the best, however many were compared; False
    of the best too where there are others like it; None where they cannot tell, and of a best that is alone.
    `doubtful`: limits that it keeps or fails within noise. `out`: why a search left it behind; it comes after all that
    the search kept, whatever luck its few trials had. `beside` has other metrics at the same load level, for the
    reader; they do not decide.
    """

    config_id: str
    settings: dict[str, Any]
    value: float | None
    unit: str
    gap_to_best: float | None
    near: bool
    gates_failed: tuple[str, ...]
    trials: int
    tie_values: tuple[float | None, ...] = ()
    beside: tuple[tuple[str, float | None], ...] = ()
    hosts: int = 1
    low: float | None = None
    high: float | None = None
    gap_low: float | None = None
    gap_high: float | None = None
    p_best: float | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    told_apart: bool | None = None
    comparable: bool = True
    doubtful: tuple[str, ...] = ()
    out: str = ""

    @property
    def eligible(self) -> bool:
        """Measured, and all gates passed."""
        return self.value is not None and not self.gates_failed

    @property
    def tie(self) -> bool:
        """Whether it is no worse than the best for the user, or not for sure."""
        return self.near or self.told_apart is False

    @property
    def tie_kind(self) -> TieKind:
        """Why it ties: it lies within the declared margin, the data do not tell it apart from the best, or both."""
        if self.near:
            return "near_tie_not_told_apart" if self.told_apart is False else "near_tie"
        return "not_told_apart" if self.told_apart is False else ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The configs of a run, best first, for one objective; on one class of its hosts if it has several.

    `spread` says what the intervals come from, `notes` what is odd about the data.
    """

    objective: str
    metric: str
    maximize: bool
    workload: str
    level: LoadLevel | None
    rows: tuple[Row, ...]
    reason: str
    host_class: str = ""
    spread: Spread = UNKNOWN
    notes: tuple[str, ...] = ()

    @property
    def aim(self) -> Aim:
        """What it ranks by."""
        return Aim(self.metric, self.maximize, self.workload, self.level)

    @property
    def winner(self) -> Row | None:
        """The first row, if it was measured and passed the gates."""
        return self.rows[0] if self.rows and self.rows[0].eligible else None


def gap(value: float, best: float, maximize: bool) -> float:
    """How much worse, as a share of the best; infinite where the best is 0 and this is not."""
    if best == 0:
        return 0.0 if value == best else math.inf
    return (best - value) / abs(best) if maximize else (value - best) / abs(best)


def order(row: Row, aim: Aim) -> tuple[int, float, str]:
    """Sorts rows: those that pass by value, then such that a search left behind, then those that fail a gate, then
    those without a value.
    """
    group = (1 if row.out else 0) if row.eligible else 2 if row.value is not None else 3
    value = row.value if row.value is not None else 0.0
    return (group, -value if aim.maximize else value, row.config_id)
