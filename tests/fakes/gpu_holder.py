"""Small processes that hold memory in a GPU ledger, with marks and commands as a test wants them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger

Start = Callable[..., subprocess.Popen[bytes]]

# -S -E and no imports: up within some 10 ms. The words behind it are only there to be seen.
_WAIT = "import sys; print(flush=True); sys.stdin.read()"
_DEAF = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); sys.stdin.read()"


def start_holder(
    ledger: GpuLedger | None = None,
    gib: Mapping[int, float] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    words: tuple[str, ...] = (),
    deaf: bool = False,
) -> subprocess.Popen[bytes]:
    """A process that lives until it is ended, holding so much of each GPU; `deaf` ignores SIGTERM.

    It reads our pipe, so it also ends when we do, however that is.
    """
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _DEAF if deaf else _WAIT, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**dict(env or {}), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")},
        cwd=Path("/"),
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    if ledger is not None:
        for gpu, amount in (gib or {}).items():
            ledger.hold(process.pid, gpu, amount)
    return process


def end_holder(process: subprocess.Popen[bytes]) -> None:
    """Gone and reaped."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def watched_ledger(folder: Path, total_gib: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> GpuLedger:
    """A ledger in `folder` that stands for the GPUs of this host, where nothing else of ours has left anything."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    made = GpuLedger.create(folder / "ledger", total_gib)
    monkeypatch.setenv(LEDGER_VARIABLE, str(made.folder))
    return made


@contextmanager
def holders(ledger: GpuLedger) -> Iterator[Start]:
    """Starts any number of them, as `start_holder` does, and ends them all."""
    started: list[subprocess.Popen[bytes]] = []

    def start(gib: dict[int, float], **how: Any) -> subprocess.Popen[bytes]:
        started.append(start_holder(ledger, gib, **how))
        return started[-1]

    yield start
    for process in started:
        end_holder(process)
