"""How much the difference of a pair varies when nothing has changed. Pure.

From the residuals of pairs around the mean of their night, pooled: sd^2 = sum of squares / (pairs - nights). First from
the last nights of the series itself; while those are few, from all series of the same metric, but then not below what
the series itself shows. Load levels of a config share its starts, so their degrees of freedom count once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.nights.night import Measured, Night, Noise, SeriesKey

# So many degrees of freedom make a series' own history enough; 6 nights of 3 pairs.
ENOUGH_DF = 12
# Tonight may be noisier than the history; beyond this probability it is, and its own noise counts.
_NOISIER_P = 0.001
_CLIP_SD = 3.0


@dataclass(frozen=True, slots=True)
class Squares:
    """Sum of squared residuals, and their degrees of freedom."""

    total: float = 0.0
    df: int = 0

    def __add__(self, other: Squares) -> Squares:
        return Squares(self.total + other.total, self.df + other.df)

    @property
    def sd(self) -> float:
        return math.sqrt(self.total / self.df) if self.df else 0.0


def squares(differences: Sequence[float]) -> Squares:
    """Around their own mean."""
    if len(differences) < 2:
        return Squares()
    mean = math.fsum(differences) / len(differences)
    return Squares(math.fsum((d - mean) ** 2 for d in differences), len(differences) - 1)


def drawn_in(ratios: Sequence[float], sd: float) -> list[float]:
    """Each not further than 3 sd from their median: one wild pair decides nothing."""
    median, reach = statistics.median(ratios), _CLIP_SD * sd
    return [min(max(d, median - reach), median + reach) for d in ratios]


def clipped_mean(ratios: Sequence[float], sd: float) -> float:
    """Mean of the log ratios, each drawn in."""
    return math.fsum(drawn_in(ratios, sd)) / len(ratios)


@dataclass(frozen=True, slots=True)
class NoiseBook:
    """Squares of the series in earlier nights and in tonight's; of metrics, in both; and degrees of freedom of their
    starts.
    """

    history: Mapping[SeriesKey, Squares]
    tonight: Mapping[SeriesKey, Squares]
    metric: Mapping[str, Squares]
    metric_df: Mapping[str, int]

    @classmethod
    def of(cls, measured: Iterable[Measured], earlier: Sequence[Night], nights: int) -> NoiseBook:
        """`earlier`: oldest first. Of each series the last `nights` nights with pairs count."""
        history: dict[SeriesKey, list[Squares]] = {}
        for night in reversed(earlier):
            for one in () if night.gap is not None else night.series:
                found = history.setdefault(one.key, [])
                if len(found) < nights and (own := squares(one.measured.log_ratios)).df:
                    found.append(own)
        summed = {key: sum(found, Squares()) for key, found in history.items()}
        tonight = {one.key: squares(one.log_ratios) for one in measured}
        metric: dict[str, Squares] = {}
        # By metric, config and class of hosts, of which load levels share the starts.
        starts: dict[str, dict[tuple[str, str], int]] = {}
        for key in {**summed, **tonight}:
            own = summed.get(key, Squares()) + tonight.get(key, Squares())
            metric[key.metric] = metric.get(key.metric, Squares()) + own
            known, place = starts.setdefault(key.metric, {}), (key.config, key.host_class)
            known[place] = max(known.get(place, 0), own.df)
        return cls(summed, tonight, metric, {name: sum(known.values()) for name, known in starts.items()})

    def noise(self, measured: Measured) -> Noise | None:
        """None where no pair has another one beside it in its night."""
        history, tonight = (book.get(measured.key, Squares()) for book in (self.history, self.tonight))
        if _noisier(tonight, history):
            return Noise(tonight.sd, tonight.df, "series")
        own, of_metric = history + tonight, self.metric.get(measured.key.metric, Squares())
        if own.df >= ENOUGH_DF or of_metric.df <= own.df:
            if not own.df:
                return None
            return Noise(own.sd, own.df, "history" if history.df else "series")
        return Noise(max(own.sd, of_metric.sd), self.metric_df[measured.key.metric], "metric")


def _noisier(tonight: Squares, history: Squares) -> bool:
    """By an F test, one-sided."""
    if not tonight.df or history.df < ENOUGH_DF or tonight.sd <= history.sd:
        return False
    if history.total <= 0:
        return True
    from scipy.special import fdtrc

    return float(fdtrc(tonight.df, history.df, (tonight.sd / history.sd) ** 2)) < _NOISIER_P
