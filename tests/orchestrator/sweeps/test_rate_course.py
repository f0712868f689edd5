"""The highest rate under an SLO, searched for while a trial runs, on slots that answer from a script."""

from __future__ import annotations

from pathlib import Path

from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.server_start import LaunchSpec
from orchestrator.sweeps.run_conductor import missing_work, run_conductor
from orchestrator.sweeps.sweep import Sweep
from orchestrator.trial import Point
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import conducted_on

SCENARIO = small_scenario(
    sweep={"axes": {"speculative_num_steps": [1, 2]}},
    workloads=[
        {
            "name": "chat",
            "slo": {"ttft_ms": 50},
            "max_rate": {"low": 1, "high": 16, "precision": 0.5, "attainment": 0.8},
        }
    ],
    objectives=[{"name": "fast", "maximize": "max_rate_rps"}],
)
RATES = (1.0, 1.486, 2.208, 3.281, 4.876, 7.246, 10.77, 16.0)


def slot(name: str, pause_s: float = 0.0) -> FakeSlot:
    """Depth 1 answers in time below 3 requests a second, depth 2 below 8."""

    def slowness(spec: LaunchSpec, point: Point) -> float:
        limit = {1: 3.0, 2: 8.0}[dict(spec.settings)["speculative_num_steps"]]  # type: ignore[index]
        return 1.0 if point.spec.level.value < limit else 5.0

    return FakeSlot(name, batches=8, slowness=slowness, pause_s=pause_s)


def max_rates(run: RunDirectory) -> dict[int, float | None]:
    ranked = rank_run(run.paths.root).rankings[0].rows
    return {row.settings["speculative_num_steps"]: row.value for row in ranked}


def rates_of(run: RunDirectory) -> list[float]:
    return sorted(row["level"] for row in dataset.read_rows(run.paths, "loads"))


def test_each_trial_probes_the_rates_that_its_own_answers_call_for(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    result = conducted_on(run, SCENARIO, [slot("a")])
    run.close(complete=result.complete)

    assert result.complete
    assert set(rates_of(run)) <= set(RATES)
    assert max_rates(run) == {1: 2.208, 2: 7.246}
    assert len(rates_of(run)) < 2 * len(RATES)
    (told,) = [note for note in rank_run(run.paths.root).notes if note.startswith("fast, trial ")]
    assert "of the best: 7.246 req/s keep 80% of requests within the slo: from 7.246 below 10.77 req/s" in told


def test_a_run_killed_between_probes_goes_on_with_the_next_one(tmp_path: Path) -> None:
    whole = RunDirectory.create(tmp_path / "whole", SCENARIO)
    conducted_on(whole, SCENARIO, [slot("a")])
    whole.close(complete=True)

    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    first = slot("a", pause_s=0.002)

    def cancel_at_third(sweep: Sweep) -> None:
        first.on_point = lambda point: sweep.cancel() if len(first.measured) == 3 else None

    assert not conducted_on(run, SCENARIO, [first], before=cancel_at_third).complete
    run.close(complete=False)
    again = RunDirectory.reopen(tmp_path / "run", SCENARIO)
    assert missing_work(SCENARIO, again, run_conductor(SCENARIO, again))
    second = slot("b")
    assert conducted_on(again, SCENARIO, [second]).complete
    again.close(complete=True)

    assert max_rates(again) == max_rates(whole) == {1: 2.208, 2: 7.246}
    assert rates_of(again) == rates_of(whole)
    assert not set(first.measured[:2]) & set(second.measured)
    finished = RunDirectory.reopen(tmp_path / "run", SCENARIO)
    assert not missing_work(SCENARIO, finished, run_conductor(SCENARIO, finished))
    finished.close(complete=True)
