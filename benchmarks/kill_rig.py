"""A Ray cluster of two raylets on this machine, and what a run of ours has on it: to be killed by `random_kills`.

Everything is found from outside, by what the kernel tells (environment marks, parents, pipes), not by asking the
product, which is on trial here.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from actors.gpus.gpu_ledger import LEDGER_VARIABLE
from orchestrator.clusters.raylet_settings import PRIORITY

RUN_MARK, TRIAL_MARK = "SPECSWEEP_RUN_ID", "SPECSWEEP_TRIAL_ID"
RIG_MARK, PART_MARK = "SPECSWEEP_KILL_RIG", "SPECSWEEP_KILL_RIG_PART"
NODE_LABEL = "role=victim"
_UP_S = 200.0
_TRIES = 5
# `ray start` as a command line, but for its patience with a machine that does much else.
PATIENT_RAY = """
import sys
from orchestrator.slots.ray_patience import patient_start
with patient_start():
    from ray.scripts.scripts import main
    sys.exit(main())
"""
ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    """A port of loopback that nobody listens on: none of a server, none that a connection may take before Ray does."""
    for port in random.sample(range(27000, 32000), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port of 27000 to 32000 is free")


def environment(process: psutil.Process) -> dict[str, str]:
    """The environment that a process was started with; empty if it is gone or not ours."""
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def title(process: psutil.Process) -> str:
    """Its command line as the process list shows it."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@dataclass(frozen=True)
class ServerTree:
    """The processes of one server: its guard, which has no mark, and all that have the mark of the trial."""

    trial_id: str
    guard: psutil.Process
    server: psutil.Process
    members: tuple[psutil.Process, ...]

    @property
    def schedulers(self) -> list[psutil.Process]:
        return [p for p in self.members if "scheduler" in title(p)]

    def left(self) -> list[psutil.Process]:
        """Those that still run; psutil compares start times, so a pid that was used again does not count."""
        return [p for p in self.members if alive(p)]


