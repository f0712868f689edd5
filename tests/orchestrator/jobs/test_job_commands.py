"""Submitting, following, listing and stopping jobs, against a dashboard that answers from a script."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.errors import BadInput, RunInterrupted, SpecsweepError
from orchestrator.jobs import job_client, job_follow, job_package, submit_command
from orchestrator.jobs.job_client import JobFacts
from orchestrator.jobs.job_commands import StopRequest, is_ours, show_logs, show_status, stop
from orchestrator.jobs.submit_command import SubmitRequest, stop_grace_s, submit
from orchestrator.run_files.run_result import Ending, RunResult
from tests.fakes.dashboard import FakeDashboard
from tests.orchestrator.scenario_samples import MINIMAL, small_scenario

COMPLETE = RunResult(Ending(0, "complete", "All is well."), scenario="small")
STOPPED = RunResult(
    Ending(130, "interrupted", "The run is not complete.\nContinue it: specsweep run --resume /runs/small-1"),
    scenario="small", run_dir="/runs/small-1", resume="specsweep run --resume /runs/small-1",
    points={"measured": 4, "missing": 2},
)  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory and a home without anything of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(job_package, "own_files", lambda: {"orchestrator/__init__.py": b""})
    monkeypatch.setattr(job_follow, "_FIRST_WAIT_S", 0.01)
    (tmp_path / "small.yaml").write_text(MINIMAL)
    return tmp_path


@pytest.fixture
def head() -> Iterator[FakeDashboard]:
    with FakeDashboard().serving() as dashboard:
        dashboard.new_log = f"Run directory: /runs/small-1\n00:01 measured\n{COMPLETE.line()}\n"
        yield dashboard


@pytest.fixture
def said() -> Console:
    return Console(file=io.StringIO(), width=200)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def request(head: FakeDashboard, **options: Any) -> SubmitRequest:
    return SubmitRequest(Path("small.yaml"), head.address, **options)


def test_a_submitted_run_is_followed_and_its_result_is_kept_here(head: FakeDashboard, said: Console) -> None:
    submit(request(head, overrides=("seed=7",)), said)

    (asked,) = head.submitted
    job_id = asked["submission_id"]
    assert re.fullmatch(r"small-\d{8}-\d{6}-[0-9a-f]{4}", job_id)
    assert asked["entrypoint"] == (
        f"exec python -m orchestrator run scenario.yaml --run-dir '~/specsweep-runs/{job_id}'"
    )
    assert asked["runtime_env"]["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "150"}
    assert asked["runtime_env"]["working_dir"].removeprefix("gcs://") in head.packages
    assert asked["metadata"]["scenario"] == "small"
    assert "00:01 measured\n" in text(said)
    assert "specsweep-result" not in text(said)
    assert json.loads(Path(f"runs/{job_id}/result.json").read_text()) == COMPLETE.as_json()


def test_the_exit_code_is_that_of_the_run_though_ray_knows_only_0_and_1(head: FakeDashboard, said: Console) -> None:
    head.new_log = STOPPED.line() + "\n"
    head.ends = {"status": "FAILED", "driver_exit_code": 1}

    with pytest.raises(SpecsweepError) as ended:
        submit(request(head), said)

    assert ended.value.exit_code == 130
    assert f"Continue it: specsweep submit --resume /runs/small-1 --address {head.address}" in str(ended.value)


@pytest.mark.parametrize(
    ("ends", "exit_code", "told"),
    [
        ({"status": "FAILED", "driver_exit_code": 3, "message": "x\nout of memory"}, 3, "out of memory"),
        ({"status": "FAILED", "message": "the head's disk is full"}, 1, "the head's disk is full"),
        ({"status": "FAILED", "driver_exit_code": 127, "message": "python: not found"}, 127, "--python PATH"),
        (
            {"status": "FAILED", "driver_exit_code": 1, "message": "ModuleNotFoundError: No module named 'rich'"},
            1,
            "No module named 'rich'\nThe Python of the head lacks what Specsweep needs",
        ),
        ({"status": "STOPPED"}, 130, "stopped before its run could tell"),
    ],
)
def test_a_job_that_left_no_result_ends_by_what_ray_knows(
    head: FakeDashboard, said: Console, ends: dict[str, Any], exit_code: int, told: str
) -> None:
    head.new_log, head.ends = "Run directory: /runs/small-1\n", ends

    with pytest.raises(SpecsweepError, match=re.escape(told)) as ended:
        submit(request(head), said)

    assert ended.value.exit_code == exit_code
    assert not Path("runs").exists()


def test_a_log_that_breaks_off_is_followed_on_without_a_line_twice(head: FakeDashboard, said: Console) -> None:
    head.add("small-1", "one\ntwo\nthree\n" + COMPLETE.line() + "\n")
    head.breaks = [2, 6, 9]

    show_logs("small-1", head.address, follow=True, console=said)

    assert head.followed == 4
    assert text(said).splitlines()[:3] == ["one", "two", "three"]
    assert text(said).count("two") == 1


def test_a_log_without_a_line_for_long_is_not_taken_for_a_lost_connection(
    head: FakeDashboard, said: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_client, "SILENT_S", 0.02)
    head.add("small-1", "one\ntwo\nthree\n" + COMPLETE.line() + "\n")
    head.pauses = [4, 3]

    show_logs("small-1", head.address, follow=True, console=said)

    assert head.followed == 1
    assert text(said).splitlines()[:3] == ["one", "two", "three"]


def test_ctrl_c_detaches_and_leaves_the_job_alone(
    head: FakeDashboard, said: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(submit_command, "follow_job", interrupted)
    with pytest.raises(RunInterrupted, match=r"the job goes on\. Follow it: specsweep logs small-\S+ -f --address"):
        submit(request(head), said)

    assert head.stopped == []


def test_without_waiting_the_job_is_left_to_itself_at_once(head: FakeDashboard, said: Console) -> None:
    submit(request(head, wait=False, evict=True, yes=True, run_dir="/data/mine"), said)

    assert head.followed == 0
    assert head.submitted[0]["entrypoint"].endswith("--run-dir /data/mine --evict --yes")
    assert "specsweep stop small-" in text(said)


def test_a_secret_is_in_nothing_that_the_cluster_shows(head: FakeDashboard, said: Console) -> None:
    submit(request(head, overrides=('engine.env={"HF_TOKEN": "hf_verysecret"}',)), said)

    (asked,) = head.submitted
    assert "hf_verysecret" not in json.dumps(asked)
    sealed = re.search(r"--sealed (\S+)", asked["entrypoint"])
    assert sealed is not None
    assert b"hf_verysecret" in head.packages.pop(sealed[1])
    assert not any(b"hf_verysecret" in data for data in head.packages.values())


def test_what_is_wrong_is_refused_before_anything_is_sent(head: FakeDashboard, said: Console) -> None:
    with pytest.raises(BadInput, match="seed"):
        submit(request(head, overrides=("seed=x",)), said)
    with pytest.raises(BadInput, match="no such file"):
        submit(request(head, overrides=("workloads.0.dataset=file:none.txt",)), said)
    with pytest.raises(BadInput, match="add --yes"):
        submit(request(head, evict=True), said)
    with pytest.raises(BadInput, match="--run-dir runs/small-1: is a directory on the head; give its whole path"):
        submit(request(head, run_dir="runs/small-1"), said)
    with pytest.raises(BadInput, match="--resume runs/small-1: is a directory on the head"):
        submit(SubmitRequest(None, head.address, resume="runs/small-1"), said)
    with pytest.raises(BadInput, match="give a scenario file, or --resume RUN"):
        submit(SubmitRequest(None, head.address), said)

    assert (head.submitted, head.packages) == ([], {})


def test_a_run_on_the_head_is_continued_by_its_directory(head: FakeDashboard, said: Console) -> None:
    submit(SubmitRequest(None, head.address, resume="/runs/small-1"), said)

    (asked,) = head.submitted
    assert asked["entrypoint"] == "exec python -m orchestrator run --resume /runs/small-1"
    assert asked["metadata"]["run_dir"] == "/runs/small-1"


def test_a_stop_gets_the_time_that_servers_memory_and_commands_need() -> None:
    assert stop_grace_s(small_scenario()) == 150
    engine = {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}}
    slow = {**engine, "after_stop": [{"command": ["true"], "timeout_s": 45.0}]}
    assert stop_grace_s(small_scenario(engine=slow, timeouts={"stop_s": 90.0})) == 255


def test_runs_are_listed_with_their_progress_and_how_they_ended(head: FakeDashboard, said: Console) -> None:
    progress = "01:00 progress  1 of 3 trials, 2 of 6 points, 0 infeasible, 0 failed, 60 s\n"
    ours = {"specsweep": "0.1.0", "scenario": "small", "run_dir": "~/specsweep-runs/small-1"}
    head.add("small-1", progress, metadata=ours, start_time=1000)
    by_hand = "python -m orchestrator run scenarios/quickstart.yaml"
    head.add(
        "raysubmit_1", "Run directory: /runs/small-1\n" + STOPPED.line(),
        entrypoint=by_hand, status="FAILED", start_time=2000, end_time=63000,
    )  # fmt: skip
    head.add("other", entrypoint="python train.py")

    show_status(None, head.address, as_json=True, console=said)

    hand, one = json.loads(text(said))
    assert (one["job"], one["state"], one["verdict"]) == ("small-1", "running", None)
    assert one["progress"] == {"trials": 1, "all_trials": 3, "points": 2, "all_points": 6}
    assert one["run_dir"] == "~/specsweep-runs/small-1"
    assert (hand["job"], hand["verdict"], hand["run_dir"]) == ("raysubmit_1", "interrupted", "/runs/small-1")
    table = Console(file=io.StringIO(), width=200)
    show_status(None, head.address, as_json=False, console=table)
    assert re.search(r"raysubmit_1 +small +failed +0:01:01 +4 of 6 points +interrupted +/runs/small-1", text(table))
    assert "1 of 3 trials, 2 of 6 points" in text(table)


@pytest.mark.parametrize(
    ("entrypoint", "ours"),
    [
        ("exec python -m orchestrator run scenario.yaml", True),
        ("/opt/venv/bin/specsweep run a.yaml --evict", True),
        ("exec python -m orchestrator send-run /runs/a", False),
        ("python run.py", False),
    ],
)
def test_a_run_that_was_submitted_by_hand_is_known_by_its_command(entrypoint: str, ours: bool) -> None:
    assert is_ours(JobFacts.of({"submission_id": "a", "status": "RUNNING", "entrypoint": entrypoint})) is ours


def test_a_stop_tells_what_was_kept_and_how_to_go_on(head: FakeDashboard, said: Console) -> None:
    head.add("small-1", STOPPED.line(), runtime_env={"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "150"}})

    stop(StopRequest("small-1", head.address, wait=True), said)

    assert head.stopped == ["small-1"]
    assert "4 points are kept, 2 are missing; run directory /runs/small-1" in text(said)
    assert "specsweep submit --resume /runs/small-1" in text(said)


def test_a_job_that_ray_would_kill_before_its_servers_have_ended_is_not_stopped_unasked(
    head: FakeDashboard, said: Console
) -> None:
    head.add("small-1", STOPPED.line())

    with pytest.raises(BadInput, match=r"would kill job small-1 after 3 s.*RAY_JOB_STOP_WAIT_TIME_S.*--kill"):
        stop(StopRequest("small-1", head.address), said)
    assert head.stopped == []

    stop(StopRequest("small-1", head.address, kill=True), said)
    assert head.stopped == ["small-1"]


def test_a_job_that_is_over_is_not_stopped_again_and_one_that_is_not_there_is_told(
    head: FakeDashboard, said: Console
) -> None:
    head.add("small-1", status="SUCCEEDED")

    stop(StopRequest("small-1", head.address), said)

    assert (head.stopped, "is over (succeeded)" in text(said)) == ([], True)
    with pytest.raises(BadInput, match="knows no job none; `specsweep status` lists"):
        show_logs("none", head.address, follow=True, console=said)


def test_a_log_that_was_followed_again_ends_with_the_command_that_goes_on_from_here(
    head: FakeDashboard, said: Console
) -> None:
    head.add("small-1", STOPPED.line(), status="STOPPED")

    with pytest.raises(SpecsweepError, match="specsweep submit --resume /runs/small-1 --address"):
        show_logs("small-1", head.address, follow=True, console=said)
    stop(StopRequest("small-1", head.address, wait=True), said)
    assert "Job small-1 is over (" in text(said)
    assert "specsweep submit --resume /runs/small-1 --address" in text(said)
