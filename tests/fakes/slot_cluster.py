"""A cluster of hosts that come, go and are busy as a test says; its slots are FakeSlots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.hosts.host_match import HostFacts, SlotPlace
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.slots.slot_source import Grant, Made
from tests.fakes.slot import FakeSlot


def gpu_host(name: str, gpus: int = 1, node: str | None = None) -> HostFacts:
    """A host; with another `node` it is the same one, come back."""
    return HostFacts(node or f"node-{name}", f"10.0.0.{len(name)}", name, gpus, 64, 256, {})


class FakeGrant:
    """Granted while its place is not in the cluster's `busy`."""

    def __init__(self, cluster: FakeCluster, place: SlotPlace) -> None:
        self.place = place
        self._cluster = cluster

    @property
    def is_granted(self) -> bool:
        return self.place.name not in self._cluster.busy

    def release(self) -> None:
        self._cluster.released.append(self.place.name)
        self._cluster.held.remove(self.place.name)


class FakeCluster:
    """A SlotCluster. `silent`: hosts on which no actor comes up. `classes`: of hosts, by name."""

    def __init__(self, *hosts: HostFacts, new_slot: Callable[[str], FakeSlot] = FakeSlot) -> None:
        self.hosts: list[HostFacts] | None = list(hosts)
        self.busy: set[str] = set()
        self.silent: set[str] = set()
        self.unfit: set[str] = set()
        self.classes: dict[str, str] = {}
        self.held: list[str] = []
        self.released: list[str] = []
        self.made: list[str] = []
        self._new_slot = new_slot

    def living(self) -> list[HostFacts] | None:
        return self.hosts

    def death_of(self, node_id: str) -> str:
        return "power loss"

    def ask_for(self, place: SlotPlace) -> Grant:
        assert place.name not in self.held, f"{place.name} is held already"
        self.held.append(place.name)
        return FakeGrant(self, place)

    def make(self, grants: Sequence[Grant]) -> list[Made]:
        return [self._make(grant.place) for grant in grants]

    def _make(self, place: SlotPlace) -> Made:
        for host in place.hosts:
            if host.name in self.unfit:
                return Made(None, "another class", unfit=True, host=host)
            if host.name in self.silent:
                return Made(None, "its actor did not come up", host=host)
        self.made.append(place.name)
        slot = self._new_slot(place.name)
        slot.facts = SlotFacts(place.name, place.hosts_name, ("0",), 1, self.classes.get(place.host.name, ""))
        return Made(slot)
