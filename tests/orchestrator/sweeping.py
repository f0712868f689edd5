"""A sweep of a scenario over slots that answer from a script."""

from __future__ import annotations

from orchestrator import dataset
from orchestrator.journal import finished_work
from orchestrator.paths import RunPaths
from orchestrator.planner import make_plan
from orchestrator.run_directory import RunDirectory
from orchestrator.scenario import Scenario
from orchestrator.sweep import Sweep, SweepResult
from orchestrator.trial_launch import launch_spec
from tests.fakes.killable_sweep import Silent
from tests.fakes.slot import FakeSlot


def sweep_on(run: RunDirectory, scenario: Scenario, slots: list[FakeSlot]) -> tuple[Sweep, SweepResult]:
    plan = make_plan(scenario, len(slots), finished_work(run.state), run.lineages.stand_ins)
    sweep = Sweep(plan, list(slots), run, lambda t: launch_spec(scenario, "run", t), Silent())
    return sweep, sweep.run()


def rows_per_point(paths: RunPaths) -> dict[str, int]:
    return {p: dataset.read_point(paths, p, attempt).num_rows for p, attempt in dataset.measured_parts(paths)}
