"""The orphan guard, seen from the process that holds it: a server started here cannot outlive this process.

However this process ends (exit, SIGKILL, out of memory, a dying raylet), the pipe to the guard closes and the guard
ends the server with all its descendants. Only the SIGKILL of the guard itself can leave any behind; the server then
dies by its parent-death signal, its container by the holder of the guard, and `actors.host.leftovers` finds the rest
by the mark in their environment, `actors.servers.container_end` by their label.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors.guards.guard_orders import Surroundings

RUN_MARK = "SPECSWEEP_RUN_ID"
TRIAL_MARK = "SPECSWEEP_TRIAL_ID"
# In the environment of the guard itself, which is no server: as long as one works, its run is being ended in order.
GUARD_MARK = "SPECSWEEP_GUARD_OF"

_SCRIPT = Path(__file__).with_name("guard_process.py")
_START_TIMEOUT_S = 30.0
_NOTHING = Surroundings()
# The guard needs a moment between the last SIGKILL and its report; processes stuck in the kernel need longer.
_REPORT_S = 15.0


class ServerNotStarted(Exception):
    """The command could not be run at all; `missing` if it (or the working folder) does not exist.

    `by_user_command`: a command of the user that comes before the server failed; the message says which and how.
    """

    def __init__(
        self, message: str, *, missing: bool = False, by_user_command: bool = False, notes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.missing = missing
        self.by_user_command = by_user_command
        self.notes = notes


@dataclass(frozen=True, slots=True)
class ServerExit:
    """How the server ended and which processes of its tree needed SIGKILL. `code` is None if the guard was killed.

    `log_ended` is the size of the log at that moment, in bytes; `notes` tell what else went wrong in the end.
    """

    code: int | None
    killed: tuple[int, ...] = ()
    log_ended: int | None = field(default=None, compare=False)
    notes: tuple[str, ...] = ()


class Guarded:
    """One server under a guard. Use it from one thread at a time."""

    def __init__(self, life: int, control: int, around: Surroundings) -> None:
        self._life = life
        self._control = control
        self._around = around
        self._buffer = b""
        self._exit: ServerExit | None = None
        self._failure: ServerNotStarted | None = None
        self.pid = 0
        self.guard_pid = 0
        self.log_began = 0

    @classmethod
    def boot(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log_path: Path,
        cwd: str | None = None,
        grace_s: float = 10.0,
        address_space_gib: float | None = None,
        around: Surroundings = _NOTHING,
    ) -> Guarded:
        """A guard that is going to run the command, output appended to the log; blocks about 0.1 s.

        The server is still to come: `has_started` tells, and `stop` may come before it. `grace_s` is what the tree gets
        between SIGTERM and SIGKILL when this process ends.
        """
        orders = {
            "command": list(command),
            "env": dict(env),
            "log": str(log_path.absolute()),
            "cwd": cwd,
            "grace_s": grace_s,
            "address_space_bytes": None if address_space_gib is None else int(address_space_gib * 2**30),
            **around.orders(env),
        }
        life_read, life = os.pipe()
        control, control_write = os.pipe()
        guarded = cls(life, control, around)
        try:
            _boot(orders, life_read, control_write)
        finally:
            os.close(life_read)
            os.close(control_write)
        return guarded

    def has_started(self, timeout_s: float = 0.0) -> bool:
        """Whether the server runs, or ran; ServerNotStarted once it is known that it never will."""
        deadline = time.monotonic() + timeout_s
        while not self.pid and self._exit is None:
            if not self._take(deadline - time.monotonic()):
                return False
        if self._failure is not None:
            raise self._failure
        return True

    def poll(self, timeout_s: float = 0.0) -> ServerExit | None:
        """How the server ended, once its whole tree is gone; None as long as anything of it lives."""
        deadline = time.monotonic() + timeout_s
        while self._exit is None and self._take(deadline - time.monotonic()):
            pass
        return self._exit

    @property
    def end_s(self) -> float:
        """The longest that an orderly end may take besides the grace."""
        return self._around.end_s

    def _take(self, timeout_s: float) -> bool:
        """Take in the next message of the guard; False if none came in time."""
        message = self._read(timeout_s)
        if message is None:
            return False
        if "guard" in message:
            self.guard_pid = message["guard"]
        elif "pid" in message:
            self.pid, self.log_began = message["pid"], message["log_began"]
        else:
            self._ended(message)
        return True

    def _ended(self, message: dict[str, Any]) -> None:
        notes = tuple(message.get("notes", ()))
        self._exit = ServerExit(message.get("exit"), tuple(message.get("killed", ())), message.get("log_ended"), notes)
        if not self.pid:
            self._failure = ServerNotStarted(
                message.get("error", "the guard ended"),
                missing=message.get("missing", False),
                by_user_command=message.get("by_user_command", False),
                notes=notes,
            )
        self._close()

    def request_stop(self, grace_s: float) -> None:
        """Begin to end the tree: SIGTERM, after the grace SIGKILL. A later request can only shorten the grace."""
        if self._exit is None:
            try:
                os.write(self._life, f"{grace_s} ".encode())
            except BrokenPipeError:
                return  # it has just ended by itself

    def stop(self, grace_s: float) -> ServerExit | None:
        """End the tree and wait for it; None only if a process survives SIGKILL."""
        self.request_stop(grace_s)
        return self.poll(grace_s + self._around.end_s + _REPORT_S)

    def _read(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message of the guard; an empty one if the guard is gone without a word."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            chunk = os.read(self._control, 4096)
            if not chunk:
                return {}
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _close(self) -> None:
        os.close(self._life)
        os.close(self._control)


def _boot(orders: dict[str, Any], life: int, control: int) -> None:
    """Start the guard and return when it has left our process tree.

    A fresh interpreter rather than a bare fork: a Ray worker has threads that hold locks.
    """
    inherited = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}  # some interpreters need it to start
    mark = {GUARD_MARK: orders["env"][RUN_MARK]} if RUN_MARK in orders["env"] else {}
    boot = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_SCRIPT), str(life), str(control)],
        pass_fds=(life, control),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**inherited, **mark},
        start_new_session=True,
    )
    try:
        boot.communicate(json.dumps(orders).encode(), timeout=_START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        boot.kill()
        boot.wait()
