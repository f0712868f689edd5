"""Prompts, conversations and traces in files that users bring. Which format a file has is seen by its first line.

Plain text  one prompt a line
JSON lines  an object a line, or one array of them: `prompt`, ShareGPT's `conversations`, OpenAI's `messages`, or a
            batch request with these in its `body`
Traces      see trace_file
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from actors.workloads.dataset_stream import array_values, first_line, json_line, lines, text_line
from actors.workloads.trace_file import trace_format
from orchestrator.errors import BadInput

FORMATS = "an object has a 'prompt', 'conversations', 'messages', or a 'body' with a 'prompt' or 'messages'"
# ShareGPT's files name the side that answers by product.
_REPLAY = "`trace: [1.0]` in place of other levels (`specsweep load`: --trace-speed 1)"
_ROLES = {
    "user": "user", "human": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant",
    "model": "assistant",
    "system": "system", "developer": "system",
}  # fmt: skip
_TOOL_ROLES = frozenset({"tool", "function", "observation", "function_call"})
_LENGTHS = ("output_tokens", "max_completion_tokens", "max_tokens")
_NO_USER = "without anything that a user says"
_TOOLS = "with tools"
_NOT_TEXT = "with parts that are not text"


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says. `role` is system, user or assistant; `content` is never empty."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order, at least one of a user. `output_tokens`: how long the answer is to be, if the file says."""

    turns: tuple[Turn, ...]
    output_tokens: int | None


class _Fault(ValueError):
    """What is wrong with a value; whoever knows which one says where."""


class _LeftOut(Exception):
    """A conversation that cannot be sent, though nothing is wrong with the file. Its text says of which sort it is."""


def read_conversations(path: Path, *, notes: list[str] | None = None) -> list[Conversation]:
    """All conversations of a file, in its order; a lone prompt is a conversation of one turn.

    BadInput with file and line for anything that is not as the format has it, and for a trace. Conversations without a
    user's turn, with tools, or with parts that are not text are left out; how many is told in `notes`.
    """
    found: list[Conversation] = []
    left_out: Counter[str] = Counter()
    for line, value in _values(path):
        try:
            found.append(value if isinstance(value, Conversation) else _conversation(value))
        except _LeftOut as reason:
            left_out[str(reason)] += 1
        except _Fault as fault:
            raise BadInput(f"{path}:{line}: {fault}") from None
    if not found:
        told = "".join(f"; {count} conversations {sort} are left out" for sort, count in left_out.items())
        raise BadInput(f"{path}: holds no prompt{told}")
    if notes is not None:
        total = len(found) + left_out.total()
        notes += [f"{path}: {count} of {total} conversations {sort} are left out" for sort, count in left_out.items()]
    return found


def _values(path: Path) -> Iterator[tuple[int, Any]]:
    """Each object of the file with its line, or the conversation that a plain line is."""
    number, first = first_line(path)
    if name := trace_format(first):
        raise BadInput(f"{path}:{number}: is a trace ({name}), which has no text; replay it: {_REPLAY}")
    if re.match(rb"\[\s*($|[{\]])", first):
        yield from array_values(path)
        return
    read = json_line if re.match(rb'\{\s*($|["}])', first) else _plain  # not a piece of code
    for number, line in lines(path):
        yield number, read(line, f"{path}:{number}")


def _plain(line: bytes, place: str) -> Conversation:
    if line.lstrip().startswith(b'{"'):
        with suppress(orjson.JSONDecodeError):
            orjson.loads(line)
            raise BadInput(f"{place}: is a JSON object, and the lines before it are plain text")
    return Conversation((Turn("user", text_line(line, place)),), None)


def _conversation(value: Any) -> Conversation:
    if not isinstance(value, dict):
        raise _Fault(f"is a JSON {type(value).__name__}; {FORMATS}")
    body = value.get("body", value)
    if not isinstance(body, dict):
        raise _Fault(f"its 'body' is {_shown(body)}; {FORMATS}")
    if "prompt" in body:
        turns = [_prompt(body["prompt"])]
    elif "messages" in body:
        turns = _turns(body["messages"], "role", "content", "messages")
    elif "conversations" in body:
        turns = _turns(body["conversations"], "from", "value", "conversations")
    else:
        raise _Fault(f"has {', '.join(map(repr, list(body)[:8])) or 'no key'}; {FORMATS}")
    if not any(turn.role == "user" for turn in turns):
        raise _LeftOut(_NO_USER)
    return Conversation(tuple(turns), _output_tokens(value, body))


def _prompt(value: Any) -> Turn:
    if not isinstance(value, str):
        raise _Fault(f"'prompt' is {_shown(value)}; it is a text")
    if not value:
        raise _LeftOut(_NO_USER)
    return Turn("user", _sendable(value))


def _turns(value: Any, role: str, content: str, name: str) -> list[Turn]:
    if not isinstance(value, list):
        raise _Fault(f"{name} is {_shown(value)}; it is a list of turns")
    turns = []
    for i, turn in enumerate(value):
        if not isinstance(turn, dict) or not isinstance(turn.get(role), str):
            raise _Fault(f"{name}[{i}] is {_shown(turn)}; a turn is an object with {role!r} and {content!r}")
        said = turn[role]
        if said in _TOOL_ROLES or turn.get("tool_calls") or turn.get("function_call"):
            raise _LeftOut(_TOOLS)
        if said not in _ROLES:
            raise _Fault(f"{name}[{i}]: {role!r} is {_shown(said)}; it is one of {', '.join(_ROLES)}")
        text = turn.get(content)
        if not isinstance(text, str):
            text = _joined(text, f"{name}[{i}]: {content!r}")
        if text:
            turns.append(Turn(_ROLES[said], _sendable(text)))
    return turns


def _joined(value: Any, name: str) -> str:
    """A text from its parts."""
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise _Fault(f"{name} is {_shown(value)}; it is a text, or a list of parts of type text")
    if any(part.get("type") not in {"text", "input_text"} for part in value):
        raise _LeftOut(_NOT_TEXT)
    texts = [part.get("text") for part in value]
    if not all(isinstance(text, str) for text in texts):
        raise _Fault(f"{name} has a part without a 'text'")
    return "".join(texts)


def _sendable(text: str) -> str:
    """JSON may hold halves of a pair of escapes, which no UTF-8 has."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _output_tokens(value: dict[str, Any], body: dict[str, Any]) -> int | None:
    for name in _LENGTHS:
        tokens = body.get(name, value.get(name))
        if tokens is not None:
            if type(tokens) is not int or tokens < 1:
                raise _Fault(f"{name!r} is {_shown(tokens)}; it is a whole number of 1 or more")
            return tokens
    return None


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
