"""Parts of a run killed while it goes on: actors, servers, guards, the driver, the raylet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.gpus.gpu_ledger import GpuLedger
from benchmarks.kill_rig import KillRig
from benchmarks.random_kills import ENDING, Killer
from tests.integration.programs import (
    QUICK,
    assert_each_once,
    at_work,
    events,
    held,
    let_go,
    marked_processes,
    start,
    started_rig,
    wait_until,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ledger: GpuLedger) -> Iterator[KillRig]:
    """As the one of all others, with a server for jobs: one of the kills is `ray job stop`."""
    with started_rig(tmp_path_factory.mktemp("cluster"), ledger, with_jobs=True) as rig:
        yield rig


def test_a_killed_load_actor_costs_its_trial_a_second_attempt_and_nothing_else(
    tmp_path: Path, cluster: KillRig
) -> None:
    root = tmp_path / "actor"
    scenario = held(tmp_path, QUICK.replace("[0, 1, 2, 3]", "[0, 3]"))
    driver = start("run", str(scenario), "--address", cluster.address, "--run-dir", str(root))
    both = "both are in their second point"
    wait_until(lambda: len(events(root, "point_done")) == len(at_work(root)) == 2, both, of=driver)
    next(cluster.actors("LoadHost")).kill()
    let_go(tmp_path)
    printed, complained = driver.communicate(timeout=300)

    assert driver.returncode == 0, printed + complained
    assert "failed (" in printed
    assert len(events(root, "trial_started")) == 3
    assert marked_processes("actor") == []
    assert_each_once(root, 4)


def test_whatever_is_killed_at_whatever_moment_no_process_and_no_gpu_memory_is_left(
    tmp_path: Path, cluster: KillRig, ledger: GpuLedger
) -> None:
    # That it takes seconds is for the benchmark to tell; here the machine may be as slow as it likes.
    killer = Killer(cluster, tmp_path, "emulator", 3, ledger, haste=4.0, limit_s=90.0)
    killer.run(7, kills_a_run=2)

    assert {kill.kind for kill in killer.kills} >= set(ENDING)
    assert [kill for kill in killer.kills if kill.left] == []
