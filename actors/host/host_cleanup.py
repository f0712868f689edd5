"""What a host has of ours and on its GPUs, and the end of what nobody needs. Runs on each host, answers JSON."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from typing import Any

from actors.gpus.gpu import IDLE_GIB
from actors.gpus.gpu_holders import GpuHolder, GpuUse, gpu_uses, occupant_sentences, where_to_look
from actors.gpus.gpu_ledger import ledger_of
from actors.host.evictions import evict, evictable
from actors.host.leftovers import HostMarks, MarkedProcess, end_processes, end_run_processes, host_marks, orphans
from actors.host.run_lease import (
    RunLife,
    dead_ray_folders,
    is_abandoned,
    leases_of,
    remove_scratch,
    scratch_dir,
    scratch_runs,
)
from actors.processes.command_output import output_of
from actors.processes.process_identity import ProcessIdentity
from actors.processes.process_unit import restart_policy
from actors.servers.container_end import run_containers, sweep_containers
from actors.servers.launch import shown_command

_GRACE_S = 5.0
_ASK_S = 10.0
_RUNTIMES = ("docker", "podman", "nerdctl")


def end_leftovers(run_id: str, runtime: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    """End what an earlier start of this run left on this host; (pid, command) of each process ended.

    `runtime` are the words that call the container runtime, if the run uses one; a container counts as pid 0.
    """
    ended = [(found.process.pid, shown_command(found.command)) for found in end_run_processes(run_id)]
    return ended + [(0, name) for name in (sweep_containers(runtime, run_id) if runtime else ())]


def prepare_host(run_id: str, runtime: tuple[str, ...] = ()) -> list[str]:
    """Before the first launch of a run: end what earlier starts of it and dead runs left here; a line for each."""
    told = [_line(pid, command, run_id) for pid, command in end_leftovers(run_id, runtime)]
    marks = host_marks()
    left = [found for found in orphans(marks, unclaimed=False) if found.run_id != run_id]
    end_processes([found.process for found in left], _GRACE_S)
    told += [_line(found.process.pid, shown_command(found.command), found.run_id) for found in left]
    for dead in (run for run in scratch_runs() if run != run_id and marks.life_of(run) is RunLife.DEAD):
        for words in _runtimes_of(dead, runtime):
            told += [_line(0, name, dead) for name in sweep_containers(words, dead)]
        remove_scratch(dead)
    return told


def _line(pid: int, command: str, run_id: str) -> str:
    what = f"process {pid}" if pid else "container"
    return f"ended a {what} that run {run_id} had left: {command}"


def _runtimes_of(run_id: str, also: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """How the slots of a run called their container runtime, as far as their leases tell."""
    words = [lease.runtime for lease in leases_of(run_id)] + [also]
    return list(dict.fromkeys(runtime for runtime in words if runtime))


def clean_host(*, only_run: str | None = None, dry_run: bool = False) -> dict[str, Any]:
    """What there is on this host by run, what was ended of it, and what stays: {"runs", "gpus", "ended", "remaining"}.

    Ended are runs that are dead, and processes without guard that no run claims; never anything of a run that lives.
    """
    marks = host_marks()
    runs = [r for r in sorted({*(p.run_id for p in marks.processes), *scratch_runs()}) if only_run in (None, r)]
    containers = _containers(only_run)
    runs += sorted({c["run_id"] for c in containers} - set(runs))
    listed = [_run_told(run, marks, [c for c in containers if c["run_id"] == run]) for run in runs]
    ended: list[str] = []
    if not dry_run:
        for told in listed:
            ended += _end_run(told, marks)
        ended += _remove_ray_folders() if only_run is None else []
    uses = gpu_uses()
    return {
        "pid": os.getpid(),
        "runs": listed,
        "gpus": None if uses is None else [_gpu_told(use) for use in uses],
        "ledger": str(ledger.folder) if (ledger := ledger_of(os.environ)) else None,
        "ended": ended,
        "remaining": _remaining(listed, uses or (), only_run, dry_run=dry_run),
    }


def _containers(only_run: str | None) -> list[dict[str, Any]]:
    """Containers with our label, of every runtime that is installed or that a lease names."""
    calls: set[tuple[str, ...]] = {(name,) for name in _RUNTIMES if shutil.which(name)}
    calls.update(words for run in scratch_runs() for words in _runtimes_of(run))
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for words in sorted(calls):
        for name, run_id in run_containers(words):
            if only_run in (None, run_id):
                found.setdefault((words[-1], name), {"name": name, "run_id": run_id, "runtime": list(words)})
    return list(found.values())


def _run_told(run_id: str, marks: HostMarks, containers: list[dict[str, Any]]) -> dict[str, Any]:
    life = marks.life_of(run_id)
    processes = [p for p in marks.processes if p.run_id == run_id]
    orphaned = {p.process for p in orphans(marks, unclaimed=True)}
    return {
        "run_id": run_id,
        "life": life.value,
        "processes": [_process_told(p, p.process in orphaned) for p in processes],
        "containers": containers,
        "scratch": str(scratch_dir(run_id)) if scratch_dir(run_id).exists() else None,
        "guards": list(marks.guards.get(run_id, ())),
    }


def _process_told(found: MarkedProcess, orphaned: bool) -> dict[str, Any]:
    return {
        **asdict(found.process), "trial_id": found.trial_id, "command": shown_command(found.command),
        "guarded": found.guarded, "orphaned": orphaned,
    }  # fmt: skip


def _end_run(told: dict[str, Any], marks: HostMarks) -> list[str]:
    """End what is left of a run, as far as it is dead; lines about it."""
    run_id, dead = told["run_id"], told["life"] == RunLife.DEAD
    lost = [ProcessIdentity.of(process) for process in told["processes"] if process["orphaned"]]
    ending = end_processes(lost, _GRACE_S)
    names = {p.process: shown_command(p.command) for p in marks.processes}
    lines = [_line(process.pid, names[process], run_id) for process in ending.ended]
    if dead:
        for words in {tuple(container["runtime"]) for container in told["containers"]}:
            lines += [_line(0, name, run_id) for name in sweep_containers(words, run_id)]
    given_up = dead or (told["life"] == RunLife.UNKNOWN and is_abandoned(run_id))
    if told["scratch"] and given_up and not ending.remaining:
        remove_scratch(run_id)
        lines.append(f"removed {told['scratch']}")
    return lines


def _remove_ray_folders() -> list[str]:
    removed = dead_ray_folders()
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
    return [f"removed {folder}" for folder in removed]


def _remaining(
    listed: list[dict[str, Any]], uses: tuple[GpuUse, ...], only_run: str | None, *, dry_run: bool
) -> list[str]:
    """What is still there and nobody uses, or holds a GPU without being ours. A run that lives is no leftover."""
    told: list[str] = []
    for run in listed:
        if run["life"] == RunLife.ALIVE:
            continue
        name = f"run {run['run_id']} ({run['life']})"
        left = [p for p in run["processes"] if ProcessIdentity.of(p).lives]
        told += [f"{name}: process {p['pid']}: {p['command']}" for p in left]
        still = run["containers"] if dry_run or run["life"] != RunLife.DEAD else _still_there(run["containers"])
        told += [f"{name}: container {c['name']}; end it: {' '.join(c['runtime'])} rm -f {c['name']}" for c in still]
        if run["scratch"] and (scratch_dir(run["run_id"])).exists():
            told.append(f"{name}: {run['scratch']}" + ("" if run["life"] == RunLife.DEAD else "; kept for a day"))
    if only_run is None:
        living = {run["run_id"] for run in listed if run["life"] == RunLife.ALIVE}
        told += map(shown_command, occupant_sentences([_without(use, living) for use in uses], ""))
    return told


def _still_there(containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {name for words in {tuple(c["runtime"]) for c in containers} for name, _ in run_containers(words)}
    return [container for container in containers if container["name"] in names]


def _without(use: GpuUse, living: set[str]) -> GpuUse:
    """A GPU without holders of ours: a run that lives may hold it, any other is listed as a run already."""
    is_used = any(holder.run_id in living for holder in use.holders)
    return GpuUse(use.state, tuple(h for h in use.holders if h.run_id is None), 0.0 if is_used else use.hidden_gib)


def gpus_told() -> list[dict[str, Any]] | None:
    """This host's GPUs as JSON: what is used of each, by whom, and what nobody that can be seen explains; None where
    no NVIDIA driver answers.
    """
    uses = gpu_uses()
    return None if uses is None else [_gpu_told(use) for use in uses]


def _gpu_told(use: GpuUse) -> dict[str, Any]:
    state = use.state
    return {
        "index": state.index, "uuid": state.uuid, "name": state.name, "total_gib": state.total_gib,
        "used_gib": round(state.used_gib, 2), "free_gib": round(state.free_gib, 2),
        "hidden_gib": round(use.hidden_gib, 2), "holders": [holder_told(holder) for holder in use.holders],
        "where_to_look": where_to_look() if use.hidden_gib >= IDLE_GIB else None,
    }  # fmt: skip


def holder_told(holder: GpuHolder) -> dict[str, Any]:
    """A holder as JSON, without secrets; `restart` says how its unit is started again, if it is."""
    policy = restart_policy(holder.unit, _ask) if holder.unit is not None else None
    return {
        "pid": holder.pid, "process": asdict(holder.process) if holder.process else None, "user": holder.user,
        "command": shown_command(holder.command), "gib": round(holder.gib, 2), "gpus": list(holder.gpus),
        "unit": holder.unit.name if holder.unit else None, "stop": holder.unit.stop if holder.unit else None,
        "restart": policy, "run_id": holder.run_id, "by_device": holder.by_device, "permitted": holder.permitted,
    }  # fmt: skip


def _ask(words: list[str]) -> str | None:
    return output_of(words, limit_s=_ASK_S)


def strangers_told(run_id: str, gpu_ids: list[str] | None = None) -> list[dict[str, Any]]:
    """Strangers on these GPUs (None: all) that could be evicted."""
    return [holder_told(holder) for holder in evictable(run_id, gpu_ids) if holder.run_id is None]


def evict_strangers(run_id: str | None, gpu_ids: list[str] | None, wanted: list[dict[str, Any]]) -> dict[str, Any]:
    """End the processes that the user was shown: {"evicted", "remaining", "returns"}, a sentence for each."""
    done = evict([ProcessIdentity.of(process) for process in wanted], run_id=run_id, gpu_ids=gpu_ids)
    refused = {process.pid for process in done.refused}
    return {
        "evicted": [f"pid {s.process.pid}: {shown_command(s.command)}" for s in done.evicted],
        "remaining": [
            f"pid {p.pid}: {'not permitted, it is of another user' if p.pid in refused else 'survives even SIGKILL'}"
            for p in done.remaining
        ],
        "returns": [shown_command(str(found)) for found in done.returns],
    }  # fmt: skip
