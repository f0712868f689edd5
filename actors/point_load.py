"""One point on its way: its phases, what is asked of the server between them, and what ends it. Plain asyncio.

Order of a point: probe (short requests, so that prompts get their length) -> warm-up at the point's own level ->
drain -> flush the prefix cache -> prime (one request for each shared prefix) -> measured load -> drain -> load for a
profile (only if one is asked for).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Literal

from actors.client import StreamClient
from actors.load_offer import LoadOffer
from actors.load_phase import measured_phase, profile_phase, warmup_phase
from actors.load_watch import OwnSpeed, counter_delta, counter_patterns, read_counters
from actors.record_batch import RecordStream
from actors.request_source import RequestSource
from actors.server_load import ServerLoadWatch
from actors.server_profile import ServerProfile
from orchestrator.records import RequestStatus
from orchestrator.trial import ClientReport, Point, Shard

_TICK_S = 0.05
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
        self._source = RequestSource(point.spec, repeat=point.repeat)
        self._shard = Shard()
        self._warmup = warmup_phase(self._source, self._shard)
        self._measured = measured_phase(self._source, self._shard)
        self._speed = OwnSpeed()
        self._server_load = ServerLoadWatch(client.get_text)
        self._hung = False
        origin_ns = self._client.progress_ns = time.monotonic_ns()
        self._offer = LoadOffer(
            point.spec, client, self._source, stream, self._speed, shard=self._shard, origin_ns=origin_ns
        )
        self._offer.on_timeout = lambda: self._end_if_due(time.monotonic_ns())
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
            peak_concurrency=self._offer.peak,
            requests=self._offer.requests,
            stopped_by=self._stopped_by(),
            verify_calls_delta=verified,
            generation_tokens_delta=generated,
            requests_delta=requests,
            gated_requests=self._offer.gated,
            cache_flushed=flushed,
            reconnects=reconnects,
            drafted_tokens_delta=drafted,
            accepted_tokens_delta=accepted,
            server_running_mean=self._server_load.running_mean,
            server_running_max=self._server_load.running_max,
            server_queued_max=self._server_load.queued_max,
            server_token_usage_max=self._server_load.token_usage_max,
            profile=profile,
            workload_hash=self._source.workload_hash,
        )

    def _stopped_by(self) -> Literal["duration", "requests", "cancelled", "hung"]:
        if self._hung:
            return "hung"
        if self.stopping:
            return "cancelled"
        if self._spec.duration_s is None:  # a trace may have fewer than were asked for
            return "requests"
        all_sent = self._spec.requests is not None and self._offer.requests >= self._spec.requests
        return "requests" if all_sent else "duration"

    async def _prepare(self) -> bool | None:
        """Everything before the measured load; whether the prefix cache was flushed."""
        spec = self._spec
        await self._client.find_model()
        if spec.warmup_requests or spec.warmup_s:
            self._source.calibrate(await self._offer.probe())
        await self._offer.offer(self._warmup)
        flushed = await self._flush_cache()
        await self._offer.prime()
        await self._offer.prepare(self._measured)
        return flushed

    async def _flush_cache(self) -> bool | None:
        """SGLang refuses while a request runs, and an aborted one may take a moment to end."""
        for _ in range(_FLUSH_ATTEMPTS):
            status, _ = await self._client.post("/flush_cache")
            if status == 200:
                return True
            if status != 400 or self._offer.ended is not None:
                return None if status in {None, 404, 405} else False
            await asyncio.sleep(_FLUSH_PAUSE_S)
        return False

    async def _measure(self) -> None:
        if self._offer.ended is not None:
            return
        self._speed.begin()
        polling = asyncio.create_task(self._server_load.poll())
        try:
            await self._offer.offer(self._measured)
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        self._speed.end()

    async def _profile(self) -> str | None:
        """Trace the server under load that does not count; where the traces are, or why there are none."""
        spec = self._spec.profile
        if spec is None or self._offer.ended is not None:
            return None
        profile = ServerProfile(partial(self._client.post, timeout_s=_PROFILE_TIMEOUT_S), self._point, spec)
        if await profile.begin():
            await self._offer.offer(profile_phase(self._source, spec.duration_s, self._shard))
            await profile.end()
        return profile.told

    async def _watch(self) -> None:
        """Every 50 ms: loop lag, batches that are due, and whether the point must end."""
        while True:
            asked = time.monotonic()
            await asyncio.sleep(_TICK_S)
            self._speed.saw_lag(time.monotonic() - asked - _TICK_S)
            self._stream.tick()
            if self._offer.ended is None:
                self._end_if_due(time.monotonic_ns())

    def _end_if_due(self, now: int) -> None:
        phase = self._offer.phase
        if not self._offer.flights:
            self._client.progress_ns = now
        if phase is not None and not phase.warmup and phase.over(now):
            self._speed.end()
        if self.stopping:
            self._offer.end(RequestStatus.CANCELLED, "the point was stopped")
        elif now - self._client.progress_ns > self._hang_s * 1e9:
            self._hung = True
            self._offer.end(RequestStatus.TIMEOUT, f"hung: not a byte from any request for {self._hang_s:g} s")
        elif phase is not None and phase.over(now) and now - phase.closed_ns > self._drain_s * 1e9:
            self._offer.end(
                RequestStatus.CANCELLED, f"still running {self._drain_s:g} s after the last request was sent"
            )
