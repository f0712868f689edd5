"""The highest request rate that keeps the limits per request, by probing rates within one trial. Pure.

More load makes more requests late, but what a probe sees is a share of few requests: a rate *meets* the wanted share
only if the lower bound of what was seen is not below it, *fails* only if the upper bound is below, and is probed again
otherwise. A point that is saturated by its own evidence fails. A crash or a void point is no answer.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from orchestrator.plural import plural
from orchestrator.points.attainment import wilson

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
        return _rates(self.low_rps, self.high_rps, self.precision)


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


@dataclass(frozen=True, slots=True)
class _Answer:
    """What all probes of one rate say together. `meets`: surely, or where that stays open by what was seen; None
    without an answer.
    """

    verdict: Verdict
    meets: bool | None
    probes: int


def next_probe(goal: RateGoal, seen: Sequence[RateSeen]) -> RateProbe | None:
    """What to measure next; None when nothing more can be learnt. Depends on nothing but its arguments.

    From the lowest rate it doubles until one does not meet, then halves the distance between the highest that meets and
    the lowest that does not, on a logarithmic scale.
    """
    rates, answers = goal.rates(), _answers(goal, seen)
    at = _next_rate(goal, rates, answers)
    if at is None:
        return None
    answer = answers.get(rates[at])
    return RateProbe(rates[at], answer.probes if answer else 0)


def result(goal: RateGoal, seen: Sequence[RateSeen]) -> MaxRate:
    """What these probes say, also when more could be learnt."""
    rates, answers = goal.rates(), _answers(goal, seen)
    low, _ = _bracket(rates, answers)
    verdicts = [answers[rate].verdict if rate in answers else "open" for rate in rates]
    sure_high = min((i for i, v in enumerate(verdicts) if v == "fails"), default=None)
    sure_low = max((i for i, v in enumerate(verdicts[:sure_high]) if v == "meets"), default=None)
    found = MaxRate(
        rate_rps=None if low is None else rates[low],
        low_rps=0.0 if sure_low is None else rates[sure_low],
        high_rps=None if sure_high is None else rates[sure_high],
        verified=sure_low is not None and sure_low + 1 == (len(rates) if sure_high is None else sure_high),
        text="",
    )
    return replace(found, text=_text(goal, found, answers))


@cache
def _rates(low_rps: float, high_rps: float, precision: float) -> tuple[float, ...]:
    steps = max(1, math.ceil(math.log(high_rps / low_rps) / math.log1p(precision) - 1e-9))
    ratio = (high_rps / low_rps) ** (1 / steps)
    inner = [float(f"{low_rps * ratio**i:.4g}") for i in range(1, steps)]
    return (low_rps, *(rate for rate in dict.fromkeys(inner) if low_rps < rate < high_rps), high_rps)


def _next_rate(goal: RateGoal, rates: tuple[float, ...], answers: Mapping[float, _Answer]) -> int | None:
    """Index of the rate to probe."""
    for i, rate in enumerate(rates):
        answer = answers.get(rate)
        if answer is not None and answer.verdict == "open" and answer.probes < goal.most_probes:
            return i
    if any(answer.meets is None for answer in answers.values()):
        return None  # a rate that is void each time: nothing can be said beyond
    low, high = _bracket(rates, answers)
    if low is None:
        return 0 if high is None else None
    if high is None:
        return None if low == len(rates) - 1 else _doubled(rates, low)
    return None if high - low == 1 else (low + high) // 2


def _doubled(rates: tuple[float, ...], at: int) -> int:
    """Index of the last rate that is at most twice as high, at least the next one."""
    return max(at + 1, bisect_right(rates, 2 * rates[at]) - 1)


def _bracket(rates: tuple[float, ...], answers: Mapping[float, _Answer]) -> tuple[int | None, int | None]:
    """(highest rate that meets below the lowest that does not, lowest that does not)."""
    meets = [answers[rate].meets if rate in answers else None for rate in rates]
    high = next((i for i, met in enumerate(meets) if met is False), None)
    low = max((i for i, met in enumerate(meets[:high]) if met), default=None)
    return low, high


def _answers(goal: RateGoal, seen: Sequence[RateSeen]) -> dict[float, _Answer]:
    """By rate; what was seen at other rates than the goal's does not count."""
    of_rate: dict[float, list[RateSeen]] = {}
    for one in seen:
        of_rate.setdefault(one.rate_rps, []).append(one)
    allowed = set(goal.rates())
    return {rate: _answer(goal, own) for rate, own in of_rate.items() if rate in allowed}


def _answer(goal: RateGoal, seen: Sequence[RateSeen]) -> _Answer:
    if any(one.saturated for one in seen):
        return _Answer("fails", False, len(seen))
    told = [(one.good, one.requests) for one in seen if one.good is not None and one.requests]
    requests = math.fsum(n for _, n in told)
    if not requests:
        return _Answer("open", None, len(seen))
    good = math.fsum(share * n for share, n in told) / requests
    low, high = wilson(good, requests, goal.level)
    verdict: Verdict = "meets" if low >= goal.attainment else "fails" if high < goal.attainment else "open"
    return _Answer(verdict, good >= goal.attainment, len(seen))


def _text(goal: RateGoal, found: MaxRate, answers: Mapping[float, _Answer]) -> str:
    wanted = f"{goal.attainment:.0%} of requests within the slo"
    count = sum(answer.probes for answer in answers.values())
    probes = plural(count, "probe")
    if all(answer.meets is None for answer in answers.values()):
        return f"no valid answer from {probes}"
    if found.rate_rps is None:
        return f"not even {goal.low_rps:g} req/s keep {wanted} ({probes})"
    if found.high_rps is not None:
        high = f"below {found.high_rps:g} req/s"
    else:
        high = f"up, no rate surely fails; {goal.high_rps:g} req/s is the highest that is tried"
    sure = "" if found.verified else ", not decided beyond noise"
    return f"{found.rate_rps:g} req/s keep {wanted}: from {found.low_rps:g} {high} ({probes}{sure})"
