"""An SGLang look-alike whose every byte, pause, count and fault is written in the test. Runs in the test's own loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web

from tests.fakes.leaping_clock import Leaping

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Script:
    """One answer: (seconds or event to wait for, bytes to write) in turn, then how it ends.

    One that hangs does so for ever; `before_end` is for clocks that leap, and leave the client with its silence.
    """

    writes: Sequence[tuple[float | asyncio.Event, bytes]] = ()
    status: int = 200
    end: Literal["clean", "reset", "hang"] = "clean"
    content_type: str = "text/event-stream"
    before_end: float = 0.0


def frame(value: dict[str, Any]) -> bytes:
    """One event, written as SGLang writes it."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def native(text: str, tokens: int, finish: dict[str, Any] | None = None, **meta: Any) -> bytes:
    """A chunk of `/generate`; `tokens` counts from the beginning of the answer."""
    facts = {"id": "r", "finish_reason": finish, "prompt_tokens": 9, "completion_tokens": tokens, "cached_tokens": 4}
    return frame({"text": text, "output_ids": list(range(tokens)), "meta_info": facts | meta})


def chat(delta: dict[str, Any], *, tokens: int | None = None, finish: str | None = None) -> bytes:
    """A chunk of the chat endpoint, with usage if `tokens` is given."""
    value: dict[str, Any] = {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return frame(value | (usage(tokens) if tokens is not None else {}))


def usage(tokens: int, prompt: int = 13) -> dict[str, Any]:
    """The `usage` member of a frame."""
    return {"usage": {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}}


def trailing_usage(tokens: int) -> bytes:
    """The last frame before the end mark: no choices."""
    return frame({"object": "chat.completion.chunk", "choices": []} | usage(tokens))


def native_answer(chunks: int, *, pause_s: float = 0.0, per_chunk: int = 1, first_s: float = 0.0) -> Script:
    """A whole, good `/generate` answer with cumulative text."""
    writes: list[tuple[float | asyncio.Event, bytes]] = []
    for i in range(1, chunks + 1):
        finish = {"type": "length", "length": chunks * per_chunk} if i == chunks else None
        writes.append((first_s if i == 1 else pause_s, native("x" * i * per_chunk, i * per_chunk, finish)))
    return Script([*writes, (0.0, DONE)])


class ScriptedEndpoint:
    """Answers the n-th generation request with `script(n, body)`. Use as an async context manager.

    It keeps what it saw: `bodies`, `headers`, `peak_open`, `calls` (every path in order). The requests `together` are
    answered once the last of them has come in, so that a peak is what the client asked for, on however slow a machine.
    With a `clock` it leaps where it would wait for seconds.
    """

    def __init__(
        self,
        script: Callable[[int, dict[str, Any]], Script],
        *,
        metrics: Callable[[], str] | None = None,
        flush_statuses: tuple[int, ...] = (200,),
        keepalive_s: float = 30.0,
        profile_statuses: tuple[int, int] | None = None,
        together: range = range(0),
        clock: Leaping | None = None,
    ) -> None:
        self._script = script
        self._clock = clock
        self._metrics = metrics
        self._flush_statuses = list(flush_statuses)
        self._profile_statuses = profile_statuses or (404, 404)
        self.profiles: list[Any] = []
        self._keepalive_s = keepalive_s
        self._open = 0
        self._forever = asyncio.Event()
        self._together = together
        self._gathered = asyncio.Event()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.calls: list[str] = []
        self.peak_open = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        for path in ("/generate", "/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, self._generate)
        app.router.add_post("/flush_cache", self._flush)
        app.router.add_get("/metrics", self._expose)
        app.router.add_post("/start_profile", self._start_profile)
        app.router.add_post("/stop_profile", self._stop_profile)
        self._runner = web.AppRunner(
            app, keepalive_timeout=self._keepalive_s, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forever.set()
        await self._runner.cleanup()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.calls.append(request.path)
        self.headers.append(request.headers)
        self.bodies.append(body)
        n = len(self.bodies) - 1
        script = self._script(n, body)
        self._open += 1
        self.peak_open = max(self.peak_open, self._open)
        if n == self._together.stop - 1:
            self._gathered.set()
        try:
            if n in self._together:
                await self._gathered.wait()
            return await self._answer(request, script)
        finally:
            self._open -= 1

    async def _answer(self, request: web.Request, script: Script) -> web.StreamResponse:
        if script.status != 200:
            content = b"".join(data for _, data in script.writes)
            return web.Response(status=script.status, body=content, content_type="application/json")
        if script.end == "reset" and not script.writes:
            return self._reset(request)
        response = web.StreamResponse(headers={"Content-Type": script.content_type})
        if script.writes or script.end == "clean":
            await response.prepare(request)
        for pause, data in script.writes:
            await self._wait(pause, request)
            await response.write(data)
        if script.end == "hang":
            await self._wait(script.before_end, request)
            await self._forever.wait()
        if script.end == "reset":
            return self._reset(request)
        await response.write_eof()
        return response

    async def _wait(self, pause: float | asyncio.Event, request: web.Request) -> None:
        if isinstance(pause, asyncio.Event):
            await pause.wait()
        elif self._clock is not None:
            await self._clock.leap(pause, request.transport)
        elif pause:
            await asyncio.sleep(pause)

    @staticmethod
    def _reset(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _flush(self, request: web.Request) -> web.Response:
        self.calls.append(request.path)
        status = self._flush_statuses.pop(0) if len(self._flush_statuses) > 1 else self._flush_statuses[0]
        return web.Response(status=status, text="Cache flushed.")

    async def _start_profile(self, request: web.Request) -> web.Response:
        self.calls.append(request.path)
        self.profiles.append(await request.json())
        return web.Response(status=self._profile_statuses[0], text="Start profiling.\n")

    async def _stop_profile(self, request: web.Request) -> web.Response:
        self.calls.append(request.path)
        return web.Response(status=self._profile_statuses[1], text="Stop profiling. This will take some time.\n")

    async def _expose(self, request: web.Request) -> web.Response:
        self.calls.append(request.path)
        if self._metrics is None:
            return web.Response(status=404)
        return web.Response(text=self._metrics())
