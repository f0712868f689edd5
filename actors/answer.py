"""What one streamed answer says: when tokens came, how many by the server's count, and how it ended. Pure.

The server's count decides what is a token: a chunk bears tokens if `completion_tokens` grew, whatever text it shows.
Only a server that gives no count per chunk is judged by its text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

DONE = b"[DONE]"
_COUNT = b'"completion_tokens":'
_UNFINISHED = b'"finish_reason":null'

# Newest first; SGLang renamed them twice.
_CORRECT_DRAFTS = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_PROPOSED_DRAFTS = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_RETRACTIONS = ("num_retractions", "total_retractions")


class Answer:
    """Collects the events of one stream. `take` is called once per event, with the time at which its bytes came (ns).

    `output_tokens` is the server's count, None if it never gave one; `chunk_tokens[i]` is 0 where it counts only at
    the end.
    """

    __slots__ = (
        "_kept",
        "_last",
        "_native",
        "cached_tokens",
        "chunk_ns",
        "chunk_tokens",
        "correct_drafts",
        "done",
        "error",
        "finish_reason",
        "output_tokens",
        "prompt_tokens",
        "proposed_drafts",
        "retractions",
        "verify_ct",
    )

    def __init__(self, *, native: bool, keep_text: bool = False) -> None:
        self._native = native
        self._kept: list[bytes] | None = [] if keep_text else None
        self._last: bytes | None = None
        self.chunk_ns: list[int] = []
        self.chunk_tokens: list[int] = []
        self.output_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.verify_ct: int | None = None
        self.correct_drafts: int | None = None
        self.proposed_drafts: int | None = None
        self.retractions: int | None = None
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.done = False

    def take(self, payload: bytes, now: int) -> None:
        """One event. Events in the middle of a stream are read without decoding their JSON."""
        if self._kept is not None:
            self._kept.append(payload)
        count = middle_count(payload, native=self._native)
        tokens = self.output_tokens
        if count and tokens is not None:
            self._last = payload
            if count > tokens:
                self.chunk_ns.append(now)
                self.chunk_tokens.append(count - tokens)
                self.output_tokens = count
        elif payload == DONE:
            self.done = True
        else:
            self._decode(payload, now)

    def close(self, rest: list[bytes], now: int) -> None:
        """The stream has ended with `rest`: an event without its blank line, which may be cut and is then ignored.

        A stream that was cut tells about its request in the last whole frame.
        """
        for payload in rest:
            if payload == DONE or _parse(payload) is not None:
                self.take(payload, now)
        if self._last is not None and self.finish_reason is None:
            frame = _parse(self._last)
            if frame is not None:
                self._read_facts(frame)

    def text(self) -> str:
        """What was answered, empty unless it was kept."""
        frames = [frame for payload in self._kept or () if (frame := _parse(payload)) is not None]
        if self._native:
            return str(frames[-1].get("text") or "") if frames else ""
        choices = [_mapping(choice) for frame in frames for choice in frame.get("choices") or ()]
        return "".join(str(c.get("text") or _mapping(c.get("delta")).get("content") or "") for c in choices)

    @property
    def complete(self) -> bool:
        """Whether the stream's end mark came."""
        return self.done or self.finish_reason is not None

    def _decode(self, payload: bytes, now: int) -> None:
        frame = _parse(payload)
        if frame is None:
            self._blame(f"an event is not a JSON object: {_short(payload)}")
            return
        error = error_text(frame)
        if error is not None:
            self._blame(error)
            return
        self._read_facts(frame)
        count = _count(frame, native=self._native)
        text = bool(frame.get("text")) if self._native else _has_text(frame)
        # The usage frame after the last token has no choices; it counts, but nothing came with it.
        trailing = not self._native and not frame.get("choices")
        self._count(count, text, trailing, now)

    def _count(self, count: int | None, text: bool, trailing: bool, now: int) -> None:
        before = self.output_tokens or 0
        if count is None or count <= before:
            if text and not before:
                self.chunk_ns.append(now)
                self.chunk_tokens.append(0)
            if count is not None and self.output_tokens is None:
                self.output_tokens = count
            return
        self.output_tokens = count
        uncounted = bool(self.chunk_ns) and not before
        if trailing or (uncounted and self.finish_reason is not None):
            # A total at the end: what no chunk accounted for belongs to the last one, if chunks are counted at all.
            if before and self.chunk_tokens:
                self.chunk_tokens[-1] += count - before
            if trailing or not text:
                return
            self.chunk_ns.append(now)
            self.chunk_tokens.append(0)
            return
        self.chunk_ns.append(now)
        self.chunk_tokens.append(count - before)

    def _read_facts(self, frame: Mapping[str, Any]) -> None:
        """Counters and the finish reason, from wherever this API puts them; later frames overrule earlier ones."""
        if self._native:
            meta = _mapping(frame.get("meta_info"))
            self._read_finish(meta.get("finish_reason"))
            self._read_native(meta)
            return
        for choice in frame.get("choices") or ():
            self._read_finish(_mapping(choice).get("finish_reason"))
        usage = _mapping(frame.get("usage"))
        details = _mapping(usage.get("prompt_tokens_details"))
        self.prompt_tokens = _integer(usage.get("prompt_tokens"), self.prompt_tokens)
        self.cached_tokens = _integer(details.get("cached_tokens"), self.cached_tokens)

    def _read_native(self, meta: Mapping[str, Any]) -> None:
        self.prompt_tokens = _integer(meta.get("prompt_tokens"), self.prompt_tokens)
        self.cached_tokens = _integer(meta.get("cached_tokens"), self.cached_tokens)
        self.verify_ct = _integer(meta.get("spec_verify_ct"), self.verify_ct)
        self.correct_drafts = _integer(_first(meta, _CORRECT_DRAFTS), self.correct_drafts)
        self.proposed_drafts = _integer(_first(meta, _PROPOSED_DRAFTS), self.proposed_drafts)
        self.retractions = _integer(_first(meta, _RETRACTIONS), self.retractions)

    def _read_finish(self, reason: Any) -> None:
        """`/generate` tells it as an object with a type, the OpenAI endpoints as a word."""
        if reason is None:
            return
        facts = _mapping(reason)
        self.finish_reason = str(facts.get("type", "unknown")) if facts else str(reason)
        if self.finish_reason == "abort":
            self._blame(f"aborted by the server: {facts.get('message') or 'no message'}")

    def _blame(self, error: str) -> None:
        self.error = self.error or error


