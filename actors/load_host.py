"""The load actor: drives one server through one point and streams what it measures. No Ray in here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from actors.host.run_lease import LeaseHolder, scratch_dir
from actors.load.load_member import Ending, Place
from actors.load.loadgen import LoadGenerator
from actors.load.spool import read_spool
from orchestrator.trial import Point, Shard

BEAT_S = 10.0


class LoadHost:
    """Loads one endpoint at a time; every batch is also spooled on this host until the driver has it."""

    def __init__(self, run_id: str, engine: str) -> None:
        self._run_id = run_id
        self._engine = engine
        self._running: LoadGenerator | None = None
        # Before anything is spooled: what we keep here is of a run that lives.
        self._claim = LeaseHolder(run_id, "load")

    async def run_point(
        self, url: str, point: Point, attempt: int, api_key: str | None = None, shard: Shard | None = None
    ) -> AsyncIterator[Any]:
        """Arrow record batches of request records, at last one ClientReport.

        With a shard only that part of the load, and messages to the coordinator of all parts in between. None where
        there was nothing to say for `BEAT_S`: a request may take any time as long as it progresses.
        """
        self._claim.hold()
        spool = spool_file(self._run_id, point.point_id, attempt, shard.index if shard else 0)
        spool.parent.mkdir(parents=True, exist_ok=True)
        load = self._running = LoadGenerator(
            run_id=self._run_id,
            engine=self._engine,
            attempt=attempt,
            spool_path=spool,
            api_key=api_key,
        )
        try:
            async with aclosing(load.run(url, point, shard)) as items:
                async for item in _with_beats(items):
                    yield item
        finally:
            self._running = None

    async def clock(self) -> int:
        """The host's wall clock in ns."""
        return time.time_ns()

    async def release(self, place: Place, value: Any) -> None:
        """All who offer the running point are at a place."""
        if self._running is not None:
            self._running.release(place, value)

    async def interrupt(self, why: Ending = "cancelled") -> None:
        """End the running point soon; the records so far still come."""
        if self._running is not None:
            self._running.stop(why)

    async def forget(self, point_id: str, attempt: int, member: int = 0) -> None:
        """The driver has the whole point: the spool is not needed."""
        spool_file(self._run_id, point_id, attempt, member).unlink(missing_ok=True)


async def _with_beats(items: AsyncGenerator[Any]) -> AsyncIterator[Any]:
    following = asyncio.ensure_future(anext(items))
    try:
        while True:
            done, _ = await asyncio.wait({following}, timeout=BEAT_S)
            if not done:
                yield None
                continue
            try:
                yield following.result()
            except StopAsyncIteration:
                return
            following = asyncio.ensure_future(anext(items))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def spool_file(run_id: str, point_id: str, attempt: int, member: int = 0) -> Path:
    """Where a load actor keeps a point's batches on its own host; several may share one."""
    return scratch_dir(run_id) / "spool" / f"{point_id}-{attempt}{f'-{member}' if member else ''}.arrows"


def spooled_batches(run_id: str, point_id: str, attempt: int, after: int, member: int = 0) -> list[Any]:
    """The batches of a point that its load actor yielded after the first `after`; for when that actor died."""
    file = spool_file(run_id, point_id, attempt, member)
    return list(read_spool(file))[after:] if file.exists() else []
