"""Pairs of a night -> a verdict for every series: regressed, improved, same, or inconclusive. Pure.

d = log(candidate / reference) of each pair; a pair further than 3 standard deviations from the median of its night
counts as one at 3. The mean of n of them has the interval mean +- t(df) * sd / sqrt(n), sd by night_noise.py.

regressed: worse by more than the floor, with p (one-sided t) below `alarm_p`, and q below `discoveries`. improved: the
same in the other sense. same: the interval lies within `same_within` floors. Else inconclusive: more pairs decide.
The cache size hardly varies between starts, so there pairs must agree instead; deaths need no statistics at all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.estimation.false_discoveries import false_discoveries
from orchestrator.estimation.student import quantile_t, share_t
from orchestrator.nights.night import Kind, Measured, Night, Noise, SeriesKey, SeriesNight, Verdict, better_sign
from orchestrator.nights.night_evidence import share_text, with_evidence
from orchestrator.nights.night_feasibility import judge_starts
from orchestrator.nights.night_noise import NoiseBook
from orchestrator.nights.night_rules import NightRules

_CLIP_SD = 3.0
# A start that measured nothing different at all has no spread; a clock and a counter have.
_LEAST_SD = 1e-4
_FEWEST_PAIRS = 2
# Where pairs must agree, one of so many may differ.
_ONE_OF = 5
# A series that is always open is worth more pairs only if it looks bad.
_SUSPICIOUS_P = 0.01


def judge_night(
    measured: Sequence[Measured],
    earlier: Sequence[Night] = (),
    rules: NightRules | None = None,
    expected: Mapping[SeriesKey, float] | None = None,
) -> tuple[SeriesNight, ...]:
    """Every series of a night, in the order given. `earlier`: nights of the history of this scenario, oldest first,
    gaps as well. `expected`: log ratios that people expect of series (expected_changes.py); they are taken off.
    """
    rules = rules or NightRules()
    book = NoiseBook.of(measured, earlier, rules.history_nights)
    judged = []
    for one in measured:
        shift = (expected or {}).get(one.key, 0.0)
        judged.append(_judge(one, book, earlier, rules, shift))
    return with_evidence(_controlled(judged, rules), earlier)


def undecided(series: Sequence[SeriesNight], rules: NightRules | None = None) -> tuple[SeriesNight, ...]:
    """The series for which more pairs, best on another host, would decide."""
    most = (rules or NightRules()).most_pairs
    return tuple(
        one
        for one in series
        if one.verdict is Verdict.INCONCLUSIVE
        and max(len(one.measured.pairs), len(one.measured.starts)) < most
        and (not one.too_noisy or (one.p is not None and one.p < _SUSPICIOUS_P))
    )


def _judge(one: Measured, book: NoiseBook, earlier: Sequence[Night], rules: NightRules, shift: float) -> SeriesNight:
    if one.kind is Kind.FEASIBLE:
        return judge_starts(one, earlier)
    floor, ratios = rules.floor(one.key.metric), [d - shift for d in one.log_ratios]
    open_ = SeriesNight(one, Verdict.INCONCLUSIVE, one.missing or "no pair was measured", floor)
    if (collapsed := _collapsed(one)) is not None:
        return replace(open_, verdict=Verdict.REGRESSED, reason=collapsed, p=0.0)
    if not ratios:
        return open_
    if one.kind is Kind.KV_TOKENS:
        return _with_shift(_agreement(open_, ratios), shift)
    noise = book.noise(one)
    if noise is None:
        mean = math.fsum(ratios) / len(ratios)
        return _with_shift(replace(open_, difference=mean, reason="one pair, and nothing is known of the noise"), shift)
    return _with_shift(_tested(open_, ratios, replace(noise, sd=max(noise.sd, _LEAST_SD)), rules), shift)


def _with_shift(one: SeriesNight, shift: float) -> SeriesNight:
    """What was judged without the expected shift, told with it."""
    if not shift or one.difference is None:
        return one
    low, high = (None if end is None else end + shift for end in (one.low, one.high))
    reason = f"{one.reason}, besides the expected {share_text(shift)}"
    return replace(one, difference=one.difference + shift, low=low, high=high, expected=shift, reason=reason)


def _collapsed(one: Measured) -> str | None:
    """More is better, and the candidate has nothing where the reference has something, in most pairs."""
    fallen = sum(1 for pair in one.pairs if pair.candidate <= 0 < pair.reference)
    if fallen >= _FEWEST_PAIRS and 2 * fallen > len(one.pairs) and better_sign(one.key.metric) > 0:
        return f"fell to nothing in {fallen} of {len(one.pairs)} pairs"
    return None


def _agreement(open_: SeriesNight, ratios: Sequence[float]) -> SeriesNight:
    """What is the same at every start: every pair must say so, of more than 4 pairs all but one (a start beside another
    process), or further pairs could decide nothing once two differ. One pair has an order that may be the reason.
    """
    sign, limit = better_sign(open_.key.metric), -math.log1p(-open_.floor)
    mean = math.fsum(ratios) / len(ratios)
    seen = replace(open_, difference=mean, low=min(ratios), high=max(ratios), finds=open_.floor)
    better = [sign * d for d in ratios]
    needed = max(len(better) - len(better) // _ONE_OF, _FEWEST_PAIRS)
    pairs = "every pair" if needed >= len(better) else f"{needed} of {len(better)} pairs or more"
    if sum(d < -limit for d in better) >= needed:
        return replace(seen, verdict=Verdict.REGRESSED, reason=f"smaller in {pairs}, by more than the floor", p=0.0)
    if sum(d > limit for d in better) >= needed:
        return replace(seen, verdict=Verdict.IMPROVED, reason=f"larger in {pairs}, by more than the floor", p=1.0)
    if sum(abs(d) <= limit for d in better) >= needed:
        return replace(seen, verdict=Verdict.SAME, reason=f"within the floor in {pairs}", p=1.0)
    return replace(seen, reason="one pair only" if len(better) < _FEWEST_PAIRS else "the pairs do not agree", p=1.0)


@dataclass(frozen=True, slots=True)
class _Test:
    """`mean` is above 0 where the candidate is better."""

    mean: float
    error: float
    noise: Noise

    def tail(self, sign: float) -> float:
        """Probability of a mean so far or further on the side of `sign` if nothing changed."""
        return share_t(self.noise.df, -sign * self.mean / self.error)


def _tested(open_: SeriesNight, ratios: Sequence[float], noise: Noise, rules: NightRules) -> SeriesNight:
    sign = better_sign(open_.key.metric)
    test = _Test(sign * clipped_mean(ratios, noise.sd), noise.sd / math.sqrt(len(ratios)), noise)
    quantile = quantile_t(noise.df, 0.5 + rules.confidence / 2)
    half = quantile * test.error
    limit, margin = -math.log1p(-open_.floor), -math.log1p(-rules.same_within * open_.floor)
    ends = sorted((sign * (test.mean - half), sign * (test.mean + half)))
    finds = max(limit, quantile_t(noise.df, 1 - rules.alarm_p) * test.error)
    error_at_most = noise.sd / math.sqrt(max(rules.most_pairs, len(ratios)))
    seen = replace(
        open_, difference=sign * test.mean, low=ends[0], high=ends[1], p=test.tail(-1.0), noise=noise,
        finds=-math.expm1(-finds), too_noisy=(quantile + 3) * error_at_most > margin,
    )  # fmt: skip
    told = f"{rules.confidence:.0%} interval"
    if len(ratios) >= _FEWEST_PAIRS and test.mean < -limit and test.tail(-1.0) < rules.alarm_p:
        return replace(seen, verdict=Verdict.REGRESSED, reason=f"worse beyond doubt, by more than {open_.floor:.0%}")
    if len(ratios) >= _FEWEST_PAIRS and test.mean > limit and test.tail(1.0) < rules.alarm_p:
        return replace(seen, verdict=Verdict.IMPROVED, reason=f"better beyond doubt, by more than {open_.floor:.0%}")
    if abs(test.mean) + half < margin:
        return replace(seen, verdict=Verdict.SAME, reason=f"{told} within {-math.expm1(-margin):.1%}")
    if seen.too_noisy:
        why = f"so noisy that {rules.most_pairs} pairs tell a worsening only from {_finds_at(test, rules):.0%}"
        return replace(seen, reason=why)
    return replace(seen, reason=f"{told} is not within {-math.expm1(-margin):.1%}; more pairs decide")


def clipped_mean(ratios: Sequence[float], sd: float) -> float:
    """Mean of the log ratios, each drawn in to 3 sd of their median: one wild pair decides nothing."""
    median, reach = statistics.median(ratios), _CLIP_SD * sd
    return math.fsum(min(max(d, median - reach), median + reach) for d in ratios) / len(ratios)


def _finds_at(test: _Test, rules: NightRules) -> float:
    """The smallest worsening that the most pairs would tell."""
    error = test.noise.sd / math.sqrt(rules.most_pairs)
    return -math.expm1(-quantile_t(test.noise.df, 1 - rules.alarm_p) * error)


def _controlled(series: Sequence[SeriesNight], rules: NightRules) -> list[SeriesNight]:
    """False discovery control over the night (Benjamini and Hochberg 1995): what does not survive it is open."""
    tested = [i for i, one in enumerate(series) if one.p is not None]
    if not tested:
        return list(series)
    result = list(series)
    for i, q in zip(tested, false_discoveries([series[i].p or 0.0 for i in tested]), strict=True):
        result[i] = replace(series[i], q=q)
        if series[i].verdict is Verdict.REGRESSED and q >= rules.discoveries:
            why = f"{series[i].reason}, but among so many series that may be chance (q {q:.2g})"
            result[i] = replace(result[i], verdict=Verdict.INCONCLUSIVE, reason=why)
    return result
