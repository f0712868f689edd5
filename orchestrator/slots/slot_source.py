"""The slots of a run on a real cluster: asked for at once, made when they are granted, made anew when they are lost.

A thread looks at the hosts every few seconds: those that joined get slots, those that are gone are dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Protocol

from orchestrator.hosts.host_event import HostChange, HostEvent
from orchestrator.hosts.host_match import HostFacts, SlotPlace, more_places, place_slots
from orchestrator.hosts.host_watch import HostWatch
from orchestrator.provenance import utc_now
from orchestrator.scenarios.scenario import Slots
from orchestrator.slots.slot_port import SlotPort, SlotTaker

LOOK_S = 2.0
# How often a slot is made anew on a host that lives, and how often making one may fail there.
MOST_ANEW = 2
MOST_FAILURES = 3
# Looks in a row that may fail: a head that is restarted answers nothing for a while, and then everything.
MOST_UNSEEN = 30


class Grant(Protocol):
    """What a slot holds of the cluster, or waits for."""

    @property
    def place(self) -> SlotPlace: ...

    @property
    def is_granted(self) -> bool: ...

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Made:
    """What came of making a slot: it, or why there is none; `unfit` if its host is not to be used at all.

    `host`: which one it is about, if the slot has several.
    """

    slot: SlotPort | None
    why: str = ""
    unfit: bool = False
    host: HostFacts | None = None


class SlotCluster(Protocol):
    """What is needed of a cluster. `living` is None while it cannot be asked."""

    def living(self) -> list[HostFacts] | None: ...

    def death_of(self, node_id: str) -> str: ...

    def ask_for(self, place: SlotPlace) -> Grant: ...

    def make(self, grants: Sequence[Grant]) -> list[Made]:
        """Prepare the host of these grants, start their actors, and wait for them."""


class _State(Enum):
    ASKED = auto()
    MAKING = auto()
    SERVING = auto()
    LOST = auto()  # its host lives as far as is known: to be made anew
    SPARE = auto()  # the run has nothing for it at the moment
    ENDED = auto()  # it refuses, or was made anew too often; what it holds stays ours


@dataclass
class _Held:
    grant: Grant
    state: _State = _State.ASKED
    slot: SlotPort | None = None
    anew: int = 0
    failures: int = 0


class ClusterSlots:
    """A SlotSource. `may_join`: whether hosts may come that are not there yet. `spawn` runs something at the side."""

    def __init__(
        self,
        cluster: SlotCluster,
        slots: Slots,
        patience_s: float,
        *,
        may_join: bool,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._slots = slots
        self.patience_s = patience_s
        self._may_join = may_join
        self._spawn = spawn or (lambda task: threading.Thread(target=task, daemon=True).start())
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._held: list[_Held] = []
        self._watch = HostWatch(slots, (), utc_now)
        self._run: SlotTaker | None = None
        self._untold: list[HostEvent] = []

    def first(self) -> tuple[list[SlotPort], list[str], int]:
        """The slots that are granted in time; why others that were granted did not come up; how many still wait."""
        hosts = self._cluster.living() or []
        self._watch = HostWatch(self._slots, hosts, utc_now)
        self._ask_for(place_slots(self._slots, hosts))
        granted = self._granted_in_time()
        failed: list[str] = []
        for held, made in zip(granted, self._cluster.make([h.grant for h in granted]), strict=True):
            held.slot, held.state = made.slot, _State.SERVING if made.slot is not None else _State.LOST
            if made.slot is None:
                failed.append(f"{held.grant.place.name}: {made.why}")
        return [h.slot for h in granted if h.slot is not None], failed, len(self._held) - len(granted)

    def _ask_for(self, places: Iterable[SlotPlace]) -> None:
        for place in places:  # each is held at once: the next question may fail
            self._held.append(_Held(self._cluster.ask_for(place)))

    def _granted_in_time(self) -> list[_Held]:
        """All, or those that are there when the time is up."""
        pause = threading.Event()
        for _ in range(max(1, round(self.patience_s / 0.1))):
            granted = [held for held in self._held if held.grant.is_granted]
            if len(granted) == len(self._held) or pause.wait(0.1):
                break
        return granted

    @property
    def places(self) -> list[SlotPlace]:
        """Of every slot that is held or asked for."""
        with self._lock:
            return [held.grant.place for held in self._held]

    @property
    def serving(self) -> list[SlotPort]:
        """The slots that take part."""
        with self._lock:
            able = {_State.SERVING, _State.SPARE, _State.ENDED}
            return [held.slot for held in self._held if held.slot is not None and held.state in able]

    def begin(self, run: SlotTaker) -> None:
        self._run = run
        for event in self._untold:
            run.tell(event)
        self._thread = threading.Thread(target=self._keep_looking, name="hosts", daemon=True)
        self._thread.start()

    def _tell(self, event: HostEvent) -> None:
        if self._run is not None:
            self._run.tell(event)
        else:
            self._untold.append(event)

    def _join(self, held: _Held) -> bool:
        """Whether the run takes the slot; if not it is kept for later."""
        assert held.slot is not None
        taken = self._run is not None and not self._closing.is_set() and self._run.join(held.slot)
        held.state = _State.SERVING if taken else _State.SPARE
        return taken

    def ended(self, slot: SlotPort, refused: str | None) -> None:
        with self._lock:
            for held in self._held:
                if held.slot is slot and held.state is _State.SERVING:
                    is_over = refused is not None or held.anew >= MOST_ANEW
                    held.state = _State.ENDED if is_over else _State.LOST

    def may_give(self) -> bool:
        with self._lock:
            return self._may_join or any(h.state in {_State.ASKED, _State.MAKING, _State.LOST} for h in self._held)

    def is_making(self) -> bool:
        with self._lock:
            return any(held.state is _State.MAKING for held in self._held)

    def _keep_looking(self) -> None:
        failures = 0
        while failures < MOST_UNSEEN and not self._closing.wait(LOOK_S):
            try:
                self.look()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the edge of a thread: the slots that are there can go on
                failures += 1
                told = f"{type(error).__name__}: {error}"
        if failures:
            with self._lock:
                self._may_join = False
            if not self._closing.is_set():
                self._tell(HostEvent(HostChange.UNSEEN, "", utc_now(), told))

    def look(self) -> None:
        """See what became of the hosts, and what can be made now."""
        hosts = self._cluster.living()
        if hosts is None:
            return
        with self._lock:
            working = {host.node_id for place in self.places for host in (*place.hosts, place.load_host)}
            events = self._watch.look(hosts, working, self._cluster.death_of)
            self._drop_gone({host.node_id for host in hosts})
        for event in events:
            self._tell(event)
        with self._lock:
            ready = self._to_make(hosts)
        by_host: dict[str, list[_Held]] = {}
        for held in ready:
            by_host.setdefault(held.grant.place.host.node_id, []).append(held)
        for together in by_host.values():
            self._spawn(partial(self._make, together))

    def _to_make(self, hosts: list[HostFacts]) -> list[_Held]:
        """What was granted and is not made, after asking for what is missing. Nothing if there is nothing to do."""
        if self._run is None or not self._run.needs_slots():
            waiting = [held for held in self._held if held.state is _State.ASKED]
            for held in waiting:
                self._let_go(held)
            return []
        for held in self._held:
            if held.state is _State.SPARE:
                self._join(held)
        usable = [host for host in hosts if self._watch.is_usable(host)]
        self._ask_for(more_places(self._slots, usable, self.places))
        ready = [h for h in self._held if h.state in {_State.ASKED, _State.LOST} and h.grant.is_granted]
        for held in ready:
            held.state, held.anew = _State.MAKING, held.anew + (held.slot is not None)
        return ready

    def _drop_gone(self, living: set[str]) -> None:
        """Let go of what is held on hosts that are gone, and of what lost its load host before it could be used."""
        kept = []
        for held in self._held:
            place, idle = held.grant.place, held.state in {_State.ASKED, _State.LOST, _State.SPARE}
            there = all(host.node_id in living for host in place.hosts)
            if there and (place.load_host.node_id in living or not idle):
                kept.append(held)
            else:
                held.grant.release()
        self._held = kept

    def _make(self, together: list[_Held]) -> None:
        """Make slots of one host, and let them take part."""
        joined: list[str] = []
        try:
            found = self._cluster.make([held.grant for held in together])
        except Exception as error:  # noqa: BLE001 - the edge of a thread: told when the host is put aside
            found = [Made(None, f"{type(error).__name__}: {error}")] * len(together)
        for held, made in zip(together, found, strict=True):
            if made.slot is None:
                self._failed(held, made)
                continue
            with self._lock:
                if all(other is not held for other in self._held):
                    continue  # its host was lost in the meantime
                is_new, held.slot = held.slot is None, made.slot
                taken = self._join(held)
            name, host = held.grant.place.name, held.grant.place.hosts_name
            if taken and is_new:
                joined.append(name)
            elif taken:
                self._tell(HostEvent(HostChange.SLOT_ANEW, host, utc_now(), "its actor had died", (name,)))
        if joined:
            host = together[0].grant.place.hosts_name
            self._tell(HostEvent(HostChange.JOINED, host, utc_now(), "", tuple(joined)))

    def _failed(self, held: _Held, made: Made) -> None:
        """It is tried again; after some failures, or if the host is unfit, the host is put aside."""
        with self._lock:
            held.failures += 1
            held.state = _State.LOST
            if not made.unfit and held.failures < MOST_FAILURES:
                return
            event = self._watch.put_aside(made.host or held.grant.place.host, made.why)
        self._let_go(held)
        if event is not None:
            self._tell(event)

    def _let_go(self, held: _Held) -> None:
        with self._lock:
            self._held = [other for other in self._held if other is not held]
        held.grant.release()

    def put_aside(self, host: HostFacts, reason: str) -> None:
        """Let go of all slots of a host, and use it no more in this run."""
        with self._lock:
            event = self._watch.put_aside(host, reason)
            gone = [held for held in self._held if host.node_id in {h.node_id for h in held.grant.place.hosts}]
        for held in gone:
            self._let_go(held)
        if event is not None:
            self._tell(event)

    def is_quarantined(self, host: HostFacts) -> bool:
        """Whether the host was lost so often that nothing of this run goes there any more."""
        with self._lock:
            return self._watch.is_quarantined(host)

    def stop(self) -> None:
        """Look no more; what is held stays until `release`."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(LOOK_S * 5)

    def release(self) -> None:
        """Give back everything."""
        with self._lock:
            held, self._held = self._held, []
        for one in held:
            one.grant.release()
