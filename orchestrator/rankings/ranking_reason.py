"""Why a config is first, in words that claim no more than the data do. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.estimation.estimates import Estimates, NotComparable
from orchestrator.objectives.aim import Aim
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.rankings.ranking_cells import value_text
from orchestrator.rankings.ranking_row import Row, gap
from orchestrator.scenarios.config_label import listed
from orchestrator.supported_digits import percent, plain

# Configs that are named where many cannot be told apart.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Case:
    """All that a reason is made of; `rows` in their order."""

    rows: tuple[Row, ...]
    aim: Aim
    breakers: Sequence[Aim]
    objective: Objective
    labels: dict[str, str]
    estimates: Estimates


def reason(case: Case) -> str:
    """One sentence: the winner, what put it before the next one, and how sure that is."""
    rows, aim = case.rows, case.aim
    if not rows or not rows[0].eligible:
        return f"no winner: no config was measured {aim.where} and passed every limit"
    winner, rest = rows[0], [row for row in rows[1:] if row.eligible]
    told = f"{case.labels[winner.config_id]}: {value_text(winner)} {aim.where}"
    if not rest:
        return f"{told}, the only config measured there that passes every limit"
    if winner.near:
        told += f"; {_near_ties(case, winner, [row for row in rest if row.near])}"
    else:
        told += f", {_ahead(case, winner, rest[0])}"
    return told + _doubt(case, winner, rest)


def _ahead(case: Case, winner: Row, runner_up: Row) -> str:
    """The gap to the runner-up, with its interval."""
    name = f"the runner-up {case.labels[runner_up.config_id]} ({value_text(runner_up)})"
    if runner_up.gap_to_best is None:
        return f"ahead of {name}"
    try:
        distance = case.estimates.gap(runner_up.config_id, winner.config_id)
    except NotComparable:
        return f"{runner_up.gap_to_best:.1%} ahead of {name}, which ran on other hosts: how these differ is in the gap"
    if distance.low is None or distance.high is None or not math.isfinite(distance.high - distance.low):
        return f"{runner_up.gap_to_best:.1%} ahead of {name}"
    within = " within the run" if case.estimates.kind == "within_run" else ""
    ahead, low, high = (
        percent(share, distance.low, distance.high) for share in (runner_up.gap_to_best, distance.low, distance.high)
    )
    best = "" if winner.p_best is None else f"; P(best) {probability(winner.p_best)}"
    return f"{ahead} ahead of {name} (95%{within}: {low} to {high}{best})"


def _doubt(case: Case, winner: Row, rest: Sequence[Row]) -> str:
    """Who else the data allow to be the best."""
    others = [row for row in rest if row.told_apart is False]
    if not others:
        return ""
    names = listed([case.labels[row.config_id] for row in others[:_NAMED]])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"; {sum(row.trials for row in (winner, *others))} trials do not tell it apart from {names}{more}"


def _near_ties(case: Case, winner: Row, rivals: Sequence[Row]) -> str:
    """Names the rivals, with what put each behind the winner; of many the next ones and the best, with a count."""
    margin = case.objective.near_tie
    named = _named_rivals(case, rivals)
    alike: dict[str, list[str]] = {}
    for rival in named:
        name = f"{case.labels[rival.config_id]} ({value_text(rival)}, {_difference(rival, winner, case.aim)})"
        alike.setdefault(_what_decided(winner, rival, case.breakers, margin), []).append(name)
    told = [f"{' and '.join(filter(None, (', '.join(n[:-1]), n[-1])))}, {what}" for what, n in alike.items()]
    rest = Counter(_decider(winner, r, case.breakers, margin) for r in rivals if r not in named)
    if rest:
        told.append(f"{rest.total()} more: {', '.join(f'{count} {by}' for by, count in rest.most_common())}")
    return f"a near-tie (within {margin:.1%} of the best) with " + "; with ".join(told)


def _named_rivals(case: Case, rivals: Sequence[Row]) -> list[Row]:
    if len(rivals) <= _NAMED:
        return list(rivals)
    pick = max if case.aim.maximize else min
    best = pick((r for r in rivals if r.value is not None), key=lambda r: r.value or 0.0, default=rivals[0])
    others = [rival for rival in rivals if rival is not best][: _NAMED - 1]
    return [rival for rival in rivals if rival is best or rival in others]


def _tie_breaker(winner: Row, rival: Row, breakers: Sequence[Aim], near_tie: float) -> int | None:
    """The first that tells them apart."""
    for i, breaker in enumerate(breakers):
        own, other = winner.tie_values[i], rival.tie_values[i]
        if own is not None and (other is None or gap(other, own, breaker.maximize) > near_tie):
            return i
    return None


def _decider(winner: Row, rival: Row, breakers: Sequence[Aim], near_tie: float) -> str:
    place = _tie_breaker(winner, rival, breakers, near_tie)
    if place is not None:
        return f"decided by {breakers[place]}"
    return "left behind by the search" if rival.out and not winner.out else "by value alone"


def _what_decided(winner: Row, rival: Row, breakers: Sequence[Aim], near_tie: float) -> str:
    """The first tie-breaker that tells them apart, else that the search went on without the rival."""
    place = _tie_breaker(winner, rival, breakers, near_tie)
    if place is not None:
        breaker, own, other = breakers[place], winner.tie_values[place], rival.tie_values[place]
        seen = "no value" if other is None else _with_unit(other, breaker)
        return f"decided by the tie-breaker {breaker}: {_with_unit(own or 0.0, breaker)} against {seen}"
    if rival.out and not winner.out:
        return f"left behind by the search ({rival.out})"
    return "which no tie-breaker decides: the better value is first"


def _difference(row: Row, winner: Row, aim: Aim) -> str:
    """How much better or worse a rival is than the winner."""
    if row.value is None or winner.value is None or row.value == winner.value:
        return "equal" if row.value == winner.value else "not comparable"
    share = gap(row.value, winner.value, aim.maximize)
    if share == math.inf:
        return "worse"
    return f"{abs(share):.1%} {'better' if share < 0 else 'worse'}"


def _with_unit(value: float, aim: Aim) -> str:
    return f"{plain(value)} {aim.unit}".rstrip()


def probability(share: float) -> str:
    """Two digits, and no more certainty than draws can show."""
    return ">0.99" if share > 0.99 else "<0.01" if share < 0.01 else f"{share:.2f}"
