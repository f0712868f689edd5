"""Several child processes on this host that offer one load together. Plain asyncio, no Ray."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.load.load_ensemble import Ensemble, FlightTimes, Order
from actors.load.load_member import MESSAGES, End, Ending
from actors.load.load_pipe import Broke, Job, LoadOptions, packed, read_item
from orchestrator.trial import ClientReport, Point, Shard

# From the last member's word that it is ready to the first request: longer than a message takes on a busy host.
_LEAD_NS = 200_000_000
# A process that was told to end has nothing to wait for but its last batch.
_END_S = 20.0
_LONGEST_FAULT = 500
_ROOT = str(Path(__file__).resolve().parent.parent.parent)


class LoadProcesses:
    """Runs points, one at a time, each with `count` child processes; otherwise as a LoadGenerator.

    `faults` tells after a run which processes were lost, and why. The records that came are yielded all the same, and
    the report of those that are left, if any.
    """

    def __init__(self, count: int, options: LoadOptions) -> None:
        self._count = count
        self._options = options
        self._items: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_asked: Ending | None = None
        self.faults: list[str] = []

    async def run(self, url: str, point: Point) -> AsyncGenerator[Any]:
        """Record batches while the point runs, at last one ClientReport, unless every process was lost."""
        self._loop, self._items = asyncio.get_running_loop(), asyncio.Queue()
        if self._stop_asked:
            self.stop(self._stop_asked)
        origin = time.time_ns()
        shards = [Shard(i, self._count, origin) for i in range(self._count)]
        ensemble, flights = Ensemble(self._count, clock=time.time_ns, lead_ns=_LEAD_NS), FlightTimes()
        children: list[_Child] = []
        try:
            for shard in shards:
                children.append(await _Child.start(Job(url, point, shard, self._options), self._items))
            while not ensemble.done:
                member, item = await self._next(ensemble, children)
                if isinstance(item, ClientReport):
                    orders = ensemble.reported(member, item)
                elif isinstance(item, MESSAGES):
                    orders = ensemble.told(member, item)
                elif isinstance(item, Broke):
                    orders = ensemble.lost(member, f"load process {member + 1} of {self._count}: {item.fault}")
                elif isinstance(item, End):
                    orders = ensemble.stop(item.why)
                else:
                    orders = []
                    flights.saw(item)
                    yield item
                _carry_out(orders, children)
            report = ensemble.report(point.spec, flights.peak)
            if report is not None:
                yield report
        finally:
            self._loop, self._stop_asked, self.faults = None, None, ensemble.faults
            await asyncio.gather(*(child.end() for child in children))

    async def _next(self, ensemble: Ensemble, children: list[_Child]) -> tuple[int, Any]:
        """What is said next. Whoever says nothing long after the end of the point is ended."""
        while True:
            try:
                async with asyncio.timeout(_END_S if ensemble.ending else None):
                    return await self._items.get()
            except TimeoutError:
                for child in children:
                    child.kill()

    def stop(self, why: Ending = "cancelled") -> None:
        """End the running (or the next) point soon: requests in flight end, all records are kept.

        Safe in any thread.
        """
        self._stop_asked = why
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._items.put_nowait, (0, End(why)))


def _carry_out(orders: list[Order], children: list[_Child]) -> None:
    for order in orders:
        for member in order.members:
            children[member].send(order.what)


class _Child:
    """One process. What it says goes into the queue, at last a `Broke` with how it ended."""

    def __init__(self, process: Process, number: int, items: asyncio.Queue[tuple[int, Any]]) -> None:
        self._process = process
        self._number = number
        self._items = items
        self._said = b""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._keep_errors())]

    @classmethod
    async def start(cls, job: Job, items: asyncio.Queue[tuple[int, Any]]) -> _Child:
        """Start a process and give it its job, through the pipe: arguments can be read by everybody on the host."""
        path = os.pathsep.join(p for p in (_ROOT, os.environ.get("PYTHONPATH")) if p)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "actors.load.load_process", stdin=PIPE, stdout=PIPE, stderr=PIPE,
            env={**os.environ, "PYTHONPATH": path}, start_new_session=True, limit=1 << 20,
        )  # fmt: skip
        child = cls(process, job.shard.index, items)
        child.send(job)
        return child

    def send(self, item: Any) -> None:
        """A job or an order; to a process that is gone it does not matter."""
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(packed(item))

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while (item := await read_item(self._process.stdout)) is not None:
            self._items.put_nowait((self._number, item))
        code = await self._process.wait()
        await self._tasks[1]
        self._items.put_nowait((self._number, Broke(_how_it_ended(code, self._said))))

    async def _keep_errors(self) -> None:
        assert self._process.stderr is not None
        while said := await self._process.stderr.read(4096):
            self._said = (self._said + said)[-_LONGEST_FAULT:]

    def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def end(self) -> None:
        """The process is gone when this returns."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(1.0):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _how_it_ended(code: int, said: bytes) -> str:
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    last = said.decode("utf-8", "replace").strip().splitlines()[-1:]
    return ": ".join([how, *last])
