"""One driver at a time on a run directory."""

from __future__ import annotations

import fcntl
from typing import IO

from orchestrator.errors import BadInput
from orchestrator.paths import RunPaths, user_file


def take_lock(paths: RunPaths) -> IO[bytes]:
    """Held as long as the file is open; BadInput if another process holds it, or the directory is not to be written."""
    with user_file(str(paths.root), "written"):
        lock = paths.lock.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BadInput(
            f"{paths.root}: another specsweep process is working on this run; wait for its end, or stop it first"
        ) from None
    return lock
