"""The orphan guard itself: runs one server and ends its whole process tree. Standard library only.

Started by `actors.guards.guard` as `python -I -S guard_process.py LIFE CONTROL`, with its orders as JSON on stdin, so
that the process list shows no environment. It forks once more and leads a session of its own: nobody's direct child, so
Ray's "kill direct children" does not reach it before its work is done. As child subreaper it stays the ancestor of
every process below it, also of daemonised ones. LIFE is the read end of a pipe whose write end only the holder has:
its end of file means that the holder is gone, however it went.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a program, without our folder in the path
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

from actors.guards.guard_child import limit_above_hard, spawn
from actors.guards.guard_steps import Steps

PR_SET_CHILD_SUBREAPER = 36

# What a server left behind after it ended by itself gets this long between SIGTERM and SIGKILL.
LEFTOVER_GRACE_S = 3.0
# Processes of another user cannot be ended by us; they get this long after the grace to go by themselves.
GIVE_UP_S = 10.0


def process_table() -> dict[int, tuple[int, str]]:
    """Pid -> (parent pid, state letter) of every process that can be seen."""
    table: dict[int, tuple[int, str]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a Path for each process costs more than the scan
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        state, parent = stat.rsplit(")", 1)[1].split()[:2]
        table[int(entry)] = (int(parent), state)
    return table


def descendants(root: int, spared: frozenset[int] = frozenset()) -> list[int]:
    """Living processes below `root` but not below `spared`, parents before children; zombies are passed through."""
    children: dict[int, list[tuple[int, str]]] = {}
    for pid, (parent, state) in process_table().items():
        children.setdefault(parent, []).append((pid, state))
    found: list[int] = []
    todo = [root]
    while todo:
        for pid, state in children.get(todo.pop(0), []):
            if pid in spared:
                continue
            todo.append(pid)
            if state != "Z":
                found.append(pid)
    return found


def send_signal(pid: int, number: int) -> bool:
    """Signal a process that may be gone already; False if we are not permitted to."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


