"""What the serving faults of a script do: to requests as they come, and to the whole server."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from html import escape
from http import HTTPStatus
from pathlib import Path

import orjson
from aiohttp import web

from actors.emulator.deathbed import SETTLE_S, Deathbed
from actors.emulator.fault import Fault, Lasting
from actors.emulator.faulty_stream import FaultyStream, StreamEnds, close
from actors.emulator.gate import Gate
from actors.emulator.last_words import words_of
from actors.emulator.log_flood import flood
from actors.emulator.phase_stream import PhaseStream
from actors.emulator.refusal import native_error, openai_error
from actors.emulator.serving import QUEUE_FULL
from actors.emulator.serving_fault import (
    Crawl,
    Die,
    DropConnection,
    EndpointFault,
    Hang,
    HttpError,
    LogFlood,
    RequestFault,
    ServerFault,
    SlowDeath,
    SlowFirstByte,
    Stall,
)
from actors.emulator.trigger import EndpointTrigger, Trigger

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_GENERATES = ("/generate", "/v1/completions", "/v1/chat/completions")
_HEALTH = ("/health", "/health_generate")
_MESSAGES = {503: QUEUE_FULL, 429: "Too many requests", 500: "Internal server error"}
_FLOOD_TICK_S = 0.05


class ServingStrike:
    """The serving faults of one server, from `begin` on."""

    def __init__(self, faults: Sequence[Fault], seed: int, folder: Path, stream: PhaseStream, bed: Deathbed) -> None:
        rngs = (random.Random(f"{seed}-{number}") for number in range(len(faults)))
        self._triggers = [Trigger(f, rng) for f, rng in zip(faults, rngs, strict=True) if isinstance(f, RequestFault)]
        self._endpoints = [EndpointTrigger(fault) for fault in faults if isinstance(fault, EndpointFault)]
        self._seed, self._folder = seed, folder
        self._stream = stream
        self._bed = bed
        self._began: float | None = None
        self._health: int | None = None
        self._answered: set[object] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = 0
        self.gate = Gate()

    def begin(self) -> None:
        """The server is ready: count from now on."""
        self._began = time.monotonic()
        for trigger in self._triggers:
            if trigger.by_itself and isinstance(trigger.fault, ServerFault):
                self._in_background(self._strike_later(trigger.fault))

    @web.middleware
    async def middleware(self, http: web.Request, handler: Handler) -> web.StreamResponse:
        """Every request comes by here first."""
        if self._began is None:
            return await handler(http)
        served_s = time.monotonic() - self._began
        if self._health is not None and http.path in _HEALTH:
            return web.Response(status=self._health)
        for endpoint in self._endpoints:
            if endpoint.strikes(http.path, served_s):
                fault = endpoint.fault
                return web.Response(body=fault.body.encode(), status=fault.status, content_type=fault.content_type)
        if http.path not in _GENERATES or not await _streams(http):
            return await handler(http)
        return await self._answer(http, handler, served_s)

    async def _answer(self, http: web.Request, handler: Handler, served_s: float) -> web.StreamResponse:
        peer = http.transport.get_extra_info("peername") if http.transport else None
        reused = peer in self._answered
        self._answered.add(peer)
        self._requests += 1
        due = [t.fault for t in self._triggers if t.strikes(http.path, served_s, reused=reused)]
        for fault in due:
            if isinstance(fault, DropConnection):
                close(http)
            if isinstance(fault, SlowFirstByte):
                await asyncio.sleep(fault.seconds)
            if isinstance(fault, HttpError):
                return http_error(fault, http.path)
        if due:
            rng = random.Random(f"{self._seed}-request-{self._requests}")
            http["stream_maker"] = partial(FaultyStream, http, due, rng, self.strike)
        try:
            return await handler(http)
        except StreamEnds as end:
            return end.stream

    def strike(self, fault: ServerFault) -> None:
        """A fault of the whole server, now."""
        if isinstance(fault, Stall):
            self.hold(fault)
        elif isinstance(fault, Crawl):
            self.gate.crawl(fault.seconds, self._folder / fault.whenever if fault.whenever else None)
        elif isinstance(fault, Hang):
            self.gate.closed, self._health = True, fault.health
        elif isinstance(fault, SlowDeath):
            self.gate.decay(fault.halving_s)
        elif isinstance(fault, LogFlood):
            self._in_background(self._flood(fault))
        elif isinstance(fault, Die):
            self.gate.closed = True
            self._in_background(self._die(fault))

    def hold(self, fault: Lasting) -> None:
        """No token leaves before a fault has ended."""
        if fault.seconds is not None:
            self.gate.stall(fault.seconds)
        if fault.until is not None:
            self.gate.hold(self._folder / fault.until)

    def _in_background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _strike_later(self, fault: ServerFault) -> None:
        await asyncio.sleep(fault.after_s)
        self.strike(fault)

    async def _flood(self, fault: LogFlood) -> None:
        """Blocks until the rate is met, tick by tick."""
        began, written = time.monotonic(), 0
        for block in flood(fault.lines):
            while written > fault.mib_per_s * (1 << 20) * (elapsed := time.monotonic() - began):
                if elapsed >= fault.seconds:
                    self._bed.log.raw("\n")
                    return
                await asyncio.sleep(_FLOOD_TICK_S)
            self._stream.write_bytes(block)
            written += len(block)

    async def _die(self, fault: Die) -> None:
        if fault.label == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        words = words_of(fault.label, serving=True)
        self._bed.speak(words, fault.rank)
        if words.ending == "child":
            # The server's own watch over its children does the rest.
            if self._bed.tree is not None:
                self._bed.tree.end_rank(fault.rank, -words.code)
            return
        await asyncio.sleep(SETTLE_S / self._bed.speedup)
        self._bed.end_tree("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")


async def _streams(http: web.Request) -> bool:
    """Whether a request wants a stream; its body is read once and kept."""
    try:
        body = orjson.loads(await http.read())
    except orjson.JSONDecodeError:
        return False
    return isinstance(body, dict) and bool(body.get("stream"))


def http_error(fault: HttpError, path: str) -> web.Response:
    """The error in the form of the endpoint, or of a proxy in front of it."""
    phrase = HTTPStatus(fault.status).phrase
    message = fault.message or _MESSAGES.get(fault.status, phrase)
    if fault.body == "empty":
        return web.Response(status=fault.status)
    if fault.body == "text":
        return web.Response(text=message, status=fault.status)
    if fault.body == "html":
        page = f"<html><head><title>{fault.status} {phrase}</title></head><body>{escape(message)}</body></html>"
        return web.Response(text=page, status=fault.status, content_type="text/html")
    return native_error(fault.status, message) if path == "/generate" else openai_error(fault.status, message)
