"""What the processes of a server use: memory and CPU time, by /proc. Cheap enough for once a second."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from actors.processes.process_identity import stat_fields
from actors.servers.tree_activity import server_pids

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGES_PER_GIB = 2**30 / os.sysconf("SC_PAGE_SIZE")
# Which processes there are is looked up in the whole process table, which can be long: often while it starts only.
_TREE_EVERY_S = 10.0
_TREE_SHARE = 0.3
# Fields of /proc/PID/stat behind the name, from 0: user and system time, start, resident pages.
_TIMES, _BEGAN, _RESIDENT = slice(11, 13), 19, 21


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """All processes of a server together. `rss_gib` counts shared pages in each; `cpu_cores`: CPU seconds per second
    since the last look, None at the first.
    """

    processes: int
    rss_gib: float
    cpu_cores: float | None


class ServerProcesses:
    """One server. `look` may be called from any thread, one at a time."""

    def __init__(self) -> None:
        self._pids: list[int] = []
        self._first_s: float | None = None
        self._listed_s = 0.0
        self._looked_s: float | None = None
        self._ticks: dict[tuple[int, str], int] = {}

    def look(self, pid: int, trial_id: str | None = None) -> ProcessUse | None:
        """Of the server under this guard, or by its mark in a container; None if none can be seen."""
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        if now_s - self._listed_s >= min(_TREE_EVERY_S, _TREE_SHARE * (now_s - self._first_s)):
            self._pids, self._listed_s = server_pids(pid, trial_id), now_s
        ticks: dict[tuple[int, str], int] = {}
        pages = 0
        for each in self._pids:
            if (fields := stat_fields(each)) is None:
                continue
            ticks[each, fields[_BEGAN]] = sum(map(int, fields[_TIMES]))
            pages += int(fields[_RESIDENT])
        before, looked_s = self._ticks, self._looked_s
        self._ticks, self._looked_s = ticks, now_s
        if not ticks:
            return None
        used = sum(count - before[process] for process, count in ticks.items() if process in before)
        cores = None if looked_s is None else round(used / _TICKS_PER_S / max(now_s - looked_s, 1e-3), 3)
        return ProcessUse(len(ticks), round(pages / _PAGES_PER_GIB, 3), cores)
