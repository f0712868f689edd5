"""The process tree of a server: one idle child per scheduler and one detokenizer, so that clean-up has a subject."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from actors.emulator.ranks import LocalRanks

PR_SET_PDEATHSIG = 1

# PYTHONHOME lets the interpreter find itself although argv[0] is a title. Reading the pipe ends with the parent.
_IDLE = (
    "import signal;signal.signal(signal.SIGINT,signal.SIG_IGN);"
    "open('/proc/self/comm','w').write({title!r});open(0,'rb').read()"
)


def scheduler_titles(ranks: LocalRanks) -> list[str]:
    """Process titles as SGLang sets them, after the helper that Python itself starts for them."""
    return [sys.executable, *ranks.titles(), *(["sglang::detokenizer"] if ranks.serves else [])]


class ProcessTree:
    """Children that do nothing and die with their parent, however it ends."""

    def __init__(self, titles: list[str]) -> None:
        libc = ctypes.CDLL(None)

        def die_with_parent() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        env = {**os.environ, "PYTHONHOME": sys.base_prefix}
        self._children = [
            (
                title,
                subprocess.Popen(
                    [title, "-S", "-s", "-c", _IDLE.format(title=Path(title).name)],
                    executable=sys.executable,
                    env=env,
                    stdin=subprocess.PIPE,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - nothing has started a thread yet
                ),
            )
            for title in titles
        ]

    @property
    def scheduler_pids(self) -> list[int]:
        """Of each rank in turn."""
        return [child.pid for child in self._schedulers]

    @property
    def _schedulers(self) -> list[subprocess.Popen[bytes]]:
        return [child for title, child in self._children if title.startswith("sglang::scheduler")]

    def end_rank(self, rank: int, number: int) -> None:
        """A scheduler ends by this signal, as if it were its own doing."""
        self._schedulers[min(rank, len(self._schedulers) - 1)].send_signal(number)

    def crashed(self) -> tuple[str, int, int] | None:
        """Name, pid and exit code of a child that ended with an error."""
        ranks = 0
        for title, child in self._children[1:]:
            name = title.removeprefix("sglang::")
            if name.startswith("scheduler"):
                name, ranks = f"scheduler_{ranks}", ranks + 1
            code = child.poll()
            if code:
                return name, child.pid, code
        return None

    def kill(self) -> None:
        """End and reap all children."""
        for _, child in self._children:
            child.kill()
        for _, child in self._children:
            child.wait()


def kill_self() -> NoReturn:
    """SGLang's end after a failure: SIGKILL, which a parent sees as -9. As PID 1 it has no effect and 0 is left."""
    os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0)
