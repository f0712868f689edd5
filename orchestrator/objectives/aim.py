"""What an objective, a limit or a tie-breaker looks at, and what each trial has to say to it. Pure.

The trial is the unit: an aim has one value per trial, from the points that were measured in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.objectives.expression import Expression, Reading, evaluate, parse, readings
from orchestrator.objectives.expression_sense import unit
from orchestrator.objectives.limits import Limit
from orchestrator.objectives.scenario_objective import At, Criterion, Front
from orchestrator.points.batch_means import WithinRun
from orchestrator.points.metric_names import TRIAL_METRICS, WORKLOAD_METRICS
from orchestrator.trial import LoadLevel


@dataclass(frozen=True, slots=True)
class PointValue:
    """One measured point as ranking sees it. `metrics` holds None for what could not be measured, `absent` why, if it
    is not by the server's nature. `host` is where its server ran; points of one `trial_id` share a server start, and
    its `facts`: TRIAL_METRICS by name, WORKLOAD_METRICS by `fact_name`. What a trial lacks of them is not in there.
    `within_run`: how sure single metrics are, as far as this run alone can say.
    `spared`: why the point was not measured; it has no metrics then.
    """

    config_id: str
    workload: str
    level: LoadLevel
    repeat: int
    metrics: Mapping[str, float | None]
    void_reasons: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    trial_id: str = ""
    host: str = ""
    facts: Mapping[str, float] = field(default_factory=dict)
    within_run: Mapping[str, WithinRun] = field(default_factory=dict)
    spared: str = ""


@dataclass(frozen=True, slots=True)
class TrialPoints:
    """The points of one trial, by workload and level, and the facts of its server start."""

    config_id: str
    trial_id: str
    host: str
    points: Mapping[tuple[str, LoadLevel], PointValue]
    facts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one trial of a config yielded for an aim, in the aim's unit."""

    config_id: str
    trial_id: str
    host: str
    value: float


def fact_name(metric: str, workload: str) -> str:
    """Under which name `facts` and `absent` have a metric that is of a whole trial or of a workload in it."""
    return f"{metric} of {workload}" if metric in WORKLOAD_METRICS else metric


def is_fact(metric: str) -> bool:
    """Whether a metric is one of a trial or of a workload, which has no load level."""
    return metric in TRIAL_METRICS or metric in WORKLOAD_METRICS


