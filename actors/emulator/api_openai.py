"""`/v1/completions`, `/v1/chat/completions` and `/v1/models` as SGLang 0.5.23 answers them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from actors.emulator.api_generate import DONE, answer_text, finish_reason, merged
from actors.emulator.openai_body import Wanted, wanted
from actors.emulator.refusal import json_answer, openai_error, read_json, validation_error
from actors.emulator.request_body import BadFields, BadRequest
from actors.emulator.serving import QUEUE_FULL, Ticket
from actors.emulator.state import STATE, ServerState, open_stream


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a request: its ticket, its index among the choices, and what all its chunks share."""

    ticket: Ticket
    index: int
    wanted: Wanted
    model: str
    created: int

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": self.ticket.request.rid, "object": kind, "created": self.created, "model": self.model}

    def text(self, start: int, seen: int) -> str:
        prefix = self.wanted.echo[self.index] if self.wanted.echo and not start else ""
        return prefix + answer_text(self.ticket, start, seen)

    def finish(self, seen: int) -> dict[str, Any]:
        reason = finish_reason(self.ticket, seen)
        return {"finish_reason": reason["type"], "matched_stop": reason.get("matched")}

    @property
    def chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.wanted.chat else "text_completion"


def usage_of(answers: list[Answer], seen: int, cache_report: bool) -> dict[str, Any]:
    """Prompts are counted once, however many answers each has."""
    prompts = answers[:: max(1, answers[0].wanted.n)]
    prompt = sum(len(answer.ticket.request.prompt) for answer in prompts)
    cached = sum(answer.ticket.request.cached for answer in prompts)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + seen,
        "completion_tokens": seen,
        "prompt_tokens_details": {"cached_tokens": cached} if cache_report else None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def _final_usage(answers: list[Answer], cache_report: bool) -> dict[str, Any]:
    """Usage of the last chunk; completions leave out there what is null."""
    seen = sum(answer.ticket.request.generated for answer in answers)
    usage = usage_of(answers, seen, cache_report)
    return usage if answers[0].wanted.chat else {key: value for key, value in usage.items() if value is not None}


async def _handle(http: web.Request, chat: bool) -> web.StreamResponse:
    state = http.app[STATE]
    media = http.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        words = "Unsupported Media Type: Only 'application/json' is allowed"
        wrong = {"loc": ["header", "content-type"], "msg": words, "type": "value_error"}
        return openai_error(400, f"1 validation error:\n  {wrong} [{wrong}]", "Bad Request")
    body = read_json(http.path, await http.read())
    if isinstance(body, web.Response):
        return body
    try:
        wish = wanted(body if isinstance(body, dict) else {}, chat, state.settings.args)
        tickets = state.tickets(wish.asks, wish.stream)
    except BadFields as error:
        return validation_error(http.path, *error.details)
    except BadRequest as error:
        state.log.say(f"[http_server] Error: {error}")
        return openai_error(400, str(error))
    created = int(time.time())
    answers = [Answer(ticket, index, wish, wish.model, created) for index, ticket in enumerate(tickets)]
    try:
        if any(ticket.request.abort_reason == QUEUE_FULL for ticket in tickets):
            return openai_error(503, QUEUE_FULL)
        return await (_stream(http, state, answers) if wish.stream else _whole(state, answers))
    finally:
        for ticket in tickets:
            state.engine.abort(ticket.request.rid)


async def handle_completions(http: web.Request) -> web.StreamResponse:
    """`POST /v1/completions`."""
    return await _handle(http, chat=False)


async def handle_chat(http: web.Request) -> web.StreamResponse:
    """`POST /v1/chat/completions`."""
    return await _handle(http, chat=True)


async def _whole(state: ServerState, answers: list[Answer]) -> web.Response:
    choices = []
    for answer in answers:
        seen = await answer.ticket.ended()
        text = answer.text(0, seen)
        message = {"message": {"role": "assistant", "content": text, "reasoning_content": None}}
        content: dict[str, Any] = message if answer.wanted.chat else {"text": text}
        choices.append({"index": answer.index, **content, "logprobs": None, **answer.finish(seen)})
    first, total = answers[0], sum(answer.ticket.request.generated for answer in answers)
    weights = [{"version": "default", "start": 0, "end": first.ticket.request.generated}]
    kind = "chat.completion" if first.wanted.chat else "text_completion"
    body = first.head(kind) | {"choices": choices}
    body |= {"usage": usage_of(answers, total, bool(state.settings.args["enable_cache_report"]))}
    return json_answer(body | {"metadata": {"weight_version": "default", "weight_versions": weights}})


def _chunk(answer: Answer, content: dict[str, Any], finish: dict[str, Any] | None, usage: Any = None) -> bytes:
    end = finish or {"finish_reason": None, "matched_stop": None}
    choice = {"index": answer.index, **content, "logprobs": None, **end}
    body = answer.head(answer.chunk_kind) | {"choices": [choice]}
    # Completions always have the key, chat chunks only if it has a value.
    if usage is not None or not answer.wanted.chat:
        body["usage"] = usage
    return b"data: " + orjson.dumps(body) + b"\n\n"


async def _chunks(answer: Answer, cache_report: bool) -> AsyncIterator[bytes]:
    """All events of one answer but for usage and terminator."""
    ticket, chat, seen, last = answer.ticket, answer.wanted.chat, 0, False
    while not last:
        start = seen
        seen = await ticket.progress(seen)
        last = ticket.request.done
        out = b""
        if chat and not start:
            out += _chunk(answer, {"delta": {"reasoning_content": None, "role": "assistant", "content": ""}}, None)
        text = answer.text(start, seen)
        content: dict[str, Any] = {"delta": {"reasoning_content": None, "content": text}} if chat else {"text": text}
        usage = usage_of([answer], seen, cache_report) if answer.wanted.continuous_usage else None
        # Completions carry the finish reason in the last text chunk, chat in a chunk of its own.
        out += _chunk(answer, content, answer.finish(seen) if last and not chat else None, usage)
        if last and chat:
            out += _chunk(answer, {"delta": {"reasoning_content": None}}, answer.finish(seen))
        yield out


async def _stream(http: web.Request, state: ServerState, answers: list[Answer]) -> web.StreamResponse:
    response = await open_stream(http)
    cache_report = bool(state.settings.args["enable_cache_report"])
    streams = [_chunks(answer, cache_report) for answer in answers]
    async for chunk in streams[0] if len(streams) == 1 else merged(streams):
        await response.write(chunk)
    out = b""
    if answers[0].wanted.include_usage:
        tail = answers[0].head(answers[0].chunk_kind) | {"choices": [], "usage": _final_usage(answers, cache_report)}
        out = b"data: " + orjson.dumps(tail) + b"\n\n"
    await response.write(out + DONE)
    return response


def _model(state: ServerState) -> dict[str, Any]:
    return {
        "id": state.model_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": state.model_name,
        "parent": None,
        "max_model_len": state.settings.context_length,
    }


async def handle_models(http: web.Request) -> web.Response:
    """`GET /v1/models`."""
    return json_answer({"object": "list", "data": [_model(http.app[STATE])]})


async def handle_model(http: web.Request) -> web.Response:
    """`GET /v1/models/NAME`."""
    name, state = http.match_info["name"], http.app[STATE]
    if name == state.model_name:
        return json_answer(_model(state))
    message = f"The model '{name}' does not exist"
    error = {"message": message, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    return json_answer({"error": error}, 404)
