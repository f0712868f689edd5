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
from actors.emulator.request_body import Ask, BadRequest, Sampling
from actors.emulator.resolution import Settings
from actors.emulator.serving import Engine, Stop, Ticket
from actors.emulator.words import first_stop_id, first_stop_text, output_ids, output_seed, output_text

VERSION = "0.5.23"


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

    def tickets(self, asks: Sequence[Ask], stream: bool) -> list[Ticket]:
        """Check all, then queue all."""
        for ask in asks:
            self.check_length(len(ask.prompt), ask.sampling.max_new_tokens)
        return [self.ticket(ask, stream) for ask in asks]

    def check_length(self, prompt_tokens: int, max_new: int) -> None:
        """Refuse what does not fit. BadRequest carries SGLang's words."""
        prompt_tokens += self.settings.reserved_tokens
        limit, asked = self.settings.context_length, prompt_tokens + max_new
        if prompt_tokens >= limit:
            raise BadRequest(
                f"The input ({prompt_tokens} tokens) is longer than the model's context length ({limit} tokens)."
            )
        if asked > limit:
            raise BadRequest(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
                f"You requested a total of {asked} tokens: {prompt_tokens} tokens from the input messages and "
                f"{max_new} tokens for the completion. Please reduce the number of tokens in the input messages or the "
                "completion to fit within the limit."
            )
        if self._room(prompt_tokens) < 1:
            raise BadRequest(
                f"Input length ({prompt_tokens} tokens) exceeds the maximum allowed length ({self.plan.kv_tokens} "
                "tokens). Use a shorter input or enable --allow-auto-truncate."
            )

    def _room(self, prompt_tokens: int) -> int:
        """Output tokens that the KV cache has space for beside a prompt."""
        return self.plan.kv_tokens - prompt_tokens - self.settings.draft_tokens

    def ticket(self, ask: Ask, stream: bool, internal: bool = False) -> Ticket:
        """Queue a request whose length was checked."""
        seed, sampling = output_seed(ask.prompt), ask.sampling
        tokens = min(sampling.max_new_tokens, self._room(len(ask.prompt)))
        stop = _stop(seed, sampling, tokens)
        request = Request(
            rid=ask.rid or uuid.uuid4().hex,
            prompt=ask.prompt,
            max_new_tokens=stop.tokens if stop else tokens,
            fixed_length=sampling.ignore_eos,
            arrived=time.monotonic(),
        )
        request.output_seed = seed
        ticket = Ticket(request, stream, time.time(), internal, stop)
        self.engine.submit(ticket)
        return ticket


def _stop(seed: int, sampling: Sampling, tokens: int) -> Stop | None:
    """Where a stop condition will end the answer; it is known at once, since the text is a function of the prompt."""
    stops: list[Stop] = []
    if sampling.stop_token_ids:
        end = first_stop_id(seed, sampling.stop_token_ids, tokens)
        if end is not None:
            matched = output_ids(seed, end - 1, end)[0]
            stops.append(Stop(end, matched, len(output_text(seed, 0, end - 1)) if sampling.trim else None))
    if sampling.stop:
        found = first_stop_text(seed, sampling.stop, tokens)
        if found is not None:
            stops.append(Stop(found[0], found[1], found[2] if sampling.trim else None))
    return min(stops, key=lambda stop: stop.tokens, default=None)


STATE = web.AppKey("state", ServerState)

SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


async def open_stream(http: web.Request) -> web.StreamResponse:
    """An SSE response whose headers are out."""
    response: web.StreamResponse = http.get("stream_maker", web.StreamResponse)(headers=SSE_HEADERS)
    await response.prepare(http)
    return response
