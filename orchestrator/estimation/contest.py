"""Who is best, and who may be: by sets of means drawn from what the estimates allow. Pure.

Tie group: multiple comparisons with the best (Hsu 1981). A config is told apart from the leader only if it is behind by
more than d standard errors of their difference, d the 95 % quantile of the largest of such differences when all configs
are equal (Dunnett 1955), from draws. The true best is then in the group with 95 %, however many configs there are.
P(best) knows besides that the best of many estimates is partly luck (config_spread.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.estimation.config_spread import FEWEST, posterior_draws
from orchestrator.estimation.estimates import Estimates, NotComparable
from orchestrator.estimation.student import quantile_t
from orchestrator.estimation.two_way import Floats, Ints

DRAWS = 10_000
# Numbers drawn for ranks, in all; of few configs they are DRAWS sets.
_RANK_NUMBERS = 2_000_000
_CHUNK_NUMBERS = 4_000_000
# Configs that are behind beyond this much doubt, all together, are not drawn.
_NEVER = 1e-3
_EXACT = 1e-12


@dataclass(frozen=True, slots=True)
class Contest:
    """Of the configs that were compared: the one with the best estimate, the probability of each to be the best one,
    its rank with 90 % (5 to 95 %), and those that the data do not tell apart from the leader (it is one of them).
    """

    leader: str
    p_best: Mapping[str, float]
    rank_low: Mapping[str, int]
    rank_high: Mapping[str, int]
    tie_group: frozenset[str]

    def told_apart(self, config_id: str) -> bool:
        return config_id not in self.tie_group


def contest(
    estimates: Estimates, among: Sequence[str] | None = None, *, level: float = 0.95, draws: int = DRAWS, seed: int = 1
) -> Contest | None:
    """The contest between configs (all if `among` is not given); None if nothing is known of the spread, or no config.

    NotComparable if they lie in several parts. The same data and seed give the same answer.
    """
    names = tuple(estimates.config_ids if among is None else among)
    if estimates.kind == "single" or not names:
        return None
    which = np.array([estimates.index[name] for name in names], dtype=np.int64)
    if len(set(estimates.parts[which].tolist())) > 1:
        raise NotComparable("configs on hosts that no config has in common")
    means = estimates.means[which] * (1 if estimates.maximize else -1)
    leader = int(np.argmax(means))
    errors = _errors_against(estimates, which, leader)
    behind = means[leader] - means
    hopeless = quantile_t(estimates.df, 1 - _NEVER / max(len(names) - 1, 1))
    drawn = np.flatnonzero(behind <= hopeless * errors + _EXACT)
    critical = _critical(estimates, which[drawn], leader=int(np.flatnonzero(drawn == leader)[0]), level=level,
                         draws=draws, seed=seed)  # fmt: skip
    p_best = np.zeros(len(names))
    p_best[drawn] = _best(estimates, which[drawn], means[drawn], draws, seed)
    low, high = _ranks(estimates, which, means, draws, seed)
    return Contest(
        names[leader],
        dict(zip(names, p_best.tolist(), strict=True)),
        dict(zip(names, low, strict=True)),
        dict(zip(names, high, strict=True)),
        frozenset(names[i] for i in np.flatnonzero(behind <= critical * errors + _EXACT)),
    )


def _best(estimates: Estimates, which: Ints, means: Floats, draws: int, seed: int) -> Floats:
    """The share of draws in which each is the best; those that are exactly equal share it."""
    rng = np.random.default_rng(seed)
    best, left = np.zeros(len(means)), draws
    while left:
        count = min(left, max(1, _CHUNK_NUMBERS // len(means)))
        if len(means) < FEWEST or not estimates.own[which].all():
            drawn = estimates.errors(rng, count, which) + means
        else:
            scales = np.sqrt(estimates.df / rng.chisquare(estimates.df, count))
            drawn = posterior_draws(rng, means, estimates.own[which], estimates.shared[which], scales)
        top = drawn >= drawn.max(axis=1, keepdims=True) - _EXACT
        best += (top / top.sum(axis=1, keepdims=True)).sum(axis=0)
        left -= count
    return best / draws


def _errors_against(estimates: Estimates, which: Ints, control: int) -> Floats:
    """Standard errors of the differences to one of them, 0 of itself."""
    own, shared = estimates.own[which], estimates.shared[which]
    errors = np.sqrt(own + own[control] + ((shared - shared[control]) ** 2).sum(axis=1))
    errors[control] = 0.0
    return np.asarray(errors)


def _critical(estimates: Estimates, which: Ints, *, leader: int, level: float, draws: int, seed: int) -> float:
    """Dunnett's d of the leader against the others, or of the best known of them, if that is more.

    The true best may be any of them, and it is the control of the test that decides about it: one that is known well
    has differences that are less alike, and so a larger d.
    """
    variance = estimates.own[which] + (estimates.shared[which] ** 2).sum(axis=1)
    errors = {control: _errors_against(estimates, which, control) for control in {leader, int(np.argmin(variance))}}
    others = {control: found for control, of in errors.items() if len(found := np.flatnonzero(of > 0))}
    largest: dict[int, list[Floats]] = {control: [] for control in others}
    rng, left = np.random.default_rng(seed), draws if others else 0
    while left:
        count = min(left, max(1, _CHUNK_NUMBERS // len(which)))
        drawn = estimates.errors(rng, count, which)
        for control, rest in others.items():
            apart = (drawn[:, rest] - drawn[:, [control]]) / errors[control][rest]
            largest[control].append(apart.max(axis=1))
        left -= count
    return max((float(np.quantile(np.concatenate(found), level)) for found in largest.values()), default=0.0)


def _ranks(estimates: Estimates, which: Ints, means: Floats, draws: int, seed: int) -> tuple[list[int], list[int]]:
    """5 and 95 % of each config's place in the draws, 1 the best."""
    count = min(draws, max(200, _RANK_NUMBERS // len(means)))
    drawn = estimates.errors(np.random.default_rng(seed), count, which)
    drawn += means
    places = np.argsort(np.argsort(-drawn, axis=1, kind="stable"), axis=1, kind="stable") + 1
    bounds = np.quantile(places, (0.05, 0.95), axis=0, method="inverted_cdf")
    return bounds[0].astype(int).tolist(), bounds[1].astype(int).tolist()
