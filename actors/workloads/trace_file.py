"""Recorded requests, with the times when they came and their lengths but no text: three public formats.

Mooncake   JSON lines: timestamp (ms), input_length, output_length, hash_ids (blocks of 512 tokens, may be missing)
Azure      CSV: TIMESTAMP (a date and time), ContextTokens, GeneratedTokens; the releases of 2023 and of 2024
BurstGPT   CSV: Timestamp (s), Request tokens, Response tokens, and more; Session ID in the later files
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from actors.workloads.dataset_stream import first_line, lines
from orchestrator.errors import BadInput

FORMATS = (
    "JSON lines with timestamp, input_length, output_length; CSV with TIMESTAMP,ContextTokens,GeneratedTokens; "
    "CSV with Timestamp, Request tokens, Response tokens"
)
# Of the traces that name their blocks.
BLOCK_TOKENS = 512
_MOST_REQUESTS = 5_000_000
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One recorded request. `due_s` counts from the first one. `blocks` name the 512 tokens each of which its prompt
    consists (the last one may be shorter); equal ids are equal text. `session` names who sent it, where known."""

    due_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    session: str | None = None


class _Fault(ValueError):
    """What is wrong with a row; whoever knows which one says where."""


def read_trace(path: Path, *, notes: list[str] | None = None) -> list[TraceRequest]:
    """The requests of a trace in the order of their times, the first at 0 s.

    BadInput with file and line for anything that is not as the format has it. What was left out or put in order is
    told in `notes`.
    """
    told: list[str] = []
    found = list(_limited(_requests(path), path))
    sent = [request for request in found if request.input_tokens and request.output_tokens]
    if len(sent) < len(found):
        told.append(f"{path}: {len(found) - len(sent)} of {len(found)} requests without input or output are left out")
    if not sent:
        raise BadInput(f"{path}: holds no request; a trace is one of: {FORMATS}")
    late = sum(second.due_s < first.due_s for first, second in pairwise(sent))
    if late:
        told.append(f"{path}: {late} of {len(sent)} requests are earlier than the one before; put in order of time")
        sent.sort(key=lambda request: request.due_s)
    if notes is not None:
        notes.extend(told)
    start = sent[0].due_s
    return [TraceRequest(r.due_s - start, r.input_tokens, r.output_tokens, r.blocks, r.session) for r in sent]


def trace_format(line: bytes) -> str:
    """Which trace begins with this line; empty if it is none."""
    text = line.strip()
    if text.startswith(b"{"):
        return "Mooncake" if b'"input_length"' in text and b'"timestamp"' in text else ""
    columns = [cell.strip() for cell in text[:500].decode("utf-8", "replace").split(",")]
    return "Azure" if set(_AZURE) <= set(columns) else "BurstGPT" if set(_BURSTGPT) <= set(columns) else ""


def _requests(path: Path) -> Iterator[TraceRequest]:
    number, first = first_line(path)
    name = trace_format(first)
    if not name:
        raise BadInput(f"{path}:{number}: is no trace but begins with {_shown(first)}; a trace is one of: {FORMATS}")
    rows = lines(path)
    read: Callable[[bytes], TraceRequest] = _of_mooncake
    if name != "Mooncake":
        columns = _cells(next(rows)[1])
        read = _Table(columns, _AZURE, _moment) if name == "Azure" else _Table(columns, _BURSTGPT, _seconds)
    for number, line in rows:
        try:
            yield read(line)
        except _Fault as fault:
            raise BadInput(f"{path}:{number}: {fault}") from None


def _of_mooncake(line: bytes) -> TraceRequest:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _Fault(f"is no JSON: {error}") from None
    if not isinstance(row, dict):
        raise _Fault(f"is a JSON {type(row).__name__}; a request is an object")
    request = TraceRequest(
        _seconds(row.get("timestamp"), "timestamp") / 1000,
        _tokens(row.get("input_length"), "input_length"),
        _tokens(row.get("output_length"), "output_length"),
        _blocks(row.get("hash_ids")),
    )
    wanted = math.ceil(request.input_tokens / BLOCK_TOKENS)
    if request.blocks and len(request.blocks) != wanted:
        raise _Fault(
            f"hash_ids has {len(request.blocks)} blocks; {request.input_tokens} tokens are {wanted} blocks of "
            f"{BLOCK_TOKENS} (a trace with blocks of another size has to be converted)"
        )
    return request


def _blocks(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(block) is int for block in value):
        raise _Fault(f"hash_ids is {_shown(value)}; it is a list of whole numbers")
    return tuple(value)


class _Table:
    """Rows whose columns are found by their names in the header."""

    def __init__(self, columns: list[str], names: tuple[str, str, str], time_of: Callable[[str, str], float]) -> None:
        self._columns = len(columns)
        self._names = names
        self._places = tuple(columns.index(name) for name in names)
        self._session = columns.index("Session ID") if "Session ID" in columns else None
        self._time_of = time_of

    def __call__(self, line: bytes) -> TraceRequest:
        cells = _cells(line)
        if len(cells) != self._columns:
            raise _Fault(f"has {len(cells)} columns; the header has {self._columns}")
        (time, input_, output), names = self._places, self._names
        return TraceRequest(
            self._time_of(cells[time], names[0]),
            _tokens(cells[input_], names[1]),
            _tokens(cells[output], names[2]),
            session=cells[self._session] or None if self._session is not None else None,
        )


def _cells(line: bytes) -> list[str]:
    """The cells of a row; those of these traces never hold a comma."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Fault(f"is not UTF-8 text: {error.reason}") from None
    return [cell.strip(' "') for cell in text.split(",")]


def _moment(value: str, name: str) -> float:
    """Seconds since 1970. Releases differ in the digits of the second and in whether there is a time zone (UTC)."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise _Fault(f"{name} is {_shown(value)}; it is a time like 2023-11-16 18:15:46.6805900") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _seconds(value: Any, name: str) -> float:
    try:
        number = math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise _Fault(f"{name} is {_shown(value)}; it is a number of 0 or more")
    return number


def _tokens(value: Any, name: str) -> int:
    """A count, also as text or with a fraction of 0, as tables have it."""
    number = _seconds(value, name)
    if number != int(number):
        raise _Fault(f"{name} is {_shown(value)}; it is a whole number")
    return int(number)


def _limited(found: Iterator[TraceRequest], path: Path) -> Iterator[TraceRequest]:
    for count, request in enumerate(found):
        if count == _MOST_REQUESTS:
            raise BadInput(f"{path}: holds more than {_MOST_REQUESTS:,} requests; cut the part that is to be replayed")
        yield request


def _shown(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    shown = "missing" if text is None else repr(text)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
