"""Measured points -> one ordered list of configs per objective, with the reason for its winner. Pure.

Repeats of a point are averaged on the log scale (geometric mean), since speeds and latencies are ratio scales.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.aim import Aim, PointValue, TrialPoints, aim_of, observations, trials_of
from orchestrator.config_label import config_labels
from orchestrator.limits import Limit, parse_limit
from orchestrator.scenario_objective import Objective
from orchestrator.trial import LoadLevel

# Shown beside every objective's own metric: what any number of requests supports.
BESIDE = ("accept_length", "ttft_p50_ms", "tpot_p50_ms")


@dataclass(frozen=True, slots=True)
class Row:
    """One config in one ranking. `gap_to_best` is a share (0.02 = 2 % worse than the best value).

    `beside` has other metrics at the same load level, for the reader; they do not decide.
    """

    config_id: str
    settings: dict[str, Any]
    value: float | None
    unit: str
    gap_to_best: float | None
    tie: bool
    gates_failed: tuple[str, ...]
    trials: int
    tie_values: tuple[float | None, ...] = ()
    beside: tuple[tuple[str, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The configs of a run, best first, for one objective; on one class of its hosts if it has several."""

    objective: str
    metric: str
    maximize: bool
    workload: str
    level: LoadLevel | None
    rows: tuple[Row, ...]
    reason: str
    host_class: str = ""

    @property
    def aim(self) -> Aim:
        """What it ranks by."""
        return Aim(self.metric, self.maximize, self.workload, self.level)

    @property
    def winner(self) -> Row | None:
        """The first row, if it was measured and passed the gates."""
        return self.rows[0] if self.rows and _eligible(self.rows[0]) else None


class _Measurements:
    """The trials of each config."""

    def __init__(self, points: Iterable[PointValue]) -> None:
        self._trials: dict[str, list[TrialPoints]] = {}
        for trial in trials_of(points):
            self._trials.setdefault(trial.config_id, []).append(trial)

    def value(self, config_id: str, aim: Aim) -> tuple[float | None, int]:
        """(mean over trials with a value, how many), None if nothing valid was measured."""
        values = [seen.value for seen in observations(aim, self._trials.get(config_id, ()))]
        return (_mean(values), len(values)) if values else (None, 0)

    def why_absent(self, config_id: str, aim: Aim) -> str:
        return aim.why_absent(self._trials.get(config_id, ()))


def _mean(values: list[float]) -> float:
    if len(values) > 1 and all(v > 0 for v in values):
        return math.exp(math.fsum(math.log(v) for v in values) / len(values))
    return math.fsum(values) / len(values)


def rank(
    objective: Objective,
    configs: Mapping[str, dict[str, Any]],
    points: Iterable[PointValue],
    *,
    workload: str,
    labels: dict[str, str] | None = None,
) -> Ranking:
    """Order the configs for one objective.

    Eligible configs (measured, all gates passed) come first, by value; those within `near_tie` of the best are a tie
    group, ordered by the tie-breakers in turn. Then configs that failed a gate, then those without a value.
    `workload` is the objective's workload; `configs` maps config id to settings, `labels` to what the reason calls it.
    """
    measured = _Measurements(points)
    aim = aim_of(objective, workload)
    breakers = [aim_of(t, workload) for t in objective.tie_breakers]
    limits = [parse_limit(text) for text in objective.limits]
    rows = [_row(config_id, settings, aim, breakers, limits, measured) for config_id, settings in configs.items()]
    rows = _with_gaps(rows, aim, objective.near_tie)
    leaders = [row for row in rows if row.tie or row.gap_to_best == 0]
    leaders = _break_ties([row for row in leaders if _eligible(row)], breakers, aim, objective.near_tie)
    led = {row.config_id for row in leaders}
    rest = sorted((r for r in rows if r.config_id not in led), key=lambda r: _order(r, aim))
    ordered = (*leaders, *rest)
    reason = _reason(ordered, aim, breakers, objective, labels or config_labels(configs))
    return Ranking(objective.name, aim.metric, aim.maximize, aim.workload, aim.level, ordered, reason)


def _row(
    config_id: str,
    settings: dict[str, Any],
    aim: Aim,
    breakers: list[Aim],
    limits: list[Limit],
    measured: _Measurements,
) -> Row:
    value, trials = measured.value(config_id, aim)
    failed = [] if value is not None else [measured.why_absent(config_id, aim)]
    failed += [text for limit in limits if (text := _gate(config_id, limit, aim, measured)) is not None]
    ties = tuple(measured.value(config_id, breaker)[0] for breaker in breakers)
    beside = tuple((name, measured.value(config_id, replace(aim, metric=name))[0]) for name in BESIDE)
    return Row(config_id, settings, value, aim.unit, None, False, tuple(failed), trials, ties, beside)


def _gate(config_id: str, limit: Limit, aim: Aim, measured: _Measurements) -> str | None:
    limited = replace(aim, metric=limit.metric, level=limit.level or aim.level)
    value, _ = measured.value(config_id, limited)
    if value is None:
        return f"{limit.text} ({measured.why_absent(config_id, limited)})"
    return None if limit.holds(value) else f"{limit.text} (is {value:.4g})"


