"""One point on its way: its phases, what is asked of the server between them, and what ends it. Plain asyncio.

Order of a point: probe (short requests, so that prompts get their length) -> warm-up at the point's own level ->
drain -> flush the prefix cache -> prime (one request for each shared prefix) -> measured load -> drain -> load for a
profile (only if one is asked for). Several processes that offer one point together meet between these; what is asked of
the server aside, the first of them asks.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from actors.load.load_member import Beat, Ending, LoadMember, Place, Silent, monotonic_of
from actors.load.load_offer import LoadOffer
from actors.load.load_phase import measured_phase, profile_phase, warmup_phase
from actors.load.load_watch import OwnSpeed, counter_delta, counter_patterns, read_counters
from actors.load.record_batch import RecordStream
from actors.load.server_load import ServerLoadWatch
from actors.load.server_profile import ServerProfile
from actors.wire.client import StreamClient
from actors.workloads.request_source import RequestSource
from orchestrator.records import RequestStatus
from orchestrator.trial import ClientReport, Point

_TICK_S = 0.05
# Ticks between two looks at what waits in our sockets, and between two words to the other members.
_BACKLOG_TICKS, _BEAT_TICKS = 5, 10
_FLUSH_ATTEMPTS, _FLUSH_PAUSE_S = 10, 0.2
# A server under load may take a while to write its traces.
_PROFILE_TIMEOUT_S = 300.0


class PointLoad:
    """One point on its way. `drive` is the whole life; `stopping` may be set from outside, in any thread.

    `hang_s`: how long there may be no byte from any request; `drain_s`: how long requests may take after the last was
    sent.
    """

    def __init__(
        self, point: Point, client: StreamClient, stream: RecordStream, hang_s: float, drain_s: float,
        member: LoadMember | None = None,
    ) -> None:  # fmt: skip
        self._point = point
        self._spec = point.spec
        self._client = client
        self._stream = stream
        self._hang_s = hang_s
        self._drain_s = drain_s
        self._member = member or LoadMember()
        shard = self._member.shard
        self._source = RequestSource(point.spec, repeat=point.repeat)
        self._warmup = warmup_phase(self._source, shard)
        self._measured = measured_phase(self._source, shard)
        self._speed = OwnSpeed()
        self._server_load = ServerLoadWatch(client.get_text)
        self._ending: Ending | None = None
        # When a byte last came or nothing was in flight; when we last told the others; that we told them of silence.
        self._moved_ns = self._told_ns = time.monotonic_ns()
        self._told_silence = False
        origin_ns = self._moved_ns if shard.origin_unix_ns is None else monotonic_of(shard.origin_unix_ns)
        self._offer = LoadOffer(point.spec, client, self._source, stream, self._speed, shard=shard, origin_ns=origin_ns)
        self._offer.on_timeout = lambda: self._end_if_due(time.monotonic_ns())
        self.stopping: Ending | None = None

    async def drive(self) -> ClientReport:
        """From the probe to the drained end. Closes the record stream whatever happens."""
        patterns = counter_patterns(self._spec.counters)
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                flushed = await self._prepare()
                reconnects = self._client.reconnects
                before = read_counters(await self._aside("/metrics"), patterns)
                await self._measure()
                reconnects = self._client.reconnects - reconnects
                await self._meet(Place.DRAINED)
                after = read_counters(await self._aside("/metrics"), patterns)
                profile = await self._profile()
                watch.cancel()
        finally:
            self._speed.end()
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
            stopped_by=self._ending or ("requests" if self._all_sent else "duration"),
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
            notes=self._source.notes,
            gc_pause_max_ms=self._speed.gc_pause_max_ms,
            backlog_p99_kib=self._speed.backlog_p99_kib,
            began_unix_s=self._speed.began_unix_s,
        )

    @property
    def _all_sent(self) -> bool:
        """Whether every request of ours was sent."""
        if self._spec.duration_s is None:  # a trace may have fewer than were asked for
            return True
        return self._spec.requests is not None and self._offer.requests >= (self._measured.bound or 0)

    async def _meet(self, place: Place, value: Any = None) -> Any:
        """Wait for the other members. Every member comes to every place, whatever has ended."""
        return await self._member.meet(place, value, ended=self._ended)

    @property
    def _ended(self) -> bool:
        return self._offer.ended is not None or self.stopping is not None

    async def _aside(self, path: str) -> str | None:
        return await self._client.get_text(path) if self._member.leads else None

    async def _prepare(self) -> bool | None:
        """Everything before the measured load; whether the prefix cache was flushed."""
        await self._client.find_model()
        await self._calibrate()
        await self._offer.prepare(self._warmup)
        await self._offer.offer(self._warmup)
        self._stream.flush()
        await self._meet(Place.WARM)
        if not self._member.leads:
            return None
        flushed = await self._flush_cache()
        await self._offer.prime()
        return flushed

    async def _calibrate(self) -> None:
        """All members make prompts as long as the server's counts for the probes ask for."""
        told = None
        if self._member.leads and (self._spec.warmup_requests or self._spec.warmup_s):
            told = await self._offer.probe()
        told = await self._meet(Place.PROBED, told)
        if told:
            self._source.calibrate(told)

    async def _flush_cache(self) -> bool | None:
        """SGLang refuses while a request runs, and an aborted one may take a moment to end."""
        for _ in range(_FLUSH_ATTEMPTS):
            status, _ = await self._client.post("/flush_cache")
            if status == 200:
                return True
            if status != 400 or self._ended:
                return None if status in {None, 404, 405} else False
            await asyncio.sleep(_FLUSH_PAUSE_S)
        return False

    async def _measure(self) -> None:
        await self._offer.prepare(self._measured)
        self._speed.prepare()
        start_unix_ns = await self._meet(Place.START)
        if self._ended:
            return
        polling = asyncio.create_task(self._poll_server())
        try:
            began_ns = None if start_unix_ns is None else monotonic_of(start_unix_ns)
            if began_ns is not None:  # the last milliseconds are waited for by whoever sends
                await asyncio.sleep((began_ns - time.monotonic_ns()) / 1e9 - _TICK_S)
            self._speed.begin()
            await self._offer.offer(self._measured, began_ns)
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        self._speed.end()

    async def _poll_server(self) -> None:
        if self._member.leads:
            await self._server_load.poll()

    async def _profile(self) -> str | None:
        """Trace the server under load that does not count; where the traces are, or why there are none."""
        spec = self._spec.profile
        if spec is None:
            return None
        profile = ServerProfile(partial(self._client.post, timeout_s=_PROFILE_TIMEOUT_S), self._point, spec)
        began = self._member.leads and not self._ended and await profile.begin()
        if await self._meet(Place.TRACING, began) and not self._ended:
            await self._offer.offer(profile_phase(self._source, spec.duration_s, self._member.shard))
        await self._meet(Place.TRACED)
        if began:
            await profile.end()
        return profile.told if self._member.leads else None

    async def _watch(self) -> None:
        """Every 50 ms: loop lag, batches that are due, and whether the point must end."""
        tick, stood_still = 0, False
        while True:
            tick += 1
            asked = time.monotonic()
            await asyncio.sleep(_TICK_S)
            lag_s = time.monotonic() - asked - _TICK_S
            self._speed.saw_lag(lag_s)
            self._stream.tick()
            if tick % _BACKLOG_TICKS == 0:
                self._speed.saw_backlog(self._client.sample_backlog_kib())
            if tick % _BEAT_TICKS == 0:
                self._beat()
            stood_still = lag_s >= _TICK_S and not stood_still
            if self._offer.ended is None and not stood_still:  # what has come meanwhile is read first
                self._end_if_due(time.monotonic_ns())

    def _beat(self) -> None:
        moved = self._client.progress_ns > self._told_ns
        if moved:
            self._told_ns, self._told_silence = self._client.progress_ns, False
        self._member.tell(Beat(moved, bool(self._offer.flights)))

    def _end_if_due(self, now: int) -> None:
        phase = self._offer.phase
        self._moved_ns = max(self._moved_ns, self._client.progress_ns, 0 if self._offer.flights else now)
        if phase is not None and not phase.warmup and phase.over(now):
            self._speed.end()
        if self.stopping is not None:
            self._end(self.stopping)
        elif now - self._moved_ns > self._hang_s * 1e9 and self._hangs_alone():
            self._end("hung")
        elif phase is not None and phase.over(now) and now - phase.closed_ns > self._drain_s * 1e9:
            self._offer.end(
                RequestStatus.CANCELLED, f"still running {self._drain_s:g} s after the last request was sent"
            )

    def _hangs_alone(self) -> bool:
        """Whether our silence is all there is to know; where there are other members, they are asked first."""
        if not self._member.alone and not self._told_silence:
            self._told_silence = True
            self._member.tell(Silent())
        return self._member.alone

    def _end(self, why: Ending) -> None:
        self._ending = why
        if why == "hung":
            self._offer.end(RequestStatus.TIMEOUT, f"hung: no event of any answer for {self._hang_s:g} s")
        else:
            self._offer.end(RequestStatus.CANCELLED, "the point was stopped")
