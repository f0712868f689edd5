"""Offers the load of one point to one server and yields its request records as they come. Plain asyncio, no Ray."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from actors.load.load_member import Ending, LoadMember, Place
from actors.load.point_load import PointLoad
from actors.load.record_batch import RecordStream
from actors.wire.client import StreamClient
from orchestrator.trial import Point, PointSpec, Shard

# For answers that began inside the window of a timed load; without them latencies would be those of short answers.
DRAIN_S = 600.0


class LoadGenerator:
    """Runs points, one at a time. `run_id`, `engine` and `attempt` go into every record, every batch into the spool.

    `api_key` and `headers` go with every request and nowhere else.

    `hang_timeout_s`: without a byte from any request for so long, the point ends as "hung". `drain_timeout_s`: how long
    requests may take after the last was sent. Where not given, the former is the request timeout of the point, and the
    latter has no end if the load is counted in requests, else it is DRAIN_S or the request timeout if that is longer.
    """

    def __init__(  # noqa: PLR0913 - what goes into records, to the server, and when it ends: all of them have defaults
        self,
        *,
        run_id: str = "",
        engine: str = "",
        attempt: int = 1,
        spool_path: Path | None = None,
        api_key: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        hang_timeout_s: float | None = None,
        drain_timeout_s: float | None = None,
    ) -> None:
        self._identity = {"run_id": run_id, "engine": engine, "attempt": attempt}
        self._spool_path = spool_path
        self._api_key = api_key
        self._headers = headers
        self._hang_timeout_s = hang_timeout_s
        self._drain_timeout_s = drain_timeout_s
        self._load: PointLoad | None = None
        self._member: LoadMember | None = None
        self._stop_asked: Ending | None = None

    async def run(self, url: str, point: Point, shard: Shard | None = None) -> AsyncGenerator[Any]:
        """Record batches while the point runs, at last one ClientReport.

        With a shard only that part of the load is offered. Messages to the coordinator of all shards come in between;
        `release` brings what it answers.
        """
        identity = {"trial_id": point.trial_id, "point_id": point.point_id, "config_id": point.config_id}
        stream = RecordStream(self._identity | identity, self._spool_path)
        limit_s = point.spec.request_timeout_s
        hang_s = limit_s if self._hang_timeout_s is None else self._hang_timeout_s
        drain_s = _longest_drain_s(point.spec) if self._drain_timeout_s is None else self._drain_timeout_s
        member = self._member = LoadMember(shard, stream.post if shard else None)
        async with StreamClient(url, point.spec, api_key=self._api_key, headers=self._headers) as client:
            self._load = load = PointLoad(point, client, stream, hang_s, drain_s, member)
            load.stopping = self._stop_asked
            driving = asyncio.create_task(load.drive())
            try:
                async for batch in stream.batches():
                    yield batch
                yield await driving
            finally:
                self._load = self._member = self._stop_asked = None
                driving.cancel()
                await asyncio.gather(driving, return_exceptions=True)

    def release(self, place: Place, value: Any) -> None:
        """All members of the ensemble are at a place. Only in the event loop of `run`."""
        if self._member is not None:
            self._member.release(place, value)

    def stop(self, why: Ending = "cancelled") -> None:
        """End the running (or the next) point soon: requests in flight end, all records are kept.

        Safe in any thread.
        """
        self._stop_asked = why
        load = self._load
        if load is not None:
            load.stopping = why


def _longest_drain_s(spec: PointSpec) -> float:
    """A load that is counted in requests waits for all that progress; one that is timed ends some time."""
    return math.inf if spec.duration_s is None else max(DRAIN_S, spec.request_timeout_s)
