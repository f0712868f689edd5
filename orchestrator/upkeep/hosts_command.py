"""`specsweep hosts`: what the cluster has, who occupies its GPUs, and what is wrong with it for a benchmark."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.errors import BadInput, ClusterRefusal
from orchestrator.host_report import HostReport
from orchestrator.hosts.host_match import ACCELERATOR_LABEL, HostFacts, place_slots
from orchestrator.plural import plural
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.slots.cluster import Cluster
from orchestrator.slots.ray_connection import Connection, connect, resolve_address
from orchestrator.stop_signals import EarlyInterrupt
from orchestrator.terminal import print_json
from orchestrator.upkeep.eviction_command import gpu_lines
from orchestrator.upkeep.host_survey import Surveyed, survey
from orchestrator.upkeep.host_warnings import host_warnings

GpuStates = list[dict[str, Any]] | None
_HIDDEN_LABELS = {"ray.io/node-id", ACCELERATOR_LABEL}


@dataclass(frozen=True)
class Fit:
    """How a scenario fits the cluster: slots by host, and why it would be refused (None: it would not).

    A slot over several hosts counts at each of them, and once in `total`.
    """

    name: str
    total: int
    slots: dict[str, int]
    refusal: str | None


def show_hosts(
    address: str | None, scenario: Path | None = None, *, overrides: tuple[str, ...] = (), as_json: bool,
    console: Console,
) -> None:  # fmt: skip
    """Print the hosts of a cluster, and of a scenario which of them it would use."""
    if overrides and scenario is None:
        raise BadInput("--set changes a scenario; give one with --scenario")
    wanted = load_scenario(scenario, overrides) if scenario else None
    emulated = wanted.slots.emulated_gpus if wanted else 0
    with EarlyInterrupt().listening():  # SIGTERM leaves nothing of an embedded cluster either
        cluster = connect(Connection(resolve_address(address), emulated, float(2 * emulated)), "specsweep-hosts")
        try:
            found = survey(cluster, wanted)
            states = {known.host.node_id: _gpu_states(cluster, known) for known in found}
        finally:
            cluster.close()
    fit = _fit(wanted, [known.host for known in found]) if wanted else None
    model = wanted.model.path if wanted else None
    warnings = host_warnings([known.seen for known in found if known.seen is not None], model)
    if as_json:
        told = {
            "hosts": [_host_json(known, states[known.host.node_id], fit) for known in found],
            "warnings": [asdict(warning) for warning in warnings],
            "scenario": asdict(fit) if fit else None,
        }
        print_json(told, console)
        return
    console.print(_table(found, fit))
    for known in found:
        _print_gpus(known.host, states[known.host.node_id], known.silence, console)
    if fit is not None:
        _print_fit(fit, console)
    for warning in warnings:
        console.print(escape(f"warning: {warning.told()}"), soft_wrap=True, highlight=False)


def _gpu_states(cluster: Cluster, known: Surveyed) -> GpuStates:
    return None if known.report is None or known.report.gpus is None else cluster.gpu_states(known.host)


def _fit(scenario: Scenario, hosts: list[HostFacts]) -> Fit:
    try:
        places = place_slots(scenario.slots, hosts)
    except ClusterRefusal as refusal:
        return Fit(scenario.name, 0, {}, str(refusal))
    by_host = Counter(host.node_id for place in places for host in place.hosts)
    return Fit(scenario.name, len(places), dict(by_host), None)


def _host_json(known: Surveyed, states: GpuStates, fit: Fit | None) -> dict[str, Any]:
    report = known.report
    told = {
        **asdict(known.host), "labels": dict(known.host.labels), "gpu_states": states,
        "report": asdict(report) if report else None, "host_class": report.host_class if report else None,
        "silence": known.silence or None, "clock_off_s": known.seen.clock_off_s if known.seen else None,
        "clock_error_s": known.seen.clock_error_s if known.seen else None,
    }  # fmt: skip
    if fit is not None:
        told["slots"] = fit.slots.get(known.host.node_id, 0)
    return told


def _table(found: list[Surveyed], fit: Fit | None) -> Table:
    table = Table(box=None, pad_edge=False)
    names = ["host", "address", "class", "GPUs", "accelerator", "CPUs", "memory GiB", "driver", "SGLang", "labels"]
    for name in [*names, *(("model", "slots") if fit else ())]:
        table.add_column(name, overflow="fold")
    for known in found:
        host, report = known.host, known.report
        labels = ", ".join(f"{k}={v}" for k, v in sorted(host.labels.items()) if k not in _HIDDEN_LABELS)
        cells = [
            host.hostname, host.address, report.host_class if report else "no answer", str(host.gpus),
            host.labels.get(ACCELERATOR_LABEL, "-"), f"{host.cpus:g}",
            f"{report.memory_gib if report else host.memory_gib:.0f}", (report and report.driver_version) or "-",
            (report and report.engine_version) or "-", labels or "-",
        ]  # fmt: skip
        if fit is not None:
            cells += [_presence(report), str(fit.slots.get(host.node_id, 0))]
        table.add_row(*map(escape, cells))
    return table


def _presence(report: HostReport | None) -> str:
    known = {True: "present", False: "missing"}
    return known.get(report.model_present, "not known") if report and report.model_present is not None else "not known"


def _print_fit(fit: Fit, console: Console) -> None:
    if fit.refusal is not None:
        console.print(escape(f"{fit.name}: {fit.refusal}"), soft_wrap=True, highlight=False)
        return
    told = f"{fit.name}: {plural(fit.total, 'slot')} on {plural(len(fit.slots), 'host')}"
    console.print(escape(told), soft_wrap=True, highlight=False)


def _print_gpus(host: HostFacts, gpus: GpuStates, silence: str, console: Console) -> None:
    if silence:
        console.print(escape(f"{host.name} does not answer: {silence}"), soft_wrap=True)
        return
    if gpus is None:
        if host.gpus:
            told = f"{host.name}: no NVIDIA driver answers, so who occupies its GPUs is not known"
            console.print(escape(told), soft_wrap=True)
        return
    for gpu in gpus:
        warned = [f"    {restart_warning(holder)}" for holder in gpu["holders"] if holder["restart"]]
        for line in (*gpu_lines(gpu), *warned):
            console.print(escape(f"{host.name}: {line}"), soft_wrap=True)


def restart_warning(process: dict[str, Any]) -> str:
    """That a holder of a GPU would come back as often as it ends, and what to do."""
    return (
        f"{process['unit']} restarts it (Restart={process['restart']}), also in the middle of a run: "
        f"{process['stop']}, before a run on this GPU"
    )
