"""Which hosts came and went since the last look, and which of them a run goes on with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from orchestrator.hosts.host_event import HostChange, HostEvent
from orchestrator.hosts.host_match import HostFacts, matches
from orchestrator.scenarios.scenario import Slots

# A host that was lost so often is not used again: it would cost a point each time.
MOST_LOSSES = 2


class HostWatch:
    """Remembers the hosts of a run. `now` tells the wall-clock time for events."""

    def __init__(self, slots: Slots, hosts: Iterable[HostFacts], now: Callable[[], str]) -> None:
        self._slots = slots
        self._now = now
        self._known = {host.node_id: host for host in hosts}
        self._losses: dict[str, int] = {}
        self._unused: dict[str, str] = {}

    def look(
        self, hosts: Iterable[HostFacts], working: Iterable[str] = (), why: Callable[[str], str] = str
    ) -> list[HostEvent]:
        """Compare with the hosts that live now. `working` are the nodes on which the run has something, `why` tells
        what ended a node. Only the loss of those, and of hosts that match, is an event.
        """
        living, ours = {host.node_id: host for host in hosts}, set(working)
        # For good: a host that comes back has a new node id.
        gone = [host for node, host in self._known.items() if node not in living]
        self._known = living
        events: list[HostEvent] = []
        for host in gone:
            if host.node_id in ours or matches(host, self._slots):
                events += self._lost(host, why(host.node_id))
        return events

    def _lost(self, host: HostFacts, reason: str) -> list[HostEvent]:
        self._losses[host.key] = losses = self._losses.get(host.key, 0) + 1
        events = [HostEvent(HostChange.LOST, host.name, self._now(), reason)]
        if losses == MOST_LOSSES:
            events.append(HostEvent(HostChange.QUARANTINED, host.name, self._now(), f"lost {losses} times"))
        return events

    def put_aside(self, host: HostFacts, reason: str) -> HostEvent | None:
        """The run does not use this host; the event the first time that this is said of it."""
        if self._unused.get(host.key) == reason:
            return None
        self._unused[host.key] = reason
        return HostEvent(HostChange.UNUSED, host.name, self._now(), reason)

    def is_usable(self, host: HostFacts) -> bool:
        """Whether new slots may be made there."""
        return not self.is_quarantined(host) and host.key not in self._unused

    def is_quarantined(self, host: HostFacts) -> bool:
        """Whether it was lost too often for anything of the run to go there."""
        return self._losses.get(host.key, 0) >= MOST_LOSSES
