"""Points and trials of a run as flat rows for other programs: identity, metrics, facts, settings. Pure.

Settings are columns `setting.NAME`, variables `setting.env.NAME`; a column has values of one type, lists are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.points.metric_names import METRICS, TRIAL_METRICS
from orchestrator.rankings.trial_facts import start_facts
from orchestrator.scenarios.scenario_engine import Engine

_OF_POINT = ("run_id", "engine", "config_id", "config", "trial_id", "point_id", "attempt", "repeat", "workload",
             "level_kind", "level", "slot", "host", "host_class", "began_at", "reused_from", "valid", "void_reasons",
             "warnings", "state", "state_reason")  # fmt: skip
_OF_TRIAL = ("run_id", "engine", "config_id", "config", "trial_id", "attempt", "repeat", "slot", "host", "host_class",
             "gpu_ids", "began_at", "engine_version", "outcome", "label", "phase", "evidence", "line_number",
             "exit_code", "points", "repaired_from", "start_s", "software_json")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """Every row has every column, None where it has no value. Values are texts, numbers and truth values."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]


def point_rows(
    points: Iterable[Mapping[str, Any]],
    facts: Mapping[str, Mapping[str, float]],
    labels: Mapping[str, str],
    settings: Mapping[str, Mapping[str, Any]],
) -> Rows:
    """One row for each row of the table `points`; `facts` of its trial by trial id, the rest by config id."""
    rows = []
    for point in points:
        config_id = point["config_id"]
        row = {name: _plain(point.get(name)) for name in (*_OF_POINT, *METRICS)}
        row |= {name: facts.get(point["trial_id"], {}).get(name) for name in TRIAL_METRICS}
        rows.append(row | {"config": labels.get(config_id, "")} | _settings(settings.get(config_id, {})))
    return _whole((*_OF_POINT, *METRICS, *TRIAL_METRICS), rows)


def trial_rows(
    trials: Iterable[Mapping[str, Any]],
    engine: Engine,
    labels: Mapping[str, str],
    settings: Mapping[str, Mapping[str, Any]],
) -> Rows:
    """One row for each server start: how it ended, facts, seconds of its phases as `phase.NAME_s`."""
    rows: list[dict[str, Any]] = []
    phases: dict[str, None] = {}
    for trial in trials:
        config_id = trial["config_id"]
        row = {name: _plain(trial.get(name)) for name in _OF_TRIAL}
        found = start_facts(trial, engine)
        row |= {name: found.get(name) for name in TRIAL_METRICS}
        for phase in trial["phases"] or ():
            began, ended = phase["began_s"], phase["ended_s"]
            if began is not None and ended is not None:
                phases[f"phase.{phase['phase']}_s"] = None
                row[f"phase.{phase['phase']}_s"] = round(ended - began, 6)
        rows.append(row | {"config": labels.get(config_id, "")} | _settings(settings.get(config_id, {})))
    return _whole((*_OF_TRIAL, *TRIAL_METRICS, *phases), rows)


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {f"setting.{name}": _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    """What a cell can hold; texts that are a list of remarks are joined."""
    if isinstance(value, list | tuple):
        return "; ".join(value) if all(isinstance(v, str) for v in value) else json.dumps(list(value))
    return json.dumps(value) if isinstance(value, Mapping) else value


def _whole(first: Sequence[str], rows: list[dict[str, Any]]) -> Rows:
    """All columns in all rows, `first` before the settings, which are sorted."""
    columns = (*first, *sorted({name for row in rows for name in row} - set(first)))
    mixed = {name for name in columns if name.startswith("setting.") and _is_mixed(row.get(name) for row in rows)}
    return Rows(columns, [{c: _text(row.get(c)) if c in mixed else row.get(c) for c in columns} for row in rows])


def _is_mixed(values: Iterable[Any]) -> bool:
    """Whether a column has values of several types; whole and broken numbers are one."""
    kinds = {float if type(value) is int else type(value) for value in values if value is not None}
    return len(kinds) > 1


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
