"""Values of the configs of a run at its load levels, with intervals, for plots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from orchestrator.documents.report_numbers import rounded
from orchestrator.estimation.estimates import Estimates
from orchestrator.objectives.aim import Aim, PointValue
from orchestrator.points.metric_names import METRICS
from orchestrator.rankings.evidence import Evidence
from orchestrator.trial import LoadLevel

_KINDS = {"concurrency": 0, "rate": 1, "trace": 2}


@dataclass(frozen=True, slots=True)
class Bounded:
    """A value and its 95 % interval (None where nothing is known of the spread), in the metric's unit."""

    value: float
    low: float | None
    high: float | None


class WorkloadValues:
    """The points of one workload. Estimates are made as the rankings make theirs: over trials and hosts."""

    def __init__(self, workload: str, values: Iterable[PointValue]) -> None:
        self.workload = workload
        self._of: dict[LoadLevel, list[PointValue]] = {}  # apart, since a search over rates has hundreds of levels
        for value in values:
            if value.workload == workload:
                self._of.setdefault(value.level, []).append(value)
        self._evidence: dict[LoadLevel, Evidence] = {}
        self._found: dict[tuple[str, LoadLevel], Mapping[str, Bounded]] = {}

    @cached_property
    def levels(self) -> tuple[LoadLevel, ...]:
        """Those that have valid points, in order."""
        found = [level for level, of in self._of.items() if any(v.metrics and not v.void_reasons for v in of)]
        return tuple(sorted(found, key=lambda level: (_KINDS[level.kind], level.value)))

    def at(self, metric: str, level: LoadLevel) -> Mapping[str, Bounded]:
        """By config id; configs without a value are left out."""
        if (metric, level) not in self._found:
            aim = Aim(metric, METRICS[metric].direction != "min", self.workload, level)
            self._found[metric, level] = _bounded(self._at(level).estimates(aim, within_run=True))
        return self._found[metric, level]

    def _at(self, level: LoadLevel) -> Evidence:
        if level not in self._evidence:
            aim = Aim("output_throughput_tok_s", True, self.workload, level)
            self._evidence[level] = Evidence(self._of.get(level, ()), aim)
        return self._evidence[level]

    def has(self, metric: str) -> bool:
        """Whether any config has a value of it."""
        return any(self.at(metric, level) for level in self.levels)


def _bounded(found: Estimates) -> Mapping[str, Bounded]:
    told = {}
    for config_id in found.config_ids:
        low, high = found.interval(config_id) or (None, None)
        value = rounded(found.value(config_id))
        if value is not None:
            told[config_id] = Bounded(value, rounded(low), rounded(high))
    return told


def workloads_of(values: Iterable[PointValue]) -> tuple[WorkloadValues, ...]:
    """All workloads that have valid points, in the order of measuring."""
    listed = list(values)
    names = dict.fromkeys(value.workload for value in listed)
    found = (WorkloadValues(name, listed) for name in names)
    return tuple(of for of in found if of.levels)
