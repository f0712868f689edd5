"""A run as it lies on disk, read for whoever exports or compares it. Nothing in its directory is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.objectives.aim import PointValue
from orchestrator.paths import RunPaths
from orchestrator.rankings.trial_facts import with_facts
from orchestrator.recoveries.run_repairs import RunRepairs
from orchestrator.run_files.compute_pool import ComputePool
from orchestrator.run_files.journal import read_events, replay
from orchestrator.run_files.point_table import MeasuredPoint, missing_points
from orchestrator.run_files.run_configs import RunConfig, run_configs
from orchestrator.run_files.run_hosts import read_hosts
from orchestrator.run_files.run_manifest import read_manifest, stored_scenario
from orchestrator.run_files.run_rows import RunRows
from orchestrator.scenarios.config_label import run_labels
from orchestrator.scenarios.scenario import Scenario


@dataclass(frozen=True, slots=True)
class StoredRun:
    """`trials`: rows of the table as RunRows has them, starts in order. `points`: those that count, `values` the
    same as ranking sees them, with the facts of their trials. `labels`: what its configs are called. `missing`: ids of
    points that were measured and whose files are damaged or gone. `hosts`: what its hosts said of themselves, by name.
    """

    paths: RunPaths
    manifest: Mapping[str, Any]
    scenario: Scenario
    configs: Mapping[str, RunConfig]
    labels: Mapping[str, str]
    trials: list[dict[str, Any]]
    points: list[MeasuredPoint]
    values: list[PointValue]
    missing: list[str]
    hosts: Mapping[str, Mapping[str, str]]

    @property
    def name(self) -> str:
        return self.paths.root.resolve().name

    @property
    def classes(self) -> tuple[str, ...]:
        """Of its hosts, where it ran on several: they are never averaged. Empty where all are of one class."""
        classes = tuple(self.manifest.get("host_classes", ()))
        return classes if len(classes) > 1 else ()

    def on(self, host_class: str) -> StoredRun:
        """What of it was measured on hosts of this class."""
        kept = [point.load.get("host_class") == host_class for point in self.points]
        return replace(
            self,
            trials=[trial for trial in self.trials if trial.get("host_class") == host_class],
            points=[point for point, is_kept in zip(self.points, kept, strict=True) if is_kept],
            values=[value for value, is_kept in zip(self.values, kept, strict=True) if is_kept],
        )


def read_run(root: Path) -> StoredRun:
    """All of a run but its requests. What `rank` has computed of it is used. BadInput if `root` is no run directory."""
    manifest = read_manifest(root)
    paths, scenario = RunPaths(root), stored_scenario(root, manifest)
    state = replay(read_events(paths.journal, without="server_ready"))
    with ComputePool() as pool:
        rows = RunRows(paths, pool=pool)  # not entered: what it computes is not kept
        trials = rows.trials()
        configs = run_configs(scenario, trials, rows.asked_configs(scenario))
        points = rows.points(scenario, configs, rows.loads(), state.done_points)
    repaired = RunRepairs(scenario, state.ends).repaired
    return StoredRun(
        paths=paths,
        manifest=manifest,
        scenario=scenario,
        configs=configs,
        labels=run_labels({c: config.settings for c, config in configs.items()}, repaired),
        trials=trials,
        points=points,
        values=with_facts(scenario, trials, [point.value for point in points]),
        missing=missing_points(state.done_points, points),
        hosts=read_hosts(root),
    )
