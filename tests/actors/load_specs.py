"""Short specs, points and clients for tests of the load side."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from actors.wire.client import StreamClient
from actors.wire.flight import Request
from actors.workloads.workload import Prompt
from orchestrator.records import RequestRecord
from orchestrator.trial import LoadLevel, Point, PointSpec

SPEC = PointSpec(
    workload="w",
    level=LoadLevel("concurrency", 1),
    api="generate",
    dataset="random_text",
    input_tokens=32,
    output_tokens=3,
    warmup_s=0.0,
    warmup_requests=0,
    duration_s=None,
    requests=1,
    temperature=0.0,
    ignore_eos=True,
    request_timeout_s=200.0,
    model="m",
    seed=7,
)


def spec(**changes: Any) -> PointSpec:
    """One closed-loop request of 3 tokens without warm-up, but for the changes."""
    return replace(SPEC, **changes)


def point(**changes: Any) -> Point:
    return Point("p1", "t1", "c1", 0, spec(**changes))


async def ask(client: StreamClient, index: int = 0, *, origin_ns: int | None = None) -> RequestRecord:
    """Send one request; its times count from now, or from the origin that is given."""
    now = time.monotonic_ns()
    flight = client.flight(Request(index, False, now, Prompt("Hello", None, "hash"), 3))
    await client.send(flight)
    return flight.record(now if origin_ns is None else origin_ns)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)
