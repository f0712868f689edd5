"""A sweep of a scenario over slots that answer from a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.happening import Happening
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import Plan, make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import expand
from orchestrator.searches.point_need import Judge
from orchestrator.sweeps.run_conductor import run_conductor, run_references
from orchestrator.sweeps.search_conductor import SearchConductor
from orchestrator.sweeps.sweep import Sweep, SweepResult, Watcher
from tests.fakes.killable_sweep import Silent
from tests.fakes.playoff import Playoff
from tests.fakes.slot import FakeSlot


def sweep_on(run: RunDirectory, scenario: Scenario, slots: list[FakeSlot]) -> tuple[Sweep, SweepResult]:
    plan = make_plan(scenario, len(slots), finished_work(run.state), run.lineages_of().stand_ins)
    sweep = Sweep(plan, list(slots), run, lambda t: launch_spec(scenario, "run", t), Silent())
    return sweep, sweep.run()


def finished_run(root: Path, scenario: Scenario, slot: FakeSlot) -> Path:
    """A run from its beginning to its end on one slot, not yet ranked."""
    run = RunDirectory.create(root, scenario)
    sweep_on(run, scenario, [slot])
    run.close(complete=True)
    return root


@dataclass
class Searched:
    """A run that followed a search, at its end."""

    sweep: Sweep
    result: SweepResult
    search: Playoff
    shown: list[Happening]


class Keeper:
    """Watches, and keeps what it sees but the batches."""

    def __init__(self) -> None:
        self.seen: list[Happening] = []

    def saw(self, slot: str, happening: Happening) -> None:
        self.seen.append(happening)


def search_on(
    run: RunDirectory,
    scenario: Scenario,
    slots: list[FakeSlot],
    judge: Judge | None = None,
    before: Callable[[Sweep], None] = lambda sweep: None,
    most: int | None = None,
) -> Searched:
    """As `sweep_on`, with a `Playoff` of the scenario's configs; `before` gets the sweep before it runs. `most`: so
    many trials are asked for at a time.
    """
    search, keeper = Playoff(list(expand(scenario)), most=most), Keeper()
    conductor = SearchConductor(scenario, run, lambda _: search, lambda _: judge)
    sweep = Sweep(Plan((), ()), list(slots), run, lambda t: launch_spec(scenario, "run", t), keeper)
    sweep.follow(conductor)
    before(sweep)
    return Searched(sweep, sweep.run(), search, keeper.seen)


def conducted_on(
    run: RunDirectory,
    scenario: Scenario,
    slots: list[FakeSlot],
    before: Callable[[Sweep], None] = lambda sweep: None,
    watcher: Watcher | None = None,
) -> SweepResult:
    """As a run does it: the plan, or what its searches ask."""
    conductor = run_conductor(scenario, run)
    plan = run.plan(scenario, [""] * len(slots), finished_work(run.state))
    sweep = Sweep(plan, list(slots), run, lambda t: launch_spec(scenario, "run", t), watcher or Silent())
    sweep.follow(conductor, run_references(scenario, run, plan))
    before(sweep)
    return sweep.run()


def rows_per_point(paths: RunPaths) -> dict[str, int]:
    return {p: dataset.read_point(paths, p, attempt).num_rows for p, attempt in dataset.measured_parts(paths)}
