"""Hosts and a scenario's `slots` -> where each slot goes, or why the cluster cannot hold them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import ClusterRefusal
from orchestrator.scenario import Slots

LOOPBACK = "127.0.0.1"
ACCELERATOR_LABEL = "ray.io/accelerator-type"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One living host of the cluster."""

    node_id: str
    address: str
    hostname: str
    gpus: int
    cpus: float
    memory_gib: float
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """One slot: its host, its number there, and the host of the load actor that drives it."""

    host: HostFacts
    number: int
    load_host: HostFacts

    @property
    def bind_address(self) -> str:
        """Loopback where the load comes from the same host, else the address that the cluster knows."""
        return LOOPBACK if self.load_host.node_id == self.host.node_id else self.host.address


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """GPUs of one host (None: all of them). `ask` runs a function there, with the arguments behind it."""

    host: str
    gpu_ids: list[str] | None
    ask: Callable[..., Any]


def place_slots(slots: Slots, hosts: list[HostFacts]) -> list[SlotPlace]:
    """As many slots as the matching hosts hold, at most `count`; load comes from hosts without GPUs if there are any.

    Slots are dealt to the hosts in turn, so that all hosts work. ClusterRefusal names wanted and available.
    """
    matching = [host for host in hosts if matches(host, slots)]
    room = {host.node_id: _room(host, slots) for host in matching}
    places: list[SlotPlace] = []
    loaders = _load_hosts(slots, hosts)
    wanted = slots.count or sum(room.values())
    number = 0
    while len(places) < wanted and any(number < room[host.node_id] for host in matching):
        for host in matching:
            if number < room[host.node_id] and len(places) < wanted:
                loader = loaders[len(places) % len(loaders)] if loaders else host
                places.append(SlotPlace(host, number, loader))
        number += 1
    if not places or (slots.count and len(places) < slots.count):
        raise ClusterRefusal(_refusal(slots, hosts, matching, len(places)))
    return places


def spread_hosts(place: SlotPlace, hosts: list[HostFacts]) -> list[HostFacts]:
    """Where load processes of a slot may go, its load host first.

    A server that is loaded from its own host listens on loopback only; else all hosts without GPUs can help.
    """
    if place.load_host.node_id == place.host.node_id:
        return [place.load_host]
    others = [h for h in hosts if h.gpus == 0 and h.cpus >= 1 and h.node_id != place.load_host.node_id]
    return [place.load_host, *others]


def matches(host: HostFacts, slots: Slots) -> bool:
    """Whether a host has the labels and the accelerator that the scenario wants."""
    if slots.accelerator and host.labels.get(ACCELERATOR_LABEL) != slots.accelerator:
        return False
    for name, wanted in slots.labels.items():
        found = host.labels.get(name)
        if wanted.startswith("!") and found == wanted[1:]:
            return False
        if not wanted.startswith("!") and found != wanted:
            return False
    return True


def _room(host: HostFacts, slots: Slots) -> int:
    if slots.gpus == 0:
        return slots.per_host or 1
    by_cpu = int(host.cpus // (slots.cpus + 1)) if slots.cpus else host.gpus
    return min(host.gpus // slots.gpus, by_cpu)


def _load_hosts(slots: Slots, hosts: list[HostFacts]) -> list[HostFacts]:
    if slots.gpus == 0:
        return []
    return [host for host in hosts if host.gpus == 0 and host.cpus >= 1]


def _refusal(slots: Slots, hosts: list[HostFacts], matching: list[HostFacts], found: int) -> str:
    wanted = f"{slots.count or 'at least one'} slot(s) of {slots.gpus} GPUs"
    if slots.accelerator:
        wanted += f" ({slots.accelerator})"
    if slots.labels:
        wanted += " on hosts with " + ", ".join(f"{k}={v}" for k, v in slots.labels.items())
    lines = [f"the cluster cannot hold what the scenario wants. Wanted: {wanted}. Available: {found} slot(s)."]
    for host in hosts:
        fits = "matches" if host in matching else "does not match labels or accelerator"
        kind = f" {host.labels[ACCELERATOR_LABEL]}" if ACCELERATOR_LABEL in host.labels else ""
        lines.append(f"  {host.hostname or host.address}: {host.gpus} GPUs{kind}, {host.cpus:g} CPUs ({fits})")
    lines.append("Lower slots.gpus or slots.count, change slots.labels, or add hosts (`specsweep hosts` lists them).")
    return "\n".join(lines)


def bundle_of(slots: Slots) -> dict[str, float]:
    """What a slot takes of Ray's resources."""
    bundle = {"CPU": slots.cpus or 0.001}
    if slots.gpus:
        bundle["GPU"] = float(slots.gpus)
    return bundle
