"""`specsweep hosts`: what the cluster has, and who occupies its GPUs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.host_match import HostFacts
from orchestrator.ray_connection import Connection, connect, resolve_address


def show_hosts(address: str | None, *, as_json: bool, console: Console) -> None:
    """Print the hosts of a cluster."""
    cluster = connect(Connection(resolve_address(address)), "specsweep-hosts")
    try:
        rows = [(host, cluster.gpu_states(host)) for host in cluster.hosts()]
    finally:
        cluster.close()
    if as_json:
        listed = [{**asdict(host), "labels": dict(host.labels), "gpu_states": gpus} for host, gpus in rows]
        console.file.write(json.dumps(listed, indent=1) + "\n")
    else:
        _print(rows, console)


def _print(rows: list[tuple[HostFacts, list[dict[str, Any]] | None]], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("host", "address", "GPUs", "CPUs", "memory GiB", "labels"):
        table.add_column(name, overflow="fold")
    for host, _ in rows:
        labels = ", ".join(f"{k}={v}" for k, v in host.labels.items() if k != "ray.io/node-id")
        memory = f"{host.memory_gib:.0f}"
        table.add_row(
            escape(host.hostname), host.address, str(host.gpus), f"{host.cpus:g}", memory, escape(labels) or "-"
        )
    console.print(table)
    for host, gpus in rows:
        _print_gpus(host, gpus, console)


def _print_gpus(host: HostFacts, gpus: list[dict[str, Any]] | None, console: Console) -> None:
    if gpus is None:
        console.print(f"{host.hostname}: no NVIDIA driver answers, so who occupies its GPUs is not known")
        return
    for gpu in gpus:
        used = f"{gpu['used_gib']:.1f} of {gpu['total_gib']:.1f} GiB used"
        console.print(f"{host.hostname} GPU {gpu['index']} {gpu['name']}: {used}")
        for process in gpu["processes"]:
            told = f"  pid {process['pid']} {process['user']} {process['gib']:.1f} GiB: {process['command']}"
            console.print(escape(told))
            if process.get("restart"):
                console.print(escape(f"    {restart_warning(process)}"), soft_wrap=True)


def restart_warning(process: dict[str, Any]) -> str:
    """That a holder of a GPU would come back as often as it ends, and what to do."""
    return (
        f"{process['unit']} restarts it (Restart={process['restart']}), also in the middle of a run: "
        f"{process['stop']}, before a run on this GPU"
    )
