"""The orphan guard itself: runs one server and ends its whole process tree. Standard library only.

Started by `actors.guard` as `python -I -S guard_process.py LIFE CONTROL`, with its orders as JSON on stdin, so that the
process list shows no environment. It forks once more and leads a session of its own: nobody's direct child, so Ray's
"kill direct children" does not reach it before its work is done. As child subreaper it stays the ancestor of every
process below it, also of daemonised ones. LIFE is the read end of a pipe whose write end only the holder has: end of
file means that the holder is gone, however it went.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# What a server left behind after it ended by itself gets this long between SIGTERM and SIGKILL.
LEFTOVER_GRACE_S = 3.0
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


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


def descendants(root: int) -> list[int]:
    """Living processes below `root`, parents before children; zombies are only passed through."""
    children: dict[int, list[tuple[int, str]]] = {}
    for pid, (parent, state) in process_table().items():
        children.setdefault(parent, []).append((pid, state))
    found: list[int] = []
    todo = [root]
    while todo:
        for pid, state in children.get(todo.pop(0), []):
            todo.append(pid)
            if state != "Z":
                found.append(pid)
    return found


def send_signal(pid: int, number: int) -> None:
    """Signal a process that may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class Guard:
    """The server's tree, from its start to the last process."""

    def __init__(self, server: int, life: int, wake: int, grace_s: float) -> None:
        self.exit_code: int | None = None
        self._server = server
        self._life: int | None = life
        self._wake = wake
        self._grace_s = grace_s

    def watch(self) -> None:
        """Return when the server has ended or its end is wanted."""
        while self.exit_code is None:
            grace_s = self._order(1.0)
            self._reap()
            if grace_s is not None:
                self._grace_s = grace_s
                return
        self._grace_s = min(self._grace_s, LEFTOVER_GRACE_S)

    def end(self) -> list[int]:
        """SIGTERM to the server, then to what it leaves, SIGKILL after the grace until none lives; pids that needed it.

        The server comes first because SGLang reads the death of a child as a crash.
        """
        deadline = time.monotonic() + self._grace_s
        told: set[int] = set()
        killed: set[int] = set()
        while living := descendants(os.getpid()):
            if time.monotonic() >= deadline:
                killed.update(living)
                for pid in living:
                    send_signal(pid, signal.SIGKILL)
            else:
                first = [self._server] if self._server in living else living
                for pid in set(first) - told:
                    send_signal(pid, signal.SIGTERM)
                told.update(first)
            grace_s = self._order(0.05)
            if grace_s is not None:
                deadline = min(deadline, time.monotonic() + grace_s)
            self._reap()
        self._reap()
        return sorted(killed)

    def _order(self, timeout_s: float) -> float | None:
        """The grace of a stop order that came within the timeout; the holder's end is an order with the usual grace."""
        ends = [self._wake] if self._life is None else [self._wake, self._life]
        ready, _, _ = select.select(ends, [], [], timeout_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._life is None or self._life not in ready:
            return None
        order = os.read(self._life, 256).decode().split()
        if order:
            return float(order[-1])
        self._life = None
        return self._grace_s

    def _reap(self) -> None:
        """Collect every process that ended below us: orphans become our children."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._server:
                self.exit_code = os.waitstatus_to_exitcode(status)


def _start_server(orders: dict[str, Any], libc: ctypes.CDLL) -> int:
    """Start the server in its own session, its output in the log; its pid."""
    limit = orders["address_space_bytes"]

    def prepare() -> None:
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        # Ray workers block SIGINT, and children inherit the mask.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # Sent when the parent *thread* ends: safe here, since the guard's only thread lives as long as the guard.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    log = os.open(orders["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    server = subprocess.Popen(
        orders["command"],
        env=orders["env"],
        cwd=orders["cwd"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - the guard has one thread
    )
    server.returncode = 0  # it is reaped by Guard, not by Popen
    return server.pid


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


def main(life: int, control: int) -> None:
    """Read the orders, leave the holder's process tree, run the server, end its tree, tell how it ended."""
    orders = json.load(sys.stdin)
    if os.fork():
        os._exit(0)
    for end in (life, control):
        os.set_inheritable(end, False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake = _child_wakeup()
    try:
        server = _start_server(orders, libc)
    except (OSError, subprocess.SubprocessError) as error:
        _tell(control, {"error": str(error), "missing": isinstance(error, FileNotFoundError)})
        os._exit(127)
    _tell(control, {"pid": server, "guard": os.getpid()})
    guard = Guard(server, life, wake, orders["grace_s"])
    guard.watch()
    killed = guard.end()
    _tell(control, {"exit": guard.exit_code, "killed": killed})
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
