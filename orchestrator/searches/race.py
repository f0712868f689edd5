"""One objective's race among the configs of a space: who leads, who is out, whether it is settled. Pure.

A race is settled when, by the pooled fit of all trials, nothing that may still be started is better than the leader by
more than the objective's margin, with the wanted confidence. Near-ties then race for each tie-breaker in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.objectives.aim import Observation
from orchestrator.searches.doubt import SURE
from orchestrator.searches.pooled_fit import Places, Spread, Standing, fits_by_own, pooled_fit
from orchestrator.searches.search import Scored

_DRAWS_SEED = 20
# How likely a config must be within the margin of the leader to race for the tie-breakers: two standard deviations.
_LIKELY = 2.0
# Contenders beyond so many, in the order of their hopes, cannot change the probability that counts.
_MOST_DRAWN = 400
_MOST_KNOWN = 50


@dataclass(frozen=True, slots=True)
class RaceGoal:
    """An objective to a search. `ties`: for each tie-breaker whether more is better. `near_tie`: share of the best."""

    name: str
    maximize: bool
    near_tie: float = 0.02
    ties: tuple[bool, ...] = ()

    @property
    def margin(self) -> float:
        """`near_tie` in logs. An objective without one still has to stop somewhere: half a percent."""
        return -math.log1p(-max(self.near_tie, 0.005))


@dataclass(frozen=True, slots=True)
class RaceRules:
    """What is the same for all races of a search."""

    places: Places
    spread: Spread
    confidence: float = 0.98


@dataclass(frozen=True, slots=True)
class Heat:
    """How a race stands on its metric, or on one of its tie-breakers.

    `field`: who may be the best, best first; `out`: the others, and how far behind the leader they are, in logs.
    `risk`: the probability that one of the field is better by more than the margin. `breaker`: a tie-breaker's number.
    """

    standing: Standing
    leader: str
    field: tuple[str, ...]
    out: Mapping[str, float]
    risk: float
    settled: bool
    gaps: Mapping[str, tuple[float, float]]
    breaker: int | None = None

    def gap(self, config_id: str) -> tuple[float, float]:
        """(how far a config is behind the leader, standard deviation of that), in logs."""
        known = self.gaps.get(config_id)
        if known is None:
            behind, sd = self.standing.behind(self.leader, [config_id])
            known = float(behind[0]), float(sd[0])
        return known


def observations_of(
    goal: RaceGoal, results: Mapping[str, Sequence[Scored]], breaker: int | None = None
) -> list[Observation]:
    """The values of a race by trial; those that fail a limit have none."""
    found = []
    for config_id, trials in results.items():
        for i, scored in enumerate(trials):
            seen = scored.values.get(goal.name)
            if seen is None or not seen.passes:
                continue
            value = seen.value if breaker is None else seen.ties[breaker] if breaker < len(seen.ties) else None
            if value is not None and value > 0:
                found.append(Observation(config_id, f"{config_id}-{i}", scored.host, value))
    return found


def heat(
    goal: RaceGoal,
    rules: RaceRules,
    results: Mapping[str, Sequence[Scored]],
    open_ids: Sequence[str],
    racing: Sequence[str] | None = None,
) -> Heat | None:
    """How the race stands; None while nothing was measured for it.

    `results`: the measured trials by config; `open_ids`: configs that were not started and may be. With `racing` only
    these can win, the others inform the fit.
    """
    now = _heat(goal, rules, observations_of(goal, results), open_ids, goal.maximize, racing)
    for breaker, maximize in enumerate(goal.ties):
        if now is None or not now.settled:
            break
        ties = _near_ties(now, goal)
        seen = observations_of(goal, results, breaker)
        nxt = _heat(goal, rules, seen, ties, maximize, ties) if len(ties) > 1 else None
        if nxt is None:
            break
        now = Heat(
            nxt.standing, nxt.leader, nxt.field, {**now.out, **nxt.out}, nxt.risk, nxt.settled, nxt.gaps, breaker
        )
    return now


def overlooked(
    goal: RaceGoal,
    rules: RaceRules,
    results: Mapping[str, Sequence[Scored]],
    picked: Sequence[str],
    among: Sequence[str],
) -> float | None:
    """The probability that one of `among`, started or not, is better than all of `picked` by more than the margin,
    however little configs may resemble their neighbours. None where nothing was measured.
    """
    import numpy as np

    seen = observations_of(goal, results)
    if not seen:
        return None
    risk = 0.0
    for weight, standing in fits_by_own(seen, rules.places, maximize=goal.maximize, spread=rules.spread):
        # Those that cannot be better in any draw that matters need no draws.
        behind, sd = standing.behind(picked[0], among)
        hopes = 2 * SURE * sd - behind
        order = sorted((i for i in range(len(among)) if hopes[i] > goal.margin), key=lambda i: -hopes[i])
        rivals = [among[i] for i in order[:_MOST_DRAWN] if among[i] not in set(picked)]
        drawn = standing.draws([*picked, *rivals], _DRAWS_SEED)
        ahead = drawn.max(axis=1) - drawn[:, : len(picked)].max(axis=1)
        risk += weight * float(np.mean(ahead > goal.margin))
    return risk


class HeatMemo:
    """Heats by what they follow from: each new result leaves most rungs as they were."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Heat | None] = {}

    def heat(
        self,
        goal: RaceGoal,
        rules: RaceRules,
        results: Mapping[str, Sequence[Scored]],
        open_ids: Sequence[str],
        racing: Sequence[str] | None = None,
    ) -> Heat | None:
        """As the function of that name, always with the same `rules`."""
        seen = [tuple(observations_of(goal, results, breaker)) for breaker in (None, *range(len(goal.ties)))]
        key = (goal.name, *seen, tuple(open_ids), None if racing is None else tuple(racing))
        if key not in self._known:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known[key] = heat(goal, rules, results, open_ids, racing)
        return self._known[key]


