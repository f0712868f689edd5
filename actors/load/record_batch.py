"""Request records -> Arrow record batches of the `requests` schema, handed to a reader without ever waiting for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

from actors.load.spool import SpoolWriter, read_spool
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.schemas import request_schema

FLUSH_ROWS = 1000
FLUSH_S = 0.5
# Batches that may wait in memory for the reader; the rest waits in the spool.
_MOST_WAITING = 256


@dataclass(frozen=True, slots=True)
class _Posted:
    message: Any


class RecordStream:
    """Takes records one by one, makes a batch of every 1000 or of half a second, spools it, and hands it out.

    A reader that falls behind gets the batches beyond 256 from the spool when the point has ended: nothing is lost and
    nobody waits. Without a spool all batches wait in memory, also when its disk is full: that costs the spool, and not
    the measurement, unless a batch is in it already that nobody has. `identity` fills the columns that no record has.
    """

    def __init__(self, identity: dict[str, Any], spool: Path | None, *, most_waiting: int = _MOST_WAITING) -> None:
        self._identity = identity
        self._spool = spool
        schema = request_schema()  # also loads pyarrow, which would else stop the running load at its first batch
        self._writer = SpoolWriter(spool, schema) if spool else None
        self._most_waiting = most_waiting
        self._rows: list[RequestRecord] = []
        self._ready: asyncio.Queue[Any] = asyncio.Queue()
        self._flushed_at = time.monotonic()
        self._handed = 0
        self._spilled = False

    def add(self, record: RequestRecord) -> None:
        self._rows.append(record)
        if len(self._rows) >= FLUSH_ROWS:
            self._flush()

    def post(self, message: Any) -> None:
        """Hand something that is no record to the reader, in turn with the batches; it is not spooled."""
        self._ready.put_nowait(_Posted(message))

    @property
    def waiting(self) -> int:
        """Batches and messages that the reader has not taken yet."""
        return self._ready.qsize()

    def tick(self) -> None:
        """Called often: flushes what has waited long enough."""
        if self._rows and time.monotonic() - self._flushed_at >= FLUSH_S:
            self._flush()

    def flush(self) -> None:
        """Hand out what has come: a process spends tens of milliseconds on its first batch, better now than later."""
        if self._rows:
            self._flush()

    def close(self) -> None:
        """No more records; the reader's iteration ends after the last batch."""
        try:
            if self._rows:
                self._flush()
            if self._writer is not None:
                self._writer.close()
        except OSError:
            if self._spilled:
                raise
        finally:
            self._writer = None
            self._ready.put_nowait(None)  # also if the spool's disk is full: the reader must not wait for ever

    async def batches(self) -> AsyncIterator[Any]:
        """Every batch and every message once, in order, until `close`."""
        while (item := await self._ready.get()) is not None:
            if isinstance(item, _Posted):
                yield item.message
                continue
            self._handed += 1
            yield item
        if self._spilled and self._spool is not None:
            for batch in islice(read_spool(self._spool), self._handed, None):
                yield batch

    def _flush(self) -> None:
        batch = batch_of(self._rows, self._identity)
        self._rows.clear()
        self._flushed_at = time.monotonic()
        if self._writer is not None and self._spool_it(self._writer, batch):
            self._spilled = self._spilled or self.waiting >= self._most_waiting
        if not self._spilled:
            self._ready.put_nowait(batch)

    def _spool_it(self, writer: SpoolWriter, batch: Any) -> bool:
        """Whether the batch is in the spool. One that failed is not tried again; its end is what was whole before."""
        try:
            writer.append(batch)
        except OSError:
            self._writer = None
            if self._spilled:
                raise
            return False
        return True


def batch_of(records: list[RequestRecord], identity: dict[str, Any]) -> Any:
    """One batch with its own buffers, in schema order."""
    import pyarrow as pa

    schema = request_schema()
    told = zip(*map(_values, records), strict=True) if records else [()] * len(_NAMES)
    values = dict(zip(_NAMES, told, strict=True))
    columns = []
    for field in schema:
        if field.name in identity:
            columns.append(pa.repeat(pa.scalar(identity[field.name], field.type), len(records)))
        elif pa.types.is_list(field.type):
            columns.append(_lists(values[field.name], field.type))
        else:
            columns.append(pa.array(values[field.name], type=field.type))
    return pa.record_batch(columns, schema=schema)


_NAMES = tuple(field.name for field in fields(RequestRecord))


def _values(r: RequestRecord) -> tuple[Any, ...]:
    """In the order of the fields; spelled out, which Python does several times faster than by names."""
    return (
        r.request_index, r.warmup, r.scheduled_ns, r.sent_ns, r.first_token_ns, r.end_ns, r.chunk_ns, r.chunk_tokens,
        r.in_flight, r.requested_output_tokens, r.prompt_tokens, r.cached_tokens, r.output_tokens, r.verify_ct,
        r.correct_drafts, r.proposed_drafts, r.retractions, r.finish_reason, r.status, r.http_status, r.error,
        r.prompt_hash, r.traffic, r.session_index, r.turn, r.asked_input_tokens, r.queue_ms,
    )  # fmt: skip


def _lists(values: Sequence[tuple[int, ...]], of: Any) -> Any:
    """A column of lists from all their values in a row."""
    import pyarrow as pa

    offsets = pa.array(list(accumulate(map(len, values), initial=0)), pa.int32())
    flat = pa.array(list(chain.from_iterable(values)), of.value_type)
    return pa.ListArray.from_arrays(offsets, flat, type=of)


def records_of(batch: Any) -> list[RequestRecord]:
    """The records of a batch."""
    names = [field.name for field in fields(RequestRecord)]
    rows = []
    for row in batch.select(names).to_pylist():
        row["chunk_ns"], row["chunk_tokens"] = tuple(row["chunk_ns"]), tuple(row["chunk_tokens"])
        row["status"] = RequestStatus(row["status"])
        rows.append(RequestRecord(**row))
    return rows
