"""Luck of a whole night: how much nights differ beyond what the noise between their own pairs explains. Pure.

Another image, another memory layout, a warm building: what is the same in all pairs of a night looks like a change of
the build, and more pairs do not tell it from one. Its variance is taken from the history of a series: half the mean
square of the differences between neighbouring nights (von Neumann 1941), less the variance that a mean of their pairs
has. A step of the level is in one such difference only; one with other levels on both sides is left out, a single
large one is drawn in. What all series of the metric show counts beside the own nights of a series, and what is assumed
of a metric before there is any history beside both; it fades.

Load levels of a config share its starts and its luck: nights count once, however many series they have. More pairs
are asked of nights that look odd, so only so many of each night count as all nights have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.nights.expected_changes import ExpectedChange
from orchestrator.nights.night import Kind, Night, NightSource, SeriesKey, SeriesNight
from orchestrator.nights.night_noise import ENOUGH_DF, Squares, drawn_in, squares
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_segments import segments

# The nights on either side that show a level, and the fewest.
_SIDE, _FEWEST_OF_SIDE = 3, 2
# Levels this many standard deviations of a night apart are a step.
_STEP_SD = 3.0
# A difference beyond so many standard deviations counts as one of them; of normal values that leaves so much variance.
_CLIP_SD, _LEFT_BY_CLIP = 2.0, 0.9205
# The median of squared standard normal values.
_MEDIAN_SQUARE = 0.4549
# From so many differences on their median says how large they usually are.
_FEWEST_FOR_MEDIAN = 8
# n differences tell a variance as well as so many n independent values do.
_WORTH = 2 / 3
# Most nights have as many pairs as the lower quarter of them.
_QUARTER = 4
# What all series of the metric show counts as so many degrees of freedom of each.
_METRIC_DF = 30.0
# Nights that show so many times the assumed variance have what was assumed fade sooner.
_DOUBTED = 2.0


@dataclass(frozen=True, slots=True)
class Luck:
    """Standard deviation between nights that their pairs do not explain, with its degrees of freedom, which are few
    where it is small beside what pairs explain; and what it is from for the most part.
    """

    sd: float
    df: float
    source: NightSource


@dataclass(frozen=True, slots=True)
class NightMean:
    """A series in a night: mean d beyond the expected shift, of so many pairs; `squares` are of all its pairs around
    their mean. `begins`: a segment, so that it is not compared with the night before.
    """

    value: float
    pairs: int
    squares: Squares
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Excess:
    """Variance between nights beyond what the noise `within` them explains (`explained`), from so many differences of
    series of so many configs; by chance it may be below 0.
    """

    variance: float
    differences: float
    explained: float
    within: Squares
    configs: int = 1

    @property
    def df(self) -> float:
        return _WORTH * self.differences

    def noise_spread(self, variance: float) -> float:
        """What noise adds to half the variance of its variance, if luck has this one: configs do not share it."""
        return ((self.explained + variance) ** 2 - variance**2) / self.configs / self.df


def excess(nights: Sequence[NightMean], assumed: float) -> Excess | None:
    """Of one series, oldest first; None where nothing can be told. `assumed`: the sd that is thought of beforehand."""
    within = sum((night.squares for night in nights), Squares())
    halves, explained, sides = [], [], []
    for stretch in _stretches(nights):
        for i in range(1, len(stretch)):
            before, after = stretch[i - 1], stretch[i]
            halves.append((after.value - before.value) ** 2 / 2)
            explained.append(within.sd**2 * (1 / before.pairs + 1 / after.pairs) / 2)
            sides.append((stretch[max(0, i - _SIDE) : i], stretch[i : i + _SIDE]))
    if not halves or not within.df:
        return None
    usual = math.fsum(explained) / len(explained)
    scale = usual + assumed**2
    if len(halves) >= _FEWEST_FOR_MEDIAN:
        scale = max(usual, statistics.median(halves) / _MEDIAN_SQUARE)
    kept = [i for i, (left, right) in enumerate(sides) if not _is_step(left, right, math.sqrt(scale))]
    if not kept:
        return None
    between = math.fsum(min(halves[i], _CLIP_SD**2 * scale) for i in kept) / len(kept) / _LEFT_BY_CLIP
    own = math.fsum(explained[i] for i in kept) / len(kept)
    return Excess(between - own, len(kept), own, within)


def _stretches(nights: Sequence[NightMean]) -> list[list[NightMean]]:
    found: list[list[NightMean]] = []
    for night in nights:
        if night.begins or not found:
            found.append([])
        found[-1].append(night)
    return found


def _is_step(left: Sequence[NightMean], right: Sequence[NightMean], sd: float) -> bool:
    """Whether the nights on both sides are on other levels. A single odd night moves no median of three."""
    if min(len(left), len(right)) < _FEWEST_OF_SIDE:
        return False
    levels = [statistics.median(night.value for night in side) for side in (left, right)]
    return abs(levels[1] - levels[0]) > _STEP_SD * sd


@dataclass(frozen=True, slots=True)
class LuckBook:
    """What the history shows of series, and of metrics over all their series."""

    series: Mapping[SeriesKey, Excess]
    metric: Mapping[str, Excess]
    rules: NightRules

    @classmethod
    def of(cls, earlier: Sequence[Night], rules: NightRules, changes: Sequence[ExpectedChange] = ()) -> LuckBook:
        """`earlier`: oldest first. Of each series the last `luck_nights` nights with pairs count."""
        means = _means(earlier, rules, changes)
        found = {key: excess(nights, assumed_luck(key.metric, rules)) for key, nights in means.items()}
        series = {key: own for key, own in found.items() if own is not None}
        metrics: dict[str, dict[SeriesKey, Excess]] = {}
        for key, own in series.items():
            metrics.setdefault(key.metric, {})[key] = own
        together = {name: _together(of, assumed_luck(name, rules)) for name, of in metrics.items()}
        return cls(series, together, rules)

    def luck(self, key: SeriesKey) -> Luck:
        """Of a night of this series."""
        assumed = assumed_luck(key.metric, self.rules)
        own, metric = self.series.get(key), self.metric.get(key.metric)
        prior_df = self.rules.assumed_luck_df * _believed(assumed, metric)
        source: NightSource = "assumed"
        variance, of_metric, of_own = assumed**2, 0.0, 0.0
        if metric is not None:
            of_metric, source = metric.df / (metric.df + prior_df), "metric"
            variance += of_metric * (metric.variance - variance)
            if own is not None:
                of_own = own.df / (own.df + min(prior_df + metric.df, _METRIC_DF))
                variance += of_own * (own.variance - variance)
                source = "history" if of_own > 1 / 2 else source
        if variance <= 0:
            return Luck(0.0, 0.0, source)
        of_metric, of_prior = (1 - of_own) * of_metric, (1 - of_own) * (1 - of_metric)
        spread = of_prior**2 * variance**2 / prior_df if prior_df else 0.0
        if metric is not None:
            # The same nights, however many series.
            nights_df = max(metric.df, own.df if own else 0.0)
            spread += (of_own + of_metric) ** 2 * variance**2 / nights_df
            spread += of_metric**2 * metric.noise_spread(variance)
        if own is not None:
            spread += of_own**2 * own.noise_spread(variance)
        return Luck(math.sqrt(variance), variance**2 / spread, source)


def _believed(assumed: float, metric: Excess | None) -> float:
    """How much of what is assumed is left, where nights show far more: a quarter of it if they show eight times as much
    variance.
    """
    if metric is None or metric.variance <= _DOUBTED * assumed**2:
        return 1.0
    return _DOUBTED * assumed**2 / metric.variance


def assumed_luck(metric: str, rules: NightRules) -> float:
    """What is assumed of a metric before any history."""
    return -math.log1p(-rules.assumed_luck * rules.floor(metric))


def _together(series: Mapping[SeriesKey, Excess], assumed: float) -> Excess:
    """Of all series of a metric: those that tell it best count most, and nights are as many as one of them has."""
    found = list(series.values())
    within = sum((one.within for one in found), Squares())
    weights = [one.differences / (_explained(one, within) + assumed**2 or 1.0) ** 2 for one in found]

    def mean(values: Iterable[float]) -> float:
        return math.fsum(w * value for w, value in zip(weights, values, strict=True)) / math.fsum(weights)

    return Excess(
        mean(one.variance for one in found),
        mean(one.differences for one in found),
        mean(one.explained for one in found),
        within,
        len({key.config for key in series}),
    )


def _explained(one: Excess, metric: Squares) -> float:
    """By the noise of the metric while a series has few pairs, which look quiet by chance."""
    if one.within.df >= ENOUGH_DF or not one.within.total:
        return one.explained
    return one.explained * (metric.sd / one.within.sd) ** 2


@dataclass(frozen=True, slots=True)
class _Seen:
    night: Night
    series: SeriesNight
    ratios: Sequence[float]


def _means(
    earlier: Sequence[Night], rules: NightRules, changes: Sequence[ExpectedChange]
) -> dict[SeriesKey, list[NightMean]]:
    """Of every series that is judged by pairs, oldest first."""
    seen: dict[SeriesKey, list[_Seen]] = {}
    for night in reversed(earlier):
        for one in () if night.gap is not None else night.series:
            if one.kind in {Kind.FEASIBLE, Kind.KV_TOKENS}:
                continue
            found = seen.setdefault(one.key, [])
            if len(found) < rules.luck_nights and (ratios := one.measured.log_ratios):
                found.append(_Seen(night, one, ratios))
    return {key: _means_of(nights[::-1], key, changes) for key, nights in seen.items() if len(nights) > 1}


def _means_of(nights: Sequence[_Seen], key: SeriesKey, changes: Sequence[ExpectedChange]) -> list[NightMean]:
    label = nights[-1].series.measured.label
    begins = {part.begin for part in segments([seen.night for seen in nights], key, label, changes)}
    sd = sum((squares(seen.ratios) for seen in nights), Squares()).sd
    usual = sorted(len(seen.ratios) for seen in nights)[len(nights) // _QUARTER]
    made = []
    for i, seen in enumerate(nights):
        # Squares of what was drawn in too, or wild pairs would explain what they are not let to do.
        first, every = drawn_in(seen.ratios[:usual], sd), drawn_in(seen.ratios, sd)
        mean = math.fsum(first) / len(first) - seen.series.expected
        made.append(NightMean(mean, len(first), squares(every), i in begins))
    return made
