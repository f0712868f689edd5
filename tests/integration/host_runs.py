"""Runs on hosts of their own: one GPU on each, the head sends the load."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.host_rig import HostRig
from orchestrator.paths import RunPaths
from orchestrator.run_files import dataset
from tests.integration.programs import events, held, let_go, started_hosts, wait_until

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
measure: {warmup_s: 0, requests: 8}
objectives:
  - {name: fast, maximize: output_throughput_tok_s, at: {concurrency: 1}}
"""
POINTS = 8


@contextlib.contextmanager
def two_hosts() -> Iterator[HostRig]:
    """A head, which sends the load, and two hosts with a GPU each."""
    with started_hosts([0, 1, 1]) as hosts:
        yield hosts


def began(rig: HostRig, name: str, *more: str) -> tuple[subprocess.Popen[str], Path]:
    """A run on the rig and its directory. Its servers are held inside their second point until `all_go`."""
    root = rig.folder / "runs" / name
    (rig.folder / name).mkdir()
    words = (str(held(rig.folder / name, SCENARIO)), "--address", rig.address, "--run-dir", str(root), *more)
    return rig.specsweep("run", *words), root


def all_go(root: Path) -> None:
    """Servers of the run are not held any more."""
    let_go(root.parent.parent / root.name)


def ended(driver: subprocess.Popen[str]) -> str:
    """What a run that went well has said."""
    printed, complained = driver.communicate(timeout=300)
    assert driver.returncode == 0, printed + complained
    return printed


def loaded(root: Path, host: str) -> bool:
    """Whether a trial that goes on has measured its first point on a host: it is held in its second."""
    over = {(e["trial_id"], e["attempt"]) for e in events(root, "trial_ended")}
    rows = dataset.read_rows(RunPaths(root), "loads")
    return any(row["host"] == host and (row["trial_id"], row["attempt"]) not in over for row in rows)


def failed_on(root: Path, host: str) -> list[str]:
    """Trials that broke on a host."""
    broken = {(e["trial_id"], e["attempt"]) for e in events(root, "trial_ended") if e["outcome"] == "failed"}
    return [
        e["trial_id"]
        for e in events(root, "trial_started")
        if e["place"]["host"] == host and (e["trial_id"], e["attempt"]) in broken
    ]


def until_loaded(driver: subprocess.Popen[str], root: Path, host: str) -> None:
    wait_until(lambda: loaded(root, host) or driver.poll() is not None, f"a server on {host} is loaded")
    assert driver.poll() is None, driver.communicate()


def until_clean(rig: HostRig) -> None:
    wait_until(lambda: not rig.marked(), "no process of ours is left on any host")