def _heat(
    goal: RaceGoal,
    rules: RaceRules,
    seen: Sequence[Observation],
    others: Sequence[str],
    maximize: bool,
    racing: Sequence[str] | None,
) -> Heat | None:
    """Who was measured (and is `racing`) races with `others` that have no value yet."""
    allowed = None if racing is None else set(racing)
    measured = dict.fromkeys(o.config_id for o in seen if allowed is None or o.config_id in allowed)
    if not measured:
        return None
    standing = pooled_fit(seen, rules.places, maximize=maximize, spread=rules.spread)
    leader = standing.best(list(measured))
    rivals = [*measured, *(c for c in others if c not in measured)]
    behind, sd = standing.behind(leader, rivals)
    hopes = SURE * sd - behind
    order = sorted(range(len(rivals)), key=lambda i: (-hopes[i], rivals[i]))
    field = [i for i in order if rivals[i] == leader or hopes[i] > -goal.margin]
    kept = set(field)
    out = {rivals[i]: float(behind[i]) for i in order if i not in kept}
    drawn = [rivals[i] for i in field[:_MOST_DRAWN]]
    loss = standing.loss(leader, drawn, _DRAWS_SEED)
    risk = float((loss > goal.margin).mean())
    gaps = {c: (float(b), float(s)) for c, b, s in zip(rivals, behind, sd, strict=True)}
    best_first = sorted(field, key=lambda i: (behind[i], rivals[i]))
    ranked = tuple(rivals[i] for i in best_first)
    return Heat(standing, leader, ranked, out, risk, risk <= 1 - rules.confidence, gaps)


def _near_ties(now: Heat, goal: RaceGoal) -> list[str]:
    gaps = ((c, *now.gap(c)) for c in now.field)
    return [c for c, behind, sd in gaps if behind - _LIKELY * sd <= goal.margin]


def most_hopeful(now: Heat, open_ids: Sequence[str], pending: Sequence[str], count: int) -> list[str]:
    """Of the configs that may be started, those that may be best; one that would tell the same as another waits.

    Highest mean plus two standard deviations first, each as if those before it and the `pending` were measured already
    (Desautels et al. 2014, batches of upper confidence bounds).
    """
    import numpy as np

    in_field = [c for c in now.field if c in set(open_ids)][:_MOST_DRAWN]
    of = [*(c for c in pending if c in now.standing.index), *in_field]
    if not in_field:
        return []
    covariance = now.standing.covariance(of)
    mean = np.array([now.standing.mean[now.standing.index[c]] for c in of])
    known = len(of) - len(in_field)
    chosen: list[int] = []
    for step in range(known + min(count, len(in_field))):
        if step < known:
            pick = step
        else:
            score = mean + 2 * np.sqrt(np.maximum(np.diag(covariance), 0.0))
            score[[*range(known), *chosen]] = -np.inf
            pick = int(score.argmax())
            chosen.append(pick)
        column = covariance[:, pick]
        covariance = covariance - np.outer(column, column) / (column[pick] + now.standing.sigma**2)
    return [of[i] for i in chosen]
