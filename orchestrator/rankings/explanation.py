"""Why a config won, what it gave up, what room is left, and what would change the pick. Pure.

All shares say how much better a value is in the sense of its metric: 0.05 is 5 % more of what is maximised, 5 % less
time of what is minimised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.level_table import LevelTable
from orchestrator.outcome import OUT_OF_GPU_MEMORY
from orchestrator.rankings.depth_curve import DepthCurve, depth_curves
from orchestrator.rankings.ranking_row import Ranking, Row
from orchestrator.rankings.server_facts import ServerFacts
from orchestrator.scenarios.config_label import run_labels
from orchestrator.trial import LoadLevel, Repaired

# Rivals that are told of: the runner-up and whoever is best at a level.
MOST_RIVALS = 3
# Letters of a label that can be read several times in one sentence.
SHORT_LABEL = 60


@dataclass(frozen=True, slots=True)
class Died:
    """A config that could not run as it was asked; `served_as` if a repair of it was measured."""

    config_id: str
    label: str
    phase: str
    served_as: str | None = None


@dataclass(frozen=True, slots=True)
class Material:
    """What is known of one class of hosts: by config id, what its servers told, its settings and its short name."""

    values: Sequence[PointValue]
    settings: Mapping[str, Mapping[str, Any]]
    labels: Mapping[str, str]
    servers: Mapping[str, ServerFacts] = field(default_factory=dict)
    near_ties: Mapping[str, float] = field(default_factory=dict)
    died: Sequence[Died] = ()
    repairs: Mapping[str, Repaired] = field(default_factory=dict)
    depth_names: tuple[str, ...] = ("speculative_num_steps",)


@dataclass(frozen=True, slots=True)
class LevelGap:
    """The winner at a load level against the best that passes every limit: `given_up` is 0 where it is the best."""

    level: LoadLevel
    value: float
    best: float
    best_id: str
    given_up: float


@dataclass(frozen=True, slots=True)
class Rival:
    """Another config level by level: how much better (below 0: worse) it is than the winner. `why`: what it is for."""

    config_id: str
    why: str
    better: tuple[tuple[LoadLevel, float, float, float], ...]  # level, its value, the winner's, share


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that a server really ran at once where `asked` were in flight."""

    config_id: str
    level: LoadLevel
    asked: int
    most: float
    limit: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """What would change the pick (objective, level, margin, limit, memory) and to which config."""

    kind: str
    config_id: str | None
    what: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of one winner. `runner_up` is its row; `metric` is what `curve` and `rivals` are about; `labels` has what the
    configs are called that it names.
    """

    objective: str
    host_class: str
    config_id: str
    reason: str
    metric: str
    unit: str
    maximize: bool
    near_tie: float
    runner_up: Row | None
    curve: tuple[LevelGap, ...]
    rivals: tuple[Rival, ...]
    batches: tuple[Batch, ...]
    servers: Mapping[str, ServerFacts]
    kv_used: float | None
    depths: tuple[DepthCurve, ...]
    alternatives: tuple[Alternative, ...]
    repaired: str
    labels: Mapping[str, str]


def explain(ranking: Ranking, material: Material, others: Sequence[Ranking] = ()) -> Explanation | None:
    """None for a ranking without a winner. `others`: all rankings on the same class of hosts."""
    winner = ranking.winner
    if winner is None:
        return None
    # Of a config that was not measured at the objective's level that is the first that it fails.
    passing = [row.config_id for row in ranking.rows if len(row.gates_failed) <= (row.value is None)]
    table = LevelTable(ranking.metric, ranking.maximize, ranking.workload, material.values)
    near_tie = material.near_ties.get(ranking.objective, 0.02)
    second = runner_up(ranking, winner)
    curve = _curve(winner.config_id, passing, table)
    rivals = _rivals(winner.config_id, second, curve, table)
    shown = [winner.config_id, *(rival.config_id for rival in rivals)]
    alternatives = tuple(_alternatives(ranking, winner, curve, material, others))
    usages = [u for level in table.levels if (u := table.mean(winner.config_id, level, "server_token_usage_max"))]
    return Explanation(
        objective=ranking.objective,
        host_class=ranking.host_class,
        config_id=winner.config_id,
        reason=ranking.reason,
        metric=table.metric,
        unit=table.unit,
        maximize=table.maximize,
        near_tie=near_tie,
        runner_up=second,
        curve=curve,
        rivals=rivals,
        batches=_batches(shown, table, material),
        servers={c: material.servers[c] for c in shown if c in material.servers},
        kv_used=max(usages, default=None),
        depths=depth_curves(winner.config_id, passing, material.settings, material.repairs, table, near_tie,
                            material.depth_names),
        alternatives=alternatives,
        repaired=material.repairs[winner.config_id].text if winner.config_id in material.repairs else "",
        labels=_labels([*shown, *(a.config_id for a in alternatives if a.config_id)], material),
    )  # fmt: skip


def _labels(named: Sequence[str], material: Material) -> dict[str, str]:
    """As in the tables; where that is long, only by what tells these configs apart."""
    labels = {c: material.labels.get(c, c) for c in named}
    if max(map(len, labels.values())) <= SHORT_LABEL:
        return labels
    asked = [material.repairs[c].asked_id for c in named if c in material.repairs]
    known = {c: dict(material.settings[c]) for c in (*named, *asked) if c in material.settings}
    return labels | run_labels(known, material.repairs)


def runner_up(ranking: Ranking, row: Row) -> Row | None:
    """The first other config that was measured and passes every limit."""
    return next((r for r in ranking.rows if r.eligible and r.config_id != row.config_id), None)


def _curve(winner: str, passing: Sequence[str], table: LevelTable) -> tuple[LevelGap, ...]:
    gaps = []
    for level in table.levels:
        own = table.mean(winner, level)
        values = {c: v for c in passing if (v := table.mean(c, level)) is not None}
        if own is None or not values:
            continue
        best_id = (max if table.maximize else min)(values, key=lambda c: values[c])
        gaps.append(LevelGap(level, own, values[best_id], best_id, max(0.0, table.better(values[best_id], own))))
    return tuple(gaps)


def _rivals(winner: str, second: Row | None, curve: Sequence[LevelGap], table: LevelTable) -> tuple[Rival, ...]:
    why: dict[str, str] = {second.config_id: "runner-up"} if second else {}
    for gap in curve:
        if gap.best_id != winner:
            why.setdefault(gap.best_id, f"best at {gap.level}")
    found = []
    for config_id, reason in list(why.items())[:MOST_RIVALS]:
        seen = []
        for level in table.levels:
            own, other = table.mean(winner, level), table.mean(config_id, level)
            if own is not None and other is not None:
                seen.append((level, other, own, table.better(other, own)))
        found.append(Rival(config_id, reason, tuple(seen)))
    return tuple(found)


def _batches(shown: Sequence[str], table: LevelTable, material: Material) -> tuple[Batch, ...]:
    """Where a server ran fewer requests than were in flight; told with those that did not, for comparison."""
    found = []
    for config_id in shown:
        facts = material.servers.get(config_id, ServerFacts())
        for level in table.levels:
            most = table.mean(config_id, level, "server_running_max")
            if level.kind == "concurrency" and most is not None:
                found.append(
                    Batch(config_id, level, int(level.value), round(most), facts.running_limit, facts.why_limited)
                )
    capped = {batch.level for batch in found if batch.most < batch.asked}
    return tuple(batch for batch in found if batch.level in capped)


def _alternatives(
    ranking: Ranking, winner: Row, curve: Sequence[LevelGap], material: Material, others: Sequence[Ranking]
) -> list[Alternative]:
    found = []
    for other in others:
        if other.objective != ranking.objective and other.winner and other.winner.config_id != winner.config_id:
            found.append(Alternative("objective", other.winner.config_id, other.objective))
    for gap in curve:
        if gap.level != ranking.level and gap.best_id != winner.config_id and gap.given_up > 0:
            found.append(Alternative("level", gap.best_id, str(gap.level), gap.given_up))
    if winner.gap_to_best:
        best = next((r for r in ranking.rows if r.gap_to_best == 0 and r.eligible), None)
        if best is not None:
            found.append(Alternative("margin", best.config_id, "near_tie", winner.gap_to_best))
    found += _held_back_by_limits(ranking, winner)
    for died in material.died:
        if died.label in OUT_OF_GPU_MEMORY and died.served_as != winner.config_id:
            served = died.served_as if died.served_as in material.settings else None
            found.append(Alternative("memory", served, f"{_name(died, material)} ({died.label} in {died.phase})"))
    return found


def _held_back_by_limits(ranking: Ranking, winner: Row) -> list[Alternative]:
    """The best of the configs that are better than the winner but for a limit."""
    if winner.value is None:
        return []
    sign = 1 if ranking.maximize else -1
    held = [r for r in ranking.rows if r.gates_failed and r.value is not None and sign * (r.value - winner.value) > 0]
    best = max(held, key=lambda r: sign * (r.value or 0.0), default=None)
    return [] if best is None else [Alternative("limit", best.config_id, "; ".join(best.gates_failed))]


def _name(died: Died, material: Material) -> str:
    return material.labels.get(died.config_id, died.config_id)
