"""Requests and short loads against a server that writes raw bytes, for tests of the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.wire.client import StreamClient
from actors.wire.flight import Request
from actors.workloads.workload import Prompt
from orchestrator.points.metrics import summarise
from orchestrator.points.point_metrics import PointMetrics
from orchestrator.records import RequestRecord
from orchestrator.trial import ClientReport, LoadLevel
from tests.actors.load_specs import ask, run, spec
from tests.fakes.leaping_clock import Leaping
from tests.fakes.load import load_endpoint
from tests.fakes.raw_server import RawServer, Step, chunked
from tests.fakes.scripted_endpoint import DONE, chat, trailing_usage

C1 = LoadLevel("concurrency", 1)
REQUEST = Request(0, False, 0, Prompt("Hello", None, "hash"), 3)


def asked(
    script: Callable[[int], list[Step]], requests: int = 1, *, clock: Leaping | None = None, **changes: Any
) -> tuple[list[RequestRecord], RawServer]:
    """Records of requests sent one after the other; their times are those of the server's clock."""

    async def go() -> tuple[list[RequestRecord], RawServer]:
        server = RawServer(script, clock=clock)
        async with server, StreamClient(server.url, spec(**changes)) as client:
            return [await ask(client, i, origin_ns=0) for i in range(requests)], server

    result: tuple[list[RequestRecord], RawServer] = run(go())
    return result


def one(steps: list[Step], **changes: Any) -> tuple[RequestRecord, list[int]]:
    """The record of one request, and when the server wrote each event (the head and the last chunk left out)."""
    (record,), server = asked(lambda n: steps, **changes)
    return record, [at for at, data in server.written[0] if b"data:" in data]


def loaded(
    script: Callable[[int], list[Step]], *, together: range = range(0), clock: Leaping | None = None, **changes: Any
) -> tuple[list[RequestRecord], ClientReport, RawServer]:
    async def go() -> tuple[list[RequestRecord], ClientReport, RawServer]:
        server = RawServer(script, together=together, clock=clock)
        async with server:
            records, report = await load_endpoint(server.url, spec(**changes))
            return [r for r in records if not r.warmup], report, server

    result: tuple[list[RequestRecord], ClientReport, RawServer] = run(go())
    return result


def metrics(*records: RequestRecord) -> PointMetrics:
    return summarise(list(records), level=C1)


def counted(chunks: int, per_chunk: int, pause_s: float) -> list[Step]:
    """Chat: `chunks` chunks of `per_chunk` tokens, counted in each."""
    events: list[bytes | float] = []
    for i in range(1, chunks + 1):
        events += [pause_s, chat({"content": "x" * per_chunk}, tokens=i * per_chunk)]
    return chunked(
        [*events, pause_s, chat({}, tokens=chunks * per_chunk, finish="stop"), trailing_usage(chunks * per_chunk), DONE]
    )


def follows(stamps: tuple[int, ...], writes: list[int]) -> bool:
    """Whether every token is stamped after it was written and before what follows it was."""
    bounds = list(zip(writes, [*writes[1:], writes[-1] + 10**12], strict=True))
    return all(begin <= stamp <= end for stamp, (begin, end) in zip(stamps, bounds, strict=False))
