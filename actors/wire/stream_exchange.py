"""The answer of one flight on its way in: bytes of HTTP -> events -> tokens, and the clock of its progress."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import orjson

from actors.wire.answer import error_text
from actors.wire.client_limit import is_client_limit, limit_text
from actors.wire.flight import Flight
from actors.wire.http_connection import Exchange, HttpConnection
from actors.wire.sse import EventSplitter
from orchestrator.records import RequestStatus

# After `[DONE]` a server has nothing to say; one that keeps the stream open loses its connection, not our time.
_AFTER_DONE_S = 1.0
_BENEFIT_S = 0.02
# Longest event, and most that is kept of an answer that is no stream.
_MOST_EVENT_BYTES = 2**26
_MOST_BODY_BYTES = 65_536
# What may hold an error in place of a stream; anything else is read as a stream.
_NO_STREAM = frozenset({"application/json", "application/problem+json", "text/html"})
_MOST_START_BYTES = 8
_EVENT_STARTS = (b"data:", b":", b"event:", b"id:", b"retry:")


class Clocked(Protocol):
    """Whoever keeps the time of the last progress of any answer."""

    progress_ns: int


class StreamExchange(Exchange):
    """Fills a flight. What ends it, a server or a limit, is judged here at once.

    Progress is an event, or a part of one: comments, headers and blank lines show only that a connection is alive.
    With `keep` the connection may be used again if the server will. `unanswered` is why a connection broke before a
    single byte of the answer; nothing is judged then.
    """

    __slots__ = ("_body", "_events", "_feed", "_flight", "_keep", "_limit_ns", "_lingering", "_load", "_loop",
                 "_progress_ns", "_sent", "_streams", "_suspected", "_take", "_take_lone", "_timer",
                 "unanswered")  # fmt: skip

    def __init__(self, flight: Flight, load: Clocked, limit_s: float, *, keep: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(self._loop.create_future())
        self._flight = flight
        self._load = load
        self._keep = keep
        self._events = EventSplitter()
        self._feed, self._take, self._take_lone = self._events.feed, flight.answer.take, flight.answer.take_lone
        self._sent = self._streams = False
        self._body = b""
        self._limit_ns = round(limit_s * 1e9)
        self._progress_ns = flight.sent_ns
        self._suspected = False
        self._lingering: asyncio.TimerHandle | None = None
        self._timer = self._loop.call_later(limit_s, self._check)
        self.unanswered: Exception | None = None
        flight.interrupt = self._give_up

    async def over(self, connection: HttpConnection, message: bytes) -> None:
        """Send the request over this connection and take the answer to its end."""
        if self.waiter.done():
            self.waiter = self._loop.create_future()
        self.unanswered = None
        self._sent = True
        self._flight.interrupt = self._give_up
        self._flight.sent_ns = time.monotonic_ns()  # a new connection took its time, which is not the server's
        connection.send(message, self)
        await self.waiter

    def answered(self) -> None:
        self._flight.http_status = self.status
        self.keeps = self.keeps and self._keep
        self._streams = self.status == 200 and self.content_type not in _NO_STREAM and not self._compressed

    @property
    def _compressed(self) -> bool:
        return self.encoding not in {"", "identity"}

    def take(self, body: bytes) -> None:
        """The hot path, once per network read."""
        if not self._streams:
            whole = self._body + body
            if not self._is_stream(whole):
                self._collect(body)
                return
            body, self._body = whole, b""
        if self._events.between_events and self._take_lone(body, self.now):
            self._progress_ns = self._load.progress_ns = self.now
            return
        payloads = self._feed(body)
        if payloads:
            self._progress_ns = self._load.progress_ns = now = self.now
            if self._take(payloads, now) and self._lingering is None:
                self._lingering = self._loop.call_later(_AFTER_DONE_S, self._give_up)
        elif self._events.inside_event:
            self._progress_ns = self._load.progress_ns = self.now
            if self._events.waiting_bytes > _MOST_EVENT_BYTES:
                raise ValueError(f"an event of more than {_MOST_EVENT_BYTES >> 20} MiB")

    def _is_stream(self, data: bytes) -> bool:
        """Whether a body that is called JSON or a page begins as a stream of events does."""
        self._streams = self.status == 200 and len(self._body) < _MOST_START_BYTES and data.startswith(_EVENT_STARTS)
        return self._streams

    def _collect(self, data: bytes) -> None:
        self._progress_ns = self._load.progress_ns = self.now
        if len(self._body) < _MOST_BODY_BYTES:
            self._body += data

    def finish(self, error: Exception | None) -> None:
        if error is not None and not self.now:
            self.unanswered = error
            self.wake()
        else:
            self._judge(error)
            self._rest()

    def fail(self, error: Exception) -> None:
        """No connection was to be had, or it broke before the answer."""
        self._blame(RequestStatus.CONNECTION, error)
        self._rest()

    def expire(self) -> None:
        """The time was up, or the flight was cancelled, before there was a connection."""
        self._flight.expire(self._limit_ns / 1e9, self._awaited())
        self._rest()

    def abandon(self) -> None:
        """Nobody waits for the answer any more."""
        if self.connection is not None:
            self.connection.close()
        self._rest()

    def _judge(self, error: Exception | None) -> None:
        flight, answer = self._flight, self._flight.answer
        if self.status is None:
            self._blame(RequestStatus.CONNECTION, error or EOFError("no answer"))
        elif self.status != 200:
            flight.fail(RequestStatus.HTTP_ERROR, self._refusal())
            self._load.progress_ns = flight.end_ns
        elif not self._streams:
            self._judge_other(error, self._body)
        else:
            whole = self._close()
            if whole:
                self._judge_other(error, whole)
            elif error is None or answer.done or answer.error is not None:
                flight.conclude()
            else:
                self._blame(RequestStatus.TRUNCATED, error)

    def _judge_other(self, error: Exception | None, body: bytes) -> None:
        """The answer is no stream."""
        if self._compressed:
            told = f"the answer is compressed ({self.encoding}), which was not asked for"
            self._flight.fail(RequestStatus.SERVER_ERROR, told)
        elif error is None:
            told = f"the answer is not a stream: {body_text(body, 200)}"
            self._flight.fail(RequestStatus.SERVER_ERROR, told)
        else:
            self._blame(RequestStatus.TRUNCATED, error)

    def _blame(self, status: RequestStatus, error: Exception) -> None:
        """A failure by an error; one of our own side is told as that."""
        if isinstance(error, OSError) and is_client_limit(error):
            self._flight.fail(RequestStatus.CLIENT_LIMIT, limit_text(error))
            return
        told = f"{type(error).__name__}: {error}"[:400].rstrip(": ")
        self._flight.fail(status, f"{told}, while waiting for {self._awaited()}")

    def _close(self) -> bytes:
        """Take what is left in the splitter. An answer without a single event, which is JSON or a page, is returned."""
        events = self._events
        whole = events.rest if events.untouched and events.rest.lstrip()[:1] in {b"{", b"[", b"<"} else b""
        self._flight.answer.close(events.finish(), self.now)
        return whole

    def _refusal(self) -> str:
        status = self.status or 0
        if 300 <= status < 400 and self.location:
            return f"redirected to {self.location[:300]}: redirects are not followed, give that address"
        if self._compressed:
            return f"status {status}, with a body in {self.encoding}, which was not asked for"
        return body_text(self._body, status)

    def _check(self) -> None:
        """Armed once per limit, not once per read: a stream that goes on puts it off."""
        late_ns = time.monotonic_ns() - self._progress_ns - self._limit_ns
        if late_ns < 0:
            self._suspected = False
            self._timer = self._loop.call_later(-late_ns / 1e9, self._check)
        elif not self._suspected:  # if it was us who stood still, what has come is read first
            self._suspected = True
            self._timer = self._loop.call_later(_BENEFIT_S, self._check)
        elif self._flight.interrupt is not None:
            self._flight.interrupt()

    def _give_up(self) -> None:
        """Out of time, cancelled, or kept waiting after the end mark."""
        if self.connection is None:
            return
        self.connection.close()
        if self._streams:
            self._close()
        self._flight.expire(self._limit_ns / 1e9, self._awaited())
        self._rest()

    def _awaited(self) -> str:
        if self.status is None:
            return "the headers of the answer" if self._sent else "a connection"
        if not self._streams:
            return "the rest of the answer"
        return "the next token" if self._flight.answer.chunk_ns else "the first token"

    def _rest(self) -> None:
        self._timer.cancel()
        if self._lingering is not None:
            self._lingering.cancel()
        self.wake()


def body_text(body: bytes, status: int) -> str:
    """Short account of a body: the message of an error object, else its beginning."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    message = error_text(parsed) if isinstance(parsed, dict) else None
    return message or body[:200].decode("utf-8", "replace").strip() or f"status {status} without a body"
