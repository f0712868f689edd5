"""Sends the requests of a phase: in a closed loop as slots fall free, in an open loop when due. Plain asyncio.

A slot of a closed loop is a user who runs one session after the other; between the requests of a session the user
thinks and nothing is in flight. In an open loop sessions begin when due, whatever became of the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from actors.load.load_phase import Phase, Start
from actors.load.load_watch import OwnSpeed
from actors.load.prompts_ahead import PromptsAhead
from actors.load.record_batch import RecordStream
from actors.wire.client import StreamClient
from actors.wire.flight import Flight, Request
from actors.workloads.request_source import RequestSource
from actors.workloads.session_script import SessionScript
from orchestrator.records import RequestStatus
from orchestrator.trial import PointSpec, Shard

# A failed request is not replaced at once: a server that refuses everything would be hammered.
_AFTER_FAILURE_S = 0.05
# Prefixes are primed side by side, unless the level allows fewer requests in flight.
_MOST_PRIMING = 8


class LoadOffer:
    """The sending side of a point. `phase` is the one that is offered now; `ended` says why no more may be sent.

    `requests`, `peak` and `gated` count measured requests: sent, most in flight at once, held back by max_concurrency.
    """

    def __init__(
        self, spec: PointSpec, client: StreamClient, source: RequestSource, stream: RecordStream, speed: OwnSpeed,
        *, shard: Shard, origin_ns: int,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._client = client
        self._source = source
        self._stream = stream
        self._speed = speed
        self._shard = shard
        self._origin_ns = origin_ns
        self._ahead = PromptsAhead(source)
        self._warmups = 0
        self.flights: set[Flight] = set()
        self.phase: Phase | None = None
        self.ended: tuple[RequestStatus, str] | None = None
        self.requests = self.peak = self.gated = 0
        self.on_timeout: Callable[[], None] = lambda: None

    async def prepare(self, phase: Phase) -> None:
        """Build prompts of a phase that is offered next."""
        if self.ended is None:
            await self._ahead.fill(phase)

    async def offer(self, phase: Phase, began_ns: int | None = None) -> None:
        """Send the phase's requests, from a moment on the monotonic clock or from now; wait for the last to end."""
        if began_ns is not None:
            await self._sleep_until(began_ns)
        phase.begin(began_ns or time.monotonic_ns())
        self.phase = phase
        building = asyncio.create_task(self._ahead.keep_full(phase))
        gate = asyncio.Semaphore(phase.room or 1_000_000)
        try:
            async with asyncio.TaskGroup() as group:
                if phase.open_loop:
                    await self._begin_on_time(phase, gate, group)
                for offset in phase.slots:
                    group.create_task(self._be_a_user(phase, gate, phase.began_ns + offset))
                    # Its request is on its way before the next one's clock starts, also where hundreds begin at once.
                    await asyncio.sleep(0)
        finally:
            building.cancel()
        self.phase = None

    async def probe(self) -> list[int | None]:
        """One short request of every kind of text, alone on the server; its count of their prompts' tokens."""
        flights = [await self._ask_aside(script) for script in self._source.probes()]
        return [f.answer.prompt_tokens if f.status is RequestStatus.OK else None for f in flights]

    async def prime(self) -> None:
        """One short request for every shared prefix, so that measured ones do not race to fill the cache."""
        room = int(self._spec.level.value) if not self._spec.level.open_loop else self._spec.max_concurrency
        gate = asyncio.Semaphore(min(room or _MOST_PRIMING, _MOST_PRIMING))

        async def prime_one(script: SessionScript) -> None:
            async with gate:
                if self.ended is None:
                    await self._ask_aside(script)

        await asyncio.gather(*map(prime_one, self._source.primers()))

    async def _ask_aside(self, script: SessionScript) -> Flight:
        request = self._request(script, 0, warmup=True, due_ns=time.monotonic_ns())
        return await self._fly(replace(request, output_tokens=1))

    async def _be_a_user(self, phase: Phase, gate: asyncio.Semaphore, due_ns: int) -> None:
        await self._sleep_until(due_ns, phase)
        while self.ended is None and (start := phase.take(time.monotonic_ns())) is not None:
            if not await self._run_session(phase, gate, start, time.monotonic_ns()):
                await asyncio.sleep(_AFTER_FAILURE_S)
        phase.over(time.monotonic_ns())

    async def _begin_on_time(self, phase: Phase, gate: asyncio.Semaphore, group: asyncio.TaskGroup) -> None:
        for planned in phase.starts:
            due_ns = phase.began_ns + planned.due_ns
            await self._sleep_until(due_ns)
            start = phase.take(time.monotonic_ns()) if self.ended is None else None
            if start is None:
                break
            group.create_task(self._run_session(phase, gate, start, due_ns))
            await asyncio.sleep(0)
        phase.over(time.monotonic_ns())

    async def _run_session(self, phase: Phase, gate: asyncio.Semaphore, start: Start, due_ns: int) -> bool:
        """All requests of a session, each after the answer before it and its gap; whether the last one went well."""
        script = self._ahead.take(phase, start.number)
        first = self._source.first_request(start.number, phase.stage)
        for turn in range(start.turns):
            if turn:
                await self._sleep_until(due_ns, phase)
                if self.ended is not None or not phase.take_turn(time.monotonic_ns()):
                    phase.give_back(start.turns - turn)
                    break
            request = self._request(script, first + turn, warmup=phase.warmup, due_ns=due_ns)
            last = turn + 1 == start.turns
            flight = await self._fly_through(gate, request, keep_text=not last)
            if flight.status is not RequestStatus.OK:
                phase.give_back(start.turns - turn - 1)
                return False
            if not last:
                script.hear(flight.answer.text(), flight.answer.output_tokens)
                due_ns = flight.end_ns + round(script.gap_s * 1e9)
                script.ask()  # built in the gap
        return True

    def _request(self, script: SessionScript, index: int, *, warmup: bool, due_ns: int) -> Request:
        ask = script.ask()
        if warmup:  # numbered as they come: which ones come is decided by time
            index = self._shard.index + self._shard.count * self._warmups
            self._warmups += 1
        return Request(
            index, warmup, due_ns, ask.prompt, ask.output_tokens, ask.traffic, ask.session_index, ask.turn,
            ask.asked_input_tokens,
        )  # fmt: skip

    async def _sleep_until(self, due_ns: int, phase: Phase | None = None) -> None:
        """Until a time on the monotonic clock, or until the point is ended, or until the phase is over if one is given:
        who thinks longer than it lasts is not waited for.

        Timers of event loops have whole milliseconds; the last one is passed by going round the loop.
        """
        while (left := due_ns - (now := time.monotonic_ns())) > 0 and self.ended is None:
            if phase is not None and phase.over(now):
                break
            await asyncio.sleep(min(left // 1_000_000 / 1000, 0.25))

    async def _fly_through(self, gate: asyncio.Semaphore, request: Request, *, keep_text: bool) -> Flight:
        waits = gate.locked()
        if waits and not request.warmup:
            self.gated += 1
        async with gate:
            flight = await self._fly(request, keep_text=keep_text)
        if not request.warmup and not waits and self._spec.level.open_loop:
            self._speed.saw_send(flight.sent_ns - request.scheduled_ns)
        return flight

    async def _fly(self, request: Request, *, keep_text: bool = False) -> Flight:
        """Send a request and record it. Once the point has ended, it is only recorded."""
        flight = self._client.flight(request, len(self.flights) + 1, keep_text=keep_text)
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
