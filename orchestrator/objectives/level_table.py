"""Values of one workload by config and load level, means over trials. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from orchestrator.objectives.aim import PointValue
from orchestrator.points.metric_names import METRICS
from orchestrator.trial import LoadLevel

# What is looked at where an objective is of several metrics at once; at rates the throughput is that of the arrivals.
DEFAULT_METRIC = "output_throughput_tok_s"
METRIC_AT_RATES = "tok_s_per_user_p50"


class LevelTable:
    """The valid points of a workload. `metric` is the objective's own, or a speed where it is a formula."""

    def __init__(self, metric: str, maximize: bool, workload: str, values: Iterable[PointValue]) -> None:
        plain = metric in METRICS
        self.maximize = maximize if plain else True
        self._points: dict[tuple[str, LoadLevel], list[PointValue]] = {}
        for value in values:
            if value.workload == workload and not value.void_reasons:
                self._points.setdefault((value.config_id, value.level), []).append(value)
        kinds = {"concurrency": 0, "rate": 1, "trace": 2}
        self.levels = sorted({level for _, level in self._points}, key=lambda at: (kinds[at.kind], at.value))
        closed = any(level.kind == "concurrency" for level in self.levels) or not self.levels
        self.metric = metric if plain else DEFAULT_METRIC if closed else METRIC_AT_RATES

    @property
    def unit(self) -> str:
        return METRICS[self.metric].unit

    def mean(self, config_id: str, level: LoadLevel, metric: str | None = None) -> float | None:
        """Geometric mean over trials (arithmetic where a value is not positive); None where nothing was measured."""
        name = metric or self.metric
        points = self._points.get((config_id, level), ())
        values = [v for p in points if (v := p.metrics.get(name)) is not None]
        if len(values) < 2:
            return values[0] if values else None
        if all(v > 0 for v in values):
            return math.exp(math.fsum(map(math.log, values)) / len(values))
        return math.fsum(values) / len(values)

    def better(self, value: float, than: float) -> float:
        """By how much a value is better than another, as a share: 0.02 is 2 % better, below 0 worse."""
        if than == 0 or value == 0:
            return 0.0
        return value / than - 1 if self.maximize else than / value - 1
