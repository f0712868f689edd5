"""What every HTTP handler needs: the resolved settings, the memory plan, the engine, and where the server stands."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from actors.emulator.batching import Request
from actors.emulator.log import LogWriter
from actors.emulator.memory import MemoryPlan
from actors.emulator.metrics_text import Metrics
from actors.emulator.profiles import Profile
from actors.emulator.resolution import Settings
from actors.emulator.serving import Engine, Ticket
from actors.emulator.words import output_seed

VERSION = "0.5.23"


class BadRequest(ValueError):
    """A request that SGLang answers with 400 and this text."""


@dataclass
class ServerState:
    """One running server. `status` is starting, ready or draining."""

    settings: Settings
    plan: MemoryPlan
    profile: Profile
    engine: Engine
    log: LogWriter
    metrics: Metrics
    startup: dict[str, Any]
    launch_command: str
    status: str = "starting"
    created: float = field(default_factory=time.time)
    middlewares: list[Any] = field(default_factory=list)

    @property
    def model_name(self) -> str:
        return str(self.settings.args["served_model_name"])

    def ticket(
        self, prompt: Sequence[int], max_new: int, stream: bool, rid: str | None = None, internal: bool = False
    ) -> Ticket:
        """Check lengths and queue a request. BadRequest carries SGLang's words."""
        limit, asked = self.settings.context_length, len(prompt) + max_new
        if len(prompt) >= limit:
            raise BadRequest(
                f"The input ({len(prompt)} tokens) is longer than the model's context length ({limit} tokens)."
            )
        if asked > limit:
            raise BadRequest(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
                f"You requested a total of {asked} tokens: {len(prompt)} tokens from the input messages and {max_new} "
                "tokens for the completion. Please reduce the number of tokens in the input messages or the "
                "completion to fit within the limit."
            )
        room = self.plan.kv_tokens - len(prompt) - self.settings.draft_tokens
        if room < 1:
            raise BadRequest(
                f"Input length ({len(prompt)} tokens) exceeds the maximum allowed length ({self.plan.kv_tokens} "
                "tokens). Use a shorter input or enable --allow-auto-truncate."
            )
        request = Request(rid or uuid.uuid4().hex, prompt, max(1, min(max_new, room)), arrived=time.monotonic())
        request.output_seed = output_seed(prompt)
        ticket = Ticket(request, stream, time.time(), internal)
        self.engine.submit(ticket)
        return ticket


STATE = web.AppKey("state", ServerState)

SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


async def open_stream(http: web.Request) -> web.StreamResponse:
    """An SSE response whose headers are out."""
    response: web.StreamResponse = http.get("stream_maker", web.StreamResponse)(headers=SSE_HEADERS)
    await response.prepare(http)
    return response
