"""Pairs of a night -> a verdict for every series: regressed, improved, same, or inconclusive. Pure.

d = log(candidate / reference) of each pair; a pair further than 3 standard deviations from the median of its night
counts as one at 3. The mean of n of them has the interval mean +- t(df) * error, error^2 = sd^2 / n + night_sd^2: sd of
a pair by night_noise.py, night_sd (what all pairs of a night share by luck) by night_luck.py.

regressed: worse by more than the floor, with p (one-sided t) below `alarm_p`, and q below `discoveries`; tonight alone,
or so was the night before, they agree, and both together have that p: what each has by luck is then halved. improved:
the same in the other sense. same: the interval lies within `same_within` floors. Else inconclusive: more pairs decide.
The cache size hardly varies between starts, so there pairs must agree instead; deaths need no statistics at all. Pairs
in which one of the two is 0 have no ratio: they are in no mean, but stand in the way of a good verdict.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.estimation.false_discoveries import false_discoveries
from orchestrator.estimation.student import quantile_t, share_t
from orchestrator.nights.night import (
    Kind,
    Measured,
    Night,
    Noise,
    SeriesKey,
    SeriesNight,
    Verdict,
    better_sign,
    last_measured,
)
from orchestrator.nights.night_evidence import share_text, with_evidence
from orchestrator.nights.night_feasibility import judge_starts
from orchestrator.nights.night_luck import LuckBook
from orchestrator.nights.night_noise import ENOUGH_DF, NoiseBook, clipped_mean
from orchestrator.nights.night_rules import NightRules
from orchestrator.plural import plural

# A start that measured nothing different at all has no spread; a clock and a counter have.
_LEAST_SD = 1e-4
_FEWEST_PAIRS = 2
# Fewer tell no speed while their noise is not known: two pairs are often alike by chance.
_ENOUGH_PAIRS = 3
# Where pairs must agree, one of so many may differ.
_ONE_OF = 5
# A series that is always open is worth more pairs only if it looks bad.
_SUSPICIOUS_P = 0.05
# As many pairs again must make the error smaller by a tenth, or they are not worth their hours.
_WORTH_WHILE = 0.9
# Two wild pairs reach further than a float.
_MOST_REACH = 700.0
_TENFOLD = 9.0


def judge_night(
    measured: Sequence[Measured],
    earlier: Sequence[Night] = (),
    rules: NightRules | None = None,
    expected: Mapping[SeriesKey, float] | None = None,
    lucks: LuckBook | None = None,
    alone: Collection[SeriesKey] = (),
) -> tuple[SeriesNight, ...]:
    """Every series of a night, in the order given. `earlier`: nights of the history of this scenario, oldest first,
    gaps as well. `expected`: log ratios that people expect of series (expected_changes.py); they are taken off.
    `lucks`: of the same nights, by these rules. `alone`: series of which the night before is no part of the same
    segment (another reference, other hosts), so that both are not taken together.
    """
    rules = rules or NightRules()
    book, lucks = NoiseBook.of(measured, earlier, rules.history_nights), lucks or LuckBook.of(earlier, rules)
    judged = []
    for one in measured:
        shift = (expected or {}).get(one.key, 0.0)
        before = [] if one.key in alone else _before(one, earlier)
        judged.append(_judge(one, _noise(one, book, lucks), earlier, rules, shift, before))
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
        and (one.noise is None or _worth_while(one.noise, len(one.measured.log_ratios)))
    )


def _worth_while(noise: Noise, pairs: int) -> bool:
    """More pairs: they take nothing away from the luck of the night."""
    return _too_few(noise, pairs) or noise.error(2 * pairs) < _WORTH_WHILE * noise.error(pairs)


def _too_few(noise: Noise, pairs: int) -> bool:
    return pairs < _ENOUGH_PAIRS and noise.df < ENOUGH_DF


def _noise(one: Measured, book: NoiseBook, lucks: LuckBook) -> Noise | None:
    """Between the pairs of a night, and between nights."""
    noise, luck = book.noise(one), lucks.luck(one.key)
    if noise is None:
        return None
    return Noise(max(noise.sd, _LEAST_SD), noise.df, noise.source, luck.sd, luck.df, luck.source)


def _judge(
    one: Measured, noise: Noise | None, earlier: Sequence[Night], rules: NightRules, shift: float,
    before: Sequence[float],
) -> SeriesNight:  # fmt: skip
    if one.kind is Kind.FEASIBLE:
        return judge_starts(one, earlier)
    floor, ratios = rules.floor(one.key.metric), [d - shift for d in one.log_ratios]
    open_ = SeriesNight(one, Verdict.INCONCLUSIVE, one.missing or "no pair was measured", floor)
    if (collapsed := _collapsed(one)) is not None:
        return replace(open_, verdict=Verdict.REGRESSED, reason=collapsed, p=0.0)
    if not ratios:
        return _without_ratios(open_)
    if one.kind is Kind.KV_TOKENS:
        return _with_shift(_agreement(open_, ratios), shift)
    if noise is None:
        mean = math.fsum(ratios) / len(ratios)
        return _with_shift(replace(open_, difference=mean, reason="one pair, and nothing is known of the noise"), shift)
    return _with_shift(_with_zeros(_tested(open_, ratios, noise, rules, before)), shift)


def _with_shift(one: SeriesNight, shift: float) -> SeriesNight:
    """What was judged without the expected shift, told with it."""
    if not shift or one.difference is None:
        return one
    low, high = (None if end is None else end + shift for end in (one.low, one.high))
    reason = f"{one.reason}, besides the expected {share_text(shift)}"
    return replace(one, difference=one.difference + shift, low=low, high=high, expected=shift, reason=reason)


def _fallen(one: Measured) -> int:
    """Pairs in which the candidate has nothing where the reference has something."""
    return sum(1 for pair in one.pairs if pair.candidate <= 0 < pair.reference)


def _risen(one: Measured) -> int:
    return sum(1 for pair in one.pairs if pair.reference <= 0 < pair.candidate)


def _collapsed(one: Measured) -> str | None:
    """More is better, and the candidate has nothing where the reference has something, in most pairs."""
    fallen = _fallen(one)
    if fallen >= _FEWEST_PAIRS and 2 * fallen > len(one.pairs) and better_sign(one.key.metric) > 0:
        return f"fell to nothing in {fallen} of {len(one.pairs)} pairs"
    return None


def _without_ratios(open_: SeriesNight) -> SeriesNight:
    """No pair has two values above 0. Two zeros are the same: requests that are never taken back, or never good."""
    one, count = open_.measured, len(open_.measured.pairs)
    if one.missing or not count:
        return open_
    if not (fallen := _fallen(one)) and not (risen := _risen(one)):
        verdict = Verdict.SAME if count >= _FEWEST_PAIRS else Verdict.INCONCLUSIVE
        return replace(open_, verdict=verdict, reason=f"0 in both, in {count} of {count} pairs")
    told = f"fell to nothing in {fallen}" if fallen else f"0 in the reference only, in {risen}"
    return replace(open_, reason=f"{told} of {count} pairs, which is no ratio")


def _with_zeros(seen: SeriesNight) -> SeriesNight:
    """What pairs without a ratio say against a good verdict on the others: one in five may, as where pairs agree."""
    one, sign = seen.measured, better_sign(seen.key.metric)
    worse = _fallen(one) if sign > 0 else _risen(one)
    if seen.verdict is Verdict.REGRESSED or worse <= len(one.pairs) // _ONE_OF:
        return seen
    told = "fell to nothing" if sign > 0 else "0 in the reference only"
    reason = f"{told} in {worse} of {len(one.pairs)} pairs; the others: {seen.reason}"
    # Counts that are often 0 are noisy by nature; goodput that comes and goes is not.
    open_ = replace(seen, verdict=Verdict.INCONCLUSIVE, too_noisy=seen.too_noisy and sign < 0, reason=reason)
    return replace(open_, difference=None, low=None, high=None)  # the mean of some pairs is not that of the night


def _agreement(open_: SeriesNight, ratios: Sequence[float]) -> SeriesNight:
    """What is the same at every start: every pair must say so, of more than 4 pairs all but one (a start beside another
    process), or further pairs could decide nothing once two differ. One pair has an order that may be the reason.
    """
    sign, limit = better_sign(open_.key.metric), -math.log1p(-open_.floor)
    mean = math.fsum(ratios) / len(ratios)
    seen = replace(open_, difference=mean, low=min(ratios), high=max(ratios), finds=open_.floor)
    better = [sign * d for d in ratios]
    needed = max(len(better) - len(better) // _ONE_OF, _FEWEST_PAIRS)
    for verdict, where, p, agreeing in (
        (Verdict.REGRESSED, "smaller in {}, by more than the floor", 0.0, sum(d < -limit for d in better)),
        (Verdict.IMPROVED, "larger in {}, by more than the floor", 1.0, sum(d > limit for d in better)),
        (Verdict.SAME, "within the floor in {}", 1.0, sum(abs(d) <= limit for d in better)),
    ):
        if agreeing >= needed:
            pairs = "every pair" if agreeing == len(better) else f"{agreeing} of {len(better)} pairs"
            return replace(seen, verdict=verdict, reason=where.format(pairs), p=p)
    return replace(seen, reason="one pair only" if len(better) < _FEWEST_PAIRS else "the pairs do not agree", p=1.0)


@dataclass(frozen=True, slots=True)
class NightTest:
    """`mean` of so many pairs is above 0 where the candidate is better."""

    mean: float
    pairs: float
    noise: Noise

    def with_before(self, other: NightTest) -> NightTest:
        """The mean of both nights. What either has by luck is of its own, so half of that variance is left."""
        pairs = 4 / (1 / self.pairs + 1 / other.pairs)
        noise = replace(self.noise, night_sd=self.noise.night_sd / math.sqrt(2))
        return NightTest((self.mean + other.mean) / 2, pairs, noise)

    def agrees(self, other: NightTest, confidence: float) -> bool:
        """Whether both may have measured one and the same: they differ by no more than chance explains."""
        apart = math.hypot(self.noise.error(self.pairs), other.noise.error(other.pairs))
        df = self.noise.error_df(self.pairs)
        return abs(self.mean - other.mean) <= quantile_t(df, 0.5 + confidence / 2) * apart

    def tail(self, sign: float) -> float:
        """Probability of a mean so far or further on the side of `sign` if nothing changed."""
        return share_t(self.noise.error_df(self.pairs), -sign * self.mean / self.noise.error(self.pairs))


def _before(one: Measured, earlier: Sequence[Night]) -> list[float]:
    """Log ratios of the night before, without the shift that was expected of it."""
    night = last_measured(earlier)
    for seen in night.series if night else ():
        if seen.key == one.key:
            return [d - seen.expected for d in seen.measured.log_ratios]
    return []


def _tested(
    open_: SeriesNight, ratios: Sequence[float], noise: Noise, rules: NightRules, before: Sequence[float]
) -> SeriesNight:
    sign, pairs = better_sign(open_.key.metric), len(ratios)
    limit, margin = -math.log1p(-open_.floor), rules.same_margin(open_.floor)
    test = NightTest(sign * clipped_mean(ratios, noise.sd), pairs, noise)
    lasting = _lasting(test, sign, before, limit, rules)
    half = _reach(noise, pairs, 0.5 + rules.confidence / 2)
    ends = sorted((sign * (test.mean - half), sign * (test.mean + half)))
    finds = max(limit, _reach(noise, pairs, 1 - rules.alarm_p))
    most = max(rules.most_pairs, pairs)
    later = replace(noise, df=noise.df + most - pairs)  # which more pairs know better
    widest = _reach(later, most, 0.5 + rules.confidence / 2) + 3 * noise.error(most)
    p = test.tail(-1.0) if lasting is None or lasting.mean > 0 else min(test.tail(-1.0), lasting.tail(-1.0))
    seen = replace(
        open_, difference=sign * test.mean, low=ends[0], high=ends[1], p=p, noise=noise,
        finds=_worsening(finds, sign), too_noisy=widest > margin,
    )  # fmt: skip
    told, floor = f"{100 * rules.confidence:g}% interval", f"{100 * open_.floor:g}%"
    if _too_few(noise, pairs):
        why = "too little is known yet of how much pairs differ: three pairs or more nights decide"
        noisy = seen.too_noisy and pairs < len(open_.measured.pairs)  # what is often 0 is noisy by nature
        return replace(seen, too_noisy=noisy, reason=f"{plural(pairs, 'pair')}, and {why}")
    for verdict, word, side in ((Verdict.REGRESSED, "worse", -1.0), (Verdict.IMPROVED, "better", 1.0)):
        if pairs >= _FEWEST_PAIRS and (why := _beyond_doubt(test, lasting, side, limit, rules)):
            return replace(seen, verdict=verdict, reason=f"{word} {why}, by more than {floor}")
    if abs(test.mean) + half < margin:
        return replace(seen, verdict=Verdict.SAME, reason=f"{told} within {-math.expm1(-margin):.1%}")
    if seen.too_noisy:
        return replace(seen, reason=_noisy_text(noise, most, rules, sign))
    who = "more pairs decide" if _worth_while(noise, pairs) else f"more nights decide, not more pairs: {_luck(noise)}"
    return replace(seen, reason=f"{told} is not within {-math.expm1(-margin):.1%}; {who}")


def _lasting(
    tonight: NightTest, sign: float, before: Sequence[float], limit: float, rules: NightRules
) -> NightTest | None:
    """Both nights as one, if they are beyond the floor on the same side and agree: one odd night is nothing that lasts,
    and what is over (a build far slower than tonight's) is no evidence against tonight.
    """
    if len(before) < _FEWEST_PAIRS or abs(tonight.mean) <= limit:
        return None
    other = NightTest(sign * clipped_mean(before, tonight.noise.sd), len(before), tonight.noise)
    same_side = math.copysign(1.0, tonight.mean) * other.mean > limit
    return tonight.with_before(other) if same_side and tonight.agrees(other, rules.confidence) else None


def _beyond_doubt(tonight: NightTest, lasting: NightTest | None, side: float, limit: float, rules: NightRules) -> str:
    """How it is sure that the candidate differs to this side; empty if it is not."""
    if side * tonight.mean > limit and tonight.tail(side) < rules.alarm_p:
        return "beyond doubt"
    if lasting is not None and side * lasting.mean > 0 and lasting.tail(side) < rules.alarm_p:
        return "in two nights in a row, which together are beyond doubt"
    return ""


def _reach(noise: Noise, pairs: float, share: float) -> float:
    """How far a mean lies from the truth with this probability."""
    return quantile_t(noise.error_df(pairs), share) * noise.error(pairs)


def _worsening(reach: float, sign: float) -> float:
    """The share that a log ratio takes from what should be large, or adds to what should be small."""
    return math.expm1(min(reach, _MOST_REACH)) if sign < 0 else -math.expm1(-reach)


def _noisy_text(noise: Noise, most: int, rules: NightRules, sign: float) -> str:
    """From which worsening on the most pairs tell it, and whether that is the pairs' doing."""
    finds = _worsening(_reach(noise, most, 1 - rules.alarm_p), sign)
    text = (
        f"so noisy that {most} pairs tell a worsening only from {f'{finds:.0%}' if finds < _TENFOLD else 'tenfold on'}"
    )
    return f"{text}; {_luck(noise)}" if noise.night_sd > noise.error(most) / math.sqrt(2) else text


def _luck(noise: Noise) -> str:
    return f"whole nights differ by {noise.night_sd:.1%} (sd) by luck"


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
