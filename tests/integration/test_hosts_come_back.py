"""A host that dies in the middle of a run and comes back: the run goes on there, and nothing is measured twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kill_rig import KillRig
from tests.integration.programs import assert_whole, events, marked_processes, start, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]


def test_the_only_host_dies_and_comes_back_and_the_run_goes_on_there(
    tmp_path: Path, scenario: Path, cluster: KillRig
) -> None:
    root = tmp_path / "returned"
    driver = start(
        "run", str(scenario), "--address", cluster.address, "--run-dir", str(root), "--set", "timeouts.cluster_s=120",
        "--set", "measure.duration_s=2",
    )  # fmt: skip
    wait_until(lambda: list((root / "stream").glob("*")), "a point is being measured", 120)
    cluster.raylet().kill()
    wait_until(lambda: events(root, "host_lost"), "the loss is told", 60)
    cluster.revive()
    printed, complained = driver.communicate(timeout=250)

    assert driver.returncode == 0, printed + complained
    (lost,) = events(root, "host_lost")
    assert [e["slots"] for e in events(root, "host_joined")] == [[f"{lost['host']}/0", f"{lost['host']}/1"]]
    assert f"host {lost['host']} was lost once during the run" in printed
    done = [e["point_id"] for e in events(root, "point_done")]
    assert len(done) == len(set(done)) == 8
    assert marked_processes("returned") == []
    assert_whole(root)
