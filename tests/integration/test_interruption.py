"""Ctrl-C and SIGKILL in the middle of a real run: nothing lost, nothing double, nothing left running."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest

from actors.gpu_ledger import GpuLedger
from benchmarks.kill_rig import KillRig
from benchmarks.random_kills import ENDING, Killer
from orchestrator.journal import read_events
from tests.integration.programs import QUICK, marked_processes, run, start, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "quick.yaml"
    path.write_text(QUICK)
    return path


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> GpuLedger:
    """Two GPUs of 96 GiB."""
    return GpuLedger.create(tmp_path_factory.mktemp("ledger"), [96.0, 96.0])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ledger: GpuLedger) -> Iterator[KillRig]:
    """A head and a node with two GPUs that outlive their drivers, as a real cluster does."""
    rig = KillRig(tmp_path_factory.mktemp("cluster"), 2, ledger.folder)
    try:
        rig.start()
        yield rig
    finally:
        rig.end()


def events(root: Path, kind: str) -> list[dict[str, Any]]:
    return [e for e in read_events(root / "journal.jsonl") if e["event"] == kind]


def ray_processes(driver_pid: int, title: str) -> list[int]:
    """Workers with a title in the cluster that a driver embeds."""
    return [p.pid for p in psutil.Process(driver_pid).children(recursive=True) if title in " ".join(p.cmdline())]


def assert_whole(root: Path) -> None:
    """4 configs x 2 levels, each point once, each request once."""
    rows = ds.dataset(root / "dataset/requests").to_table(columns=["point_id", "warmup", "request_index"]).to_pylist()
    keys = {(r["point_id"], r["warmup"], r["request_index"]) for r in rows}
    assert len({r["point_id"] for r in rows}) == 8
    assert len(keys) == len(rows)
    assert sorted(e["point_id"] for e in events(root, "point_done")) == sorted({r["point_id"] for r in rows})
    ranked = json.loads((root / "ranking.json").read_text())
    assert len(ranked["objectives"]["fast"]["ranking"]) == 4


def test_ctrl_c_keeps_what_was_measured_stops_every_server_and_says_how_to_resume(
    tmp_path: Path, scenario: Path
) -> None:
    root = tmp_path / "interrupted"
    driver = start("run", str(scenario), "--address", "local", "--run-dir", str(root))
    wait_until(lambda: events(root, "point_done"), "a first point is measured", 120)
    driver.send_signal(signal.SIGINT)
    printed, complained = driver.communicate(timeout=120)

    assert driver.returncode == 130, printed + complained
    assert f"Continue it: specsweep run --resume {root}" in complained
    assert marked_processes("interrupted") == []
    before = len(events(root, "point_done"))
    assert 1 <= before < 8

    resumed = run("run", "--resume", str(root), "--address", "local")

    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert len(events(root, "point_done")) == 8
    assert_whole(root)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_before_its_first_server_leaves_nothing(
    tmp_path: Path, scenario: Path, number: int
) -> None:
    root = tmp_path / "early"
    driver = start("run", str(scenario), "--address", "local", "--run-dir", str(root))
    wait_until(lambda: ray_processes(driver.pid, "gcs_server"), "Ray is starting", 60)
    driver.send_signal(number)
    _, complained = driver.communicate(timeout=60)

    assert driver.returncode == 130, complained
    assert "Stopped before anything was started; nothing is left of the run." in complained
    assert not root.exists()


def test_a_cluster_that_does_not_answer_is_refused_at_once_and_leaves_no_run(tmp_path: Path, scenario: Path) -> None:
    root = tmp_path / "nowhere"
    refused = run("run", str(scenario), "--address", "127.0.0.1:1", "--run-dir", str(root), timeout_s=60)

    assert refused.returncode == 3
    assert "no Ray cluster at --address 127.0.0.1:1: ConnectionRefusedError" in refused.stderr
    assert not root.exists()
    assert run("run", str(scenario), "--address", "nowhere").returncode == 2


@pytest.mark.parametrize(("points_before", "embedded"), [(0, False), (3, True), (6, False)])
def test_a_run_killed_with_sigkill_leaves_no_server_and_is_finished_by_resume(
    tmp_path: Path, scenario: Path, cluster: KillRig, points_before: int, embedded: bool
) -> None:
    root = tmp_path / "killed"
    address = "local" if embedded else cluster.address
    driver = start("run", str(scenario), "--address", address, "--run-dir", str(root))
    if points_before:
        wait_until(lambda: len(events(root, "point_done")) >= points_before, f"{points_before} points", 120)
    else:
        wait_until(lambda: marked_processes("killed"), "a server is starting", 120)
    driver.kill()
    driver.communicate()
    wait_until(lambda: not marked_processes("killed"), "the guards have ended every server", 60)
    assert len(events(root, "point_done")) < 8

    resumed = run("run", "--resume", str(root), "--address", cluster.address)

    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert marked_processes("killed") == []
    assert_whole(root)


def test_a_finished_run_has_nothing_to_resume_and_ranks_again(tmp_path: Path, scenario: Path, cluster: KillRig) -> None:
    root = tmp_path / "finished"
    first = run("run", str(scenario), "--address", cluster.address, "--run-dir", str(root))
    assert first.returncode == 0, first.stdout + first.stderr

    again = run("run", "--resume", str(root))

    assert again.returncode == 0
    assert "Nothing is missing" in again.stdout
    other = run("run", str(scenario), "--resume", str(root), "--set", "seed=2")
    assert other.returncode == 2
    assert "that run asked another question (differs in: seed)" in other.stderr


def test_a_scenario_that_the_cluster_cannot_hold_is_refused_with_wanted_and_available(
    tmp_path: Path, scenario: Path, cluster: KillRig
) -> None:
    where = ("--address", cluster.address, "--run-dir", str(tmp_path / "r"))
    refused = run("run", str(scenario), *where, "--set", "slots.count=3")

    assert refused.returncode == 3
    assert "Wanted: 3 slot(s) of 1 GPUs. Available: 2 slot(s)." in refused.stderr


@pytest.mark.parametrize("actor", ["LoadHost", "SlotActor"])
def test_a_killed_actor_costs_its_trial_a_second_attempt_and_nothing_else(
    tmp_path: Path, scenario: Path, cluster: KillRig, actor: str
) -> None:
    root = tmp_path / "actor"
    longer = ("--set", "measure.duration_s=4")
    driver = start("run", str(scenario), "--address", cluster.address, "--run-dir", str(root), *longer)
    wait_until(lambda: list((root / "stream").glob("*")), "a point is being measured", 120)
    next(cluster.actors(actor)).kill()
    printed, complained = driver.communicate(timeout=200)

    assert driver.returncode == 0, printed + complained
    assert "failed (" in printed
    assert len(events(root, "trial_started")) == 5
    assert marked_processes("actor") == []
    assert_whole(root)


def test_whatever_is_killed_at_whatever_moment_no_process_and_no_gpu_memory_is_left(
    tmp_path: Path, cluster: KillRig, ledger: GpuLedger
) -> None:
    killer = Killer(cluster, tmp_path, "emulator", 3, ledger)
    killer.run(8, kills_a_run=2)

    assert {kill.kind for kill in killer.kills} >= set(ENDING)
    assert [kill for kill in killer.kills if kill.left] == []