@dataclass(frozen=True, slots=True)
class Aim:
    """A metric, or an expression of several (expression.py), and which way is better.

    Readings that name no workload and no level look at `workload` and `level`; no level where all of them are facts
    of the trial. `replace(aim, metric=...)` is another metric at the same place.
    """

    metric: str
    maximize: bool
    workload: str
    level: LoadLevel | None

    def __str__(self) -> str:
        left_open = any(r.level is None and not is_fact(r.metric) for r in self.readings)
        return f"{self.metric} at {self.level}" if left_open and self.level else self.metric

    @property
    def readings(self) -> tuple[Reading, ...]:
        """All metrics that it looks at."""
        return tuple(readings(self._expression))

    @property
    def where(self) -> str:
        """After a value: `at C=1`; of what has no one load level what it is: `of geomean(...)`."""
        if isinstance(self._expression, Reading) and (level := self._expression.level or self.level):
            return f"of {self.metric}" if is_fact(self._expression.metric) else f"at {level}"
        return f"of {self}"

    @property
    def unit(self) -> str:
        return unit(self._expression)

    def limited(self, limit: Limit) -> Aim:
        """What a limit looks at beside it: at its own level, or this one's."""
        return replace(self, metric=limit.metric, level=limit.level or self.level)

    def of_trial(self, trial: TrialPoints) -> float | None:
        """The trial's value, None where nothing valid was measured or the expression has no value."""
        return evaluate(self._expression, lambda reading: self._look(reading, trial))

    def why_absent(self, trials: Sequence[TrialPoints]) -> str:
        """Why these trials of one config have no value."""
        for reading in self.readings:
            if all(self._look(reading, trial) is None for trial in trials):
                return self._why(reading, trials)
        for trial in trials:
            for reading in self.readings:
                if self._look(reading, trial) is None:
                    return f"no trial has all of it; one lacks: {self._why(reading, [trial])}"
        return f"{self.metric} cannot be computed: it divides by 0 or takes the geomean of what is not above 0"

    @property
    def _expression(self) -> Expression:
        return parse(self.metric)

    def _place(self, reading: Reading) -> tuple[str, LoadLevel | None]:
        return reading.workload or self.workload, reading.level or self.level

    def _point(self, reading: Reading, trial: TrialPoints) -> PointValue | None:
        workload, level = self._place(reading)
        return None if level is None else trial.points.get((workload, level))

    def _look(self, reading: Reading, trial: TrialPoints) -> float | None:
        if is_fact(reading.metric):
            return trial.facts.get(fact_name(reading.metric, reading.workload or self.workload))
        point = self._point(reading, trial)
        return None if point is None or point.void_reasons else point.metrics.get(reading.metric)

    def _why(self, reading: Reading, trials: Sequence[TrialPoints]) -> str:
        workload, level = self._place(reading)
        if is_fact(reading.metric):
            return _why_no_fact(fact_name(reading.metric, workload), trials)
        points = [p for trial in trials if (p := self._point(reading, trial)) is not None]
        if not points:
            return f"not measured at {level}" + (f" of {workload}" if workload != self.workload else "")
        spared = sorted({p.spared for p in points if p.spared})
        if spared:
            return f"not measured at {level}: {'; '.join(spared)}"
        reasons = sorted({reason for p in points for reason in p.void_reasons})
        if reasons:
            return f"void at {level}: {'; '.join(reasons)}"
        known = sorted({p.absent[reading.metric] for p in points if reading.metric in p.absent})
        return f"{reading.metric} not measurable at {level}" + (f": {'; '.join(known)}" if known else "")


def _why_no_fact(name: str, trials: Sequence[TrialPoints]) -> str:
    known = {p.absent[name] for trial in trials for p in trial.points.values() if name in p.absent}
    return f"{name} is not known" + (f": {'; '.join(sorted(known))}" if known else ": the server did not tell it")


def aim_of(criterion: Criterion, workload: str) -> Aim:
    """What a criterion looks at; `workload` is the one that counts where it names none."""
    metric = criterion.maximize or criterion.minimize or ""
    level = level_of(criterion.at) if criterion.at is not None else first_level(metric)
    return Aim(metric, criterion.maximize is not None, criterion.workload or workload, level)


def front_aims(front: Front, workload: str) -> tuple[Aim, ...]:
    """What the axes of a front look at; each takes workload and load level from the front where it names none."""
    return tuple(aim_of(axis, workload) for axis in front.criteria)


def first_level(metric: str) -> LoadLevel | None:
    """The first load level that an expression names."""
    return next((reading.level for reading in readings(parse(metric)) if reading.level is not None), None)


def level_of(at: At) -> LoadLevel:
    """The load level that an `at` names."""
    if at.concurrency is not None:
        return LoadLevel("concurrency", float(at.concurrency))
    if at.trace is not None:
        return LoadLevel("trace", at.trace)
    return LoadLevel("rate", float(at.rate or 0))


def trials_of(points: Iterable[PointValue]) -> list[TrialPoints]:
    """The points by trial, in the order of their first points."""
    found: dict[tuple[str, str], dict[tuple[str, LoadLevel], PointValue]] = {}
    for point in points:
        trial_id = point.trial_id or f"r{point.repeat}"
        found.setdefault((point.config_id, trial_id), {})[(point.workload, point.level)] = point
    trials = []
    for (config_id, trial_id), of in found.items():
        first = next(iter(of.values()))
        trials.append(TrialPoints(config_id, trial_id, first.host, of, first.facts))
    return trials


def observations(aim: Aim, trials: Iterable[TrialPoints]) -> list[Observation]:
    """One for each trial that has a value."""
    return [
        Observation(trial.config_id, trial.trial_id, trial.host, value)
        for trial in trials
        if (value := aim.of_trial(trial)) is not None
    ]
