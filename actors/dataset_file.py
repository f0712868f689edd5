"""Prompts, conversations and traces in files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import BadInput


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order. `output_tokens` as the file asks for them, if it says."""

    turns: tuple[Turn, ...]
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace. `blocks` are ids of its blocks of 512 tokens; equal ids are equal blocks."""

    due_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    session: str | None = None


def read_conversations(path: Path) -> list[Conversation]:
    """Lines of a file: JSON objects with a `prompt` or `messages`, or plain text."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"dataset file:{path}: cannot be read on the load host: {error}") from error
    found = [_conversation(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise BadInput(f"dataset file:{path}: holds no prompt")
    return found


def read_trace(path: Path) -> list[TraceRequest]:
    """JSON lines with timestamp (ms), input_length, output_length and hash_ids."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        found = [
            TraceRequest(r["timestamp"] / 1e3, r["input_length"], r["output_length"], tuple(r.get("hash_ids", ())))
            for r in rows
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"dataset file:{path}: is not a trace: {error!r}") from error
    if not found:
        raise BadInput(f"dataset file:{path}: holds no request")
    return found


def _conversation(line: str, place: str) -> Conversation:
    value: Any = None
    if line.lstrip().startswith("{"):
        try:
            value = json.loads(line)
        except ValueError:
            value = None  # a text line that begins with a brace, such as a piece of code
    if not isinstance(value, dict):
        return Conversation((Turn("user", line),), None)
    if isinstance(value.get("messages"), list):
        return Conversation(tuple(Turn(m["role"], m["content"]) for m in value["messages"]), None)
    if not isinstance(value.get("prompt"), str):
        raise BadInput(f"{place}: is a JSON object without a 'prompt' text")
    return Conversation((Turn("user", value["prompt"]),), None)
