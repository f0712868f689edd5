"""Ending strangers on GPUs on the user's word: shown, confirmed, ended on their hosts, and told what came back."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from orchestrator.errors import BadInput, ClusterRefusal
from orchestrator.hosts.host_match import GpuPlace


def evict_strangers(places: Sequence[GpuPlace], run_id: str | None, *, yes: bool, console: Console) -> list[str]:
    """Show who holds these GPUs, ask (`yes`: do not), end them; what stays or comes back, one sentence each.

    BadInput without a terminal to confirm at. Processes of ours and of other runs are not among them.
    """
    from actors.host.host_cleanup import strangers_told

    found = [(place, place.ask(strangers_told, run_id or "", place.gpu_ids)) for place in places]
    if not any(strangers for _, strangers in found):
        return []
    for place, strangers in found:
        for stranger in strangers:
            console.print(escape(f"{place.host}: {sentence(stranger)}"), soft_wrap=True)
    if not yes and not _confirmed():
        raise ClusterRefusal("nothing was evicted; the GPUs are held by the processes above")
    told: list[str] = []
    for place, strangers in found:
        told += _evict_on(place, run_id, strangers, console)
    return told


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise BadInput("--evict ends processes that are not ours: confirm on a terminal, or add --yes")
    return click.confirm("End these processes (SIGTERM, after 10 s SIGKILL)?", default=False)


def _evict_on(place: GpuPlace, run_id: str | None, strangers: list[dict[str, Any]], console: Console) -> list[str]:
    from actors.host.host_cleanup import evict_strangers as evict

    done = place.ask(evict, run_id, place.gpu_ids, [stranger["process"] for stranger in strangers])
    for line in done["evicted"]:
        console.print(escape(f"{place.host}: evicted {line}"), soft_wrap=True)
    stays = [f"{place.host}: {line}" for line in (*done["remaining"], *done["returns"])]
    for line in stays:
        console.print(escape(line), soft_wrap=True)
    return stays


def gpu_lines(gpu: Mapping[str, Any]) -> list[str]:
    """A GPU as it is shown: what is used of it, by whom, and where to look for those that cannot be seen."""
    lines = [f"GPU {gpu['index']} {gpu['name']}: {gpu['used_gib']:.1f} of {gpu['total_gib']:.1f} GiB used"]
    for holder in gpu["holders"]:
        lines.append(f"  {sentence(holder)}" + (f" (run {holder['run_id']})" if holder["run_id"] else ""))
    if gpu["where_to_look"]:
        lines.append(f"  {gpu['hidden_gib']:.1f} GiB held by no process that can be seen: {gpu['where_to_look']}")
    return lines


def sentence(holder: dict[str, Any]) -> str:
    """A holder of GPU memory as it is shown: pid, user, GiB, command, unit and how that restarts it."""
    gpus = ", ".join(f"GPU {index}" for index in holder["gpus"])
    held = f"{holder['gib']:.1f} GiB" if holder["gib"] else "an amount that the driver does not tell"
    told = f"{gpus}: pid {holder['pid']} of {holder['user']}, {held}: {holder['command']}"
    if holder["unit"]:
        restart = f", Restart={holder['restart']}" if holder["restart"] else ""
        told += f" [{holder['unit']}{restart}; stop it with: {holder['stop']}]"
    return told if holder["permitted"] else f"{told} (another user's: needs root)"
