"""The highest request rate that keeps the limits per request, by probing rates within one trial. Pure.

More load makes more requests late, but what a probe sees is a share of few requests: a rate *meets* the wanted share
only if the lower bound of what was seen is not below it, *fails* only if the upper bound is below, and is probed again
otherwise. A point that is saturated by its own evidence fails. A crash or a void point is no answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.attainment import wilson

Verdict = Literal["meets", "fails", "open"]


@dataclass(frozen=True, slots=True)
class RateGoal:
    """What is searched: rates in requests per second from `low_rps` to `high_rps`, neighbours `precision` apart (a
    share), of which `attainment` (a share) of all issued requests keeps the limits. `level` of the two-sided bounds.
    """

    low_rps: float
    high_rps: float
    precision: float = 0.05
    attainment: float = 0.9
    level: float = 0.95
    most_probes: int = 3

    def rates(self) -> tuple[float, ...]:
        """All rates that may be probed, ascending, of four digits at most: the same in every trial of a run."""
        steps = max(1, math.ceil(math.log(self.high_rps / self.low_rps) / math.log1p(self.precision) - 1e-9))
        ratio = (self.high_rps / self.low_rps) ** (1 / steps)
        inner = [float(f"{self.low_rps * ratio**i:.4g}") for i in range(1, steps)]
        return (self.low_rps, *(r for r in dict.fromkeys(inner) if self.low_rps < r < self.high_rps), self.high_rps)


@dataclass(frozen=True, slots=True)
class RateProbe:
    """A point to measure. `number` counts the probes of a rate from 0: each sends other requests."""

    rate_rps: float
    number: int


@dataclass(frozen=True, slots=True)
class RateSeen:
    """What a probe came to. `good`: share of the issued requests that kept the limits; `requests`: as how many
    independent ones they count (`attainment_n`). `saturated`: the queue grew all the time. Neither: void, no answer.
    """

    rate_rps: float
    good: float | None
    requests: float | None = None
    saturated: bool = False


@dataclass(frozen=True, slots=True)
class MaxRate:
    """`rate_rps`: the highest rate that meets, None if not even the lowest does. The true one lies from `low_rps` to
    `high_rps`, as sure as the bounds: the highest that surely meets (0: none) and the lowest that surely fails (None:
    none was seen). `verified`: those two are neighbours, or the highest allowed rate surely meets. `text` says it.
    """

    rate_rps: float | None
    low_rps: float
    high_rps: float | None
    verified: bool
    text: str


def next_probe(goal: RateGoal, seen: Sequence[RateSeen]) -> RateProbe | None:
    """What to measure next; None when nothing more can be learnt. Depends on nothing but its arguments.

    From the lowest rate it doubles until one does not meet, then halves the distance between the highest that meets and
    the lowest that does not, on a logarithmic scale.
    """
    rates = goal.rates()
    at = _next_rate(goal, rates, seen)
    if at is None:
        return None
    probes = sum(1 for one in seen if one.rate_rps == rates[at])
    return RateProbe(rates[at], probes)


def result(goal: RateGoal, seen: Sequence[RateSeen]) -> MaxRate:
    """What these probes say, also when more could be learnt."""
    rates = goal.rates()
    verdicts = [_verdict(goal, rate, seen) for rate in rates]
    guesses = [_guess(goal, rate, seen) for rate in rates]
    low, _ = _bracket(guesses)
    sure_high = min((i for i, v in enumerate(verdicts) if v == "fails"), default=None)
    sure_low = max((i for i, v in enumerate(verdicts[:sure_high]) if v == "meets"), default=None)
    verified = sure_low is not None and sure_low + 1 == (len(rates) if sure_high is None else sure_high)
    found = MaxRate(
        rate_rps=None if low is None else rates[low],
        low_rps=0.0 if sure_low is None else rates[sure_low],
        high_rps=None if sure_high is None else rates[sure_high],
        verified=verified,
        text="",
    )
    return MaxRate(found.rate_rps, found.low_rps, found.high_rps, verified, _text(goal, found, seen))


def _next_rate(goal: RateGoal, rates: tuple[float, ...], seen: Sequence[RateSeen]) -> int | None:
    """Index of the rate to probe."""
    unsettled = [i for i, rate in enumerate(rates) if _probed(rate, seen) and _unsettled(goal, rate, seen)]
    if unsettled:
        return unsettled[0]
    low, high = _bracket([_guess(goal, rate, seen) for rate in rates])
    if any(_guess(goal, rate, seen) is None and _probed(rate, seen) for rate in rates):
        return None  # a rate that is void each time: nothing can be said beyond
    if low is None:
        return 0 if high is None else None
    if high is None:
        return None if low == len(rates) - 1 else min(_doubled(rates, low), len(rates) - 1)
    return None if high - low == 1 else (low + high) // 2


def _doubled(rates: tuple[float, ...], at: int) -> int:
    """Index of the last rate that is at most twice as high, at least the next one."""
    return max(at + 1, *(i for i, rate in enumerate(rates) if rate <= 2 * rates[at]))


def _bracket(guesses: list[bool | None]) -> tuple[int | None, int | None]:
    """(highest rate that meets below the lowest that does not, lowest that does not)."""
    high = next((i for i, meets in enumerate(guesses) if meets is False), None)
    low = max((i for i, meets in enumerate(guesses[:high]) if meets), default=None)
    return low, high


def _probed(rate: float, seen: Sequence[RateSeen]) -> int:
    return sum(1 for one in seen if one.rate_rps == rate)


def _unsettled(goal: RateGoal, rate: float, seen: Sequence[RateSeen]) -> bool:
    return _verdict(goal, rate, seen) == "open" and _probed(rate, seen) < goal.most_probes


def _verdict(goal: RateGoal, rate: float, seen: Sequence[RateSeen]) -> Verdict:
    """What all probes of a rate say together."""
    if any(one.saturated for one in seen if one.rate_rps == rate):
        return "fails"
    pooled = _pooled(rate, seen)
    if pooled is None:
        return "open"
    low, high = wilson(*pooled, goal.level)
    return "meets" if low >= goal.attainment else "fails" if high < goal.attainment else "open"


def _guess(goal: RateGoal, rate: float, seen: Sequence[RateSeen]) -> bool | None:
    """Whether a rate meets: surely, or where that stays open by what was seen; None without an answer."""
    verdict = _verdict(goal, rate, seen)
    if verdict != "open":
        return verdict == "meets"
    pooled = _pooled(rate, seen)
    return None if pooled is None else pooled[0] >= goal.attainment


def _pooled(rate: float, seen: Sequence[RateSeen]) -> tuple[float, float] | None:
    """(share of good ones, independent requests) of all probes of a rate that answered."""
    own = [(one.good, one.requests) for one in seen if one.rate_rps == rate and one.good is not None and one.requests]
    requests = math.fsum(n or 0.0 for _, n in own)
    if not requests:
        return None
    return math.fsum(good * (n or 0.0) for good, n in own if good is not None) / requests, requests


def _text(goal: RateGoal, found: MaxRate, seen: Sequence[RateSeen]) -> str:
    wanted = f"{goal.attainment:.0%} of requests within the slo"
    probes = f"{len(seen)} probe{'' if len(seen) == 1 else 's'}"
    if not any(one.saturated or one.good is not None for one in seen):
        return f"no valid answer from {probes}"
    if found.rate_rps is None:
        return f"not even {goal.low_rps:g} req/s keep {wanted} ({probes})"
    high = f"up to {goal.high_rps:g} req/s, the highest that was allowed" if found.high_rps is None else (
        f"below {found.high_rps:g} req/s"
    )  # fmt: skip
    sure = "" if found.verified else ", not decided beyond noise"
    return f"{found.rate_rps:g} req/s keep {wanted}: from {found.low_rps:g} {high} ({probes}{sure})"
