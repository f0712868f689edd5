"""What goes through the pipes between a load command and its load processes: framed JSON, and Arrow record batches.

A frame is its kind (one byte), the length of its body (4 bytes) and the body.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from actors.load.load_member import Arrived, Beat, End, Release, Silent
from orchestrator.schemas import request_schema
from orchestrator.trial import ClientReport, Point, Shard

_HEAD = struct.Struct("<BI")
_BATCH = 0


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The arguments of LoadGenerator. `headers` are pairs; they and the key must not be shown."""

    run_id: str = ""
    engine: str = ""
    attempt: int = 1
    api_key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    hang_timeout_s: float | None = None
    drain_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """All that a load process is told before it begins."""

    url: str
    point: Point
    shard: Shard
    options: LoadOptions


@dataclass(frozen=True, slots=True)
class Broke:
    """What a load process was asked broke, in words."""

    fault: str


# The place in this list is the kind of the frame.
_KINDS: tuple[Any, ...] = (None, Job, Release, End, Arrived, Beat, Silent, ClientReport, Broke)


def packed(item: Any) -> bytes:
    """The frame of a record batch of requests or of one of the values above."""
    if type(item) in _KINDS:
        kind = _KINDS.index(type(item))
        body = _adapters()[kind].dump_json(item)
    else:
        kind, body = _BATCH, item.serialize().to_pybytes()
    return _HEAD.pack(kind, len(body)) + bytes(body)


async def read_item(reader: asyncio.StreamReader) -> Any:
    """The next item; None at the end of the pipe, also inside a frame."""
    try:
        kind, length = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    if kind != _BATCH:
        return _adapters()[kind].validate_json(body)
    import pyarrow as pa

    return pa.ipc.read_record_batch(pa.py_buffer(body), request_schema())


@cache
def _adapters() -> list[Any]:
    """All of them at once: to make one takes milliseconds, which the running load does not have."""
    from pydantic import TypeAdapter

    return [None, *(TypeAdapter(kind) for kind in _KINDS[1:])]
