"""What a streaming server says, rendered once per kind of request: SGLang's frames as HTTP chunks, ready to be written.

Shapes and order of keys are those of real answers of SGLang 0.5.23: `/generate` sends cumulative text and ids, chat a
chunk with a role first and a finish chunk last, completions the finish reason with the last text. A token is a word
(`w1`), so that every tokenizer that splits at spaces counts what the server counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
_ID, _CREATED = "5744deec66db42db9a69e069c37b638e", 1795958321


@dataclass(frozen=True, slots=True)
class Asked:
    """What decides the frames of an answer. `usage`: none, at the `end`, or in `every` chunk."""

    api: str
    model: str
    tokens: int
    prompt_tokens: int
    usage: str
    chunk_tokens: int
    cumulative: bool


@dataclass(frozen=True, slots=True)
class Frames:
    """HTTP chunks of an answer: `role` before the first token, one per step of the server, `tail` right after the last.

    `tokens[i]` are the tokens that the frames up to i have brought.
    """

    role: bytes
    steps: tuple[bytes, ...]
    tokens: tuple[int, ...]
    tail: bytes


def event(payload: bytes) -> bytes:
    """One server-sent event as one HTTP chunk."""
    return b"%x\r\ndata: %s\n\n\r\n" % (len(payload) + 8, payload)


def frames_of(asked: Asked) -> Frames:
    """All frames of an answer. Those of requests that ask for the same are the same bytes."""
    return _generate(asked) if asked.api == "generate" else _openai(asked)


def words(start: int, end: int) -> str:
    """Output tokens `start` to `end`, each a word of its own with a space before it."""
    return "".join(f" w{100 + index % 100}" for index in range(start, end))


def whole_answer(asked: Asked) -> bytes:
    """JSON of an answer that is not streamed."""
    text = words(0, asked.tokens)
    if asked.api == "generate":
        return orjson.dumps(
            {"text": text, "output_ids": _ids(0, asked.tokens), "meta_info": _meta(asked, asked.tokens)}
        )
    chat = asked.api == "chat"
    shown: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    choice = {"index": 0, **shown, "logprobs": None, "finish_reason": "length", "matched_stop": None}
    head = _head(asked, "chat.completion" if chat else "text_completion")
    return orjson.dumps(head | {"choices": [choice], "usage": _usage(asked, asked.tokens)})


def _ends(asked: Asked) -> list[int]:
    step = asked.chunk_tokens
    return [min(end, asked.tokens) for end in range(step, asked.tokens + step, step)]


def _head(asked: Asked, kind: str) -> dict[str, Any]:
    return {"id": _ID, "object": kind, "created": _CREATED, "model": asked.model}


def _usage(asked: Asked, seen: int) -> dict[str, Any]:
    prompt = asked.prompt_tokens
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + seen,
        "completion_tokens": seen,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


@lru_cache(maxsize=512)
def _openai(asked: Asked) -> Frames:
    chat = asked.api == "chat"
    head = _head(asked, "chat.completion.chunk" if chat else "text_completion")

    def chunk(shown: dict[str, Any], finish: str | None, seen: int | None) -> bytes:
        choice = {"index": 0, **shown, "logprobs": None, "finish_reason": finish, "matched_stop": None}
        body = head | {"choices": [choice]}
        if seen is not None and asked.usage == "every":
            body["usage"] = _usage(asked, seen)
        elif not chat:
            body["usage"] = None
        return event(orjson.dumps(body))

    ends, steps = _ends(asked), []
    for start, end in zip([0, *ends], ends, strict=False):
        text = words(start, end)
        shown: dict[str, Any] = {"delta": {"reasoning_content": None, "content": text}} if chat else {"text": text}
        steps.append(chunk(shown, "length" if end == asked.tokens and not chat else None, end))
    role = chunk({"delta": {"reasoning_content": None, "role": "assistant", "content": ""}}, None, None)
    tail = chunk({"delta": {"reasoning_content": None}}, "length", None) if chat else b""
    if asked.usage != "none":
        tail += event(orjson.dumps(head | {"choices": [], "usage": _usage(asked, asked.tokens)}))
    return Frames(role if chat else b"", tuple(steps), tuple(ends), tail + event(b"[DONE]") + LAST_CHUNK)


def _ids(start: int, end: int) -> list[int]:
    return [104 + index % 100 for index in range(start, end)]


def _meta(asked: Asked, seen: int) -> dict[str, Any]:
    last = seen == asked.tokens
    meta: dict[str, Any] = {
        "id": _ID,
        "finish_reason": {"type": "length", "length": seen} if last else None,
        "prompt_tokens": asked.prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": seen,
        "cached_tokens": 0,
        "cached_tokens_details": None,
        "dp_rank": None,
    }
    if last:
        passes, proposed = len(_ends(asked)), len(_ends(asked)) * (asked.chunk_tokens - 1)
        meta["e2e_latency"] = 1.0
        if proposed:
            correct = asked.tokens - passes
            meta |= {
                "spec_accept_rate": correct / proposed,
                "spec_accept_length": asked.tokens / passes,
                "spec_num_correct_drafts": correct,
                "spec_num_proposed_drafts": proposed,
                "spec_verify_ct": passes,
            }
    return meta


@lru_cache(maxsize=64)
def _generate(asked: Asked) -> Frames:
    ends = _ends(asked)
    steps = []
    for start, end in zip([0, *ends], ends, strict=False):
        first = 0 if asked.cumulative else start
        body = {"text": words(first, end), "output_ids": _ids(first, end), "meta_info": _meta(asked, end)}
        steps.append(event(orjson.dumps(body)))
    return Frames(b"", tuple(steps), tuple(ends), event(b"[DONE]") + LAST_CHUNK)
