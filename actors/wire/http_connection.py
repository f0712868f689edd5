"""One HTTP/1.1 connection to a server: a request at a time, its answer given on as its bytes come.

Nothing is buffered between socket and answer: each network read gets one clock reading, before anything is parsed, and
is parsed at once.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast

import httptools

# A read as long as this is of a stream that may have much more: others get their turn before it goes on.
_LONG_READ_BYTES = 65_536
# What is no HTTP, what no answer can be made of, and what follows a whole answer.
_BROKEN = (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError)
_clock = time.monotonic_ns


class Exchange(ABC):
    """One request and its answer. Subclasses take the body (`take`) and are told of the end once (`finish`).

    `parts` are the pieces of the body in the read that is being parsed. `now` is when the last bytes came, on the
    monotonic clock, 0 before the first; `status` is None until the headers are complete. `keeps`: the server says that
    the connection can be used again.
    """

    __slots__ = ("_framed", "complete", "connection", "content_type", "encoding", "keeps", "location", "now",
                 "on_body", "parser", "parts", "status", "waiter")  # fmt: skip

    def __init__(self, waiter: asyncio.Future[None]) -> None:
        self.waiter = waiter
        self.connection: HttpConnection | None = None
        self.parser: httptools.HttpResponseParser | None = None
        self.parts: list[bytes] = []
        self.on_body = self.parts.append
        self.now = 0
        self.status: int | None = None
        self.complete = self.keeps = False
        self.content_type = self.encoding = self.location = ""
        self._framed = False

    def begin(self, connection: HttpConnection) -> httptools.HttpResponseParser:
        """A parser for the answer, which calls the `on_*` methods here. As lenient as other clients are."""
        self.connection = connection
        self.parser = parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        return parser

    def on_message_begin(self) -> None:
        if self.complete:
            raise ValueError("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self.content_type = value.partition(b";")[0].strip().lower().decode("latin-1")
        elif name in {b"content-length", b"transfer-encoding"}:
            self._framed = True
        elif name == b"content-encoding":
            self.encoding = value.strip().lower().decode("latin-1")
        elif name == b"location":
            self.location = value.decode("utf-8", "replace")

    def on_headers_complete(self) -> None:
        assert self.parser is not None
        status = self.parser.get_status_code()
        if status >= 200:
            self.status = status
            self.keeps = self.parser.should_keep_alive()  # known only now: at the end the parser has forgotten
            self.answered()

    def answered(self) -> None:  # noqa: B027 - not everybody looks at the headers
        """The headers are complete."""

    @abstractmethod
    def take(self, body: bytes) -> None:
        """All that one read brought of the body."""

    def on_message_complete(self) -> None:
        self.complete = self.status is not None  # else it was an interim answer, such as 100 Continue

    @abstractmethod
    def finish(self, error: Exception | None) -> None:
        """The answer has ended, well if `error` is None. Called once, unless the connection was closed by us."""

    @property
    def ends_with_connection(self) -> bool:
        """Whether the answer has no length of its own, so that the end of the connection is its end."""
        return self.status is not None and not self._framed

    def wake(self) -> None:
        """Let go on whoever waits for the end."""
        self.connection = self.parser = None
        if not self.waiter.done():
            self.waiter.set_result(None)


class HttpConnection(asyncio.Protocol):
    """A connection, in use or idle. `on_idle` is told when it can be used again, `on_gone` when it is lost or closed.

    `fd` is -1 once it is closed.
    """

    __slots__ = ("_exchange", "_feed", "_on_gone", "_on_idle", "_transport", "fd", "idle_since_s")

    def __init__(self, on_idle: Callable[[HttpConnection], None], on_gone: Callable[[HttpConnection], None]) -> None:
        self._on_idle = on_idle
        self._on_gone = on_gone
        self._exchange: Exchange | None = None
        self.fd = -1
        self.idle_since_s = 0.0

    @property
    def busy(self) -> bool:
        return self._exchange is not None

    def send(self, message: bytes, exchange: Exchange) -> None:
        """Send a whole request; `exchange` gets the answer."""
        if self.fd < 0:
            exchange.finish(EOFError("the server closed the connection"))
            return
        self._exchange = exchange
        self._feed = exchange.begin(self).feed_data
        self._transport.write(message)

    def close(self) -> None:
        """Close at once. The exchange, if there is one, is not told: it is the one who asks for it."""
        self._exchange = None
        if self.fd >= 0:
            self._leave()
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.fd = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        now = _clock()
        exchange = self._exchange
        if exchange is None:
            self.close()  # bytes that nobody asked for
            return
        exchange.now = now
        try:
            self._feed(data)
            if parts := exchange.parts:
                body = parts[0] if len(parts) == 1 else b"".join(parts)
                parts.clear()
                exchange.take(body)
        except _BROKEN as error:
            self._fail(exchange, error)
            return
        if exchange.complete:
            self._release(exchange)
        elif len(data) >= _LONG_READ_BYTES:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def eof_received(self) -> None:
        self._end(EOFError("the server closed the connection"))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or EOFError("the server closed the connection"))

    def _go_on(self) -> None:
        if self.fd >= 0 and not self._transport.is_closing():
            self._transport.resume_reading()

    def _release(self, exchange: Exchange) -> None:
        """The answer is complete; the connection may be used again if both sides are willing and able."""
        reusable = exchange.keeps and not self._transport.get_write_buffer_size()
        self._exchange = None
        exchange.finish(None)
        if self.fd < 0:
            return
        if reusable:
            self._on_idle(self)
        else:
            self.close()

    def _fail(self, exchange: Exchange, error: Exception) -> None:
        """The server does not speak HTTP, or not any more. What came before that in the same read counts."""
        self.close()
        if exchange.parts:
            exchange.take(b"".join(exchange.parts))
            exchange.parts.clear()
        exchange.finish(None if exchange.complete else error)

    def _end(self, error: Exception) -> None:
        exchange, self._exchange = self._exchange, None
        if self.fd >= 0:
            self._leave()
        if exchange is not None:
            well = exchange.complete or (exchange.ends_with_connection and isinstance(error, EOFError))
            exchange.finish(None if well else error)

    def _leave(self) -> None:
        self.fd = -1
        self._on_gone(self)