def middle_count(payload: bytes, *, native: bool) -> int | None:
    """`completion_tokens` of an unfinished frame, None if the frame must be decoded to be sure.

    Exact, since a quote inside a JSON text is written as \\": the sought bytes can only be a key. `/generate` puts
    `meta_info` last, so the text and ids of a cumulative frame, which grow with every chunk, are not looked at.
    """
    start = payload.rfind(b'"meta_info":') if native else 0
    if start < 0 or payload.find(_UNFINISHED, start) < 0:
        return None
    at = payload.find(_COUNT, start)
    if at < 0 or payload.find(_COUNT, at + 20) >= 0:
        return None
    end = at = at + 20
    while payload[end : end + 1].isdigit():
        end += 1
    return int(payload[at:end]) if end > at else None


def error_text(frame: Mapping[str, Any]) -> str | None:
    """The message of an error object as SGLang and other OpenAI servers send it, None if the frame is none."""
    error = frame.get("error")
    if error is None:
        if frame.get("object") != "error":
            return None
        error = frame
    facts = _mapping(error)
    return str(facts.get("message") or facts or error)[:500]


def _parse(payload: bytes) -> dict[str, Any] | None:
    try:
        frame = orjson.loads(payload)
    except orjson.JSONDecodeError:
        frame = _parse_leniently(payload)
    return frame if isinstance(frame, dict) else None


def _parse_leniently(payload: bytes) -> Any:
    """Half a surrogate pair (an emoji split over two deltas) is refused by orjson, not by the standard library."""
    try:
        return json.loads(payload)
    except ValueError:
        return None


def _count(frame: Mapping[str, Any], *, native: bool) -> int | None:
    return _integer(_mapping(frame.get("meta_info" if native else "usage")).get("completion_tokens"), None)


def _has_text(frame: Mapping[str, Any]) -> bool:
    for choice in frame.get("choices") or ():
        facts = _mapping(choice)
        delta = _mapping(facts.get("delta"))
        if facts.get("text") or any(delta.get(k) for k in ("content", "reasoning_content", "reasoning", "tool_calls")):
            return True
    return False


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _integer(value: Any, otherwise: int | None) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _first(meta: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((meta[name] for name in names if meta.get(name) is not None), None)


def _short(payload: bytes) -> str:
    return payload[:120].decode("utf-8", "replace")
