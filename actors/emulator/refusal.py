"""Error answers in the three forms that SGLang has: native, OpenAI, and the schema validation of either."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

_SOURCE = "/usr/local/lib/python3.12/site-packages/sglang/srt/entrypoints/http_server.py"
_HANDLERS = {
    "/generate": (928, "generate_request"),
    "/v1/completions": (1860, "openai_v1_completions"),
    "/v1/chat/completions": (1870, "openai_v1_chat_completions"),
    "/abort_request": (1721, "abort_request"),
    "/flush_cache": (1025, "flush_cache"),
    "/start_profile": (1221, "start_profile_async"),
}


def json_answer(body: Any, status: int = 200) -> web.Response:
    """`body` as JSON."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def native_error(status: int, message: str) -> web.Response:
    """The native API's error body."""
    return json_answer({"error": {"message": message}}, status)


def streamed_error(message: str) -> bytes:
    """The event in place of an answer, in a stream that began with 200."""
    error = {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}
    return b"data: " + orjson.dumps({"error": error}) + b"\n\n"


def openai_error(status: int, message: str, kind: str = "BadRequestError") -> web.Response:
    """The OpenAI API's error body."""
    return json_answer({"object": "error", "message": message, "type": kind, "param": None, "code": status}, status)


def validation_error(path: str, *details: dict[str, Any]) -> web.Response:
    """What SGLang answers where a body does not have the right shape, whatever the endpoint."""
    line, function = _HANDLERS[path]
    count = f"{len(details)} validation error{'s' if len(details) > 1 else ''}"
    listed = "\n".join(f"  {detail}" for detail in details)
    where = f'  File "{_SOURCE}", line {line}, in {function}\n    POST {path}'
    return openai_error(400, f"{count}:\n{listed}\n\n{where} {list(details)}", "Bad Request")


def read_json(path: str, raw: bytes) -> Any | web.Response:
    """The body, or the refusal of one that is missing or no JSON."""
    if not raw:
        return validation_error(path, {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None})
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        context = {"error": error.msg}
        wrong = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "input": {}}
        return validation_error(path, wrong | {"ctx": context})
