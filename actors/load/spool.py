"""The load actor's own copy of what it measured: one Arrow IPC stream file per point, readable wherever it was cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

# How an Arrow IPC stream ends: a mark and a length of none.
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class SpoolWriter:
    """Appends record batches to a new file; each is with the operating system when `append` returns."""

    def __init__(self, path: Path, schema: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._sink = pa.OSFile(str(path), "wb")
        self._head = schema.serialize().to_pybytes()  # goes with the first batch: a full disk is met by `append`

    def append(self, batch: Any) -> None:
        # As Arrow's stream writer has it, but in one piece: that makes a call for each of the hundred buffers.
        self._begin()
        self._sink.write(batch.serialize())
        self._sink.flush()

    def _begin(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._sink.write(head)

    def close(self) -> None:
        try:
            self._begin()
            self._sink.write(_END)
        finally:  # a full disk
            self._sink.close()


def read_spool(path: Path) -> Iterator[Any]:
    """All whole batches of a spool, in order, one in memory at a time; a file that was cut ends before the cut."""
    try:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader
    except (pa.ArrowInvalid, OSError):
        return
