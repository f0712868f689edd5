"""Several load actors that offer one point together: their streams as one, and what they are told."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from actors.load.load_ensemble import Ensemble, FlightTimes, Order
from actors.load.load_member import MESSAGES, End, Place
from orchestrator.error_text import cause_of, first_line
from orchestrator.loads.load_clocks import offset_ns
from orchestrator.slots.actor_watch import DRAIN_S, ActorWatch
from orchestrator.slots.slot_port import SlotLost, TrialBroken
from orchestrator.trial import ClientReport, PointSpec

# From the last member's word that it is ready to the first request: more than the driver needs to tell all of them.
_LEAD_NS = 1_000_000_000
# A member says something twice a second while its actor lives, whatever its server does.
_QUIET_S = 60.0
_FETCH_S = 30.0
_CLOCK_READINGS = 5


class RayEnsemble:
    """`actors` and, by `streams`, what each of them yields at one point. `lost` has the members that are gone, and why.

    `watch` tells what becomes of the slot whose server they load: its `fault` ends the point for all.
    `offsets_ns`: of each member's wall clock from ours.
    Afterwards `taken` says how many batches each member's stream gave: the rest is in its spool.
    """

    def __init__(self, actors: list[Any], streams: list[Any], watch: ActorWatch, offsets_ns: Sequence[int]) -> None:
        self._watch = watch
        self._offsets_ns = offsets_ns
        self._until_s: float | None = None
        self.fault: SlotLost | TrialBroken | None = None
        self._actors = actors
        self._streams = dict(enumerate(streams))
        self._heard_s = dict.fromkeys(self._streams, time.monotonic())
        self._rules = Ensemble(len(actors), clock=time.time_ns, lead_ns=_LEAD_NS)
        self._flights = FlightTimes()
        self.taken = dict.fromkeys(self._streams, 0)
        self.lost: dict[int, str] = {}

    def items(self, spec: PointSpec) -> Iterator[Any]:
        """Batches of all members as they come, at last one ClientReport unless all members, or their slot, are lost."""
        while self._streams and not self._is_late():
            for member in self._ready():
                item = self._take(member)
                if isinstance(item, ClientReport):
                    self._carry_out(self._rules.reported(member, item))
                elif isinstance(item, MESSAGES):
                    self._carry_out(self._rules.told(member, item))
                elif item is not None:
                    self.taken[member] += 1
                    self._flights.saw(item)
                    yield item
        report = self._rules.report(spec, self._flights.peak)
        if report is not None and self.fault is None:
            yield report

    def _ready(self) -> list[int]:
        """Members whose streams have something, or end. Those that were silent for too long are lost."""
        import ray

        streams = list(self._streams.items())
        watched = [] if self.fault is not None else [self._watch.call]
        awaited = [*(stream for _, stream in streams), *watched]
        ready, _ = ray.wait(awaited, num_returns=1, timeout=1.0, fetch_local=False)
        now = time.monotonic()
        if watched and any(watched[0] is other for other in ready):
            self._saw_fault(self._watch.fault(1.0))
        found = [member for member, stream in streams if any(stream is other for other in ready)]
        self._heard_s |= dict.fromkeys(found, now)
        for member, _ in streams:
            if now - self._heard_s[member] > _QUIET_S:
                self._lose(member, f"no sign of life for {_QUIET_S:g} s")
        return [member for member in found if member in self._streams]

    def _saw_fault(self, fault: SlotLost | TrialBroken | None) -> None:
        """The slot is gone or was cut off: what the members still have to tell is taken, if it comes soon."""
        if fault is not None:
            self.fault, self._until_s = fault, time.monotonic() + DRAIN_S
            for member in self._streams:
                self._actors[member].interrupt.remote()

    def _is_late(self) -> bool:
        return self._until_s is not None and time.monotonic() > self._until_s

    def _take(self, member: int) -> Any:
        """The next item of a stream that has one; None if it is through or lost."""
        import ray

        try:
            return ray.get(next(self._streams[member]), timeout=_FETCH_S)
        except StopIteration:
            del self._streams[member]
        except ray.exceptions.RayTaskError as error:
            self._lose(member, cause_of(error))
        except ray.exceptions.RayError as error:  # also what was lost with the object store of its host
            self._lose(member, first_line(error))
        return None

    def _lose(self, member: int, why: str) -> None:
        del self._streams[member]
        self.lost[member] = why
        self._carry_out(self._rules.lost(member, why))

    def _carry_out(self, orders: list[Order]) -> None:
        for order in orders:
            for member in order.members:
                actor = self._actors[member]
                if isinstance(order.what, End):
                    actor.interrupt.remote(order.what.why)
                    continue
                place, value = order.what.place, order.what.value
                if place is Place.START and value is not None:
                    value += self._offsets_ns[member]
                actor.release.remote(place, value)


def clock_offset_ns(actor: Any) -> int:
    """How far the wall clock of a load actor's host is from ours; 0 if it does not answer, which its stream tells."""
    import ray

    readings = []
    try:
        for _ in range(_CLOCK_READINGS):
            before = time.time_ns()
            there = ray.get(actor.clock.remote(), timeout=_FETCH_S)
            readings.append((before, there, time.time_ns()))
    except ray.exceptions.RayError:
        return 0
    return offset_ns(readings)
