"""Every end of a run leaves a result that says what happened and what to do."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.errors import BadInput, ClusterRefusal, SpecsweepError
from orchestrator.hosts.host_event import HostChange, HostEvent
from orchestrator.job_place import lasting, runs_parent, shipped_with_job
from orchestrator.outcome import Label
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_result import RunResult, result_of_line
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sweeps import run_command
from orchestrator.sweeps.run_command import RunRequest, run
from orchestrator.sweeps.sweep import SweepResult
from orchestrator.terminal import JOB_MARK
from orchestrator.terminal import console as terminal_console
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import MINIMAL
from tests.orchestrator.sweeping import sweep_on

Sweeping = Callable[[Scenario, RunDirectory], SweepResult]


def whole(scenario: Scenario, directory: RunDirectory) -> SweepResult:
    return sweep_on(directory, scenario, [FakeSlot("a")])[1]


def with_one_that_breaks(scenario: Scenario, directory: RunDirectory) -> SweepResult:
    def script(name: str, spec: Any) -> Label | None:
        return Label.MODEL_MISSING if dict(spec.settings).get("speculative_num_steps") == 2 else None

    return sweep_on(directory, scenario, [FakeSlot("a", script)])[1]


def stopped(scenario: Scenario, directory: RunDirectory) -> SweepResult:
    result = whole(scenario, directory)
    result.complete, result.cancelled = False, True
    return result


def told_to_end(scenario: Scenario, directory: RunDirectory) -> SweepResult:
    whole(scenario, directory)
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("SIGTERM was not heard")


def broken(scenario: Scenario, directory: RunDirectory) -> SweepResult:
    whole(scenario, directory)
    raise ZeroDivisionError("a fault")


def refused(scenario: Scenario, directory: RunDirectory) -> SweepResult:
    raise ClusterRefusal("Wanted: 8 GPUs. Available: 2")


def lost(scenario: Scenario, directory: RunDirectory) -> SweepResult:
    return SweepResult(complete=False)


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(MINIMAL)
    return file


def ended(
    monkeypatch: pytest.MonkeyPatch, file: Path, sweeping: Sweeping, **options: Any
) -> tuple[BaseException | None, dict[str, Any], Path]:
    """What was raised, the user's result file, and the run directory."""
    monkeypatch.setattr(run_command, "sweep_on_cluster", lambda scenario, directory, *_: sweeping(scenario, directory))
    root, wanted = file.parent / "run", file.parent / "told.json"
    error: BaseException | None = None
    try:
        run(RunRequest(file, None, run_dir=root, result=wanted, **options), Console(quiet=True))
    except (SpecsweepError, ZeroDivisionError) as raised:
        error = raised
    return error, json.loads(wanted.read_text()), root


@pytest.mark.parametrize(
    ("sweeping", "exit_code", "verdict", "trials", "points"),
    [
        (whole, 0, "complete", {"measured": 3}, {"measured": 6, "missing": 0}),
        (with_one_that_breaks, 1, "trials_failed", {"measured": 2, "failed": 1}, {"measured": 4, "missing": 2}),
        (stopped, 130, "interrupted", {"measured": 3}, {"measured": 6, "missing": 0}),
        (told_to_end, 130, "interrupted", {"measured": 3}, {"measured": 6, "missing": 0}),
        (lost, 1, "no_slot_left", {"not_run": 3}, {"measured": 0, "missing": 6}),
        (broken, 1, "crashed", {"measured": 3}, {"measured": 6, "missing": 0}),
    ],
)
def test_a_run_leaves_its_result_however_it_ends(
    monkeypatch: pytest.MonkeyPatch, scenario_file: Path, sweeping: Sweeping, exit_code: int, verdict: str,
    trials: dict[str, int], points: dict[str, int],
) -> None:  # fmt: skip
    error, result, root = ended(monkeypatch, scenario_file, sweeping)

    none = dict.fromkeys(("measured", "infeasible", "failed", "cancelled", "not_run"), 0)
    assert (result["exit_code"], result["verdict"]) == (exit_code, verdict)
    assert result["trials"] == {**none, **trials}
    assert result["points"] == {**points, "spared": 0}
    assert result["hosts_quarantined"] == []
    assert result["resume"] == (f"specsweep run --resume {root}" if exit_code else None)
    assert json.loads((root / "result.json").read_text()) == result
    assert RunResult.from_json(result).as_json() == result
    if isinstance(error, SpecsweepError):
        assert (error.exit_code, str(error)) == (exit_code, result["message"])


def test_the_result_names_the_winner_of_each_objective(monkeypatch: pytest.MonkeyPatch, scenario_file: Path) -> None:
    _, result, root = ended(monkeypatch, scenario_file, whole)

    (pick,) = result["picks"]
    ranked = json.loads((root / "ranking.json").read_text())["objectives"]["fast"]["ranking"][0]
    assert (pick["objective"], pick["at"], pick["metric"]) == ("fast", "C=1", "output_throughput_tok_s")
    assert (pick["config_id"], pick["value"]) == (ranked["config_id"], ranked["value"])


