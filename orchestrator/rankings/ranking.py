"""Measured points -> one ordered list of configs per objective, with the reason for its winner. Pure.

Values are estimates over trials and hosts (estimates.py). Configs within the objective's `near_tie` of the best are as
good for the user, who said so: tie-breakers decide between them. Configs further behind that the data do not tell apart
from the best are marked, and stay in the order of their estimates: to put one of them first would cost, as far as one
knows, what it is behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median_low
from typing import Any

from orchestrator.objectives.aim import Aim, PointValue
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.rankings.comparison import compared
from orchestrator.rankings.evidence import Evidence
from orchestrator.rankings.evidence_notes import evidence_notes
from orchestrator.rankings.near_tie import break_ties
from orchestrator.rankings.ranking_reason import Case, reason
from orchestrator.rankings.ranking_row import Ranking, Row, gap, order
from orchestrator.scenarios.config_label import config_labels
from orchestrator.searches.point_need import Gate, Goal, goal_of
from orchestrator.supported_digits import plain

# Shown beside every objective's own metric: what any number of requests supports.
BESIDE = ("accept_length", "ttft_p50_ms", "tpot_p50_ms")


def rank(
    objective: Objective,
    configs: Mapping[str, dict[str, Any]],
    points: Iterable[PointValue],
    *,
    workload: str,
    labels: dict[str, str] | None = None,
    out: Mapping[str, str] | None = None,
) -> Ranking:
    """Order the configs for one objective.

    Eligible configs (measured, all gates passed) come first, by value; those within `near_tie` of the best are
    ordered by the tie-breakers in turn. Then configs that failed a gate, then those without a value. `workload` is the
    objective's workload; `configs` maps config id to settings, `labels` to what the reason calls it. `out`: why a
    search left a config behind; the best is one that it kept, if there is any.
    """
    goal = goal_of(objective, workload)
    aim = goal.aim
    evidence = Evidence((p for p in points if p.config_id in configs), aim)
    beside = {name: replace(aim, metric=name) for name in BESIDE}
    rows = [_row(c, settings, goal, beside, evidence) for c, settings in configs.items()]
    rows = _left_behind(rows, out or {})
    rows = compared(_with_gaps(rows, aim, objective.near_tie), evidence.main)
    leaders = [row for row in rows if row.eligible and (row.near or row.gap_to_best == 0)]
    leaders = sorted(break_ties(leaders, goal.ties, aim, objective.near_tie), key=lambda row: bool(row.out))
    led = {row.config_id for row in leaders}
    ordered = (*leaders, *sorted((r for r in rows if r.config_id not in led), key=lambda r: order(r, aim)))
    names = labels or config_labels(configs)
    return Ranking(
        objective.name,
        aim.metric,
        aim.maximize,
        aim.workload,
        aim.level,
        ordered,
        reason(Case(ordered, aim, goal.ties, objective, names, evidence.main)),
        spread=evidence.spread,
        notes=(*evidence_notes(evidence, aim, names), *_luck(ordered)),
    )


def _row(
    config_id: str,
    settings: dict[str, Any],
    goal: Goal,
    beside: Mapping[str, Aim],
    evidence: Evidence,
) -> Row:
    value = evidence.value(config_id, goal.aim)
    failed = [] if value is not None else [evidence.why_absent(config_id, goal.aim)]
    failed += [text for gate in goal.gates if (text := evidence.why_fails(config_id, gate.limit, gate.aim)) is not None]
    trials, hosts = evidence.counted(config_id)
    low, high = (evidence.main.interval(config_id) or (None, None)) if value is not None else (None, None)
    return Row(
        config_id,
        settings,
        value,
        goal.aim.unit,
        gap_to_best=None,
        near=False,
        gates_failed=tuple(failed),
        trials=trials,
        tie_values=tuple(evidence.value(config_id, breaker) for breaker in goal.ties),
        beside=tuple((name, evidence.value(config_id, other)) for name, other in beside.items()),
        hosts=hosts,
        low=low,
        high=high,
        doubtful=tuple(t for gate in goal.gates if (t := _doubtful(config_id, gate, evidence)) is not None),
    )


def _left_behind(rows: Sequence[Row], out: Mapping[str, str]) -> list[Row]:
    """Marks what a search left behind, if anything that passes is left besides."""
    kept = any(row.eligible and row.config_id not in out for row in rows)
    return [replace(row, out=out.get(row.config_id, "")) for row in rows] if kept else list(rows)


def _doubtful(config_id: str, gate: Gate, evidence: Evidence) -> str | None:
    """The interval of what a limit bounds, if the bound lies inside."""
    limit, found = gate.limit, evidence.estimates(gate.aim, within_run=True)
    bounds = found.interval(config_id) if config_id in found.index else None
    if bounds is None or not bounds[0] < limit.bound < bounds[1]:
        return None
    kept = "kept" if limit.holds(found.value(config_id)) else "failed"
    return f"{limit.text} {kept} within noise (95%: {plain(bounds[0])} to {plain(bounds[1])})"


def _with_gaps(rows: Sequence[Row], aim: Aim, near_tie: float) -> list[Row]:
    passed = [row for row in rows if row.eligible]
    values = [row.value for row in passed if row.value is not None and not row.out]
    if not values:
        return list(rows)
    best = max(values) if aim.maximize else min(values)
    close = sum(gap(row.value, best, aim.maximize) <= near_tie for row in passed if row.value is not None)
    result = []
    for row in rows:
        behind = None if row.value is None else gap(row.value, best, aim.maximize)
        behind = None if behind == math.inf else behind
        near = close > 1 and row.eligible and behind is not None and behind <= near_tie
        result.append(replace(row, gap_to_best=behind, near=near))
    return result


def _luck(rows: Sequence[Row]) -> tuple[str, ...]:
    """The value of the best of many is partly luck, unless it was measured more often than those it was picked from."""
    passed = [row for row in rows if row.eligible]
    if any(row.out for row in passed):
        return (
            "the search chose the winner by the trials that its value is made of, so they flatter it "
            "(specsweep verify measures it anew)",
        )
    group = [row for row in passed if row.told_apart is False]
    if len(passed) < 3 or not group or max(r.trials for r in group) > median_low(r.trials for r in passed):
        return ()
    return (
        f"the best of {len(passed)} configs was picked by the values that it is shown with, so they flatter it; "
        "specsweep verify measures it anew, beside its runner-up",
    )
