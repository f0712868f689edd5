"""What the processes of a server do: CPU time and bytes, by /proc, between one look and the next.

A container's processes are nobody's children. They are found by the mark in their environment, where we may read it;
the client that started it tells nothing about them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from actors.gpus.gpu_activity import busiest_gpu_percent
from actors.guards.guard import TRIAL_MARK
from actors.guards.guard_process import descendants, process_table
from actors.processes.process_identity import stat_fields
from actors.servers.life_event import Activity

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name, from 0: user and system time of a process and of the children it waited for.
_TIMES = slice(11, 15)
_BEGAN = 19
_MOVED = ("rchar", "wchar", "read_bytes")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process has used since its start; `began` tells it from a later one of the same pid."""

    began: str
    cpu_s: float
    moved_bytes: int


class TreeActivity:
    """One server. `sample` may be called from any thread, one at a time.

    `trial_id` is given for a server in a container. `gpu_ids` are those of the slot; none for a server that uses none.
    """

    def __init__(
        self,
        pid: int,
        gpu_ids: tuple[str, ...] = (),
        *,
        trial_id: str | None = None,
        gpu_percent: Callable[[tuple[str, ...]], int | None] = busiest_gpu_percent,
    ) -> None:
        self._pid = pid
        self._gpu_ids = gpu_ids
        self._trial_id = trial_id
        self._gpu_percent = gpu_percent
        self._before: dict[int, Usage] = {}
        self._looked_s: float | None = None

    def sample(self) -> Activity | None:
        """What was done since the last call; None at the first one, and where no process can be seen."""
        now_s, now = time.monotonic(), usages(server_pids(self._pid, self._trial_id))
        before, looked_s = self._before, self._looked_s
        self._before, self._looked_s = now, now_s
        if looked_s is None or not now or not before:
            return None
        used = [_since(usage, before.get(pid)) for pid, usage in now.items()]
        return Activity(
            span_s=now_s - looked_s,
            processes=len(now),
            busiest_cpu_s=max(usage.cpu_s for usage in used),
            moved_bytes=sum(usage.moved_bytes for usage in used),
            gpu_percent=self._gpu_percent(self._gpu_ids),
        )


def server_pids(guard_pid: int, trial_id: str | None = None) -> list[int]:
    """The processes below a guard and itself; with `trial_id`, instead those in a container, by their mark."""
    own = [guard_pid, *descendants(guard_pid)]
    if trial_id is None:
        return own
    mark = f"{TRIAL_MARK}={trial_id}".encode()
    return [pid for pid in process_table() if pid not in own and _is_marked(pid, mark)]


def usages(pids: Iterable[int]) -> dict[int, Usage]:
    """What these processes have used so far; those that are gone, or not ours to look at, are left out."""
    found: dict[int, Usage] = {}
    for pid in pids:
        if (fields := stat_fields(pid)) is None:
            continue
        cpu_s = sum(map(int, fields[_TIMES])) / _TICKS_PER_S
        found[pid] = Usage(fields[_BEGAN], cpu_s, _moved_bytes(pid))
    return found


def _since(now: Usage, before: Usage | None) -> Usage:
    """A process that is new has done all of it since."""
    if before is None or before.began != now.began:
        return now
    return Usage(now.began, now.cpu_s - before.cpu_s, now.moved_bytes - before.moved_bytes)


def _moved_bytes(pid: int) -> int:
    """Read and written, also from caches and sockets; 0 where that is not told to us."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    told = dict(line.split(": ", 1) for line in lines)
    return sum(int(told.get(name, 0)) for name in _MOVED)


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
