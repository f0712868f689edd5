"""How sure an aim's value of one trial is within its run: errors of its metrics, carried through its formula. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from orchestrator.objectives.aim import Aim, PointValue, TrialPoints, is_fact
from orchestrator.points.batch_means import WithinRun
from orchestrator.points.metric_names import TRIAL_METRICS
from orchestrator.trial import LoadLevel

Place = tuple[tuple[str, LoadLevel], str]


def precisions(aim: Aim, trials: Iterable[TrialPoints]) -> dict[tuple[str, str], WithinRun]:
    """By config and trial id, for the trials of which every metric that the aim looks at has an error."""
    found = {}
    for trial in trials:
        if (known := precision(aim, trial)) is not None:
            found[trial.config_id, trial.trial_id] = known
    return found


def precision(aim: Aim, trial: TrialPoints) -> WithinRun | None:
    """The relative error by the delta method: each metric is moved by its own error, the effects add as squares.

    Metrics of one point are taken as independent. Degrees of freedom are those of the least known one.
    """
    value = aim.of_trial(trial)
    places = _places(aim)
    if not value or places is None:
        return None
    moved, least = 0.0, math.inf
    for key, metric in places:
        point = trial.points.get(key)
        error = None if point is None else point.within_run.get(metric)
        if point is None or error is None:
            return None
        other = aim.of_trial(_moved(trial, key, point, metric, 1 + error.relative_error))
        if other is None:
            return None
        moved += (other / value - 1) ** 2
        least = min(least, error.df)
    return WithinRun(math.sqrt(moved), int(least)) if moved else None


def _places(aim: Aim) -> set[Place] | None:
    """The metrics of points that it looks at; None if it looks at something whose error nobody knows."""
    places = set()
    for reading in aim.readings:
        level = reading.level or aim.level
        if is_fact(reading.metric):
            if reading.metric not in TRIAL_METRICS:
                return None
        elif level is None:
            return None
        else:
            places.add(((reading.workload or aim.workload, level), reading.metric))
    return places


def _moved(
    trial: TrialPoints, key: tuple[str, LoadLevel], point: PointValue, metric: str, factor: float
) -> TrialPoints:
    metrics: Mapping[str, float | None] = {**point.metrics, metric: (point.metrics.get(metric) or 0.0) * factor}
    return replace(trial, points={**trial.points, key: replace(point, metrics=metrics)})
