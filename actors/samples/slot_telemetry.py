"""Samples a server and its GPUs from its launch until it is gone, and keeps what the driver has not taken yet."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from actors.gpus.gpu_sample import SlotGpuLook
from actors.samples.server_gauges import LOADS, METRICS, Gauges, read_loads, read_metrics
from actors.servers.process_use import ProcessUse, ServerProcesses
from orchestrator.telemetry import SLOWING, Sample, Sampled, ServerSample

# An hour at one a second; what nobody fetched until then is dropped, the oldest first.
_MOST_WAITING = 3600
# `/metrics` costs a server more than `/v1/loads`: it is asked less often.
_METRICS_EVERY = 5
# A server that does not answer within this time leaves a gap.
_ANSWER_S = 1.0
_OK, _FAULT = 200, 500
# GPUs that were held back in a smaller part of a point's samples are not worth a note.
_THROTTLED_SHARE = 0.1


class Asked(Protocol):
    """A server that can be asked for a page."""

    async def page(self, path: str, timeout_s: float) -> tuple[int, str]:
        """Status and text of a page; a status below 200 if no answer came."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A server as it is now. `pid` is that of its guard, `lived_s` None before its process ran.

    `trial_id` is given for one in a container, whose processes are found by their mark.
    """

    pid: int | None
    lived_s: float | None
    is_ready: bool
    endpoint: Asked
    trial_id: str | None = None


class SlotTelemetry:
    """One server start. `began_s`: when it was asked for, by the monotonic clock."""

    def __init__(
        self, look: SlotGpuLook, watched: Callable[[], Watched | None], every_s: float, began_s: float
    ) -> None:
        self._look = look
        self._watched = watched
        self._every_s = every_s
        self._began_s = began_s
        self._waiting: deque[Sample] = deque(maxlen=_MOST_WAITING)
        self._told = 0  # how many samples there were in all
        self._slowed: deque[tuple[float, tuple[tuple[str, tuple[str, ...]], ...]]] = deque(maxlen=_MOST_WAITING)
        self._server = _ServerLook()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._sample_on())

    async def end(self) -> None:
        """One more sample, of what is left, and no others."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.sample()

    def after(self, number: int) -> Sampled:
        """The samples after the first `number`; who asks for them has those before."""
        first = self._told - len(self._waiting)
        while self._waiting and first < number:
            self._waiting.popleft()
            first += 1
        return Sampled(tuple(self._waiting), self._told)

    async def sample(self) -> None:
        """Look once at everything; what does not answer is None in the sample."""
        at_s, unix_s, watched = time.monotonic() - self._began_s, time.time(), self._watched()
        looks = await asyncio.gather(
            asyncio.to_thread(self._look.samples), self._server.look(watched), return_exceptions=True
        )
        # Whatever a driver or a server answers: sampling goes on, and a server is stopped as without it.
        gpus = () if isinstance(looks[0], BaseException) else looks[0]
        server = ServerSample() if isinstance(looks[1], BaseException) else looks[1]
        lived_s = watched.lived_s if watched is not None else None
        self._told += 1
        self._waiting.append(Sample(round(at_s, 3), round(unix_s, 3), lived_s, server, gpus))
        slowed = tuple(
            (gpu.gpu, tuple(sorted(SLOWING & set(gpu.throttle)))) for gpu in gpus if gpu.throttle is not None
        )
        if slowed:
            self._slowed.append((unix_s, slowed))

    def throttled(self, began_unix_s: float, ended_unix_s: float) -> tuple[str, ...]:
        """Which GPUs were held back between two times, why, and how often; for a note on a point."""
        seen = [slowed for at_s, slowed in self._slowed if began_unix_s <= at_s <= ended_unix_s]
        return throttle_notes(seen)

    async def _sample_on(self) -> None:
        due_s = time.monotonic()
        while True:
            await self.sample()
            now_s = time.monotonic()
            due_s = max(due_s + self._every_s, now_s)  # what was missed is missed
            await asyncio.sleep(due_s - now_s)


def throttle_notes(seen: Sequence[tuple[tuple[str, tuple[str, ...]], ...]]) -> tuple[str, ...]:
    """What to say of samples that each hold, GPU by GPU, the reasons why it was held back."""
    counts: dict[tuple[str, str], int] = {}
    for slowed in seen:
        for gpu, reasons in slowed:
            for reason in reasons:
                counts[gpu, reason] = counts.get((gpu, reason), 0) + 1
    return tuple(
        f"gpu_throttled: GPU {gpu} was held back ({reason}) in {100 * count / len(seen):.0f} % of the time"
        for (gpu, reason), count in sorted(counts.items())
        if count / len(seen) >= _THROTTLED_SHARE
    )


class _ServerLook:
    """What one server says, and what its processes use."""

    def __init__(self) -> None:
        self._pages = [LOADS, METRICS]
        self._turn = 0
        self._processes = ServerProcesses()
        self._generated: tuple[float, float] | None = None

    async def look(self, watched: Watched | None) -> ServerSample:
        if watched is None:
            return ServerSample()
        told, used = await asyncio.gather(self._ask(watched), asyncio.to_thread(self._use, watched))
        if used is None:
            return told
        return replace(told, processes=used.processes, rss_gib=used.rss_gib, cpu_cores=used.cpu_cores)

    def _use(self, watched: Watched) -> ProcessUse | None:
        return None if watched.pid is None else self._processes.look(watched.pid, watched.trial_id)

    async def _ask(self, watched: Watched) -> ServerSample:
        """A server without `/v1/loads` is asked for its metrics from then on; one that has neither, for nothing."""
        if not watched.is_ready or not self._pages:
            return ServerSample()
        page, self._turn = self._pages[0], self._turn + 1
        if page == METRICS and self._turn % _METRICS_EVERY:
            return ServerSample()
        status, text = await watched.endpoint.page(page, _ANSWER_S)
        gauges = (read_loads if page == LOADS else read_metrics)(text) if status == _OK else None
        if gauges is not None:
            return self._with_speed(gauges)
        if status == _OK or _OK < status < _FAULT:
            del self._pages[0]
        return ServerSample()

    def _with_speed(self, gauges: Gauges) -> ServerSample:
        """What a counter grew by since the last time, where a server tells no speed."""
        if gauges.generated_tokens is None:
            return gauges.sample
        now = (time.monotonic(), gauges.generated_tokens)
        before, self._generated = self._generated, now
        if before is None or now[1] < before[1]:
            return gauges.sample
        return replace(gauges.sample, generation_tok_s=round((now[1] - before[1]) / max(now[0] - before[0], 1e-3), 2))
