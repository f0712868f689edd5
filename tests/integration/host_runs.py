"""Runs on hosts of their own: one GPU on each, the head sends the load."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.host_rig import HostRig
from tests.integration.programs import events, started_hosts, wait_until

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


@contextlib.contextmanager
def two_hosts() -> Iterator[HostRig]:
    """A head, which sends the load, and two hosts with a GPU each."""
    with started_hosts([0, 1, 1]) as hosts:
        (hosts.folder / "lost.yaml").write_text(SCENARIO)
        yield hosts


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
    wait_until(lambda: not rig.marked(), "no process of ours is left on any host", 120)