def test_a_stop_while_the_run_is_ranked_is_told_too(monkeypatch: pytest.MonkeyPatch, scenario_file: Path) -> None:
    monkeypatch.setattr(run_command, "rank_run", lambda root: os.kill(os.getpid(), signal.SIGTERM))

    with pytest.raises(KeyboardInterrupt):
        ended(monkeypatch, scenario_file, whole)

    result = json.loads((scenario_file.parent / "run/result.json").read_text())
    assert (result["exit_code"], result["verdict"], result["points"]["measured"]) == (130, "interrupted", 6)


def test_hosts_that_were_put_aside_are_named(monkeypatch: pytest.MonkeyPatch, scenario_file: Path) -> None:
    def losing(scenario: Scenario, directory: RunDirectory) -> SweepResult:
        for host in ("g2", "g1", "g2"):
            directory.host_event(HostEvent(HostChange.QUARANTINED, host, "", "lost twice"))
        return whole(scenario, directory)

    assert ended(monkeypatch, scenario_file, losing)[1]["hosts_quarantined"] == ["g2", "g1"]


def test_a_run_that_is_refused_leaves_no_directory_and_tells_it_in_the_file_of_the_user(
    monkeypatch: pytest.MonkeyPatch, scenario_file: Path
) -> None:
    _, result, root = ended(monkeypatch, scenario_file, refused)

    assert (result["exit_code"], result["verdict"]) == (3, "refused")
    assert result["message"] == "Wanted: 8 GPUs. Available: 2"
    assert (result["run_dir"], result["resume"], root.exists()) == (None, None, False)


def test_a_scenario_with_a_fault_is_told_and_another_run_keeps_its_result(
    monkeypatch: pytest.MonkeyPatch, scenario_file: Path
) -> None:
    ended(monkeypatch, scenario_file, whole)
    before = (scenario_file.parent / "run/result.json").read_bytes()

    _, result, root = ended(monkeypatch, scenario_file, whole)

    assert (result["exit_code"], result["verdict"], result["run_dir"]) == (2, "bad_input", None)
    assert "holds a run already" in result["message"]
    assert (root / "result.json").read_bytes() == before


def test_while_a_run_is_continued_its_earlier_result_is_gone(
    monkeypatch: pytest.MonkeyPatch, scenario_file: Path
) -> None:
    _, _, root = ended(monkeypatch, scenario_file, lost)
    seen = []

    def look(scenario: Scenario, directory: RunDirectory) -> SweepResult:
        seen.append((root / "result.json").exists())
        return whole(scenario, directory)

    monkeypatch.setattr(run_command, "sweep_on_cluster", lambda scenario, directory, *_: look(scenario, directory))
    run(RunRequest(None, None, resume=root), Console(quiet=True))

    assert seen == [False]
    assert json.loads((root / "result.json").read_text())["verdict"] == "complete"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"metadata": {"job_submission_id": "small-1"}, "runtime_env": {}}
    monkeypatch.setenv(JOB_MARK, json.dumps(told))


@pytest.mark.usefixtures("job")
def test_a_job_tells_its_result_in_its_log_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, scenario_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(run_command, "sweep_on_cluster", lambda scenario, directory, *_: whole(scenario, directory))
    run(RunRequest(scenario_file, None, run_dir=scenario_file.parent / "run"), terminal_console())
    printed = capsys.readouterr().out

    result = result_of_line(printed.splitlines()[-1])
    assert result is not None
    assert (result.job_id, result.ending.verdict) == ("small-1", "complete")
    assert f"Run directory: {scenario_file.parent}/run\n" in printed
    assert "\x1b" not in printed


def test_a_job_keeps_its_run_where_ray_does_not_remove_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unpacked = tmp_path / "session_1/runtime_resources/working_dir_files/_ray_pkg_1"
    unpacked.mkdir(parents=True)
    monkeypatch.chdir(unpacked)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert runs_parent({}) == Path("runs")
    assert lasting(Path("runs/mine"), "--run-dir") == Path("runs/mine")

    monkeypatch.setenv(JOB_MARK, "{}")
    assert runs_parent() == tmp_path / "specsweep-runs"
    assert lasting(Path("~/mine"), "--run-dir") == tmp_path / "mine"
    for lost in ("runs/mine", str(unpacked / "mine")):
        with pytest.raises(BadInput, match=r"is in the working directory of this job, which Ray removes"):
            lasting(Path(lost), "--run-dir")


def test_packages_are_sent_to_the_hosts_unless_the_working_directory_of_the_job_has_them() -> None:
    assert not shipped_with_job(Path("/opt/venv/lib/python3.11/site-packages/orchestrator/job_place.py"))
    assert shipped_with_job(Path("/tmp/ray/s/runtime_resources/working_dir_files/p/orchestrator/job_place.py"))
