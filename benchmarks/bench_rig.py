"""A streaming server and clients under measurement, each on cores of its own, and what a client's process tree cost."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.stream_script import Script
from benchmarks.stream_server import raise_file_limit

ROOT = Path(__file__).resolve().parent.parent
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER


@dataclass(frozen=True, slots=True)
class Cores:
    """Which cores the server and the clients run on; the same set where there is only one."""

    server: int
    clients: tuple[int, ...]

    @classmethod
    def split(cls) -> Cores:
        """The first core that we may use for the server, all others for the client."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[0], tuple(usable[1:]) or (usable[0],))

    def __str__(self) -> str:
        shared = " (shared: the machine has one core)" if self.server in self.clients else ""
        return f"server on core {self.server}, client on {', '.join(map(str, self.clients))}{shared}"


@dataclass(frozen=True, slots=True)
class ChildRun:
    """How a client ended: exit code (None: stopped at the limit), seconds, CPU of its whole tree."""

    code: int | None
    wall_s: float
    cpu_s: float
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        lines = [line for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        return (lines[-1] if lines else "no output")[:300]


class BenchServer:
    """The streaming server in a process of its own. Asking it for the truth costs the client nothing."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores

    def __enter__(self) -> Self:
        words = [sys.executable, "-m", "benchmarks.stream_server", "--cpu", str(self._cores.server)]
        self._process = subprocess.Popen(
            words,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has no threads
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, script: Script) -> None:
        """Stream like this from now on, with a new account."""
        self._ask("/script", json.dumps(asdict(script)).encode())

    def truth(self) -> dict[str, Any]:
        return self._ask("/truth")

    def _ask(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, body, timeout=60) as response:
            told: dict[str, Any] = json.loads(response.read())
        return told


def adopt_orphans() -> None:
    """Grandchildren whose parents end are given to us, so that their CPU is counted and none is left behind."""
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    """Whatever becomes of the benchmark, nothing that it started stays."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def run_child(
    words: Sequence[str],
    cores: Sequence[int],
    *,
    limit_s: float,
    server: BenchServer,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> ChildRun:
    """Run a client on these cores to its end, at most `limit_s`; its tree is ended and its CPU counted in full."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()

    def prepare() -> None:
        _die_with_parent()
        os.sched_setaffinity(0, cores)
        raise_file_limit()

    child = subprocess.Popen(
        words,
        cwd=cwd or ROOT,
        # Without a buffer Python loses what a pipe does not take at once.
        env={k: v for k, v in (environment or os.environ).items() if k != "PYTHONUNBUFFERED"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - this process has no threads
    )
    try:
        stdout, stderr = child.communicate(timeout=limit_s)
        code: int | None = child.returncode
    except subprocess.TimeoutExpired:
        _end_session(child.pid)
        stdout, stderr = child.communicate()
        code = None
    wall_s = time.monotonic() - began
    _reap_orphans(keep={server.pid})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ChildRun(code, wall_s, cpu_s, stdout, stderr)


def _end_session(session: int) -> None:
    for process in psutil.Process().children(recursive=True):
        try:
            if os.getsid(process.pid) == session:
                process.kill()
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue


def _reap_orphans(keep: set[int]) -> None:
    """End and wait for whatever a client has left running."""
    for process in psutil.Process().children():
        if process.pid not in keep:
            try:
                process.send_signal(signal.SIGTERM)
                process.wait(5)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(5)
            except psutil.NoSuchProcess:
                continue
