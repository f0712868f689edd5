"""The text of one streamed answer, kept as frames while it comes and decoded when it is asked for. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

# Frames that wait to be decoded; more are decoded at once, so that a stream does not hold its JSON for ever.
_MOST_WAITING_BYTES = 32_768


class AnswerText:
    """Takes every frame of a stream. OpenAI's and incremental ones each add text, cumulative ones of `/generate` each
    bring the whole; which of the two it is shows in the second frame, by its token ids or else by its text.
    """

    __slots__ = ("_cumulative", "_first", "_native", "_text", "_waiting", "_waiting_bytes")

    def __init__(self, *, native: bool) -> None:
        self._native = native
        self._first: bytes | None = None
        self._cumulative: bool | None = None if native else False
        self._text: list[str] = []
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def add(self, payloads: list[bytes]) -> None:
        """The next frames."""
        for payload in payloads:
            if self._cumulative is None:
                if self._first is None:
                    self._first = payload
                else:
                    self._cumulative = _is_cumulative(self._first, payload)
            if self._cumulative:
                self._waiting.clear()
            self._waiting.append(payload)
            self._waiting_bytes += len(payload)
        if self._waiting_bytes > _MOST_WAITING_BYTES and self._cumulative is False:
            self._decode()

    def text(self) -> str:
        """What was generated so far, reasoning and tool calls left out."""
        if self._cumulative:
            return _whole(_shown(parse_frame(self._waiting[-1]), native=True))
        self._decode()
        return _whole("".join(self._text))

    def _decode(self) -> None:
        self._text += [_shown(parse_frame(payload), native=self._native) for payload in self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0


def parse_frame(payload: bytes) -> dict[str, Any] | None:
    """The JSON object of an event, None if it is none."""
    try:
        frame = orjson.loads(payload)
    except orjson.JSONDecodeError:
        frame = _parse_leniently(payload)
    return frame if isinstance(frame, dict) else None


def choices_of(frame: Mapping[str, Any]) -> list[Any]:
    """The choices of an OpenAI frame; none if what stands there is no list."""
    choices = frame.get("choices")
    return choices if isinstance(choices, list) else []


def _parse_leniently(payload: bytes) -> Any:
    """Half a surrogate pair (an emoji split over two deltas) is refused by orjson, not by the standard library."""
    try:
        return json.loads(payload)
    except ValueError:
        return None


def _is_cumulative(first: bytes, second: bytes) -> bool:
    before, after = parse_frame(first) or {}, parse_frame(second) or {}
    ids, meta = after.get("output_ids"), after.get("meta_info")
    count = meta.get("completion_tokens") if isinstance(meta, dict) else None
    if isinstance(ids, list) and isinstance(count, int):
        return len(ids) >= count
    return _shown(after, native=True).startswith(_shown(before, native=True))


def _shown(frame: Mapping[str, Any] | None, *, native: bool) -> str:
    """Text in one frame, of the first choice."""
    if frame is None:
        return ""
    if native:
        return str(frame.get("text") or "")
    for choice in choices_of(frame):
        if isinstance(choice, dict) and not choice.get("index"):
            delta = choice.get("delta")
            return str(choice.get("text") or (delta.get("content") if isinstance(delta, dict) else None) or "")
    return ""


def _whole(text: str) -> str:
    """Halves of surrogate pairs joined, so that the text can be sent again."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
