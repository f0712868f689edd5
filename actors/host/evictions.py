"""Ending strangers that hold GPUs, when the user says so: exactly the processes shown, and a watch for their return."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from actors.gpus.gpu_holders import GpuHolder, gpu_uses
from actors.host.leftovers import end_processes
from actors.host.run_lease import scratch_dir
from actors.processes.crash_loop import CrashLoops, Return, Sighting
from actors.processes.process_facts import command_of, server_root, unit_holding
from actors.processes.process_identity import ProcessIdentity, identify, ticks_now

GRACE_S = 10.0
# A service manager starts its unit again after 0.1 s by default, and many units wait some seconds.
WATCH_S = 6.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Eviction:
    """What became of the processes that were to go. `returns`: something starts them again, it is not fought."""

    evicted: tuple[Sighting, ...]
    remaining: tuple[ProcessIdentity, ...]
    refused: tuple[ProcessIdentity, ...]
    returns: tuple[Return, ...]


def evictable(run_id: str | None, gpu_ids: list[str] | None = None) -> list[GpuHolder]:
    """Strangers on these GPUs that can be ended by a signal from here, each once."""
    uses = gpu_uses(gpu_ids) or ()
    found = {holder.pid: holder for use in uses for holder in use.strangers(run_id or "")}
    return [holder for holder in found.values() if holder.process is not None]


def evict(
    wanted: Iterable[ProcessIdentity],
    *,
    run_id: str | None = None,
    gpu_ids: list[str] | None = None,
    grace_s: float = GRACE_S,
    watch_s: float | None = None,
) -> Eviction:
    """End these processes, as far as they still hold those GPUs: SIGTERM, grace, SIGKILL. Then look for their return.

    A number that now is another process's, and one that has let the GPUs go, is left alone.
    """
    asked = set(wanted)
    going = [holder for holder in evictable(run_id, gpu_ids) if holder.process in asked]
    sightings = [sighting for holder in going if (sighting := holder.sighting) is not None]
    commands = {s.command for s in sightings} | {s.server for s in sightings}
    loops = CrashLoops()
    loops.saw(_running(commands))  # also those that are to stay: a second replica is no return
    loops.evicted(sighting.process for sighting in sightings)
    ending = end_processes([sighting.process for sighting in sightings], grace_s)
    evicted = tuple(s for s in sightings if s.process in ending.ended)
    if run_id is not None and evicted:
        _remember(run_id, evicted)
    returns = _watch(loops, commands, WATCH_S if watch_s is None else watch_s) if evicted else ()
    return Eviction(evicted, ending.remaining, ending.refused, returns)


def _running(commands: set[str]) -> list[Sighting]:
    """Every process with one of these commands. Those that servers were started as come back first, without a GPU."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    return [found for pid in pids if command_of(pid) in commands and (found := _sighting(pid)) is not None]


def _sighting(pid: int) -> Sighting | None:
    process, unit = identify(pid), unit_holding(pid)
    if process is None:
        return None
    named = (unit.name, unit.stop) if unit else (None, None)
    return Sighting(process, command_of(pid), command_of(server_root(pid)), *named)


def _watch(loops: CrashLoops, commands: set[str], watch_s: float) -> tuple[Return, ...]:
    """The first that return within the time."""
    deadline = time.monotonic() + watch_s
    while True:
        if found := loops.saw(_running(commands)):
            return found
        if time.monotonic() >= deadline:
            return ()
        time.sleep(_POLL_S)


def _remember(run_id: str, evicted: tuple[Sighting, ...]) -> None:
    """For the slots of the run: one that finds these again knows that somebody starts them."""
    file = scratch_dir(run_id) / "evicted.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as kept:
        told = ({**asdict(sighting), "at_ticks": ticks_now()} for sighting in evicted)
        kept.writelines(json.dumps(eviction) + "\n" for eviction in told)


def evicted_here(run_id: str) -> list[tuple[Sighting, int]]:
    """What was evicted for a run on this host, and when, in ticks since boot."""
    try:
        lines = (scratch_dir(run_id) / "evicted.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [_sighting_of(json.loads(line)) for line in lines if line.endswith("}")]


def _sighting_of(told: dict[str, Any]) -> tuple[Sighting, int]:
    at_ticks = int(told.pop("at_ticks"))
    return Sighting(**{**told, "process": ProcessIdentity.of(told["process"])}), at_ticks
