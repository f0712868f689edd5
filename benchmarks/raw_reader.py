"""The floor that load clients are measured against: a uvloop protocol that only finds and counts events of a stream.

Same requests and closed loop as any client: one task a slot, kept connections, one clock reading per network read.
It decodes no JSON, keeps no record but the time of the first event, and knows no failure but a wrong status.

    python -m benchmarks.raw_reader URL --concurrency 64 --requests 640 --output-tokens 128
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import time
import urllib.parse
from dataclasses import dataclass
from typing import cast

import orjson
import uvloop

from benchmarks.stream_script import MODEL
from benchmarks.stream_server import raise_file_limit

_END = b"0\r\n\r\n"
_HEAD = "POST /v1/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@dataclass(slots=True)
class Read:
    """One answer: the prompt's digest, nanoseconds of CLOCK_MONOTONIC, events counted."""

    digest: str
    sent_ns: int
    first_ns: int = 0
    end_ns: int = 0
    events: int = 0
    ok: bool = False


class Reader(asyncio.Protocol):
    """One connection, one answer at a time."""

    def __init__(self) -> None:
        self._read: Read | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _error: Exception | None) -> None:
        self._end()

    async def ask(self, head: bytes, prompt: str, tokens: int) -> Read:
        body = {
            "model": MODEL,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "ignore_eos": True,
        }
        data = orjson.dumps(body)
        self._waiter = asyncio.get_running_loop().create_future()
        self._read = read = Read(hashlib.sha256(prompt.encode()).hexdigest()[:16], time.monotonic_ns())
        self._transport.write(head % len(data) + data)
        await self._waiter
        return read

    def data_received(self, data: bytes) -> None:
        read, now = self._read, time.monotonic_ns()
        if read is None:
            return
        if not read.ok:
            read.ok = data.startswith(b"HTTP/1.1 200")
        events = data.count(b"data: ")
        if events and not read.events:
            read.first_ns = now
        read.events += events
        tail = data if len(data) >= len(_END) else self._tail + data
        self._tail = tail[-len(_END) :]
        if self._tail == _END:
            read.end_ns = now
            self._end()

    def _end(self) -> None:
        self._read = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def read_all(url: str, concurrency: int, requests: int, tokens: int) -> list[Read]:
    """A closed loop of `concurrency` streams until `requests` were read."""
    parts = urllib.parse.urlsplit(url)
    head = _HEAD.format(parts.netloc).encode()
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    left = iter(range(requests))
    reads: list[Read] = []
    loop = asyncio.get_running_loop()

    async def slot() -> None:
        transport, reader = await loop.create_connection(Reader, host, port)
        for index in left:
            reads.append(await reader.ask(head, f"{index} " + "w1 " * 127, tokens))
        transport.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(slot())
            await asyncio.sleep(0)  # as ours begins: streams that all began at once would share their wake-ups
    return reads


def main() -> None:
    """Print what was read as JSON."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("url")
    arguments.add_argument("--concurrency", type=int, default=64)
    arguments.add_argument("--requests", type=int, default=640)
    arguments.add_argument("--output-tokens", type=int, default=128)
    asked = arguments.parse_args()
    raise_file_limit()
    reads = uvloop.run(read_all(asked.url, asked.concurrency, asked.requests, asked.output_tokens))
    ok = [read for read in reads if read.ok and read.end_ns]
    out = {
        "completed": len(ok),
        "failed": len(reads) - len(ok),
        "ttft_ms": [(read.first_ns - read.sent_ns) / 1e6 for read in ok],
        "digests": [read.digest for read in ok],
        "cores": sorted(os.sched_getaffinity(0)),
    }
    print(orjson.dumps(out).decode())  # noqa: T201


if __name__ == "__main__":
    main()
