"""`specsweep clean`: what is left of runs on every host, and who holds the GPUs; ends what is ours and dead."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from orchestrator.errors import BadInput
from orchestrator.hosts.host_match import GpuPlace
from orchestrator.paths import RunPaths
from orchestrator.plural import plural
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.slots.ray_connection import Connection, connect, resolve_address
from orchestrator.terminal import print_json
from orchestrator.upkeep.eviction_command import evict_strangers, gpu_lines


@dataclass(frozen=True)
class CleanRequest:
    """The arguments of `clean`, parsed."""

    address: str | None = None
    dry_run: bool = False
    run: str | None = None
    evict: bool = False
    yes: bool = False
    as_json: bool = False


def _run_id(run: str | None) -> str | None:
    """The id that hosts know a run by: as `clean` lists it, or from the run's directory."""
    if run is not None and ("/" in run or Path(run).is_dir()) and not RunPaths(Path(run)).manifest.exists():
        raise BadInput(f"--run {run}: is not a run directory (no manifest.json); give one, or an id that `clean` lists")
    if run is None or not RunPaths(Path(run)).manifest.exists():
        return run
    return str(read_manifest(Path(run))["run_id"])


def clean(request: CleanRequest, console: Console) -> bool:
    """Clean every host of the cluster, or this one where none runs; whether nothing remained."""
    if request.evict and request.dry_run:
        raise BadInput("--evict ends processes and --dry-run ends none; choose one")
    if request.evict and request.as_json and not request.yes:
        raise BadInput("--json does not ask: --evict needs --yes with it")
    shown = Console(quiet=True) if request.as_json else console
    with _hosts(request.address) as places:
        stays: list[str] = []
        if request.evict:
            stays = evict_strangers(places, None, yes=request.yes, console=shown)
        from actors.host.host_cleanup import clean_host

        order = {"only_run": _run_id(request.run), "dry_run": request.dry_run}
        found = {place.host: place.ask(clean_host, **order) for place in places}
    left = [*stays, *(f"{host}: {line}" for host, told in found.items() for line in told["remaining"])]
    if request.as_json:
        told = {"hosts": found, "remaining": left, "clean": not left}
        print_json(told, console)
    else:
        for host, report in found.items():
            _print(host, report, console)
        _print_rest(left, console, request)
    return not left


@contextlib.contextmanager
def _hosts(address: str | None) -> Iterator[list[GpuPlace]]:
    """Every host of the cluster at the address; this host without Ray where none is named and none runs."""
    if address == "local" or resolve_address(address) == "local":
        yield [GpuPlace(socket.gethostname(), None, lambda task, *given, **named: task(*given, **named))]
        return
    cluster = connect(Connection(address or "auto"), "specsweep-clean")
    try:
        yield cluster.host_places()
    finally:
        cluster.close()


def _print(host: str, report: dict[str, Any], console: Console) -> None:
    def say(text: str) -> None:
        console.print(escape(f"{host}: {text}"), soft_wrap=True)

    for run in report["runs"]:
        counts = (
            f"{plural(len(run['processes']), 'process', 'processes')}, {plural(len(run['containers']), 'container')}"
        )
        kept = f", {run['scratch']}" if run["scratch"] else ""
        say(f"run {run['run_id']} is {run['life']}: {counts}{kept}")
    for gpu in report["gpus"] or ():
        for line in gpu_lines(gpu):
            say(line)
    if report["gpus"] is None:
        say("no NVIDIA driver answers: if it has GPUs, who holds them is not known")
    for line in report["ended"]:
        say(line)


def _print_rest(left: list[str], console: Console, request: CleanRequest) -> None:
    if not left:
        # Of one run only: nothing is said about the rest of the host, and a mistyped id is not told as a clean run.
        clean_now = "Clean." if request.run is None else f"Nothing is left of a run {request.run}."
        console.print(escape(clean_now), soft_wrap=True)
        return
    console.print("\nFound, nothing was ended:" if request.dry_run else "\nStill there:")
    for line in left:
        console.print(escape(f"  {line}"), soft_wrap=True)
