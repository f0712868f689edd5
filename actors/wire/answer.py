"""What one streamed answer says: when tokens came, how many by the server's count, and how it ended. Pure.

The server's count decides what is a token: a chunk bears tokens if `completion_tokens` grew, whatever text it shows.
Only a server that gives no count per chunk is judged by its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from actors.wire.answer_text import AnswerText, choices_of, parse_frame

DONE = b"[DONE]"
_LINE_FEED = 10
_META = b'"meta_info":'
_UNFINISHED_COUNT = re.compile(rb'"finish_reason": ?null.*"completion_tokens": ?(\d+)', re.DOTALL).search
# What may stand in a delta that bears a token, by server; two of them are of older or other APIs.
_DELTA_TOKENS = ("content", "reasoning_content", "reasoning", "thinking", "refusal", "tool_calls", "function_call")
# How servers end an answer that they could not finish.
_FAILED_FINISHES = frozenset({"abort", "error"})

# Newest first; SGLang renamed them twice.
_CORRECT_DRAFTS = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_PROPOSED_DRAFTS = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_RETRACTIONS = ("num_retractions", "total_retractions")


class Answer:
    """Collects the events of one stream. `take` is called once per network read, with the time at which it came (ns).

    `output_tokens` is the server's count, None if it never gave one; `chunk_tokens[i]` is 0 where it counts only at
    the end. `queue_ms` is the server's account of the wait. With `keep_text` the text can be asked for.
    """

    __slots__ = (
        "_kept",
        "_last",
        "_native",
        "_quick",
        "_uncounted_ns",
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
        "queue_ms",
        "retractions",
        "verify_ct",
    )

    def __init__(self, *, native: bool, keep_text: bool = False) -> None:
        self._native = native
        self._kept = AnswerText(native=native) if keep_text else None
        self._last: bytes | None = None
        # Whether the last frame that was decoded has the count that `quick_count` finds in it.
        self._quick = False
        self._uncounted_ns: list[int] = []
        self.chunk_ns: list[int] = []
        self.chunk_tokens: list[int] = []
        self.output_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.verify_ct: int | None = None
        self.correct_drafts: int | None = None
        self.proposed_drafts: int | None = None
        self.retractions: int | None = None
        self.queue_ms: float | None = None
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.done = False

    def take(self, payloads: list[bytes], now: int) -> bool:
        """The events of one read; whether the end mark has come.

        Those in the middle of a stream are read without decoding their JSON.
        """
        if self._kept is not None:
            self._kept.add([payload for payload in payloads if payload != DONE])
        native = self._native
        for payload in payloads:
            count = quick_count(payload, native) if self._quick else 0
            if count and self._grow(count, now):
                self._last = payload
            elif payload == DONE:
                self.done = True
            else:
                self._decode(payload, now)
        return self.done

    def take_lone(self, body: bytes, now: int) -> bool:
        """The hot path: whether the read was one whole event of one line, and counting its tokens all there was to do.

        Only between events.
        """
        if not self._quick or self._kept is not None or body.find(b"\n") != len(body) - 2 or body[:7] != b"data: {":
            return False
        count = quick_count(body, self._native)
        if not count or body[-1] != _LINE_FEED or not self._grow(count, now):
            return False
        self._last = body
        return True

    def _grow(self, count: int, now: int) -> bool:
        """Whether the count has grown; a frame that shows no growth is decoded, for what else it may bring."""
        before = self.output_tokens or 0
        if count <= before:
            return False
        self.chunk_ns.append(now)
        self.chunk_tokens.append(count - before)
        self.output_tokens = count
        if self._uncounted_ns:
            self._uncounted_ns.clear()
        return True

    def close(self, rest: list[bytes], now: int) -> None:
        """The stream has ended with `rest`: an event without its blank line, which may be cut and is then ignored.

        A stream that was cut tells about its request in the last whole frame.
        """
        self.take([payload for payload in rest if payload == DONE or parse_frame(payload) is not None], now)
        if self._last is not None and self.finish_reason is None:
            frame = parse_frame(self._last.removeprefix(b"data: "))
            if frame is not None:
                self._read_facts(frame)

    def text(self) -> str:
        """The text that was generated, without reasoning; empty unless it was to be kept."""
        return self._kept.text() if self._kept is not None else ""

    @property
    def complete(self) -> bool:
        """Whether the stream's end mark came."""
        return self.done or self.finish_reason is not None

    def _decode(self, payload: bytes, now: int) -> None:
        frame = parse_frame(payload)
        if frame is None:
            self._blame(f"an event is not a JSON object: {_short(payload)}")
            return
        error = error_text(frame)
        if error is not None:
            self._blame(error)
            return
        self._read_facts(frame)
        count = _count(frame, native=self._native)
        text = bool(frame.get("text")) if self._native else _bears_token(frame)
        # The usage frame after the last token has no choices; it counts, but nothing came with it.
        trailing = not self._native and not frame.get("choices")
        self._count(count, text, trailing, now)
        if count:
            self._quick = quick_count(payload, self._native) == count

    def _count(self, count: int | None, text: bool, trailing: bool, now: int) -> None:
        before = self.output_tokens or 0
        if count is None or count <= before:
            if text and not before:
                self.chunk_ns.append(now)
                self.chunk_tokens.append(0)
            elif text:
                self._uncounted_ns.append(now)
            if count is not None and self.output_tokens is None:
                self.output_tokens = count
            return
        self.output_tokens = count
        uncounted = bool(self.chunk_ns) and not before
        if trailing or (uncounted and self.finish_reason is not None):
            # A total at the end: what no chunk accounted for belongs to the last one, if chunks are counted at all.
            if before and self.chunk_tokens:
                self._account(count - before)
            if trailing or not text:
                return
            self.chunk_ns.append(now)
            self.chunk_tokens.append(0)
            return
        self.chunk_ns.append(now)
        self.chunk_tokens.append(count - before)
        self._uncounted_ns.clear()

    def _account(self, tokens: int) -> None:
        """Tokens that only the total tells of: of the texts that came without a growing count, else of the last one."""
        if not self._uncounted_ns:
            self.chunk_tokens[-1] += tokens
            return
        each, more = divmod(tokens, len(self._uncounted_ns))
        self.chunk_ns += self._uncounted_ns
        self.chunk_tokens += [each + (i < more) for i in range(len(self._uncounted_ns))]
        self._uncounted_ns.clear()

    def _read_facts(self, frame: Mapping[str, Any]) -> None:
        """Counters and the finish reason, from wherever this API puts them; later frames overrule earlier ones."""
        if self._native:
            meta = _mapping(frame.get("meta_info"))
            self._read_finish(meta.get("finish_reason"))
            self._read_native(meta)
            return
        for choice in choices_of(frame):
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
        queued_s = meta.get("queue_time")
        if isinstance(queued_s, int | float) and queued_s >= 0:
            self.queue_ms = queued_s * 1e3

    def _read_finish(self, reason: Any) -> None:
        """`/generate` tells it as an object with a type, the OpenAI endpoints as a word."""
        if reason is None:
            return
        facts = _mapping(reason)
        self.finish_reason = str(facts.get("type", "unknown")) if facts else str(reason)
        if self.finish_reason in _FAILED_FINISHES:
            ended = "aborted" if self.finish_reason == "abort" else "ended with an error"
            self._blame(f"{ended} by the server: {facts.get('message') or 'no message'}")

    def _blame(self, error: str) -> None:
        self.error = self.error or error


