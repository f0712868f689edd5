"""Processes with our mark on this host: whose they are, whether their run lives, and the end of those it does not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from actors.guards.guard import GUARD_MARK, RUN_MARK, TRIAL_MARK
from actors.host.run_lease import RunLife, leases_of, run_life
from actors.processes.process_facts import ancestors, command_of, environment_of, uid_of, unit_holding
from actors.processes.process_identity import ProcessIdentity, identify

_POLL_S = 0.05
# After SIGKILL only the kernel is awaited; a process in an uninterruptible call can take as long as it likes.
KILL_S = 15.0
_GUARD_SCRIPT = "actors/guards/guard_process.py"


@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A process that was started, at any remove, as a server of a run. `guarded`: a guard above it lives."""

    process: ProcessIdentity
    run_id: str
    trial_id: str
    command: str
    guarded: bool


@dataclass(frozen=True, slots=True)
class HostMarks:
    """All that carries our mark: servers with their trees, and by run id the guards that are at work."""

    processes: tuple[MarkedProcess, ...]
    guards: dict[str, tuple[int, ...]]

    def life_of(self, run_id: str) -> RunLife:
        """Whether a run lives on this host."""
        guards = len(self.guards.get(run_id, ()))
        return run_life(leases_of(run_id), guards, time.monotonic(), lambda process: process.lives)


def host_marks() -> HostMarks:
    """Every process of this user that carries our mark."""
    marked: dict[int, dict[str, str]] = {}
    guards: dict[str, list[int]] = {}
    for pid in _own_pids():
        environment = environment_of(pid)
        if (run_id := environment.get(GUARD_MARK)) or _GUARD_SCRIPT in command_of(pid):
            guards.setdefault(run_id or "", []).append(pid)
        if environment.get(RUN_MARK):
            marked[pid] = environment
    at_work = {pid for pids in guards.values() for pid in pids}
    found = []
    for pid, environment in marked.items():
        if (process := identify(pid)) is not None:
            guarded = any(above in at_work for above in ancestors(pid))
            trial = environment.get(TRIAL_MARK, "")
            found.append(MarkedProcess(process, environment[RUN_MARK], trial, command_of(pid), guarded))
    return HostMarks(tuple(found), {run: tuple(pids) for run, pids in guards.items()})


def orphans(marks: HostMarks, *, unclaimed: bool) -> list[MarkedProcess]:
    """Servers that nobody will end: no guard above them lives, and their run is dead.

    With `unclaimed` also those of runs that have left no lease here, unless a container holds them: its guard may be
    anywhere.
    """
    lives = {run: marks.life_of(run) for run in {p.run_id for p in marks.processes}}
    return [
        p
        for p in marks.processes
        if not p.guarded
        and not _in_reach(p)
        and (
            lives[p.run_id] is RunLife.DEAD or (unclaimed and lives[p.run_id] is RunLife.UNKNOWN and not _contained(p))
        )
    ]


def _contained(marked: MarkedProcess) -> bool:
    unit = unit_holding(marked.process.pid)
    return unit is not None and unit.kind in {"container", "pod"}


def _in_reach(marked: MarkedProcess) -> bool:
    """Whether it is ourselves, or above us: a run may be started from below a server of another one."""
    return marked.process.pid in {os.getpid(), *ancestors(os.getpid())}


def run_processes(run_id: str, spared: Iterable[int] = ()) -> list[MarkedProcess]:
    """Every marked process of one run but for those that are, or are below, the pids named, and ourselves."""
    left_alone = set(spared)
    return [
        found
        for found in host_marks().processes
        if found.run_id == run_id and not _in_reach(found) and not left_alone & {found.process.pid, *_above(found)}
    ]


def _above(marked: MarkedProcess) -> list[int]:
    return list(ancestors(marked.process.pid))


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of processes that were to end; `refused` are those that we may not signal."""

    ended: tuple[ProcessIdentity, ...]
    remaining: tuple[ProcessIdentity, ...]
    refused: tuple[ProcessIdentity, ...] = ()


def end_processes(processes: Iterable[ProcessIdentity], grace_s: float, kill_s: float = KILL_S) -> Ending:
    """SIGTERM, after the grace SIGKILL, each to exactly this process; returns when they are gone or do not go."""
    wanted = list(dict.fromkeys(processes))
    refused = {process for process in wanted if not process.send(signal.SIGTERM)}
    deadline = time.monotonic() + grace_s
    killed = False
    while living := [process for process in wanted if process not in refused and process.lives]:
        now = time.monotonic()
        if not killed and now >= deadline:
            refused.update(process for process in living if not process.send(signal.SIGKILL))
            killed, deadline = True, now + kill_s
        elif now >= deadline:
            break
        time.sleep(_POLL_S)
    remaining = tuple(process for process in wanted if process.lives)
    ended = tuple(process for process in wanted if process not in remaining)
    return Ending(ended, remaining, tuple(process for process in remaining if process in refused))


def end_run_processes(run_id: str, *, spare: Iterable[int] = (), grace_s: float = 5.0) -> list[MarkedProcess]:
    """End every process of a run, those included that it starts meanwhile; what was ended."""
    ended: dict[ProcessIdentity, MarkedProcess] = {}
    give_up = time.monotonic() + grace_s + KILL_S
    while (found := run_processes(run_id, spare)) and time.monotonic() < give_up:
        ended |= {marked.process: marked for marked in found}
        end_processes([marked.process for marked in found], grace_s)
    return sorted(ended.values(), key=lambda marked: marked.process.pid)


def _own_pids() -> Iterator[int]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a Path for each process costs more than the scan
        if entry.isdigit() and uid_of(int(entry)) == os.getuid():
            yield int(entry)
