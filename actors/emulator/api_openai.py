"""`/v1/completions`, `/v1/chat/completions` and `/v1/models` as SGLang 0.5.23 answers them."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from actors.emulator.api_generate import DONE, bad_json, check_temperature
from actors.emulator.serving import QUEUE_FULL, Ticket
from actors.emulator.state import STATE, BadRequest, ServerState, open_stream
from actors.emulator.words import output_text, tokenize

COMPLETION_DEFAULT_TOKENS = 16
CHAT_DEFAULT_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Answer:
    """What stays the same over all chunks of one answer."""

    ticket: Ticket
    chat: bool
    model: str
    include_usage: bool
    continuous_usage: bool
    cache_report: bool
    answer_id: str
    created: int

    def head(self) -> dict[str, Any]:
        kinds = ("chat.completion.chunk", "text_completion")
        return {
            "id": self.answer_id,
            "object": kinds[0] if self.chat else kinds[1],
            "created": self.created,
            "model": self.model,
        }

    def usage(self, seen: int) -> dict[str, Any]:
        prompt = len(self.ticket.request.prompt)
        details = {"cached_tokens": self.ticket.request.cached} if self.cache_report else None
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + seen,
            "completion_tokens": seen,
        }
        if self.chat:
            return usage | {
                "prompt_tokens_details": details,
                "reasoning_tokens": 0,
                "completion_tokens_details": None,
            }
        if details is not None:
            usage["prompt_tokens_details"] = details
        return usage | {"reasoning_tokens": 0}

    def text(self, start: int, end: int) -> str:
        return output_text(self.ticket.request.output_seed, start, end)

    @property
    def finish(self) -> str:
        return "abort" if self.ticket.request.abort_reason is not None else "length"


def openai_error(status: int, message: str) -> web.Response:
    """The OpenAI API's error body."""
    body = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _message_text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return f"<|{message.get('role', 'user')}|>\n{content}\n"


def _prompt(body: dict[str, Any], chat: bool) -> tuple[int, ...]:
    if chat:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequest("Messages cannot be empty.")
        return tokenize("".join(map(_message_text, messages)) + "<|assistant|>\n")
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return tuple(prompt)
    if isinstance(prompt, str) and prompt:
        return tokenize(prompt)
    raise BadRequest("Prompt cannot be empty; batches of prompts are not emulated.")


def _wanted(body: dict[str, Any], chat: bool) -> int:
    value = body.get("max_completion_tokens") or body.get("max_tokens")
    default = CHAT_DEFAULT_TOKENS if chat else COMPLETION_DEFAULT_TOKENS
    return default if value is None else int(value)


def _answer(state: ServerState, body: dict[str, Any], chat: bool) -> Answer:
    check_temperature(body.get("temperature"))
    args, options = state.settings.args, body.get("stream_options") or {}
    ticket = state.ticket(_prompt(body, chat), _wanted(body, chat), bool(body.get("stream")), body.get("rid"))
    default_usage = bool(args["stream_response_default_include_usage"])
    return Answer(
        ticket=ticket,
        chat=chat,
        model=body.get("model") or state.model_name,
        include_usage=bool(options.get("include_usage", default_usage)),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        cache_report=bool(args["enable_cache_report"]),
        answer_id=uuid.uuid4().hex,
        created=int(time.time()),
    )


async def _handle(http: web.Request, chat: bool) -> web.StreamResponse:
    state = http.app[STATE]
    try:
        body = orjson.loads(await http.read())
    except orjson.JSONDecodeError:
        return bad_json(http.path)
    try:
        answer = _answer(state, body if isinstance(body, dict) else {}, chat)
    except BadRequest as error:
        state.log.say(f"[http_server] Error: {error}")
        return openai_error(400, str(error))
    if answer.ticket.request.abort_reason == QUEUE_FULL:
        return openai_error(503, QUEUE_FULL)
    try:
        return await (_stream(http, answer) if answer.ticket.stream else _whole(answer))
    finally:
        state.engine.abort(answer.ticket.request.rid)


async def handle_completions(http: web.Request) -> web.StreamResponse:
    """`POST /v1/completions`."""
    return await _handle(http, chat=False)


async def handle_chat(http: web.Request) -> web.StreamResponse:
    """`POST /v1/chat/completions`."""
    return await _handle(http, chat=True)


async def _whole(answer: Answer) -> web.Response:
    ticket, seen = answer.ticket, 0
    while not ticket.request.done:
        seen = await ticket.progress(seen)
    seen = ticket.request.generated
    choice: dict[str, Any] = {"index": 0}
    if answer.chat:
        text = {"role": "assistant", "content": answer.text(0, seen), "reasoning_content": None, "tool_calls": None}
        choice["message"] = text
    else:
        choice["text"] = answer.text(0, seen)
    choice |= {"logprobs": None, "finish_reason": answer.finish, "matched_stop": None}
    kind = "chat.completion" if answer.chat else "text_completion"
    body = answer.head() | {"object": kind, "choices": [choice], "usage": answer.usage(seen)}
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _chunk(answer: Answer, content: dict[str, Any], finish: str | None, seen: int) -> bytes:
    choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish, "matched_stop": None}
    body = answer.head() | {"choices": [choice]}
    if answer.continuous_usage:
        body["usage"] = answer.usage(seen)
    elif not answer.chat:
        body["usage"] = None
    return b"data: " + orjson.dumps(body) + b"\n\n"


def _delta(answer: Answer, start: int, seen: int) -> dict[str, Any]:
    if answer.chat:
        return {"delta": {"reasoning_content": None, "content": answer.text(start, seen)}}
    return {"text": answer.text(start, seen)}


async def _stream(http: web.Request, answer: Answer) -> web.StreamResponse:
    response = await open_stream(http)
    ticket, seen, last = answer.ticket, 0, False
    while not last:
        start = seen
        seen = await ticket.progress(seen)
        last = ticket.request.done
        out = b""
        if answer.chat and not start:
            role = {"delta": {"reasoning_content": None, "role": "assistant", "content": ""}}
            out += _chunk(answer, role, None, 0)
        # Completions carry the finish reason in the last text chunk, chat in a chunk of its own.
        out += _chunk(answer, _delta(answer, start, seen), answer.finish if last and not answer.chat else None, seen)
        if last:
            out += _ending(answer, seen)
        await response.write(out)
    return response


def _ending(answer: Answer, seen: int) -> bytes:
    out = b""
    if answer.chat:
        out += _chunk(answer, {"delta": {"reasoning_content": None}}, answer.finish, seen)
    if answer.include_usage:
        out += b"data: " + orjson.dumps(answer.head() | {"choices": [], "usage": answer.usage(seen)}) + b"\n\n"
    return out + DONE


async def handle_models(http: web.Request) -> web.Response:
    """`GET /v1/models`."""
    state = http.app[STATE]
    model = {
        "id": state.model_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": state.model_name,
        "parent": None,
        "max_model_len": state.settings.context_length,
    }
    body = {"object": "list", "data": [model]}
    return web.Response(body=orjson.dumps(body), content_type="application/json")