class Guard:
    """The server's tree, from its start to the last process; also of what runs before and after it."""

    def __init__(self, life: int, wake: int, grace_s: float) -> None:
        self.exit_code: int | None = None
        self.ordered = False
        self.server = 0
        self._life: int | None = life
        self._wake = wake
        self._grace_s = grace_s
        self._awaited = 0
        self._code: int | None = None
        self._spared: frozenset[int] = frozenset()

    @property
    def grace_s(self) -> float:
        """What the tree gets between SIGTERM and SIGKILL, as it was last said."""
        return self._grace_s

    def serve(self, server: int, spared: list[int]) -> None:
        """The server runs; what ran before it (daemons of the user's commands) is left alone until `end_all`."""
        self.server = server
        self._spared = frozenset(spared)

    def watch(self) -> None:
        """Return when the server has ended or its end is wanted."""
        while self.exit_code is None:
            ordered = self._order(1.0)
            self._reap()
            if ordered:
                return
        self._grace_s = min(self._grace_s, LEFTOVER_GRACE_S)

    def wait(self, pid: int, limit_s: float, heed: str = "nothing") -> int | None:
        """The exit code of a child; None if it outlives the limit.

        An order meanwhile leaves the limit as it is, shortens it to its `grace`, or ends it `now`.
        """
        deadline = time.monotonic() + limit_s
        self._awaited, self._code = pid, self.exit_code if pid == self.server else None
        while self._code is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if self._order(min(left, 0.5)) and heed != "nothing":
                deadline = min(deadline, time.monotonic() + (self._grace_s if heed == "grace" else 0.0))
            self._reap()
        return self._code

    def end(self) -> list[int]:
        """SIGTERM to the server, then to what it leaves, SIGKILL after the grace until none lives; pids that needed it.

        The server comes first because SGLang reads the death of a child as a crash. Processes that we may not signal
        (those of `sudo`) are given up some time after the grace.
        """
        deadline = time.monotonic() + self._grace_s
        told: set[int] = set()
        killed: set[int] = set()
        refused: set[int] = set()
        while living := descendants(os.getpid(), self._spared):
            late = time.monotonic() >= deadline
            if late and refused.issuperset(living) and time.monotonic() >= deadline + GIVE_UP_S:
                break
            if late:
                killed.update(set(living) - refused)
                refused.update(pid for pid in living if not send_signal(pid, signal.SIGKILL))
            else:
                first = [self.server] if self.server in living else living
                for pid in set(first) - told:
                    send_signal(pid, signal.SIGTERM)
                told.update(first)
            if self._order(0.05):
                deadline = min(deadline, time.monotonic() + self._grace_s)
            self._reap()
        self._reap()
        return sorted(killed - refused)

    def end_all(self) -> None:
        """End also what the user's commands left running."""
        self._spared = frozenset()
        self._grace_s = min(self._grace_s, LEFTOVER_GRACE_S)
        self.end()

    def _order(self, timeout_s: float) -> bool:
        """Whether a stop order came within the timeout; the holder's end is an order with the usual grace."""
        ends = [self._wake] if self._life is None else [self._wake, self._life]
        ready, _, _ = select.select(ends, [], [], timeout_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._life is None or self._life not in ready:
            return False
        order = os.read(self._life, 256).decode().split()
        if order:
            self._grace_s = float(order[-1])
        else:
            self._life = None
        self.ordered = True
        return True

    def _reap(self) -> None:
        """Collect every process that ended below us: orphans become our children."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid == self._awaited:
                self._code = code
            if pid == self.server:
                self.exit_code = code


def _tell(control: int, message: dict[str, Any]) -> None:
    try:
        os.write(control, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        return  # the holder is gone, nobody needs to know


def _child_wakeup() -> int:
    """A descriptor that becomes readable when a child ends."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake


def _leave_holder(life: int, control: int) -> None:
    """Out of the holder's process tree and deaf to its terminal; whatever is orphaned below becomes our child."""
    if os.fork():
        os._exit(0)
    for end in (life, control):
        os.set_inheritable(end, False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _start(orders: dict[str, Any], guard: Guard, steps: Steps, log: int) -> dict[str, Any]:
    """Run what comes before the server, and start it: its pid, or why there is none."""
    try:
        if too_high := limit_above_hard(orders["limits"]):
            return {"error": too_high}
        if failed := steps.before():
            return {"error": failed, "by_user_command": True}
        began = os.fstat(log).st_size
        spared = descendants(os.getpid())
        server = spawn(
            orders["command"],
            orders["env"],
            orders["cwd"],
            log,
            limits=orders["limits"],
            address_space_bytes=orders["address_space_bytes"],
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"error": str(error), "missing": isinstance(error, FileNotFoundError)}
    guard.serve(server, spared)
    return {"pid": server, "log_began": began}


def main(life: int, control: int) -> None:
    """Read the orders, leave the holder's process tree, run the server, end its tree, tell how it ended."""
    orders = json.load(sys.stdin)
    _leave_holder(life, control)
    guard = Guard(life, _child_wakeup(), orders["grace_s"])
    _tell(control, {"guard": os.getpid()})
    try:
        log = os.open(orders["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        _tell(control, {"error": str(error)})
        os._exit(127)
    os.dup2(log, 2)
    steps = Steps(orders, log, guard)
    told = _start(orders, guard, steps, log)
    if "pid" in told:
        _tell(control, told)
        guard.watch()
        steps.stop_container()
        told = {"killed": guard.end(), "log_ended": os.fstat(log).st_size}
        steps.remove_container()
    else:
        told["log_ended"] = os.fstat(log).st_size
    steps.after()
    guard.end_all()
    steps.forget_files()
    _tell(control, {**told, "exit": guard.exit_code, "notes": steps.notes})
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
