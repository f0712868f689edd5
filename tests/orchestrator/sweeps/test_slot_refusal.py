"""A slot whose GPUs are not given back goes out of use; the others do its work, and everybody is told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.happening import TrialEnded
from orchestrator.outcome import Diagnosis, Failed, Label, Phase
from orchestrator.planning.planner import make_plan
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.server_start import LaunchSpec
from orchestrator.watching.progress import Progress
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import sweep_on

WHY = "GPU memory did not come back (GPU 0: 80.0 GiB before the stop, 80.0 after); pid 7 of bob"


def test_the_other_slots_do_what_a_refusing_slot_leaves_and_the_ranking_says_so(tmp_path: Path) -> None:
    scenario = small_scenario(sweep={"axes": {"speculative_num_steps": [0, 1, 2, 3, 4]}})
    run = RunDirectory.create(tmp_path / "run", scenario)
    bad, good = FakeSlot("bad"), FakeSlot("good")
    bad.refuses = WHY
    _, result = sweep_on(run, scenario, [bad, good])
    run.close(complete=result.complete)

    assert result.complete
    assert len(bad.launched) == 1
    assert sorted({*bad.launched, *good.launched}) == sorted(result.outcomes)
    refused = [r["slot_refused"] for r in dataset.read_rows(run.paths, "trials") if r["slot"] == "bad"]
    assert refused == [WHY]
    assert f"slot bad was not used any more: {WHY}" in rank_run(run.paths.root).notes


def test_a_refused_start_is_no_attempt_of_its_trial(tmp_path: Path) -> None:
    """Two slots are occupied; the third does all, and one that breaks there is still tried once more."""
    scenario = small_scenario(sweep={"axes": {"speculative_num_steps": [1]}})
    run = RunDirectory.create(tmp_path / "run", scenario)
    broken: list[str] = []

    def occupied(name: str, spec: LaunchSpec) -> Label | None:
        if name != "free":
            return Label.GPU_OCCUPIED
        broken.append(spec.trial_id)
        return Label.SOFTWARE_BUG if len(broken) == 1 else None

    slots = [FakeSlot(name, occupied) for name in ("a", "b", "free")]
    slots[0].refuses = slots[1].refuses = WHY
    slots[2]._pause_s = 0.0
    _, result = sweep_on(run, scenario, slots)
    run.close(complete=result.complete)

    assert result.complete
    assert [outcome.kind for outcome in result.outcomes.values()] == ["measured"]
    attempts = [row["attempt"] for row in dataset.read_rows(run.paths, "trials")]
    assert sorted(attempts) == list(range(1, len(attempts) + 1))


def test_a_run_whose_slots_all_refuse_is_not_complete(tmp_path: Path) -> None:
    scenario = small_scenario(sweep={"axes": {"speculative_num_steps": [0, 1]}})
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("a")
    slot.refuses = WHY
    _, result = sweep_on(run, scenario, [slot])
    run.close(complete=result.complete)

    assert not result.complete
    assert len(slot.launched) == 1


@pytest.mark.parametrize("refused", [WHY, None])
def test_progress_tells_why_a_slot_is_not_used_any_more(refused: str | None) -> None:
    scenario = small_scenario(sweep={"axes": {"speculative_num_steps": [1]}})
    plan = make_plan(scenario, 1)
    console = Console(file=io.StringIO(), width=200)
    outcome = Failed(Diagnosis(Label.GPU_OCCUPIED, Phase.LAUNCH, "occupied"))
    progress = Progress(plan, ["a"], console, clock=lambda: 0.0)
    progress.saw("a", TrialEnded(plan.trials[0], 1, outcome, None, "now", b"", (), refused))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert (f"a  this slot is not used any more: {WHY}" in said) is (refused is not None)
