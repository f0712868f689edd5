"""What an objective, a limit or a tie-breaker looks at, and what each trial has to say to it. Pure.

The trial is the unit: an aim has one value per trial, from the points that were measured in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.batch_means import WithinRun
from orchestrator.metric_names import METRICS
from orchestrator.scenario_objective import At, Criterion
from orchestrator.trial import LoadLevel


@dataclass(frozen=True, slots=True)
class PointValue:
    """One measured point as ranking sees it. `metrics` holds None for what could not be measured, `absent` why, if it
    is not by the server's nature. `host` is where its server ran; points of one `trial_id` share a server start.
    `within_run`: how sure single metrics are, as far as this run alone can say.
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
    within_run: Mapping[str, WithinRun] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialPoints:
    """The points of one trial, by workload and level."""

    config_id: str
    trial_id: str
    host: str
    points: Mapping[tuple[str, LoadLevel], PointValue]


@dataclass(frozen=True, slots=True)
class Observation:
    """What one trial of a config yielded for an aim, in the aim's unit."""

    config_id: str
    trial_id: str
    host: str
    value: float


@dataclass(frozen=True, slots=True)
class Aim:
    """A metric at a load level of a workload, and which way is better."""

    metric: str
    maximize: bool
    workload: str
    level: LoadLevel

    def __str__(self) -> str:
        return f"{self.metric} at {self.level}"

    @property
    def unit(self) -> str:
        return METRICS[self.metric].unit

    def of_trial(self, trial: TrialPoints) -> float | None:
        """The trial's value, None where nothing valid was measured."""
        point = trial.points.get((self.workload, self.level))
        return None if point is None or point.void_reasons else point.metrics.get(self.metric)

    def why_absent(self, trials: Sequence[TrialPoints]) -> str:
        """Why these trials of one config have no value."""
        points = [p for trial in trials if (p := trial.points.get((self.workload, self.level))) is not None]
        if not points:
            return f"not measured at {self.level}"
        reasons = sorted({reason for p in points for reason in p.void_reasons})
        if reasons:
            return f"void at {self.level}: {'; '.join(reasons)}"
        known = sorted({p.absent[self.metric] for p in points if self.metric in p.absent})
        return f"{self.metric} not measurable at {self.level}" + (f": {'; '.join(known)}" if known else "")


def aim_of(criterion: Criterion, workload: str) -> Aim:
    """What a criterion looks at; `workload` is the one that counts where it names none."""
    metric = criterion.maximize or criterion.minimize or ""
    return Aim(metric, criterion.maximize is not None, criterion.workload or workload, level_of(criterion.at))


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
    return [
        TrialPoints(config_id, trial_id, next(iter(of.values())).host, of)
        for (config_id, trial_id), of in found.items()
    ]


def observations(aim: Aim, trials: Iterable[TrialPoints]) -> list[Observation]:
    """One for each trial that has a value."""
    return [
        Observation(trial.config_id, trial.trial_id, trial.host, value)
        for trial in trials
        if (value := aim.of_trial(trial)) is not None
    ]
