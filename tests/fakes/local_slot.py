"""A slot on this host without Ray: the classes behind the actors, on an event loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Self, TypeVar

from actors.host.run_lease import remove_scratch
from actors.load_host import LoadHost
from actors.slot_host import SlotHost
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, StartEvent
from orchestrator.slots.slot_port import SlotFacts, StopFacts
from orchestrator.telemetry import Sample
from orchestrator.trial import Point

T = TypeVar("T")

_GRACE_S = 60.0


class LocalSlot:
    """Use as a context; its server and its files are gone afterwards."""

    def __init__(
        self, run_id: str, number: int, gpu_ids: tuple[str, ...] = (), address: str = "127.0.0.1", host: str = "local"
    ) -> None:
        self.facts = SlotFacts(f"{host}/{number}", host, gpu_ids)
        self._run_id = run_id
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._host = SlotHost(run_id, number, gpu_ids, address)
        self._load = LoadHost(run_id, "emulator")
        self._sampled = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._host.close(_GRACE_S))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        remove_scratch(self._run_id)

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        self._sampled = 0
        yield from self._each(self._host.launch(spec))

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        for item in self._each(self._load.run_point(url, point, attempt)):
            if item is not None:  # only says that it is still there
                yield item

    def died(self, load: LoadSeen) -> ServerDied | None:
        return self._wait(self._host.died(load))

    def interrupt(self) -> None:
        if self._loop.is_closed():  # the run was through before this came
            return
        self._wait(self._load.interrupt())
        if (server := self._host._server) is not None and not server.is_ready:
            self._wait(server.stop(_GRACE_S))

    def gpu_power_w(self, began_unix_s: float, ended_unix_s: float) -> float | None:
        return self._wait(self._host.gpu_power_w(began_unix_s, ended_unix_s))

    def throttled(self, began_unix_s: float, ended_unix_s: float) -> tuple[str, ...]:
        return self._wait(self._host.throttled(began_unix_s, ended_unix_s))

    def telemetry(self) -> tuple[Sample, ...]:
        told = self._wait(self._host.telemetry(self._sampled))
        self._sampled = told.told
        return told.samples

    def rendezvous(self) -> str:
        return self._wait(self._host.rendezvous())

    def watch(self) -> None:
        return

    def fault(self) -> None:
        return

    def stop(self) -> StopFacts:
        told: dict[str, Any] = self._wait(self._host.stop(_GRACE_S))
        gpus = tuple((int(i), before, after) for i, before, after in told["gpus"])
        return StopFacts(None, 0.0, told["gpu_free"], told["notes"], gpus, told["refused"])

    def server_log(self) -> bytes:
        return self._wait(self._host.server_log())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        end: Any = object()

        async def following() -> Any:
            return await anext(items, end)

        while (item := self._wait(following())) is not end:
            yield item
