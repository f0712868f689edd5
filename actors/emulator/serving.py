"""The engine loop: drives the batch by the wall clock, writes batch lines, wakes whoever waits for tokens.

Step deadlines accumulate from the previous deadline, not from the moment the loop woke up, so that a busy machine
delays single chunks but not the average: measured speed is the model's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from actors.emulator.batching import Batch, Request, Step
from actors.emulator.log import LogWriter
from actors.emulator.metrics_text import Metrics
from actors.emulator.noise import Noise
from actors.emulator.profiler import Profiler
from actors.emulator.words import output_ids

# A machine that stood still for longer is not made up for.
RESYNC_S = 0.5
QUEUE_FULL = "The request queue is full."


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop condition that ends an answer after `tokens`: what matched, and at how many characters the text is cut."""

    tokens: int
    matched: str | int
    cut: int | None


@dataclass(eq=False)
class Ticket:
    """A request as its HTTP handler sees it. `internal` ones (health, warm-up) are not counted."""

    request: Request
    stream: bool
    received: float
    internal: bool = False
    stop: Stop | None = None
    waiter: asyncio.Future[None] | None = None
    last_chunk: float = 0.0

    async def progress(self, seen: int) -> int:
        """Wait until more than `seen` tokens are there or the request ended; answers how many are there."""
        while self.request.generated <= seen and not self.request.done:
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        return self.request.generated

    async def ended(self) -> int:
        """Wait for the end; answers how many tokens there are."""
        seen = 0
        while not self.request.done:
            seen = await self.progress(seen)
        return self.request.generated

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


@dataclass
class Interval:
    """What the next decode line reports: verifies, accepted drafts and tokens since the last one."""

    since: float = 0.0
    steps: int = 0
    tokens: int = 0
    verifies: int = 0
    accepted: int = 0


@dataclass
class EngineOptions:
    """Settings of the loop: tokens of KV cache, decode log interval in steps, queue limit, hybrid state slots, and the
    largest prefill in tokens that has a captured graph, the device that batch lines name.
    """

    kv_tokens: int
    decode_log_interval: int
    max_queued: int | None = None
    state_slots: int = 0
    captured_prefill: int = 0
    device: str = "cuda"


async def no_delay(seconds: float) -> float:
    """The gate of an engine without faults."""
    del seconds
    return 0.0


