"""What the guard does besides the server: the user's commands around it, and the end of its container.

Standard library only. Nothing in here raises: what goes wrong is written into the server's log and into `notes`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

from actors.guards.guard_child import spawn

# On top of its own grace, `docker stop` gets this long for the SIGKILL and the daemon's work.
STOP_SLACK_S = 20.0
REMOVE_LIMIT_S = 30.0
REMOVE_EVERY_S = 2.0
# A daemon that does not answer is asked for this long to remove the container.
GIVE_UP_S = 300.0
# The client ends by itself once its container has.
CLIENT_END_S = 5.0
_NOT_RUN = -1000
_GONE = re.compile(r"no such (?:container|object)|no container with (?:name|id)", re.IGNORECASE)


def says_gone(said: str) -> bool:
    """Whether a container runtime says that it knows no such container."""
    return _GONE.search(said) is not None


class Waiting(Protocol):
    """What the steps need of the guard."""

    server: int
    ordered: bool

    @property
    def grace_s(self) -> float: ...

    def wait(self, pid: int, limit_s: float, heed: str = "nothing") -> int | None: ...


class Steps:
    """The steps around one server, in the order in which the guard calls them."""

    def __init__(self, orders: dict[str, Any], log: int, guard: Waiting) -> None:
        self.notes: list[str] = []
        self._orders = orders
        self._log = log
        self._guard = guard

    def before(self) -> str | None:
        """Run the commands before the start; why the server must not be started, if one failed."""
        for step in self._orders["before"]:
            if failed := self._run("before_start", step, heed="now"):
                return failed
            if self._guard.ordered:
                return "stopped before the server was started"
        return None

    def after(self) -> None:
        """Run the commands after the end: each of them, whatever becomes of the others."""
        for step in self._orders["after"]:
            if failed := self._run("after_stop", step, heed="nothing"):
                self.notes.append(failed)

    def stop_container(self) -> None:
        """SIGTERM to the container, after the grace SIGKILL; the client then ends by itself."""
        container = self._orders["container"]
        if container is None:
            return
        grace_s = math.ceil(self._guard.grace_s)
        command = [*container["runtime"], "stop", "-t", str(grace_s), container["name"]]
        code, said = self._ask(command, grace_s + STOP_SLACK_S, heed="grace")
        if code and not says_gone(said):
            self._write(f"{shlex.join(command)}: {said or f'exit code {code}'}")
        if code == 0:
            self._guard.wait(self._guard.server, CLIENT_END_S, "grace")

    def remove_container(self) -> None:
        """Return when the container is known to be gone, or has not gone for a long time; then a note says so."""
        container = self._orders["container"]
        if container is None:
            return
        command = [*container["runtime"], "rm", "-f", container["name"]]
        give_up = time.monotonic() + GIVE_UP_S
        told = ""
        while True:
            code, said = self._ask(command, REMOVE_LIMIT_S, heed="nothing")
            if code == 0 or says_gone(said):
                return
            said = said or (f"no answer within {REMOVE_LIMIT_S:g} s" if code is None else f"exit code {code}")
            if said != told:
                self._write(f"{shlex.join(command)}: {said}")
            told = said
            if code == _NOT_RUN or time.monotonic() >= give_up:
                self.notes.append(f"container {container['name']} may still run: {said}")
                return
            time.sleep(REMOVE_EVERY_S)

    def forget_files(self) -> None:
        """Delete the files that held secrets for the server."""
        for file in self._orders["private_files"]:
            Path(file).unlink(missing_ok=True)

    def _run(self, name: str, step: dict[str, Any], heed: str) -> str | None:
        """One command of the user, its output in the log; what went wrong, in one line."""
        shown = shlex.join(step["shown"])
        self._write(f"{name}: {shown} (at most {step['timeout_s']:g} s)")
        output_began = os.fstat(self._log).st_size
        try:
            pid = spawn(step["command"], self._orders["step_env"], self._orders["cwd"], self._log)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return self._failed(f"{name}: {shown}: {error}")
        code = self._guard.wait(pid, step["timeout_s"], heed)
        if code == 0:
            return None
        last = self._last_line(output_began)
        if code is None:
            _kill_group(pid)
            stopped = self._guard.ordered and heed == "now"
            why = "was stopped" if stopped else f"did not end within {step['timeout_s']:g} s"
        else:
            why = f"ended with exit code {code}"
        return self._failed(f"{name}: {shown} {why}" + (f": {last}" if last else ""))

    def _failed(self, text: str) -> str:
        self._write(text)
        return text

    def _ask(self, command: list[str], limit_s: float, heed: str) -> tuple[int | None, str]:
        """Run a command of the container runtime; exit code (None if it was cut off) and last line of its output."""
        try:
            with tempfile.TemporaryFile() as output:
                pid = spawn(command, self._orders["env"], self._orders["cwd"], output.fileno())
                code = self._guard.wait(pid, limit_s, heed)
                if code is None:
                    _kill_group(pid)
                output.seek(0)
                return code, _last_line_of(output.read())
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return _NOT_RUN, str(error)

    def _last_line(self, began: int) -> str:
        with Path(self._orders["log"]).open("rb") as log:
            log.seek(max(began, log.seek(0, os.SEEK_END) - 4096))
            return _last_line_of(log.read())

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep us from ending the server
            os.write(self._log, f"[specsweep] {text}\n".encode())


def _last_line_of(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
