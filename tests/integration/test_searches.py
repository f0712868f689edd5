"""Searches of whole runs on emulated servers, without Ray: a ceiling, and a halving whose driver stops in a rung."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.happening import Happening
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import finished_work, read_events
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.sweeps.run_conductor import missing_work, run_conductor
from orchestrator.sweeps.sweep import Sweep, SweepResult
from orchestrator.watching.progress import Progress
from tests.fakes.local_slot import LocalSlot

pytestmark = pytest.mark.timeout(180)

REPORT_A = Path(__file__).resolve().parents[2] / "scenarios/qwen3.5-122b-mtp-depth.yaml"
# A machine that stands still while one of three requests runs does not change their median.
QUICK = (
    "engine.start_speedup=300", "workloads.0.output_tokens=8", "workloads.0.concurrency=[1]",
    "measure={warmup_s: 0, requests: 3}",
    "objectives=[{name: agentic, minimize: tpot_p50_ms, at: {concurrency: 1}, near_tie: 0.3}]",
)  # fmt: skip


@contextmanager
def slots_on(run: RunDirectory, hosts: tuple[str, ...]) -> Iterator[list[LocalSlot]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(LocalSlot(run.run_id, 34 + i, (), f"127.0.0.{34 + i}", host))
            for i, host in enumerate(hosts)
        ]


class Stopping(Progress):
    """Stops the run when so many servers were ready."""

    ready, stop_at = 0, 10**6
    sweep: Sweep

    def saw(self, slot: str, happening: Happening) -> None:
        super().saw(slot, happening)
        self.ready += type(happening).__name__ == "ServerReady"
        if self.ready == self.stop_at:
            self.sweep.cancel()


def swept(
    run: RunDirectory, scenario: Scenario, stop_at: int = 10**6, hosts: tuple[str, ...] = ("east", "west")
) -> tuple[SweepResult, str]:
    said = Console(file=io.StringIO(), width=300)
    plan = run.plan(scenario, [""] * len(hosts), finished_work(run.state))
    with slots_on(run, hosts) as slots, Stopping(plan, [s.facts.name for s in slots], said) as progress:
        sweep = progress.sweep = Sweep(plan, list(slots), run, lambda t: launch_spec(scenario, run.run_id, t), progress)
        progress.stop_at = stop_at
        sweep.follow(run_conductor(scenario, run))
        result = sweep.run()
    run.close(complete=result.complete)
    return result, said.file.getvalue()  # type: ignore[attr-defined]


def test_the_ceiling_of_depth_is_found_and_verified_with_four_starts(tmp_path: Path) -> None:
    axis = "sweep.axes.speculative_num_steps=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    scenario = load_scenario(REPORT_A, (*QUICK, axis, "search=ceiling"))
    run = RunDirectory.create(tmp_path / "ceiling", scenario)
    result, said = swept(run, scenario, hosts=("east",))

    assert result.complete
    assert "kv_budget" in said
    assert "ceiling of speculative_num_steps is 6, served 2 of 2 on" in said
    asked = [event["why"] for event in read_events(run.paths.journal) if event["event"] == "trial_asked"]
    assert asked == [f"{why} speculative_num_steps={depth}" for why in ("probe", "verify") for depth in (6, 7)]
    assert "search: 8 of 10 configs were not started" in rank_run(run.paths.root).notes


def test_a_halving_that_is_stopped_in_a_rung_goes_on_there_and_picks_as_if_it_had_not_been(tmp_path: Path) -> None:
    depths = "sweep.axes.speculative_num_steps=[1, 3, 5, 6]"
    scenario = load_scenario(REPORT_A, (*QUICK, depths, "search={method: halving, noise: 0.01}"))
    run = RunDirectory.create(tmp_path / "halving", scenario)
    stopped, _ = swept(run, scenario, stop_at=3)
    assert stopped.cancelled
    before = len(dataset.measured_parts(run.paths))
    again = RunDirectory.reopen(run.paths.root, scenario)
    assert missing_work(scenario, again, run_conductor(scenario, again))
    result, _ = swept(again, scenario)

    assert result.complete
    counted = [event["point_id"] for event in read_events(run.paths.journal) if event["event"] == "point_done"]
    assert len(counted) == len(set(counted)) > before
    ranked = rank_run(run.paths.root)
    assert ranked.rankings[0].rows[0].settings["speculative_num_steps"] in (5, 6)
    finished = RunDirectory.reopen(run.paths.root, scenario)
    assert not missing_work(scenario, finished, run_conductor(scenario, finished))
    finished.close(complete=True)
