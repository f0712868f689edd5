"""Who of an ensemble waits where, and what follows: the rules of several processes that offer one load. Pure.

Whoever carries messages (pipes to child processes, Ray) tells what members said and does what comes back.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from actors.load.load_member import BEFORE_LOAD, Arrived, Beat, End, Ending, Message, Place, Release, Silent
from orchestrator.trial import ClientReport, PointSpec


@dataclass(frozen=True, slots=True)
class Order:
    """Something that is to be told to these members."""

    members: tuple[int, ...]
    what: Release | End


class Ensemble:
    """Members `0..count-1` at one point. Every method returns orders, to be carried out in turn.

    A member that is lost, or that ends early before the load, ends the point for all. After an end nobody waits for
    anybody. `clock` is the wall clock in nanoseconds; the load begins `lead_ns` after the last member is ready.
    """

    def __init__(self, count: int, *, clock: Callable[[], int], lead_ns: int) -> None:
        self._clock = clock
        self._lead_ns = lead_ns
        self._living = set(range(count))
        self._waiting: dict[int, Arrived] = {}
        self._idle: set[int] = set()
        self._silent: set[int] = set()
        self._reports: dict[int, ClientReport] = {}
        self.ending: Ending | None = None  # why the point is ended before its time
        self.faults: list[str] = []

    @property
    def done(self) -> bool:
        """Whether every member has reported or is lost."""
        return not self._living

    def told(self, member: int, message: Message) -> list[Order]:
        """A member said something."""
        if member not in self._living:
            return []
        match message:
            case Arrived():
                return self._arrived(member, message)
            case Beat(moved, busy):
                (self._idle.discard if busy else self._idle.add)(member)
                if moved:
                    self._silent.discard(member)
            case Silent():
                self._silent.add(member)
        return self._end("hung") if self._all_silent else []

    def reported(self, member: int, report: ClientReport) -> list[Order]:
        """A member is through."""
        self._reports[member] = report
        self._leave(member)
        return self._release_if_all()

    def lost(self, member: int, fault: str) -> list[Order]:
        """A member is gone, or what it did broke."""
        if member not in self._living:
            return []
        self.faults.append(fault)
        self._leave(member)
        return self._end("cancelled")

    def stop(self, why: Ending = "cancelled") -> list[Order]:
        """The point is to end soon."""
        return self._end(why)

    def report(self, spec: PointSpec, peak: int) -> ClientReport | None:
        """What the members that reported say together; None if none did. `peak`: most requests in flight at once."""
        if not self._reports:
            return None
        reports = [self._reports[i] for i in sorted(self._reports)]
        merged = merge_reports(reports, spec, peak)
        return replace(merged, stopped_by=self.ending) if self.ending else merged

    @property
    def _all_silent(self) -> bool:
        """One is silent, and no other has requests that move."""
        return bool(self._silent) and self._living <= self._silent | self._idle

    def _arrived(self, member: int, arrived: Arrived) -> list[Order]:
        self._idle.add(member)
        if self.ending is not None:
            return [Order((member,), Release(arrived.place))]
        self._waiting[member] = arrived
        if arrived.ended and arrived.place in BEFORE_LOAD:
            return self._end("cancelled")
        return self._release_if_all() + (self._end("hung") if self._all_silent else [])

    def _release_if_all(self) -> list[Order]:
        if not self._waiting or set(self._waiting) != self._living:
            return []
        members, leader = tuple(sorted(self._waiting)), self._waiting.get(0)
        place = next(iter(self._waiting.values())).place
        value = leader.value if leader else None
        if place is Place.START:
            value = self._clock() + self._lead_ns
        self._waiting.clear()
        return [Order(members, Release(place, value))]

    def _leave(self, member: int) -> None:
        self._living.discard(member)
        self._waiting.pop(member, None)

    def _end(self, why: Ending) -> list[Order]:
        """Tell all who live, and let go who waits."""
        if self.ending is not None or not self._living:
            return []
        self.ending = why
        waiting = [Order((m,), Release(arrived.place)) for m, arrived in sorted(self._waiting.items())]
        self._waiting.clear()
        return [Order(tuple(sorted(self._living)), End(why)), *waiting]


class FlightTimes:
    """When measured requests were in flight, by their records; for the most at once over all members."""

    def __init__(self) -> None:
        self._sent_ns, self._end_ns = array("q"), array("q")

    def saw(self, batch: Any) -> None:
        """Some records, as a batch of `requests`."""
        measured = ~batch.column("warmup").to_numpy(zero_copy_only=False)
        for times, name in ((self._sent_ns, "sent_ns"), (self._end_ns, "end_ns")):
            times.frombytes(batch.column(name).to_numpy()[measured].tobytes())

    @property
    def peak(self) -> int:
        """Most at once; an end makes room for a send at the same time."""
        sent, ended = (np.sort(np.frombuffer(times, dtype=np.int64)) for times in (self._sent_ns, self._end_ns))
        in_flight = np.arange(1, len(sent) + 1) - np.searchsorted(ended, sent, side="right")
        return int(in_flight.max(initial=0))


def merge_reports(reports: list[ClientReport], spec: PointSpec, peak: int) -> ClientReport:
    """One report of several members, that of member 0 first: sums of work and of what waits, the worst of delays.

    What only member 0 asks the server stays as it said.
    """
    requests = sum(r.requests for r in reports)
    all_sent = spec.duration_s is None or (spec.requests is not None and requests >= spec.requests)
    backlogs = [r.backlog_p99_kib for r in reports if r.backlog_p99_kib is not None]
    return replace(
        reports[0],
        duration_s=max(r.duration_s for r in reports),
        cpu_s=sum(r.cpu_s for r in reports),
        loop_lag_p99_ms=max(r.loop_lag_p99_ms for r in reports),
        schedule_delay_p99_ms=max(r.schedule_delay_p99_ms for r in reports),
        peak_concurrency=peak,
        requests=requests,
        stopped_by=_stopped_by({r.stopped_by for r in reports}) or ("requests" if all_sent else "duration"),
        gated_requests=sum(r.gated_requests for r in reports),
        reconnects=sum(r.reconnects for r in reports),
        processes=sum(r.processes for r in reports),
        gc_pause_max_ms=max(r.gc_pause_max_ms for r in reports),
        backlog_p99_kib=sum(backlogs) if backlogs else None,  # each has sockets of its own
    )


def _stopped_by(said: set[str]) -> Ending | None:
    return "hung" if "hung" in said else "cancelled" if "cancelled" in said else None
