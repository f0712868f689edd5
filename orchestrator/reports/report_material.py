"""Reads what the report of a run is made of, once; its ranking is handed in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from actors.servers.launch import shown_command
from orchestrator.deployments.deploy_command import Decided, build_deployment, row_deployment
from orchestrator.deployments.deploy_text import as_command
from orchestrator.deployments.deployment import Deployment
from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.memory.memory_budget import Prediction
from orchestrator.memory.memory_forecast import NoForecast, scenario_forecast
from orchestrator.paths import RunPaths
from orchestrator.points.metrics import chunk_gaps, latency_values
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.reports.night_material import night_parts, read_night
from orchestrator.reports.report_part import PartMaterial, Row, RunMaterial
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import read_events
from orchestrator.run_files.point_table import columns_of
from orchestrator.run_files.run_manifest import read_manifest, stored_scenario
from orchestrator.run_files.run_rows import RunRows
from orchestrator.scenarios.night_scenario import is_night
from orchestrator.sglang.options import SettingsFault
from orchestrator.starts.start_history import past_start
from orchestrator.trial import LoadLevel

# Starts that a prediction learns from, and configs that it is made for.
MOST_LEARNT, MOST_PREDICTED = 24, 20
# Trials whose requests are read for one distribution: three starts say what thirty do.
MOST_READ = 3


def read_material(root: Path, ranking: RunRanking, place: Path | None = None) -> RunMaterial:
    """Read a run that `rank_run` has just ranked: what that kept of trials and loads is taken as it is."""
    paths = RunPaths(root)
    manifest = read_manifest(root)
    scenario = stored_scenario(root, manifest)
    rows = RunRows(paths)  # not entered: nothing is to be stored
    trials, loads = rows.trials(), rows.loads()
    unkept = ranking.unkept
    points = dataset.read_rows(paths, "points") if unkept is None else [point.row() for point in unkept.points]
    events = tuple(read_events(paths.journal, without="server_ready"))
    night = read_night(root, manifest, scenario, ranking, trials, loads) if is_night(scenario) else None
    drawn = night_parts(scenario, night) if night else None
    parts = []
    for number, part in enumerate(ranking.parts or (ranking,)):
        own = PartMaterial(
            scenario, part,
            trials=_of(part.host_class, trials),
            loads=_of(part.host_class, loads),
            points=_of(part.host_class, points),
            mark=f"-{number}" if ranking.parts else "",
            night=drawn,
        )  # fmt: skip
        parts.append(_with_commands(Decided(manifest, scenario, part), own, paths))
    return RunMaterial(root, place or root, manifest, scenario, ranking, tuple(parts), events, night)


def _of(host_class: str, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not host_class or row.get("host_class") == host_class]


def read_latencies(root: Path, part: PartMaterial, workload: str, level: LoadLevel) -> dict[str, dict[str, Any]]:
    """By id of each highlighted config the latencies of single requests at its valid points there, in ms, by name."""
    paths, found = RunPaths(root), dict[str, list[dict[str, Any]]]()
    for row in part.points:
        config_id = part.standing(row["config_id"])
        there = row["workload"] == workload and (row["level_kind"], row["level"]) == (level.kind, level.value)
        if not there or not row["valid"] or config_id not in part.highlighted:
            continue
        own = found.setdefault(config_id, [])
        if len(own) < MOST_READ:
            with contextlib.suppress(OSError, ValueError):  # gone or damaged: the ranking tells of it
                columns = columns_of(dataset.read_point(paths, row["point_id"], row["attempt"]))
                own.append({**latency_values(columns, level), "chunk_gap_ms": chunk_gaps(columns)})
    return {
        config_id: {name: np.concatenate([values[name] for values in own]) for name in own[0]}
        for config_id, own in found.items()
        if own
    }


def read_predictions(run: RunMaterial, part: PartMaterial) -> tuple[dict[str, Prediction], str]:
    """What memory the configs that died would have taken, by id, learnt from the starts of this run; and why there is
    nothing, if so.
    """
    dead = {c.config_id: c.settings for c in (*part.ranking.infeasible, *part.ranking.repaired)}
    if not dead:
        return {}, ""
    paths = RunPaths(run.root)
    try:
        forecast = scenario_forecast(run.scenario, runs=run.root / "no-other-runs")
        for trial in part.trials[:MOST_LEARNT]:
            row = dataset.read_trial(paths, trial["trial_id"], trial["attempt"])
            if row is not None:
                forecast.learn(past_start(row))
        chosen = list(dead.items())[:MOST_PREDICTED]
        return {config_id: forecast.of(settings) for config_id, settings in chosen}, ""
    except (NoForecast, SpecsweepError, KeyError, TypeError, ValueError) as why:  # a run of another release
        return {}, f"nothing more is predicted: {why}"


def _with_commands(run: Decided, part: PartMaterial, paths: RunPaths) -> PartMaterial:
    """How highlighted configs are started by hand, or why that is not known; and how they were started. No secrets."""
    by_hand: dict[str, str] = {}
    raw: dict[str, str] = {}
    for ranking in part.ranking.rankings:
        for row in ranking.rows:
            wanted = row.config_id in part.highlighted and row.value is not None
            if wanted and (row.config_id not in by_hand or ranking.winner is row):
                rows = _whole_rows(part, row.config_id, paths)
                by_hand[row.config_id] = _command(partial(row_deployment, run, ranking, row, rows))
                raw[row.config_id] = _raw_command(rows)
    for config_id in part.highlighted if part.night else ():
        if rows := _whole_rows(part, config_id, paths):
            by_hand[config_id] = _command(partial(build_deployment, run, config_id, rows))
            raw[config_id] = _raw_command(rows)
    return replace(part, commands=by_hand, raw_commands=raw)


def _raw_command(rows: list[dict[str, Any]]) -> str:
    """As the last server told it, values of secret flags hidden; empty where it did not."""
    for row in reversed(rows):
        told = json.loads(row["resolved_json"] or "{}").get("launch_command")
        if isinstance(told, str) and told:
            return shown_command(told)
    return ""


def _whole_rows(part: PartMaterial, config_id: str, paths: RunPaths) -> list[dict[str, Any]]:
    """Of `trials`, with what the servers told of themselves, which is large."""
    own = [t for t in part.trials if t["config_id"] == config_id][:MOST_READ]
    rows = (dataset.read_trial(paths, trial["trial_id"], trial["attempt"]) for trial in own)
    return [row for row in rows if row is not None]


def _command(deployment: Callable[[], Deployment]) -> str:
    try:
        return as_command(deployment())
    except BadInput as why:
        return f"# {why}\n"
    except SettingsFault as fault:  # a run of a release that knew other settings
        return f"# {fault.name}: {fault.message}\n"
