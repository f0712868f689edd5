"""Separate hosts: two do the work in half the time of one, and what is lost of them costs its own points."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.host_rig import HostRig, send
from tests.integration.programs import assert_each_once, events, started_hosts, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SCENARIO = """\
name: lost
model: {path: example/small-model, bundled_draft: true}
engine:
  kind: emulator
  start_speedup: 100
  settings: {speculative_algorithm: NEXTN, max_running_requests: 16}
sweep:
  axes: {speculative_num_steps: [0, 1, 2, 3]}
slots: {gpus: 1, labels: {role: gpu}}
workloads:
  - {name: chat, input_tokens: 32, output_tokens: 32, concurrency: [1, 2]}
measure: {warmup_s: 0.2, duration_s: 2}
objectives:
  - {name: fast, maximize: output_throughput_tok_s, at: {concurrency: 1}}
"""
POINTS = 8


@pytest.fixture(scope="module")
def rig() -> Iterator[HostRig]:
    """A head, which sends the load, and two hosts with a GPU each."""
    with started_hosts([0, 1, 1]) as hosts:
        (hosts.folder / "lost.yaml").write_text(SCENARIO)
        yield hosts


@pytest.fixture
def whole(rig: HostRig) -> HostRig:
    """With all its hosts up."""
    for host in rig.hosts:
        rig.revive(host)
    return rig


def began(rig: HostRig, name: str, *more: str) -> tuple[subprocess.Popen[str], Path]:
    """A run on the rig and its directory."""
    root = rig.folder / "runs" / name
    words = (str(rig.folder / "lost.yaml"), "--address", rig.address, "--run-dir", str(root), *more)
    return rig.specsweep("run", *words), root


def ended(driver: subprocess.Popen[str]) -> str:
    """What a run that went well has said."""
    printed, complained = driver.communicate(timeout=250)
    assert driver.returncode == 0, printed + complained
    return printed


def serving(root: Path, host: str) -> bool:
    """Whether a server of a trial that goes on is ready on a host."""
    over = {(e["trial_id"], e["attempt"]) for e in events(root, "trial_ended")}
    ready = {e["trial_id"] for e in events(root, "server_ready")}
    return any(
        e["place"]["host"] == host and e["trial_id"] in ready and (e["trial_id"], e["attempt"]) not in over
        for e in events(root, "trial_started")
    )


def failed_on(root: Path, host: str) -> list[str]:
    """Trials that broke on a host."""
    broken = {(e["trial_id"], e["attempt"]) for e in events(root, "trial_ended") if e["outcome"] == "failed"}
    return [
        e["trial_id"]
        for e in events(root, "trial_started")
        if e["place"]["host"] == host and (e["trial_id"], e["attempt"]) in broken
    ]


def until_serving(driver: subprocess.Popen[str], root: Path, host: str) -> None:
    wait_until(lambda: serving(root, host) or driver.poll() is not None, f"a server on {host}", 120)
    assert driver.poll() is None, driver.communicate()


def until_clean(rig: HostRig) -> None:
    wait_until(lambda: not rig.marked(), "no process of ours is left on any host", 60)


def seconds(root: Path) -> float:
    """From the first start of a server to the end of a run."""

    def at(event: dict[str, Any], key: str) -> datetime:
        return datetime.fromisoformat(event[key])

    first = min(at(e["place"], "began_at") for e in events(root, "trial_started"))
    return (at(events(root, "run_ended")[0], "at") - first).total_seconds()


def test_two_hosts_take_about_half_the_time_of_one(whole: HostRig) -> None:
    steady = ("--set", "measure.duration_s=4", "--set", "workloads.0.concurrency=[1]")
    both, on_two = began(whole, "two", *steady)
    ended(both)
    alone, on_one = began(whole, "one", *steady, "--set", "slots.count=1")
    ended(alone)

    hosts = [e["place"]["host"] for e in events(on_two, "trial_started")]
    assert sorted(hosts) == ["h1", "h1", "h2", "h2"]
    assert len({e["place"]["host"] for e in events(on_one, "trial_started")}) == 1
    # 0.5 if the starts of servers did not wait for each other: all hosts share the cores of this machine.
    assert seconds(on_two) / seconds(on_one) < 0.8
    assert_each_once(on_two, 4)
    assert whole.marked() == []


def test_actors_and_a_raylet_that_are_killed_cost_their_own_points_only(whole: HostRig) -> None:
    driver, root = began(whole, "killed")
    until_serving(driver, root, "h1")
    whole.hosts[1].actors("SlotActor")[0].kill()
    wait_until(lambda: failed_on(root, "h1"), "the lost slot is noticed", 60)
    until_serving(driver, root, "h2")
    whole.kill_raylet(whole.hosts[2])
    printed = ended(driver)

    assert len(failed_on(root, "h1")) == len(failed_on(root, "h2")) == 1
    assert "(raylet)" not in printed
    until_clean(whole)
    assert_each_once(root, POINTS)


def test_a_host_without_power_and_then_no_driver_lose_no_finished_point(whole: HostRig) -> None:
    driver, root = began(whole, "dark")
    until_serving(driver, root, "h2")
    whole.power_off(whole.hosts[2])
    wait_until(lambda: failed_on(root, "h2"), "the lost host is noticed", 60)
    until_serving(driver, root, "h1")
    send(driver, signal.SIGKILL)
    driver.communicate()
    kept = [e["point_id"] for e in events(root, "point_done")]
    until_clean(whole)

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
    until_serving(driver, root, "h2")
    whole.partition(whole.hosts[2])
    wait_until(lambda: failed_on(root, "h2"), "the cut is noticed", 60)
    assert whole.hosts[2].marked("cut")  # nobody can reach it
    wait_until(lambda: not whole.hosts[2].raylets(), "the host that is cut off gives up by itself", 60)
    wait_until(lambda: not whole.hosts[2].marked("cut"), "and its server with it", 30)
    whole.heal(whole.hosts[2])
    ended(driver)

    until_clean(whole)
    assert_each_once(root, POINTS)
