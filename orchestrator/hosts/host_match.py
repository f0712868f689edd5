"""Hosts and a scenario's `slots` -> where each slot goes, or why the cluster cannot hold them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import ClusterRefusal
from orchestrator.plural import plural
from orchestrator.scenarios.scenario import Slots

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
    is_namesake: bool = False  # another host of the cluster has the same hostname

    @property
    def name(self) -> str:
        """What people call it, and no other host of the cluster."""
        return f"{self.hostname}@{self.address}" if self.is_namesake else self.hostname or self.address

    @property
    def key(self) -> str:
        """The same for a host that comes back, whose node id is another one then."""
        return f"{self.address} {self.hostname}"


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """One slot: its host, its number there, and the host of the load actor that drives it.

    `others` are further hosts of a server that runs on several; it has the same number on all of them. `host` is that
    of rank 0, which serves.
    """

    host: HostFacts
    number: int
    load_host: HostFacts
    others: tuple[HostFacts, ...] = ()

    @property
    def hosts(self) -> tuple[HostFacts, ...]:
        """Of all ranks, rank 0 first."""
        return (self.host, *self.others)

    @property
    def name(self) -> str:
        """What the slot is called."""
        return f"{self.hosts_name}/{self.number}"

    @property
    def hosts_name(self) -> str:
        return "+".join(host.name for host in self.hosts)

    @property
    def bind_address(self) -> str:
        """Loopback where all comes from the same host, else the address that the cluster knows."""
        alone = self.load_host.node_id == self.host.node_id and not self.others
        return LOOPBACK if alone else self.host.address


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """GPUs of one host (None: all of them). `ask` runs a function there, with the arguments behind it."""

    host: str
    gpu_ids: list[str] | None
    ask: Callable[..., Any]


def told_apart(hosts: list[HostFacts]) -> list[HostFacts]:
    """The same hosts; those with the hostname of another one (images are cloned) get the address into their name."""
    addresses: dict[str, set[str]] = {}
    for host in hosts:
        addresses.setdefault(host.hostname, set()).add(host.address)
    return [replace(h, is_namesake=True) if h.hostname and len(addresses[h.hostname]) > 1 else h for h in hosts]


def place_slots(slots: Slots, hosts: list[HostFacts]) -> list[SlotPlace]:
    """As many slots as the matching hosts hold, at most `count`. ClusterRefusal names wanted and available."""
    places = more_places(slots, hosts, ())
    if not places or (slots.count and len(places) < slots.count):
        raise ClusterRefusal(_refusal(slots, hosts, len(places)))
    return places


def more_places(slots: Slots, hosts: list[HostFacts], held: Collection[SlotPlace]) -> list[SlotPlace]:
    """Places for further slots beside those that are held, up to `count`; none if there is no room.

    Slots are dealt to the hosts in turn, so that all hosts work.
    """
    matching = [host for host in hosts if matches(host, slots)]
    room = {host.node_id: _room(host, slots) for host in matching}
    taken = {(host.node_id, place.number) for place in held for host in place.hosts}
    found: list[tuple[tuple[HostFacts, ...], int]] = []
    for number in range(max(room.values(), default=0)):
        free = [h for h in matching if number < room[h.node_id] and (h.node_id, number) not in taken]
        found += [(together, number) for together in _together(free, slots.nnodes)]
    if slots.count:
        found = found[: max(slots.count - len(held), 0)]
    loaders = _Loaders(hosts, {host.node_id for together, _ in found for host in together}, held)
    return [SlotPlace(of[0], number, loaders.for_slot_on(of[0]), of[1:]) for of, number in found]


def _together(hosts: list[HostFacts], nnodes: int) -> list[tuple[HostFacts, ...]]:
    """Hosts for servers that take `nnodes` each: only of one kind, as far as Ray knows it; by name."""
    if nnodes == 1:
        return [(host,) for host in hosts]
    kinds: dict[tuple[str | None, int], list[HostFacts]] = {}
    for host in hosts:
        kinds.setdefault((host.labels.get(ACCELERATOR_LABEL), host.gpus), []).append(host)
    for alike in kinds.values():
        alike.sort(key=lambda host: host.name)
    return [tuple(alike[i : i + nnodes]) for alike in kinds.values() for i in range(0, len(alike) - nnodes + 1, nnodes)]


class _Loaders:
    """Deals a CPU for its load to every slot: on hosts without servers, first those without GPUs; else on its own."""

    def __init__(self, hosts: list[HostFacts], serving: set[str], held: Collection[SlotPlace]) -> None:
        serving = serving | {host.node_id for place in held for host in place.hosts}
        used = [place.load_host.node_id for place in held]
        others = [host for host in hosts if host.node_id not in serving]
        able = [h for h in others if h.gpus == 0] if any(h.gpus == 0 and h.cpus >= 1 for h in others) else others
        self._free = {h.node_id: int(h.cpus) - used.count(h.node_id) for h in able}
        self._able = able
        self._next = len(used)

    def for_slot_on(self, host: HostFacts) -> HostFacts:
        """The load host of the next slot."""
        for turn in range(len(self._able)):
            loader = self._able[(self._next + turn) % len(self._able)]
            if self._free[loader.node_id] >= 1:
                self._free[loader.node_id] -= 1
                self._next += turn + 1
                return loader
        return host


def spread_hosts(place: SlotPlace, hosts: list[HostFacts]) -> list[HostFacts]:
    """Where load processes of a slot may go, its load host first while that lives. `hosts` are those that live.

    A server that is loaded from its own host listens on loopback only; else all hosts without GPUs can help.
    """
    if place.bind_address == LOOPBACK:
        return [place.load_host]
    first = [h for h in hosts if h.node_id == place.load_host.node_id]
    others = [h for h in hosts if h.gpus == 0 and h.cpus >= 1 and h.node_id != place.load_host.node_id]
    return [*first, *others] or [place.host]


def load_candidates(place: SlotPlace, hosts: list[HostFacts]) -> list[HostFacts]:
    """Where the load of a slot can go when its load host is gone, best first; its own host comes last.

    `hosts` are those that live. A server that listens on loopback can only be loaded from its own host.
    """
    if place.bind_address == LOOPBACK:
        return [place.host]
    own = {host.node_id for host in place.hosts}
    able = [h for h in hosts if h.cpus >= 1 and h.node_id not in own]
    return [*sorted(able, key=lambda h: h.gpus > 0), place.host]


def matches(host: HostFacts, slots: Slots) -> bool:
    """Whether a host has the labels and the accelerator that the scenario wants."""
    if slots.accelerators and host.labels.get(ACCELERATOR_LABEL) not in slots.accelerators:
        return False
    return all(_fits(host.labels.get(name), wanted) for name, wanted in slots.labels.items())


def _fits(found: str | None, wanted: str) -> bool:
    """Whether a label is as Ray's selectors say it: `x`, `!x`, `in(x,y)`, `!in(x,y)`; without the label only not-x."""
    no, wanted = wanted.startswith("!"), wanted.removeprefix("!")
    listed = wanted.removeprefix("in(").removesuffix(")") if wanted.startswith("in(") else None
    one_of = [wanted] if listed is None else [word.strip() for word in listed.split(",")]
    return (found in one_of) is not no