def quick_count(text: bytes, native: bool) -> int:
    """`completion_tokens` of an unfinished frame, found without decoding its JSON; 0 if it was not found.

    A quote inside a JSON text is written as \\": what is sought can only be keys. Whether it is the right one of them
    is told by a frame of the same stream that was decoded. The text and ids of a cumulative frame of `/generate`, which
    grow with every chunk, are not looked at.
    """
    found = _UNFINISHED_COUNT(text, max(text.rfind(_META), 0)) if native else _UNFINISHED_COUNT(text)
    return int(found[1]) if found is not None else 0


def error_text(frame: Mapping[str, Any]) -> str | None:
    """The message of an error object as SGLang and other OpenAI servers send it, None if the frame is none."""
    error = frame.get("error")
    if not error:
        if "error" in (frame.get("object"), frame.get("type")):
            error = frame
        elif frame.get("detail") and not frame.keys() & {"choices", "meta_info", "text"}:
            error = frame["detail"]  # how FastAPI, below most servers, tells it
        else:
            return None
    facts = _mapping(error)
    return str(facts.get("message") or facts or error)[:500]


def _count(frame: Mapping[str, Any], *, native: bool) -> int | None:
    return _integer(_mapping(frame.get("meta_info" if native else "usage")).get("completion_tokens"), None)


def _bears_token(frame: Mapping[str, Any]) -> bool:
    """Whether a frame without a count shows a token: some have no text of their own, only an id or a probability."""
    for choice in choices_of(frame):
        facts = _mapping(choice)
        delta, logprobs = _mapping(facts.get("delta")), _mapping(facts.get("logprobs"))
        if facts.get("text") or facts.get("token_ids") or logprobs.get("tokens") or logprobs.get("content"):
            return True
        if any(delta.get(name) for name in _DELTA_TOKENS):
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
