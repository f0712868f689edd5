"""An SSE answer with faults: what the handler writes goes out changed, in other pieces, or not at all."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import orjson
from aiohttp import web

from actors.emulator.serving_fault import (
    Cut,
    DoneMark,
    Empty,
    ErrorEvent,
    Reframe,
    RequestFault,
    ServerFault,
    StreamFault,
    Truncate,
    Usage,
)

_END = b"\n\n"
_DONE = b"data: [DONE]\n\n"
_COMMENT = b": keep-alive\n\n"
_LONGEST_PIECE = 40
# A pause between two pieces, so that they are two reads on the other side.
_PIECE_PAUSE_S = 0.001


class StreamEnds(Exception):
    """The answer is over, as far as its client can see."""

    def __init__(self, stream: web.StreamResponse) -> None:
        super().__init__("the answer ends early")
        self.stream = stream


class FaultyStream(web.StreamResponse):
    """One answer. `strike` is told of faults of the whole server when the answer has come to their token."""

    def __init__(
        self,
        http: web.Request,
        faults: Sequence[RequestFault],
        rng: random.Random,
        strike: Callable[[ServerFault], None],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._http = http
        self._pending = [fault for fault in faults if isinstance(fault, StreamFault)]
        self._changes = [fault for fault in faults if isinstance(fault, Usage | DoneMark | Empty)]
        self._frame = next((fault for fault in faults if isinstance(fault, Reframe)), None)
        self._rng = rng
        self._strike = strike
        self._tokens = 0
        self._held: list[bytes] = []
        self._began = False

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the events of a write of the handler, with whatever befalls them."""
        if not self._began:
            self._began = True
            await self._befall()
        out: list[bytes] = []
        for event in bytes(data).split(_END)[:-1]:
            whole = event + _END
            self._tokens = max(self._tokens, _tokens_after(whole, self._tokens))
            out += self._changed(whole)
            if self._due:
                await self._send(out)
                out = []
                await self._befall()
            if any(isinstance(fault, Empty) for fault in self._changes):
                await self._send([*out, _DONE])
                raise StreamEnds(self)
        await self._send(out, last=_DONE in bytes(data))

    @property
    def _due(self) -> list[StreamFault]:
        return [fault for fault in self._pending if fault.token <= self._tokens]

    async def _befall(self) -> None:
        """Let the faults strike whose token has left; the ends of the answer come last."""
        for fault in sorted(self._due, key=lambda fault: not isinstance(fault, ServerFault)):
            self._pending.remove(fault)
            if isinstance(fault, ServerFault):
                self._strike(fault)
            elif isinstance(fault, ErrorEvent):
                await self._send([b"data: " + orjson.dumps({"error": {"message": fault.message}}) + _END, _DONE])
                raise StreamEnds(self)
            elif isinstance(fault, Truncate):
                raise StreamEnds(self)
            elif isinstance(fault, Cut):
                close(self._http, reset=fault.reset)

    def _changed(self, event: bytes) -> list[bytes]:
        """What becomes of one event."""
        for fault in self._changes:
            if event == _DONE and isinstance(fault, DoneMark):
                return [] if fault.mark == "missing" else [_DONE, _DONE]
            if event != _DONE and isinstance(fault, Usage):
                event = _with_body(event, lambda body, f=fault: _miscount(body, f.counts))  # type: ignore[misc]
            elif event != _DONE and isinstance(fault, Empty):
                event = _with_body(event, _emptied)
        return [event]

    async def _send(self, events: list[bytes], *, last: bool = False) -> None:
        frame = self._frame
        if frame is None:
            if events:
                await super().write(b"".join(events))
            return
        for event in events:
            self._held += [_COMMENT, event] if frame.comments else [event]
        per_write = frame.join * (2 if frame.comments else 1)
        if len(self._held) < per_write and not last:
            return
        data, self._held = b"".join(self._held), []
        data = data.replace(b"\n", b"\r\n") if frame.crlf else data
        while frame.split and len(data) > 1:
            cut = self._rng.randint(1, min(_LONGEST_PIECE, len(data)))
            await super().write(data[:cut])
            await asyncio.sleep(_PIECE_PAUSE_S)
            data = data[cut:]
        if data:
            await super().write(data)

    async def write_eof(self, data: bytes = b"") -> None:
        if self._held:
            await super().write(b"".join(self._held))
            self._held = []
        await super().write_eof(data)


def close(http: web.Request, *, reset: bool = False) -> NoReturn:
    """End the connection of a request, and its handler. What was written before still arrives, but for a reset."""
    transport = http.transport
    if transport is not None and reset:
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    raise asyncio.CancelledError  # aiohttp closes the connection of a handler that is cancelled


def _tokens_after(event: bytes, tokens: int) -> int:
    """Output tokens once this event has left: by its own count, else one more for each chunk with text."""
    body = _body(event)
    if body is None:
        return tokens
    for holder in ("meta_info", "usage"):
        count = (body.get(holder) or {}).get("completion_tokens")
        if isinstance(count, int):
            return count
    choices = body.get("choices") or [{}]
    text = choices[0].get("text") or (choices[0].get("delta") or {}).get("content")
    return tokens + bool(text)


def _body(event: bytes) -> dict[str, Any] | None:
    if event == _DONE or not event.startswith(b"data: "):
        return None
    body = orjson.loads(event[6:])
    return body if isinstance(body, dict) else None


def _with_body(event: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    body = _body(event)
    if body is None:
        return event
    change(body)
    return b"data: " + orjson.dumps(body) + _END


def _miscount(body: dict[str, Any], counts: str) -> None:
    for holder in ("meta_info", "usage"):
        told = body.get(holder)
        if not isinstance(told, dict) or "completion_tokens" not in told:
            continue
        if counts == "missing":
            del told["completion_tokens"]
        else:
            told["completion_tokens"] *= 2 if counts == "doubled" else 0


def _emptied(body: dict[str, Any]) -> None:
    """The first event as the last one of an answer without tokens."""
    if "meta_info" in body:
        body |= {"text": "", "output_ids": []}
        body["meta_info"] |= {"completion_tokens": 0, "finish_reason": {"type": "stop", "matched": 2}}
        return
    for choice in body["choices"]:
        choice["finish_reason"] = "stop"
        if "text" in choice:
            choice["text"] = ""
        else:
            choice["delta"]["content"] = ""
    usage = body.get("usage") or {"prompt_tokens": 0}  # the chunk with the role has none
    body["usage"] = {**usage, "completion_tokens": 0, "total_tokens": usage["prompt_tokens"]}