def _eligible(row: Row) -> bool:
    return row.value is not None and not row.gates_failed


def _gap(value: float, best: float, maximize: bool) -> float:
    """How much worse, as a share of the best; infinite where the best is 0 and this is not."""
    if best == 0:
        return 0.0 if value == best else math.inf
    return (best - value) / abs(best) if maximize else (value - best) / abs(best)


def _with_gaps(rows: list[Row], aim: Aim, near_tie: float) -> list[Row]:
    values = [row.value for row in rows if _eligible(row) and row.value is not None]
    if not values:
        return rows
    best = max(values) if aim.maximize else min(values)
    close = sum(_gap(v, best, aim.maximize) <= near_tie for v in values)
    result = []
    for row in rows:
        gap = None if row.value is None else _gap(row.value, best, aim.maximize)
        gap = None if gap == math.inf else gap
        tie = close > 1 and _eligible(row) and gap is not None and gap <= near_tie
        result.append(replace(row, gap_to_best=gap, tie=tie))
    return result


def _break_ties(rows: list[Row], breakers: list[Aim], aim: Aim, near_tie: float) -> list[Row]:
    """Order a tie group: by each tie-breaker in turn, whose own near-ties go to the next; at last by value."""
    return _break(rows, breakers, 0, aim, near_tie) if len(rows) > 1 else rows


def _break(rows: list[Row], breakers: list[Aim], depth: int, aim: Aim, near_tie: float) -> list[Row]:
    if len(rows) < 2:
        return rows
    if depth == len(breakers):
        return sorted(rows, key=lambda r: _order(r, aim))
    maximize = breakers[depth].maximize
    known = [row for row in rows if row.tie_values[depth] is not None]
    unknown = [row for row in rows if row.tie_values[depth] is None]
    ordered: list[Row] = []
    while known:
        values = [v for row in known if (v := row.tie_values[depth]) is not None]
        best = max(values) if maximize else min(values)
        level = [r for r in known if (v := r.tie_values[depth]) is not None and _gap(v, best, maximize) <= near_tie]
        ordered += _break(level, breakers, depth + 1, aim, near_tie)
        known = [row for row in known if row not in level]
    return ordered + _break(unknown, breakers, depth + 1, aim, near_tie)


def _order(row: Row, aim: Aim) -> tuple[int, float, str]:
    group = 0 if _eligible(row) else 1 if row.value is not None else 2
    value = row.value if row.value is not None else 0.0
    return (group, -value if aim.maximize else value, row.config_id)


def _reason(rows: tuple[Row, ...], aim: Aim, breakers: list[Aim], objective: Objective, labels: dict[str, str]) -> str:
    if not rows or not _eligible(rows[0]):
        return f"no winner: no config was measured {aim.where} and passed every limit"
    winner, rest = rows[0], [row for row in rows[1:] if _eligible(row)]
    told = f"{labels[winner.config_id]}: {_shown(winner.value, aim)} {aim.where}"
    if not rest:
        return f"{told}, the only config measured there that passes every limit"
    if not winner.tie:
        runner_up = rest[0]
        gap = "" if runner_up.gap_to_best is None else f"{runner_up.gap_to_best:.1%} "
        return f"{told}, {gap}ahead of the runner-up {labels[runner_up.config_id]} ({_shown(runner_up.value, aim)})"
    rivals = [row for row in rest if row.tie]
    return f"{told}; " + _tie_reason(winner, rivals, aim, breakers, objective, labels)


def _tie_reason(
    winner: Row, rivals: list[Row], aim: Aim, breakers: list[Aim], objective: Objective, labels: dict[str, str]
) -> str:
    """Names every rival, with what put it behind the winner."""
    told = []
    for rival in rivals:
        name = f"{labels[rival.config_id]} ({_shown(rival.value, aim)}, {_difference(rival, winner, aim)})"
        told.append(f"{name}, {_what_decided(winner, rival, breakers, objective.near_tie)}")
    return f"a near-tie (within {objective.near_tie:.1%} of the best) with " + "; with ".join(told)


def _what_decided(winner: Row, rival: Row, breakers: list[Aim], near_tie: float) -> str:
    for i, breaker in enumerate(breakers):
        own, other = winner.tie_values[i], rival.tie_values[i]
        if own is None:
            continue
        if other is None or _gap(other, own, breaker.maximize) > near_tie:
            seen = "not measured" if other is None else _shown(other, breaker)
            return f"decided by the tie-breaker {breaker}: {_shown(own, breaker)} against {seen}"
    return "which no tie-breaker decides: the better value is first"


def _difference(row: Row, winner: Row, aim: Aim) -> str:
    """How much better or worse a rival is than the winner."""
    if row.value is None or winner.value is None or row.value == winner.value:
        return "equal" if row.value == winner.value else "not comparable"
    gap = _gap(row.value, winner.value, aim.maximize)
    if gap == math.inf:
        return "worse"
    return f"{abs(gap):.1%} {'better' if gap < 0 else 'worse'}"


def _shown(value: float | None, aim: Aim) -> str:
    return "not measured" if value is None else f"{value:.4g} {aim.unit}".rstrip()
