"""Parts of a run killed while it goes on: actors, servers, guards, the driver, the raylet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.gpus.gpu_ledger import GpuLedger
from benchmarks.kill_rig import KillRig
from benchmarks.random_kills import ENDING, Killer
from tests.integration.programs import assert_whole, events, marked_processes, start, started_rig, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ledger: GpuLedger) -> Iterator[KillRig]:
    """As the one of all others, with a server for jobs: one of the kills is `ray job stop`."""
    with started_rig(tmp_path_factory.mktemp("cluster"), ledger, with_jobs=True) as rig:
        yield rig


def test_a_killed_load_actor_costs_its_trial_a_second_attempt_and_nothing_else(
    tmp_path: Path, scenario: Path, cluster: KillRig
) -> None:
    root = tmp_path / "actor"
    longer = ("--set", "measure.duration_s=2")
    driver = start("run", str(scenario), "--address", cluster.address, "--run-dir", str(root), *longer)
    wait_until(lambda: list((root / "stream").glob("*")), "a point is being measured", 120)
    next(cluster.actors("LoadHost")).kill()
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