def _room(host: HostFacts, slots: Slots) -> int:
    if slots.gpus == 0:
        return slots.per_host or 1
    by_cpu = int(host.cpus // (slots.cpus + 1)) if slots.cpus else host.gpus
    return min(host.gpus // slots.gpus, by_cpu)


def _refusal(slots: Slots, hosts: list[HostFacts], found: int) -> str:
    wanted = f"{plural(slots.count, 'slot') if slots.count else 'at least one slot'} of {slots.size}"
    if slots.nnodes > 1:
        wanted += " of one kind"
    if slots.accelerators:
        wanted += f" ({' or '.join(slots.accelerators)})"
    if slots.labels:
        wanted += " on hosts with " + ", ".join(f"{k}={v}" for k, v in slots.labels.items())
    lines = [f"the cluster cannot hold what the scenario wants. Wanted: {wanted}. Available: {plural(found, 'slot')}."]
    for host in hosts:
        fits = _misfit(host, slots)
        kind = f" {host.labels[ACCELERATOR_LABEL]}" if ACCELERATOR_LABEL in host.labels else ""
        lines.append(f"  {host.name}: {plural(host.gpus, 'GPU')}{kind}, {host.cpus:g} CPUs ({fits})")
    if any(matches(host, slots) for host in hosts):
        lower = "slots.gpus, slots.nnodes" if slots.nnodes > 1 else "slots.gpus"
        todo = f"Lower {lower} or slots.count, change slots.labels"
    else:
        todo = "Change slots.labels or slots.accelerator"
    lines.append(f"{todo}, or add hosts (`specsweep hosts` lists them).")
    return "\n".join(lines)


def _misfit(host: HostFacts, slots: Slots) -> str:
    """What a host has in place of what is wanted, or that it matches."""
    if matches(host, slots):
        if host.gpus < slots.gpus:
            return "too few GPUs" if host.gpus else "no GPU"
        return "matches" if _room(host, slots) else "too few CPUs"
    told = [
        f"{name}={host.labels[name]}" if name in host.labels else f"no label {name}"
        for name, wanted in slots.labels.items()
        if not _fits(host.labels.get(name), wanted)
    ]
    accelerator = host.labels.get(ACCELERATOR_LABEL)
    if slots.accelerators and accelerator not in slots.accelerators:
        told.append(accelerator or "an accelerator that Ray does not know" if host.gpus else "no GPU")
    return f"does not match: {', '.join(told)}"


def bundle_of(slots: Slots) -> dict[str, float]:
    """What a slot takes of Ray's resources."""
    bundle = {"CPU": slots.cpus or 0.001}
    if slots.gpus:
        bundle["GPU"] = float(slots.gpus)
    return bundle
