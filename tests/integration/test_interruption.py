"""Ctrl-C in the middle of a real run: nothing lost, nothing double, nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger
from benchmarks.kill_rig import KillRig
from tests.integration.programs import (
    QUICK,
    assert_whole,
    events,
    held,
    let_go,
    marked_processes,
    run,
    start,
    wait_until,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Interrupted:
    """A run that got Ctrl-C after its first point: how its driver ended, what was left, points measured by then."""

    root: Path
    exit_code: int
    printed: str
    complained: str
    left: list[str]
    points: int


@pytest.fixture(scope="module", autouse=True)
def _hosts_of_one_class(ledger: GpuLedger) -> Iterator[None]:
    """Embedded or not, all hosts here have the GPUs of one ledger: results of other hosts would not be added to."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(LEDGER_VARIABLE, str(ledger.folder))
        yield


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """QUICK, of which one config is held in its second point."""
    return held(tmp_path_factory.mktemp("endless"), QUICK, "{speculative_num_steps: 3}")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, endless: Path) -> Interrupted:
    root = tmp_path_factory.mktemp("runs") / "interrupted"
    driver = start("run", str(endless), "--address", "local", "--run-dir", str(root))
    wait_until(lambda: events(root, "point_done"), "a first point is measured", of=driver)
    driver.send_signal(signal.SIGINT)
    printed, complained = driver.communicate(timeout=300)
    left = marked_processes("interrupted")
    return Interrupted(root, driver.returncode, printed, complained, left, len(events(root, "point_done")))


@pytest.fixture(scope="module")
def resumed(interrupted: Interrupted, endless: Path, cluster: KillRig) -> subprocess.CompletedProcess[str]:
    """The same run, finished in another cluster."""
    let_go(endless.parent)
    return run("run", "--resume", str(interrupted.root), "--address", cluster.address)


def named(word: str) -> list[str]:
    """Command lines of processes in which a word stands."""
    found = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    return [line for line in found if word in line]


def test_ctrl_c_keeps_what_was_measured_stops_every_server_and_says_how_to_resume(interrupted: Interrupted) -> None:
    assert interrupted.exit_code == 130, interrupted.printed + interrupted.complained
    assert f"Continue it: specsweep run --resume {interrupted.root}" in interrupted.complained
    assert interrupted.left == []
    assert 1 <= interrupted.points < 8


def test_an_interrupted_run_is_finished_by_resume(
    interrupted: Interrupted, resumed: subprocess.CompletedProcess[str]
) -> None:
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert len(events(interrupted.root, "point_done")) == 8
    assert_whole(interrupted.root)


def test_a_finished_run_has_nothing_to_resume_and_ranks_again(
    interrupted: Interrupted, resumed: subprocess.CompletedProcess[str], endless: Path
) -> None:
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr

    again = run("run", "--resume", str(interrupted.root))

    assert again.returncode == 0
    assert "Nothing is missing" in again.stdout
    other = run("run", str(endless), "--resume", str(interrupted.root), "--set", "seed=2")
    assert other.returncode == 2
    assert "that run asked another question (differs in: seed)" in other.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_before_its_first_server_leaves_nothing(
    tmp_path: Path, scenario: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "early"
    # Ray starts its head's server by way of this program, and waits for what never comes.
    profiler = tmp_path / "bin/valgrind"
    profiler.parent.mkdir()
    profiler.write_text("#!/bin/sh\nwhile :; do sleep 0.2; done\n")
    profiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{profiler.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("RAY_GCS_SERVER_VALGRIND_PROFILER", "1")
    driver = start("run", str(scenario), "--address", "local", "--run-dir", str(root))
    wait_until(lambda: named(str(profiler)), "Ray is starting", of=driver)
    driver.send_signal(number)
    _, complained = driver.communicate(timeout=300)

    assert driver.returncode == 130, complained
    assert "Stopped before anything was started; nothing is left of the run." in complained
    assert not root.exists()
    wait_until(lambda: not named(str(profiler)), "nothing of Ray is left")


def test_a_cluster_that_does_not_answer_is_refused_at_once_and_leaves_no_run(tmp_path: Path, scenario: Path) -> None:
    root = tmp_path / "nowhere"
    refused = run("run", str(scenario), "--address", "127.0.0.1:1", "--run-dir", str(root), timeout_s=120)

    assert refused.returncode == 3
    assert "no Ray cluster at --address 127.0.0.1:1: ConnectionRefusedError" in refused.stderr
    assert not root.exists()
    assert run("run", str(scenario), "--address", "nowhere").returncode == 2


def test_a_scenario_that_the_cluster_cannot_hold_is_refused_with_wanted_and_available(
    tmp_path: Path, scenario: Path, cluster: KillRig
) -> None:
    where = ("--address", cluster.address, "--run-dir", str(tmp_path / "r"))
    refused = run("run", str(scenario), *where, "--set", "slots.count=3")

    assert refused.returncode == 3
    assert "Wanted: 3 slots of 1 GPU. Available: 2 slots." in refused.stderr
