"""One point on its way: which requests are sent when, and what ends them. Plain asyncio.

Order of a point: probe (one short request, so that prompts get their length) -> warm-up at the point's own level ->
drain -> flush the prefix cache -> prime (only with a shared prefix) -> measured load -> drain -> load for a profile
(only if one is asked for).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Literal

from actors.client import StreamClient
from actors.flight import Flight, Request
from actors.load_phase import Phase, measured_phase, profile_phase, warmup_phase
from actors.load_watch import OwnSpeed, counter_delta, counter_patterns, read_counters
from actors.record_batch import RecordStream
from actors.server_load import ServerLoadWatch
from actors.server_profile import ServerProfile
from actors.workload import PromptSource
from orchestrator.records import RequestStatus
from orchestrator.trial import ClientReport, Point

_TICK_S = 0.05
# A failed request is not replaced at once: a server that refuses everything would be hammered.
_AFTER_FAILURE_S = 0.05
_FLUSH_ATTEMPTS, _FLUSH_PAUSE_S = 10, 0.2
# A server under load may take a while to write its traces.
_PROFILE_TIMEOUT_S = 300.0


class PointLoad:
    """One point on its way. `drive` is the whole life; `stopping` may be set from outside."""

    def __init__(self, point: Point, client: StreamClient, stream: RecordStream, hang_s: float, drain_s: float) -> None:
        self._point = point
        self._spec = point.spec
        self._client = client
        self._stream = stream
        self._hang_s = hang_s
        self._drain_s = drain_s
        self._prompts = PromptSource(point.spec, repeat=point.repeat)
        self._warmup = warmup_phase(point.spec, self._prompts.salt)
        self._measured = measured_phase(point.spec, self._prompts.salt)
        self._speed = OwnSpeed()
        self._server_load = ServerLoadWatch(client.get_text)
        self._flights: set[Flight] = set()
        self._phase: Phase | None = None
        self._ended: tuple[RequestStatus, str] | None = None
        self._drawn = {True: 0, False: 0}  # prompts taken so far, of warm-up and measured
        self._requests = self._peak = self._gated = 0
        self._hung = False
        self._origin_ns = time.monotonic_ns()
        self._client.progress_ns = self._origin_ns
        self.stopping = False

    async def drive(self) -> ClientReport:
        """From the probe to the drained end. Closes the record stream whatever happens."""
        patterns = counter_patterns(self._spec.counters)
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                flushed = await self._prepare()
                reconnects = self._client.reconnects
                before = read_counters(await self._client.get_text("/metrics"), patterns)
                await self._measure()
                reconnects = self._client.reconnects - reconnects
                after = read_counters(await self._client.get_text("/metrics"), patterns)
                profile = await self._profile()
                watch.cancel()
        finally:
            self._stream.close()
        names = ("verified", "generated", "requests", "drafted", "accepted")
        verified, generated, requests, drafted, accepted = (counter_delta(name, before, after) for name in names)
        return ClientReport(
            point_id=self._point.point_id,
            duration_s=self._speed.duration_s,
            cpu_s=self._speed.cpu_s,
            loop_lag_p99_ms=self._speed.loop_lag_p99_ms,
            schedule_delay_p99_ms=self._speed.schedule_delay_p99_ms,
            peak_concurrency=self._peak,
            requests=self._requests,
            stopped_by=self._stopped_by(),
            verify_calls_delta=verified,
            generation_tokens_delta=generated,
            requests_delta=requests,
            gated_requests=self._gated,
            cache_flushed=flushed,
            reconnects=reconnects,
            drafted_tokens_delta=drafted,
            accepted_tokens_delta=accepted,
            server_running_mean=self._server_load.running_mean,
            server_running_max=self._server_load.running_max,
            server_queued_max=self._server_load.queued_max,
            server_token_usage_max=self._server_load.token_usage_max,
            profile=profile,
        )

    def _stopped_by(self) -> Literal["duration", "requests", "cancelled", "hung"]:
        if self._hung:
            return "hung"
        if self.stopping:
            return "cancelled"
        all_sent = self._spec.requests is not None and self._requests >= self._spec.requests
        return "requests" if all_sent else "duration"

    async def _prepare(self) -> bool | None:
        """Everything before the measured load; whether the prefix cache was flushed."""
        spec = self._spec
        await self._client.find_model()
        if self._prompts.wants_calibration and (spec.warmup_requests or spec.warmup_s):
            probe = await self._short_request()
            if probe.status is RequestStatus.OK:
                self._prompts.calibrate(probe.request.prompt, probe.answer.prompt_tokens)
        await self._offer(self._warmup)
        flushed = await self._flush_cache()
        if spec.shared_prefix_tokens and self._ended is None:
            await self._short_request()
        return flushed

    async def _short_request(self) -> Flight:
        """A warm-up request for a single token, alone on the server."""
        return await self._fly(self._draw(True, output_tokens=1))

    async def _flush_cache(self) -> bool | None:
        """SGLang refuses while a request runs, and an aborted one may take a moment to end."""
        for _ in range(_FLUSH_ATTEMPTS):
            status, _ = await self._client.post("/flush_cache")
            if status == 200:
                return True
            if status != 400 or self._ended is not None:
                return None if status in {None, 404, 405} else False
            await asyncio.sleep(_FLUSH_PAUSE_S)
        return False

    async def _measure(self) -> None:
        if self._ended is not None:
            return
        self._speed.begin()
        polling = asyncio.create_task(self._server_load.poll())
        try:
            await self._offer(self._measured)
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        self._speed.end()

    async def _profile(self) -> str | None:
        """Trace the server under load that does not count; where the traces are, or why there are none."""
        spec = self._spec.profile
        if spec is None or self._ended is not None:
            return None
        profile = ServerProfile(partial(self._client.post, timeout_s=_PROFILE_TIMEOUT_S), self._point, spec)
        if await profile.begin():
            await self._offer(profile_phase(self._spec, spec.duration_s, self._prompts.salt))
            await profile.end()
        return profile.told

    async def _offer(self, phase: Phase) -> None:
        """Send the phase's requests and wait for the last to end."""
        phase.begin(time.monotonic_ns())
        self._phase = phase
        async with asyncio.TaskGroup() as group:
            if self._spec.level.kind == "concurrency":
                for _ in range(int(self._spec.level.value)):
                    group.create_task(self._keep_one_in_flight(phase))
            else:
                await self._send_on_time(phase, group)
        self._phase = None

    async def _keep_one_in_flight(self, phase: Phase) -> None:
        while self._wants_more(phase):
            flight = await self._fly(self._draw(phase.warmup))
            if flight.status is not RequestStatus.OK:
                await asyncio.sleep(_AFTER_FAILURE_S)

    async def _send_on_time(self, phase: Phase, group: asyncio.TaskGroup) -> None:
        gate = asyncio.Semaphore(self._spec.max_concurrency or 1_000_000)
        for offset in phase.offsets:
            request = self._draw(phase.warmup, phase.began_ns + offset)
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
        while (left := due - time.monotonic_ns()) > 0 and self._ended is None:  # noqa: ASYNC110 - a deadline
            await asyncio.sleep(min(left // 1_000_000 / 1000, 0.25))

    async def _fly_through(self, gate: asyncio.Semaphore, request: Request) -> None:
        waits = gate.locked()
        if waits and not request.warmup:
            self._gated += 1
        async with gate:
            flight = await self._fly(request)
        if not request.warmup and not waits:
            self._speed.saw_send(flight.sent_ns - request.scheduled_ns)

    def _wants_more(self, phase: Phase) -> bool:
        """Whether another request is to be sent; the answer no ends the sending of the phase."""
        now = time.monotonic_ns()
        if self._ended is None and phase.wants_more(now):
            phase.issued += 1
            return True
        phase.close(now)
        return False

    def _draw(self, warmup: bool, due: int | None = None, output_tokens: int | None = None) -> Request:
        """The next request, to be sent when it is due or else at once."""
        index = self._drawn[warmup]
        self._drawn[warmup] += 1
        prompt = self._prompts.prompt(index, warmup=warmup)
        return Request(index, warmup, due or time.monotonic_ns(), prompt, output_tokens or self._spec.output_tokens)

    async def _fly(self, request: Request) -> Flight:
        """Send a request and record it. Once the point has ended, it is only recorded."""
        flight = self._client.flight(request, len(self._flights) + 1)
        self._requests += not request.warmup
        if self._ended is not None:
            flight.fail(self._ended[0], f"never sent: {self._ended[1]}")
        else:
            self._flights.add(flight)
            if not request.warmup:
                self._peak = max(self._peak, len(self._flights))
            try:
                await self._client.send(flight)
                if flight.status is RequestStatus.TIMEOUT and self._ended is None:
                    self._end_if_due(time.monotonic_ns())  # before its slot looks idle
            finally:
                self._flights.discard(flight)
        self._stream.add(flight.record(self._origin_ns))
        return flight

    async def _watch(self) -> None:
        """Every 50 ms: loop lag, batches that are due, and whether the point must end."""
        while True:
            asked = time.monotonic()
            await asyncio.sleep(_TICK_S)
            self._speed.saw_lag(time.monotonic() - asked - _TICK_S)
            self._stream.tick()
            if self._ended is None:
                self._end_if_due(time.monotonic_ns())

    def _end_if_due(self, now: int) -> None:
        phase = self._phase
        if not self._flights:
            self._client.progress_ns = now
        if phase is not None and not phase.warmup and phase.over(now):
            self._speed.end()
        if self.stopping:
            self._end(RequestStatus.CANCELLED, "the point was stopped")
        elif now - self._client.progress_ns > self._hang_s * 1e9:
            self._hung = True
            self._end(RequestStatus.TIMEOUT, f"hung: not a byte from any request for {self._hang_s:g} s")
        elif phase is not None and phase.over(now) and now - phase.closed_ns > self._drain_s * 1e9:
            self._end(RequestStatus.CANCELLED, f"still running {self._drain_s:g} s after the last request was sent")

    def _end(self, status: RequestStatus, reason: str) -> None:
        """No more requests, and those in flight end now."""
        self._ended = (status, reason)
        for flight in list(self._flights):
            flight.cancel(status, reason)
