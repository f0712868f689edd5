"""Sends the requests of a phase: in a closed loop as slots fall free, in an open loop when due. Plain asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from actors.client import StreamClient
from actors.flight import Flight, Request
from actors.load_phase import Phase
from actors.load_watch import OwnSpeed
from actors.record_batch import RecordStream
from actors.workload import PromptSource
from orchestrator.records import RequestStatus
from orchestrator.trial import PointSpec, Shard

# A failed request is not replaced at once: a server that refuses everything would be hammered.
_AFTER_FAILURE_S = 0.05


class LoadOffer:
    """The sending side of a point. `phase` is the one that is offered now; `ended` says why no more may be sent.

    `requests`, `peak` and `gated` count measured requests: sent, most in flight at once, held back by max_concurrency.
    """

    def __init__(
        self, spec: PointSpec, client: StreamClient, prompts: PromptSource, stream: RecordStream, speed: OwnSpeed,
        *, shard: Shard, origin_ns: int,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._client = client
        self._prompts = prompts
        self._stream = stream
        self._speed = speed
        self._shard = shard
        self._origin_ns = origin_ns
        self._drawn = {True: 0, False: 0}  # prompts taken so far, of warm-up and measured
        self.flights: set[Flight] = set()
        self.phase: Phase | None = None
        self.ended: tuple[RequestStatus, str] | None = None
        self.requests = self.peak = self.gated = 0
        self.on_timeout: Callable[[], None] = lambda: None

    async def offer(self, phase: Phase, began_ns: int | None = None) -> None:
        """Send the phase's requests, from a moment on the monotonic clock or from now; wait for the last to end."""
        if began_ns is not None:
            await self._sleep_until(began_ns)
        phase.issued = self._shard.index
        phase.begin(began_ns or time.monotonic_ns())
        self.phase = phase
        async with asyncio.TaskGroup() as group:
            if self._spec.level.kind == "concurrency":
                for _ in range(self._shard.index, int(self._spec.level.value), self._shard.count):
                    group.create_task(self._keep_one_in_flight(phase))
            else:
                await self._send_on_time(phase, group)
        self.phase = None

    async def _keep_one_in_flight(self, phase: Phase) -> None:
        while self._wants_more(phase):
            flight = await self.fly(self.draw(phase.warmup))
            if flight.status is not RequestStatus.OK:
                await asyncio.sleep(_AFTER_FAILURE_S)

    async def _send_on_time(self, phase: Phase, group: asyncio.TaskGroup) -> None:
        most = len(range(self._shard.index, self._spec.max_concurrency or 1_000_000, self._shard.count))
        gate = asyncio.Semaphore(most)
        for offset in phase.offsets[self._shard.index :: self._shard.count]:
            request = self.draw(phase.warmup, phase.began_ns + offset)
            await self._sleep_until(request.scheduled_ns)
            if not self._wants_more(phase):
                break
            group.create_task(self._fly_through(gate, request))
            await asyncio.sleep(0)
        phase.close(time.monotonic_ns())

    async def _sleep_until(self, due: int) -> None:
        """Until a time on the monotonic clock, or until the point is ended.

        Timers of event loops have whole milliseconds; the last one is passed by going round the loop.
        """
        while (left := due - time.monotonic_ns()) > 0 and self.ended is None:  # noqa: ASYNC110 - a deadline
            await asyncio.sleep(min(left // 1_000_000 / 1000, 0.25))

    async def _fly_through(self, gate: asyncio.Semaphore, request: Request) -> None:
        waits = gate.locked()
        if waits and not request.warmup:
            self.gated += 1
        async with gate:
            flight = await self.fly(request)
        if not request.warmup and not waits:
            self._speed.saw_send(flight.sent_ns - request.scheduled_ns)

    def _wants_more(self, phase: Phase) -> bool:
        """Whether another request is to be sent; the answer no ends the sending of the phase."""
        now = time.monotonic_ns()
        if self.ended is None and phase.wants_more(now):
            phase.issued += self._shard.count
            return True
        phase.close(now)
        return False

    def draw(self, warmup: bool, due: int | None = None, output_tokens: int | None = None) -> Request:
        """The next request, to be sent when it is due or else at once."""
        index = self._shard.index + self._drawn[warmup] * self._shard.count
        self._drawn[warmup] += 1
        prompt = self._prompts.prompt(index, warmup=warmup)
        return Request(index, warmup, due or time.monotonic_ns(), prompt, output_tokens or self._spec.output_tokens)

    async def fly(self, request: Request) -> Flight:
        """Send a request and record it. Once the point has ended, it is only recorded."""
        flight = self._client.flight(request, len(self.flights) + 1)
        self.requests += not request.warmup
        if self.ended is not None:
            flight.fail(self.ended[0], f"never sent: {self.ended[1]}")
        else:
            self.flights.add(flight)
            if not request.warmup:
                self.peak = max(self.peak, len(self.flights))
            try:
                await self._client.send(flight)
                if flight.status is RequestStatus.TIMEOUT and self.ended is None:
                    self.on_timeout()  # before its slot looks idle
            finally:
                self.flights.discard(flight)
        self._stream.add(flight.record(self._origin_ns))
        return flight

    def end(self, status: RequestStatus, reason: str) -> None:
        """No more requests, and those in flight end now."""
        self.ended = (status, reason)
        for flight in list(self.flights):
            flight.cancel(status, reason)
