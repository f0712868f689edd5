"""Small processes that hold memory in a GPU ledger, with marks and commands as a test wants them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from actors.gpu_ledger import GpuLedger

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