def alive(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie holds nothing any more."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def told(process: psutil.Process) -> str:
    """Pid, parent and command of a process, for a message about it."""
    parent = _parent(process)
    return f"[{process.pid} below {parent.pid if parent else '-'}: {title(process)[:160]}]"


def marked(run_id: str) -> list[psutil.Process]:
    """Every living process with the mark of a run: the name of its directory, and what makes it unique."""
    found = psutil.process_iter()
    return [p for p in found if environment(p).get(RUN_MARK, "").startswith(f"{run_id}-") and alive(p)]


def server_trees(run_id: str) -> list[ServerTree]:
    """The servers of a run that are up at this moment, each with the guard above it."""
    by_trial: dict[str, list[psutil.Process]] = {}
    for process in marked(run_id):
        by_trial.setdefault(environment(process).get(TRIAL_MARK, ""), []).append(process)
    trees = []
    for trial_id, members in by_trial.items():
        pids = {p.pid for p in members}
        for process in members:
            parent = _parent(process)
            if parent is not None and parent.pid not in pids and "guard_process" in title(parent):
                trees.append(ServerTree(trial_id, parent, process, tuple(members)))
    return trees


def unguarded(run_id: str) -> list[psutil.Process]:
    """Processes with the mark of a run that no living guard is above: whoever should have ended them has not."""
    found = []
    for process in marked(run_id):
        above, parents = process, []
        while (parent := _parent(above)) is not None:
            parents.append(title(parent))
            above = parent
        if not any("guard_process" in words for words in parents) and alive(process):
            found.append(process)
    return found


def _parent(process: psutil.Process) -> psutil.Process | None:
    try:
        return process.parent()
    except psutil.Error:
        return None


def pipes(process: psutil.Process) -> set[str]:
    """The pipes that a process has open, as the kernel numbers them."""
    found = set()
    try:
        descriptors = list(Path(f"/proc/{process.pid}/fd").iterdir())
    except OSError:
        return set()
    for descriptor in descriptors:
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("pipe:"):
            found.add(target)
    return found


class KillRig:
    """`start` a head (without GPUs, with a server for `jobs`) and a node with GPUs; `revive` the node if it was killed.

    The job server is a dozen processes, which take longer to come up than all else.
    """

    def __init__(self, folder: Path, gpus: int, ledger: Path | None = None, *, with_jobs: bool = True) -> None:
        self._folder, self._ledger, self._with_jobs = folder, ledger, with_jobs
        self.gpus = gpus
        # A path of its own, since Ray makes sockets below it, whose names may have 107 characters.
        self._ray_folder = tempfile.mkdtemp(prefix="specsweep-rig-")
        self._port, self._jobs = free_port(), free_port()
        self._head: subprocess.Popen[bytes] | None = None
        self._node: subprocess.Popen[bytes] | None = None
        self._nodes = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def jobs(self) -> str:
        return f"http://127.0.0.1:{self._jobs}"

    def start(self) -> None:
        """Head and node; returns when both have registered."""
        self._head = self._started(
            "head", "--head", f"--port={self._port}", "--num-gpus=0", "--num-cpus=8",
            f"--include-dashboard={str(self._with_jobs).lower()}", "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self._jobs}", f"--ray-client-server-port={free_port()}",
        )  # fmt: skip
        self.revive()
        if self._with_jobs:
            _wait_for_port(self._jobs)

    def revive(self) -> None:
        """A new node with GPUs, if there is none."""
        if self._node is not None and self._node.poll() is None:
            return
        self._nodes += 1
        self._node = self._started(
            f"node-{self._nodes}", f"--address={self.address}", f"--num-gpus={self.gpus}", "--num-cpus=16",
            f"--labels={NODE_LABEL}",
        )  # fmt: skip

    def _started(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A raylet, and what is around it, up. It gives its agent 15 s, and ends; then it is tried again."""
        log = self._folder / f"{name}.log"
        for _ in range(_TRIES):
            log.unlink(missing_ok=True)
            started = self._ray(name, *arguments)
            deadline = time.monotonic() + _UP_S
            while "Ray runtime started" not in (text := log.read_text(errors="replace")):
                if time.monotonic() > deadline or started.poll() is not None:
                    break
                time.sleep(0.1)
            else:
                return started
            self._kill_all(name)
            started.wait()
        raise RuntimeError(f"{name} did not come up: {text[-2000:]}")

    def _ray(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, **PRIORITY}
        env |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
        if self._ledger is not None:
            env[LEDGER_VARIABLE] = str(self._ledger)
        env |= {RIG_MARK: self._ray_folder, PART_MARK: name}
        own = [f"--dashboard-agent-listen-port={free_port()}", f"--metrics-export-port={free_port()}"]
        if "--head" in arguments:
            own.append(f"--temp-dir={self._ray_folder}")
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", PATIENT_RAY, "start", "--block", "--node-ip-address=127.0.0.1",
                 "--object-store-memory=104857600", *arguments, *own],
                stdout=log, stderr=log, env=env, start_new_session=True, cwd=ROOT,
            )  # fmt: skip

    def _kill_all(self, name: str | None = None) -> None:
        """Whatever of the rig lives, or of one `ray start`, also where it has left its parents."""
        for process in psutil.process_iter():
            found = environment(process)
            if found.get(RIG_MARK) == self._ray_folder and name in (None, found.get(PART_MARK)):
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def _below(self, started: subprocess.Popen[bytes] | None) -> list[psutil.Process]:
        try:
            return psutil.Process(started.pid).children(recursive=True) if started is not None else []
        except psutil.Error:
            return []

    def raylet(self) -> psutil.Process:
        """The raylet of the node with GPUs."""
        return next(p for p in self._below(self._node) if p.name() == "raylet")

    def actors(self, kind: str) -> Iterator[psutil.Process]:
        """The actors of a class, on the node and on the head."""
        below = (*self._below(self._node), *self._below(self._head))
        yield from (p for p in below if title(p).startswith(f"ray::{kind}"))

    def slot_actor_of(self, tree: ServerTree) -> psutil.Process | None:
        """The actor that holds the other end of the guard's pipe."""
        held = pipes(tree.guard)
        return next((p for p in self.actors("SlotActor") if pipes(p) & held), None)

    def end(self) -> None:
        """End both, and what of them has left its parents: it has our mark."""
        for started in (self._node, self._head):
            if started is not None and started.poll() is None:
                started.send_signal(signal.SIGTERM)
        for started in (self._node, self._head):
            if started is not None:
                try:
                    started.wait(20)
                except subprocess.TimeoutExpired:
                    started.kill()
        self._kill_all()
        shutil.rmtree(self._ray_folder, ignore_errors=True)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + _UP_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"nothing listens on port {port}")
