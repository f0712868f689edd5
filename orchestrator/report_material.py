"""Reads what the report of a run is made of, once; its ranking is handed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator import dataset, ranking_row
from orchestrator.deploy_command import Decided, row_deployment
from orchestrator.deploy_text import as_command
from orchestrator.errors import BadInput
from orchestrator.journal import read_events
from orchestrator.paths import RunPaths
from orchestrator.point_table import columns_of
from orchestrator.ranking_row import Ranking
from orchestrator.report_part import PartMaterial, Row, RunMaterial
from orchestrator.run_manifest import read_manifest
from orchestrator.run_ranking import RunRanking
from orchestrator.run_rows import RunRows
from orchestrator.scenario import Scenario
from orchestrator.trial import LoadLevel

# Trials whose requests are read for one distribution: three starts say what thirty do.
MOST_READ = 3


def read_material(root: Path, ranking: RunRanking) -> RunMaterial:
    """Read a run that `rank_run` has just ranked: what that kept of trials and loads is taken as it is."""
    paths = RunPaths(root)
    manifest = read_manifest(root)
    scenario = Scenario.model_validate(manifest["scenario"])
    rows = RunRows(paths)  # not entered: nothing is to be stored
    trials, loads = rows.trials(), rows.loads()
    points = dataset.read_rows(paths, "points")
    events = tuple(read_events(paths.journal, without="server_ready"))
    parts = []
    for number, part in enumerate(ranking.parts or (ranking,)):
        own = PartMaterial(
            scenario, part,
            trials=_of(part.host_class, trials),
            loads=_of(part.host_class, loads),
            points=_of(part.host_class, points),
            mark=f"-{number}" if ranking.parts else "",
        )  # fmt: skip
        parts.append(replace(own, commands=_commands(Decided(manifest, scenario, part), own, paths)))
    return RunMaterial(root, manifest, scenario, ranking, tuple(parts), events)


def _of(host_class: str, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if not host_class or row.get("host_class") == host_class]


def read_requests(root: Path, part: PartMaterial, workload: str, level: LoadLevel) -> dict[str, list[dict[str, Any]]]:
    """By id of each highlighted config the requests of its valid points there, as columns that `metrics` takes."""
    paths, found = RunPaths(root), dict[str, list[dict[str, Any]]]()
    for row in part.points:
        config_id = part.standing(row["config_id"])
        there = row["workload"] == workload and (row["level_kind"], row["level"]) == (level.kind, level.value)
        if not there or not row["valid"] or config_id not in part.highlighted:
            continue
        own = found.setdefault(config_id, [])
        if len(own) < MOST_READ:
            try:
                own.append(columns_of(dataset.read_point(paths, row["point_id"], row["attempt"])))
            except (OSError, ValueError):  # gone or damaged: the ranking tells of it
                continue
    return found


def _commands(run: Decided, part: PartMaterial, paths: RunPaths) -> dict[str, str]:
    """By config id how it is started by hand, or why that is not known; secrets are not in it."""
    found = {}
    for ranking in part.ranking.rankings:
        chosen = [row for row in ranking.rows if row.config_id in part.highlighted and row.value is not None]
        for row in chosen:
            if row.config_id not in found or ranking.winner is row:
                found[row.config_id] = _command(run, ranking, row, _whole_rows(part, row.config_id, paths))
    return found


def _whole_rows(part: PartMaterial, config_id: str, paths: RunPaths) -> list[dict[str, Any]]:
    """Of `trials`, with what the servers told of themselves, which is large."""
    own = [t for t in part.trials if t["config_id"] == config_id][:MOST_READ]
    rows = (dataset.read_trial(paths, trial["trial_id"], trial["attempt"]) for trial in own)
    return [row for row in rows if row is not None]


def _command(run: Decided, ranking: Ranking, row: ranking_row.Row, rows: list[dict[str, Any]]) -> str:
    try:
        return as_command(row_deployment(run, ranking, row, rows))
    except BadInput as why:
        return f"# {why}\n"
