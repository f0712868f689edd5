"""One server over several hosts as one slot: its ranks are started, watched and stopped together."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from orchestrator.outcome import Label
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, ServerReady, StartEvent, StartProgress
from orchestrator.slots.first_cause import RankEnd, first_cause, told_of_rank
from orchestrator.slots.slot_port import SlotFacts, SlotLost, SlotPort, StopFacts, TrialBroken
from orchestrator.slots.span_log import joined_logs
from orchestrator.slots.span_start import rank_specs, slowest, span_phases, span_ready
from orchestrator.telemetry import Sample
from orchestrator.trial import ClientReport

T = TypeVar("T")

# When one rank has died the others mostly die of it by themselves, and tell more than one that we end.
PEERS_S = 10.0
# How often the ranks without load are looked at while rank 0 is loaded, and those that should be dying.
WATCH_S = 2.0
_POLL_S = 0.25
_NOTHING_SEEN = LoadSeen()


class RankPort(SlotPort, Protocol):
    """The part of a span that is on one host."""

    def rendezvous(self) -> str:
        """HOST:PORT there at which the ranks can meet."""

    def gpu_power_w(self, began_unix_s: float, ended_unix_s: float) -> float | None:
        """Mean power of its GPUs there between two times."""

    def throttled(self, began_unix_s: float, ended_unix_s: float) -> tuple[str, ...]:
        """Which of its GPUs were held back between two times, and why."""

    def watch(self) -> None:
        """From now on `fault` tells when its host is gone or was cut off."""

    def fault(self) -> SlotLost | TrialBroken | None: ...


class SpanSlot:
    """A SlotPort over one slot on each of several hosts, that of rank 0 first.

    Whatever rank dies, whenever it does, that is the server's death, told with the first cause among the ranks. A host
    that is lost loses the slot, after the servers of the others are stopped.
    """

    def __init__(self, facts: SlotFacts, ranks: Sequence[RankPort], peers_s: float = PEERS_S) -> None:
        self.facts = facts
        self.ranks = tuple(ranks)
        self._peers_s = peers_s
        self._died: dict[int, RankEnd] = {}
        self._servers: dict[int, ServerDied] = {}
        self._fault: SlotLost | TrialBroken | None = None

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        """Start all ranks at once; the last event is ServerReady of all or ServerDied."""
        self._died, self._servers = {}, {}
        starting = _Starting(self.ranks, rank_specs(spec, len(self.ranks), self.ranks[0].rendezvous()), self._peers_s)
        yield from starting.progress()
        if starting.broken is not None:
            raise starting.broken
        if len(starting.ready) == len(self.ranks) and not starting.died:
            yield span_ready([starting.ready[rank] for rank in range(len(self.ranks))])
            return
        self._servers, self._died = starting.died, starting.ends
        if self._died:
            yield self._death()

    def run_point(self, url: str, point: Any, attempt: int, processes: int = 1) -> Iterator[Any]:
        """Load rank 0. If another rank dies meanwhile the load ends, since nothing may ever come any more.

        SlotLost if another rank's host is lost, TrialBroken if it was cut off: all ranks waited for it meanwhile.
        """
        over = threading.Event()
        for rank in self.ranks[1:]:
            rank.watch()
        self._fault = None
        watch = threading.Thread(target=self._watch_followers, args=(over,), daemon=True)
        watch.start()
        try:
            for item in self.ranks[0].run_point(url, point, attempt, processes):
                yield self._with_power(item)
        finally:
            over.set()
            watch.join()
        self._look_for_faults()
        if self._fault is not None:
            raise self._fault

    def _with_power(self, item: Any) -> Any:
        """A report whose GPU power is that of all ranks; None if one does not tell."""
        if not isinstance(item, ClientReport) or item.gpu_power_w is None or item.began_unix_s is None:
            return item
        powers: list[float | None] = [item.gpu_power_w]
        with contextlib.suppress(SlotLost, TrialBroken):
            window = (item.began_unix_s, item.began_unix_s + item.duration_s)
            for number, rank in enumerate(self.ranks[1:], 1):
                powers.append(rank.gpu_power_w(*window))
                item = replace(item, notes=(*item.notes, *(f"rank {number}: {n}" for n in rank.throttled(*window))))
        known = [power for power in powers if power is not None]
        return replace(item, gpu_power_w=sum(known) if len(known) == len(self.ranks) else None)

    def _look_for_faults(self) -> bool:
        """Whether a rank without load is gone or was cut off since the load began."""
        for rank in self.ranks[1:]:
            fault = rank.fault()
            if fault is not None and not isinstance(self._fault, SlotLost):
                self._fault = fault
        return self._fault is not None

    def _watch_followers(self, over: threading.Event) -> None:
        while not over.wait(WATCH_S):
            if self._look_for_faults():
                self.ranks[0].interrupt()
                return
            for rank in self.ranks[1:]:
                try:
                    ended = rank.died(_NOTHING_SEEN) is not None
                except (SlotLost, TrialBroken):
                    ended = True  # whoever asks next is told
                if ended and not over.is_set():
                    self.ranks[0].interrupt()
                    return

    def died(self, load: LoadSeen) -> ServerDied | None:
        """Whether a rank has ended since the server was ready, or hangs, and why."""
        self._look(range(len(self.ranks)), load)
        if not self._died:
            return None
        until = time.monotonic() + self._peers_s
        while len(self._died) < len(self.ranks) and time.monotonic() < until:
            time.sleep(_POLL_S)
            self._look([rank for rank in range(len(self.ranks)) if rank not in self._died], _NOTHING_SEEN)
        return self._death()

    def _look(self, which: Sequence[int], load: LoadSeen) -> None:
        def look(rank: int) -> ServerDied | None:
            return self.ranks[rank].died(load if rank == 0 else _NOTHING_SEEN)

        for rank, died in zip(which, self._each(look, which), strict=True):
            if died is not None:
                self._servers[rank] = died
                self._died[rank] = RankEnd(died.diagnosis, (time.monotonic(),), ended_itself=True)

    def _death(self) -> ServerDied:
        """Of the rank that tells why, with what the others had come to."""
        places = sorted(self._died)
        rank = places[first_cause([self._died[place] for place in places])]
        died = self._servers[rank]
        diagnosis = told_of_rank(died.diagnosis, rank, self.ranks[rank].facts.host)
        phases = span_phases([self._servers[place].phases for place in places])
        return replace(died, diagnosis=diagnosis, phases=phases)

    def interrupt(self) -> None:
        """End the running launch or point soon."""
        self._each(lambda rank: self.ranks[rank].interrupt())

    def stop(self) -> StopFacts:
        """End the server on all hosts at once. SlotLost if a host is gone, once the others have ended."""
        stopped = self._each(lambda rank: self.ranks[rank].stop())
        notes = tuple(
            f"rank {rank} on {self.ranks[rank].facts.host}: {note}"
            for rank, one in enumerate(stopped)
            for note in one.notes
        )
        refused = [f"{self.ranks[rank].facts.host}: {one.refused}" for rank, one in enumerate(stopped) if one.refused]
        seen = [one.gpu_free for one in stopped if one.gpu_free is not None]
        return StopFacts(
            exit_code=stopped[0].exit_code,
            seconds=max(one.seconds for one in stopped),
            gpu_free=all(seen) if seen else None,
            notes=notes,
            gpus=tuple(gpu for one in stopped for gpu in one.gpus),
            refused="; ".join(refused) or None,
        )

    def telemetry(self) -> tuple[Sample, ...]:
        """What all ranks sampled since the last call; a rank that does not answer is asked again at the next."""
        found: list[Sample] = []
        for rank, port in enumerate(self.ranks):
            with contextlib.suppress(SlotLost, TrialBroken):
                found += [replace(sample, rank=rank) for sample in port.telemetry()]
        return tuple(found)

    def server_log(self) -> bytes:
        """The logs of all ranks one after the other, each under a line that says whose it is."""
        logs = self._each(lambda rank: self.ranks[rank].server_log())
        return joined_logs([(port.facts.host, log) for port, log in zip(self.ranks, logs, strict=True)])

    def _each(self, ask: Callable[[int], T], which: Sequence[int] | None = None) -> list[T]:
        """Ask ranks at the same time; all have answered when the first that is lost is told."""
        places = range(len(self.ranks)) if which is None else which
        if not places:
            return []
        with ThreadPoolExecutor(len(places), thread_name_prefix=self.facts.name) as pool:
            calls = [pool.submit(ask, rank) for rank in places]
        errors = [error for call in calls if (error := call.exception()) is not None]
        for error in sorted(errors, key=lambda e: not isinstance(e, SlotLost)):
            raise error
        return [call.result() for call in calls]


class _Starting:
    """The launches of all ranks, each in a thread of its own. Afterwards each is in `ready`, `died` or both.

    `broken`: what a rank's slot raised instead; a lost host before all else.
    """

    def __init__(self, ranks: Sequence[RankPort], specs: Sequence[LaunchSpec], peers_s: float) -> None:
        self._ranks = ranks
        self._specs = specs
        self._peers_s = peers_s
        self._events: queue.Queue[tuple[int, StartEvent | Exception | None]] = queue.Queue()
        self._told: dict[int, StartProgress] = {}
        self._shown: tuple[object, ...] = ()
        self._asked_to_end = False
        self._end_at = float("inf")
        self.ready: dict[int, ServerReady] = {}
        self.died: dict[int, ServerDied] = {}
        self.ends: dict[int, RankEnd] = {}
        self.broken: Exception | None = None

    def progress(self) -> Iterator[StartProgress]:
        """Start all, follow all: of the slowest rank whenever that changes."""
        for rank in range(len(self._ranks)):
            threading.Thread(target=self._follow, args=(rank,), daemon=True).start()
        running = len(self._ranks)
        while running:
            try:
                rank, event = self._events.get(timeout=min(WATCH_S, max(self._end_at - time.monotonic(), 0.0)))
            except queue.Empty:
                self._look()
                continue
            if event is None:
                running -= 1
                continue
            self._take(rank, event)
            if isinstance(event, StartProgress) and (told := self._news(rank, event)) is not None:
                yield told
        self._look_at_ready()

    def _look(self) -> None:
        """Nothing came: whether it is time to end the ranks that are left, and whether those that were ready live."""
        if time.monotonic() >= self._end_at:
            self._end_at = float("inf")
            self._end_others()
        else:
            self._look_at_ready()

    def _look_at_ready(self) -> None:
        """A rank that was ready before the others may have died since; of one that the whole is ready with, later."""
        for rank in [rank for rank in self.ready if rank not in self.died]:
            if len(self.ready) == len(self._ranks):
                return
            try:
                died = self._ranks[rank].died(_NOTHING_SEEN)
            except (SlotLost, TrialBroken) as error:
                self._take(rank, error)
                continue
            if died is not None:
                self._take(rank, died)

    def _news(self, rank: int, event: StartProgress) -> StartProgress | None:
        """What is to be told now that a rank has told this; None if nothing has changed for the whole."""
        if len(self._told) < len(self._ranks):
            return None
        now = replace(slowest(self._told.values()), elapsed_s=event.elapsed_s, notes=self._notes(rank, event))
        shown, self._shown = self._shown, (now.phase, now.done, now.free_gib)
        return now if now.notes or shown != self._shown else None

    def _notes(self, rank: int, event: StartProgress) -> tuple[str, ...]:
        return tuple(f"rank {rank} on {self._ranks[rank].facts.host}: {note}" for note in event.notes)

    def _follow(self, rank: int) -> None:
        try:
            for event in self._ranks[rank].launch(self._specs[rank]):
                self._events.put((rank, event))
        except Exception as error:  # noqa: BLE001 - the edge of a thread: raised by whoever launched
            self._events.put((rank, error))
        finally:
            self._events.put((rank, None))

    def _take(self, rank: int, event: StartEvent | Exception) -> None:
        if isinstance(event, StartProgress):
            self._told[rank] = event
        elif isinstance(event, ServerReady):
            self.ready[rank] = event
        elif isinstance(event, ServerDied):
            self.died[rank] = event
            stopped = self._asked_to_end and event.diagnosis.label is Label.STOP_REQUESTED
            self.ends[rank] = RankEnd(event.diagnosis, (time.monotonic(),), ended_itself=not stopped)
        elif self.broken is None or isinstance(event, SlotLost):
            self.broken = event
        if not isinstance(event, StartProgress | ServerReady) and not self._asked_to_end:
            self._end_at = min(self._end_at, time.monotonic() + self._peers_s)

    def _end_others(self) -> None:
        """Those that do not die of it by themselves: they would wait for their peer until their own time is up."""
        self._asked_to_end = True
        for rank, port in enumerate(self._ranks):
            if rank not in self.died and rank not in self.ready:
                threading.Thread(target=_interrupt, args=(port,), daemon=True).start()


def _interrupt(port: RankPort) -> None:
    try:
        port.interrupt()
    except (SlotLost, TrialBroken):
        return  # its launch says so, too
