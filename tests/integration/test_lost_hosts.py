"""Separate hosts work side by side, and what is lost of them costs its own points, and nothing that was finished."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import product
from pathlib import Path

import psutil
import pytest

from benchmarks.host_rig import HostRig, send
from orchestrator.paths import RunPaths
from orchestrator.run_files import dataset
from tests.integration.host_runs import (
    POINTS,
    all_go,
    began,
    ended,
    failed_on,
    loaded,
    two_hosts,
    until_clean,
    until_loaded,
)
from tests.integration.programs import assert_each_once, at_work, events, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rig() -> Iterator[HostRig]:
    with two_hosts() as hosts:
        yield hosts


@pytest.fixture
def whole(rig: HostRig) -> HostRig:
    """With all its hosts up."""
    for host in rig.hosts:
        rig.revive(host)
    return rig


@contextmanager
def stopped(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """As if they got no CPU meanwhile."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def measured(root: Path) -> dict[str, list[tuple[float, float]]]:
    """When the points of each host were measured: from, to."""
    times: dict[str, list[tuple[float, float]]] = {}
    for row in dataset.read_rows(RunPaths(root), "loads"):
        began_s = datetime.fromisoformat(row["began_at"]).timestamp()
        times.setdefault(row["host"], []).append((began_s, began_s + json.loads(row["client_json"])["duration_s"]))
    return times


def test_two_hosts_share_the_work_and_measure_at_the_same_time(whole: HostRig) -> None:
    driver, root = began(whole, "two")
    wait_until(lambda: loaded(root, "h1") and loaded(root, "h2") and len(at_work(root)) == 2, "both measure")
    all_go(root)
    ended(driver)

    times = measured(root)
    at_once_s = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in product(times["h1"], times["h2"]))
    assert at_once_s > 0
    assert_each_once(root, POINTS)
    until_clean(whole)


def test_an_actor_and_a_raylet_that_are_killed_cost_their_own_points_only_and_their_host_is_used_again(
    whole: HostRig,
) -> None:
    driver, root = began(whole, "killed")
    until_loaded(driver, root, "h1")
    whole.hosts[1].actors("SlotActor")[0].kill()
    wait_until(lambda: failed_on(root, "h1"), "the lost slot is noticed")
    until_loaded(driver, root, "h2")
    whole.kill_raylet(whole.hosts[2])
    wait_until(lambda: events(root, "host_lost"), "the lost host is noticed")
    whole.revive(whole.hosts[2])
    wait_until(lambda: events(root, "host_joined") or driver.poll() is not None, "it is used again")
    all_go(root)
    printed = ended(driver)

    assert len(failed_on(root, "h1")) == len(failed_on(root, "h2")) == 1
    assert [e["host"] for e in events(root, "host_joined")] == ["h2"]
    assert "(raylet)" not in printed
    until_clean(whole)
    assert_each_once(root, POINTS)


def test_a_host_without_power_and_then_no_driver_lose_no_finished_point(whole: HostRig) -> None:
    driver, root = began(whole, "dark")
    until_loaded(driver, root, "h2")
    whole.power_off(whole.hosts[2])
    wait_until(lambda: failed_on(root, "h2"), "the lost host is noticed")
    until_loaded(driver, root, "h1")
    send(driver, signal.SIGKILL)
    driver.communicate()
    kept = [e["point_id"] for e in events(root, "point_done")]
    until_clean(whole)
    all_go(root)

    resumed = whole.specsweep("run", "--resume", str(root), "--address", whole.address)
    ended(resumed)

    assert {e["place"]["host"] for e in events(root, "trial_started")[-1:]} == {"h1"}
    assert [e["point_id"] for e in events(root, "point_done")][: len(kept)] == kept
    until_clean(whole)
    assert_each_once(root, POINTS)


def test_a_host_that_was_cut_off_for_20_s_runs_nothing_afterwards_and_its_point_is_measured_once(
    whole: HostRig,
) -> None:
    driver, root = began(whole, "cut")
    until_loaded(driver, root, "h2")
    cut = whole.hosts[2]
    whole.partition(cut)
    with stopped([*cut.raylets(), *cut.actors("SlotActor")]):  # it gives up after a while: not before we look
        wait_until(lambda: failed_on(root, "h2"), "the cut is noticed")
        assert cut.marked("cut")  # nobody can reach it
    wait_until(lambda: not cut.raylets(), "the host that is cut off gives up by itself")
    wait_until(lambda: not cut.marked("cut"), "and its server with it")
    whole.heal(cut)
    all_go(root)
    ended(driver)

    until_clean(whole)
    assert_each_once(root, POINTS)
