"""A server at the level of the socket: every byte, cut, pause and end of its answers is written in the test."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from tests.fakes.leaping_clock import Leaping

# Bytes are written at once, as a network read of their own if the reader keeps up; numbers are seconds to wait.
Step = bytes | float | Literal["close", "reset", "hang"]

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """An HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunked(events: Iterable[bytes | float]) -> list[Step]:
    """A whole answer: each event an HTTP chunk of its own, numbers are pauses before it."""
    return [STREAM, *(step if isinstance(step, float) else chunk(step) for step in events), LAST_CHUNK]


def whole(body: bytes, status: bytes = b"200 OK", kind: bytes = b"text/event-stream", more: bytes = b"") -> bytes:
    """An answer with its length."""
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n" % (status, kind, more, len(body))
    return head + body


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


class RawServer:
    """Answers its n-th request with the steps of `script(n)`, and waits for the next on the same connection.

    Side endpoints are not found, unless the script is to answer `side_calls` too.

    It keeps what it saw: `asked`, `connections`, `peak_open` (answers on their way), `writers`, and when it
    wrote what: `written`. The requests `together` are answered once the last of them has come in. With a `clock` it
    leaps where it would wait.
    """

    def __init__(
        self,
        script: Callable[[int], list[Step]],
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        side_calls: bool = False,
        together: range = range(0),
        clock: Leaping | None = None,
    ) -> None:
        self._all = side_calls
        self._clock = clock
        self._script = script
        self._host = host
        self._tls = tls
        self._open = 0
        self._together = together
        self._gathered = asyncio.Event()
        self._talks: set[asyncio.Task[None]] = set()
        self.writers: list[asyncio.StreamWriter] = []
        self.asked: list[Asked] = []
        self.written: list[list[tuple[int, bytes]]] = []
        self.connections = self.peak_open = self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._talk, self._host, 0, ssl=self._tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._talks.add(task)
        task.add_done_callback(self._talks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if not head[0].startswith(("POST /generate", "POST /v1/")) and not self._all:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        number = len(self.asked)
        self.asked.append(Asked(head[0], headers, body))
        self._open += 1
        self.peak_open = max(self.peak_open, self._open)
        if number == self._together.stop - 1:
            self._gathered.set()
        try:
            if number in self._together:
                await self._gathered.wait()
            return await self._take(self._script(number), writer)
        finally:
            self._open -= 1

    async def _take(self, steps: list[Step], writer: asyncio.StreamWriter) -> bool:
        written: list[tuple[int, bytes]] = []
        self.written.append(written)
        for step in steps:
            if isinstance(step, bytes):
                written.append((time.monotonic_ns(), step))
                writer.write(step)
                await writer.drain()
                await asyncio.sleep(0)
            elif step == "hang":
                await asyncio.Event().wait()
            elif isinstance(step, str):
                if step == "reset":
                    given = writer.get_extra_info("socket")
                    given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            elif self._clock is not None:
                await self._clock.leap(step, writer.transport)
            else:
                await asyncio.sleep(step)
        return True