@dataclass
class Engine:
    """Owns the batch. `wall_offset` turns loop times into Unix times; `gate` may delay steps (answer: seconds), `noise`
    makes all of them slower or faster.
    """

    batch: Batch
    options: EngineOptions
    log: LogWriter
    metrics: Metrics
    tickets: dict[str, Ticket] = field(default_factory=dict)
    accept_length: float | None = None
    last_throughput: float = 0.0
    wall_offset: float = 0.0
    gate: Callable[[float], Awaitable[float]] = no_delay
    noise: Noise | None = None
    prefill_busy_s: float = 0.0
    _interval: Interval = field(default_factory=Interval)
    _lifetime: Interval = field(default_factory=Interval)
    _last_prefill: float = 0.0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    profiler: Profiler = field(init=False)

    def __post_init__(self) -> None:
        self.profiler = Profiler(self.log)
        if self.noise:
            self.batch.pace = self.noise.factor

    def submit(self, ticket: Ticket) -> None:
        """Queue a request; a full queue refuses it by an abort reason."""
        limit = self.options.max_queued
        if limit is not None and len(self.batch.waiting) >= limit:
            ticket.request.abort_reason = QUEUE_FULL
            return
        self.tickets[ticket.request.rid] = ticket
        self.batch.submit(ticket.request)
        self._wake.set()

    def abort(self, rid: str, reason: str = "Abort in waiting queue") -> None:
        """End one request early; its handler answers with an abort."""
        ticket = self.tickets.pop(rid, None)
        if ticket is not None and not ticket.request.done:
            self.batch.abort(ticket.request, reason)
            self.metrics.aborted += 1
            ticket.wake()

    def flush(self) -> bool:
        """Empty the prefix cache and the averages; refused while anything runs or waits."""
        if self.batch.busy:
            self.log.rank(
                "Cache not flushed because there are pending requests. "
                f"#queue-req: {len(self.batch.waiting)}, #running-req: {len(self.batch.running)}"
            )
            return False
        self.batch.cache.clear()
        self._interval, self._lifetime = Interval(since=self._interval.since), Interval()
        self.accept_length = None
        if self.noise:
            self.noise.next_point()
            self.batch.pace = self.noise.factor
        self.log.rank("Cache flushed successfully!")
        return True

    async def run(self) -> None:
        """Serve until cancelled."""
        self.wall_offset = time.time() - time.monotonic()
        self._interval.since = self._last_prefill = deadline = time.monotonic()
        while True:
            step = self.batch.next_step()
            if step is None:
                self._wake.clear()
                self._refresh_gauges()
                idle_since = time.monotonic()
                await self._wake.wait()
                deadline = time.monotonic()
                self.metrics.idle_s += deadline - idle_since
                continue
            deadline += step.seconds
            late = time.monotonic() - deadline
            if late > RESYNC_S:
                deadline += late
            await asyncio.sleep(max(0.0, -late))
            deadline += await self.gate(step.seconds)
            self._finish(step, time.monotonic())

    def _finish(self, step: Step, now: float) -> None:
        before = {request: request.generated for request in step.requests}
        accepted = sum(request.accepted for request in step.requests)
        got = self.batch.finish_step(step, now)
        tokens = sum(request.generated - before[request] for request in got)
        if step.kind == "prefill":
            self._report_prefill(step, now)
        else:
            accepted = sum(request.accepted for request in step.requests) - accepted
            self._report_decode(step, tokens, accepted, now)
        self._report_retractions()
        self.profiler.record(step.kind, len(step.requests), step.seconds, now)
        for request in got:
            self._deliver(request, request.generated - before[request], now)

    def _deliver(self, request: Request, tokens: int, now: float) -> None:
        ticket = self.tickets.get(request.rid)
        if ticket is None:
            return
        if ticket.last_chunk:
            self.metrics.itl.observe((now - ticket.last_chunk) / max(1, tokens), tokens)
        ticket.last_chunk = now
        if request.done:
            del self.tickets[request.rid]
            # The last token was sampled, but never went through the model.
            self.batch.cache.insert((*request.prompt, *output_ids(request.output_seed, 0, request.generated - 1)))
            if not ticket.internal:
                self._count(ticket)
        ticket.wake()

    def _count(self, ticket: Ticket) -> None:
        request, metrics, stream = ticket.request, self.metrics, ticket.stream
        metrics.requests[stream] += 1
        metrics.prompt_tokens[stream] += len(request.prompt)
        metrics.generation_tokens[stream] += request.generated
        metrics.cached_tokens += request.cached
        metrics.verify_calls += request.verifies
        metrics.ttft[stream].observe(request.first_token - request.arrived)
        metrics.e2e[stream].observe(request.finished - request.arrived)
        metrics.prompt_sizes.observe(len(request.prompt))
        metrics.uncached_sizes.observe(len(request.prompt) - request.cached)
        metrics.answer_sizes.observe(request.generated)
        if request.generated > 1:
            metrics.tpot[stream].observe((request.finished - request.first_token) / (request.generated - 1))

    def _usage(self, with_tokens: bool) -> str:
        used, running = self.batch.tokens_used, len(self.batch.running)
        share = used / max(1, self.options.kv_tokens)
        slots = self.options.state_slots
        if not slots:
            return f"#token: {used}, token usage: {share:.2f}, " if with_tokens else f"token usage: {share:.2f}, "
        states = running / slots
        if with_tokens:
            full = f"#full token: {used}, full token usage: {share:.2f}, "
            return f"{full}mamba num: {running}, mamba usage: {states:.2f}, "
        return f"full token usage: {share:.2f}, mamba usage: {states:.2f}, "

    def _report_prefill(self, step: Step, now: float) -> None:
        new = sum(step.shares)
        rate = new / max(1e-9, now - self._last_prefill)
        self._last_prefill = now
        self.prefill_busy_s += step.seconds
        self.metrics.gauges["cache_hit_rate"] = step.cached / max(1, step.cached + new)
        self.metrics.realtime["prefill_compute"] += new
        self.metrics.realtime["prefill_cache"] += step.cached
        captured = new <= self.options.captured_prefill
        self.metrics.passes["prefill_cuda_graph" if captured else "prefill_none"] += 1
        for request in step.requests:
            if not request.retractions:
                self.metrics.queue_time.observe(max(0.0, request.scheduled - request.arrived))
        pending = sum(len(r.prompt) for r in self.batch.waiting)
        running = len(self.batch.running) - len(step.requests)
        self.log.rank(
            f"Prefill batch, #new-seq: {len(step.requests)}, #new-token: {new}, #cached-token: {step.cached}, "
            f"{self._usage(with_tokens=False)}#running-req: {max(0, running)}, "
            f"#queue-req: {len(self.batch.waiting)}, #pending-token: {pending}, "
            f"{self.options.device} graph: {captured}, "
            f"input throughput (token/s): {rate:.2f}"
        )
        self._refresh_gauges()

    def _report_decode(self, step: Step, tokens: int, accepted: int, now: float) -> None:
        self.metrics.realtime["decode"] += tokens
        self.metrics.passes["decode_cuda_graph" if step.captured else "decode_none"] += 1
        part = self._interval
        part.steps, part.tokens = part.steps + 1, part.tokens + tokens
        part.verifies, part.accepted = part.verifies + len(step.requests), part.accepted + accepted
        if part.steps < self.options.decode_log_interval:
            return
        self.last_throughput = part.tokens / max(1e-9, now - part.since)
        words = self._accept_words(part)
        self.log.rank(
            f"Decode batch, #running-req: {len(step.requests)}, {self._usage(with_tokens=True)}{words}"
            f"{self.options.device} graph: {step.captured}, gen throughput (token/s): {self.last_throughput:.2f}, "
            f"#queue-req: {len(self.batch.waiting)}"
        )
        self._interval = Interval(since=now)
        self.metrics.gauges["is_cuda_graph"] = float(step.captured)
        self.metrics.gauges["decode_sum_seq_lens"] = sum(r.tokens_held for r in step.requests)
        self._refresh_gauges()

    def _accept_words(self, part: Interval) -> str:
        limits = self.batch.limits
        if not self.batch.speculating:
            return ""
        total = self._lifetime
        total.verifies, total.accepted = total.verifies + part.verifies, total.accepted + part.accepted
        self.accept_length = 1 + total.accepted / total.verifies
        length = 1 + part.accepted / part.verifies
        rate = part.accepted / (part.verifies * max(1, limits.draft_tokens - 1))
        self.metrics.gauges |= {"spec_accept_length": length, "spec_accept_rate": rate}
        return f"accept len: {length:.2f}, accept rate: {rate:.2f}, "

    def _report_retractions(self) -> None:
        self.metrics.retracted_now = sum(len(r.requests) for r in self.batch.retractions)
        for retraction in self.batch.retractions:
            self.metrics.retracted_requests += len(retraction.requests)
            self.metrics.retracted_input += sum(len(r.prompt) for r in retraction.requests)
            self.metrics.retracted_output += sum(r.generated for r in retraction.requests)
            self.log.rank(
                f"KV cache pool is full. Retract requests. #retracted_reqs: {len(retraction.requests)}, "
                f"#new_tokens_gained: {retraction.gained}, "
                f"#new_token_ratio: {retraction.old_ratio:.4f} -> {retraction.new_ratio:.4f}"
            )
        self.batch.retractions.clear()

    def _refresh_gauges(self) -> None:
        batch, used = self.batch, self.batch.tokens_used
        usage = round(used / max(1, self.options.kv_tokens), 2)
        evictable = min(batch.cache.tokens, max(0, self.options.kv_tokens - used))
        self.metrics.gauges |= {
            "kv_used_tokens": used,
            "kv_evictable_tokens": evictable,
            "kv_available_tokens": self.options.kv_tokens - used - evictable,
            "num_running_reqs": len(batch.running),
            "num_queue_reqs": len(batch.waiting),
            "num_used_tokens": used,
            "token_usage": usage,
            "full_token_usage": usage,
            "gen_throughput": self.last_throughput,
            "new_token_ratio": batch.ratio,
        }
