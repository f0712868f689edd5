"""What the sweep asks of a slot, however it is reached: a Ray actor on a GPU host, or an object in a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.hosts.host_event import HostEvent
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, StartEvent
from orchestrator.telemetry import Sample
from orchestrator.trial import Point


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """Where a slot is. `gpu_ids` are indices on its host; empty for servers on CPU.

    `load_processes`: how many may offer the load of one point. Only results of one `host_class` can be compared.
    `numa_nodes`: where the GPUs are, as far as the kernel tells.
    """

    name: str
    host: str
    gpu_ids: tuple[str, ...]
    load_processes: int = 1
    host_class: str = ""
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StopFacts:
    """How a server was stopped. `notes` tell what went wrong besides.

    `gpus`: index, GiB used before and after the stop, of each GPU where that can be seen. `refused`: why the slot takes
    no more servers; None if it does.
    """

    exit_code: int | None
    seconds: float
    gpu_free: bool | None
    notes: tuple[str, ...] = ()
    gpus: tuple[tuple[int, float, float], ...] = ()
    refused: str | None = None


class SlotLost(Exception):
    """The slot's host or actor is gone; whatever it was asked may or may not have happened."""


class TrialBroken(Exception):
    """What the slot was asked broke; the trial is not measured, the slot can do the next one."""


class SlotPort(Protocol):
    """One place that holds one server at a time. Methods block; `interrupt` may be called from another thread."""

    facts: SlotFacts

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        """Start a server; the last event is ServerReady or ServerDied."""

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        """Load the server, with so many processes: Arrow record batches, at last one ClientReport."""

    def died(self, load: LoadSeen) -> ServerDied | None:
        """Whether the server that was ready has ended since, or hangs, and why. `load` is what its load saw of it."""

    def telemetry(self) -> tuple[Sample, ...]:
        """What was sampled of the server since the last call; from a thread of its own, after the launch told a thing.

        Nothing where nothing is sampled. SlotLost or TrialBroken cost no samples: the next call has them.
        """

    def interrupt(self) -> None:
        """End the running launch or point soon; its iterator then ends in the ordinary way."""

    def stop(self) -> StopFacts:
        """End the server and all it started; returns when its processes are gone."""

    def server_log(self) -> bytes:
        """The server's log so far, zstd-compressed, secrets replaced."""


class SlotTaker(Protocol):
    """A run that slots can join while it goes on. From any thread."""

    def join(self, slot: SlotPort) -> bool:
        """Another slot takes part; False if the run has nothing for it."""

    def tell(self, event: HostEvent) -> None:
        """Something happened to a host."""

    def needs_slots(self) -> bool:
        """Whether there are trials that nobody has taken."""


class SlotSource(Protocol):
    """Where further slots come from while a run goes on. Its methods do not block.

    `patience_s`: how long a run without slots waits for one.
    """

    patience_s: float

    def begin(self, run: SlotTaker) -> None:
        """From now on give slots to the run, and tell it what hosts do."""

    def ended(self, slot: SlotPort, refused: str | None) -> None:
        """A slot was lost, or refuses more servers and why."""

    def may_give(self) -> bool:
        """Whether a slot may come yet."""

    def is_making(self) -> bool:
        """Whether one is on its way."""
