"""The load actor's own copy of what it measured: one Arrow IPC stream file per point, readable wherever it was cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa


class SpoolWriter:
    """Appends record batches to a new file; each is with the operating system when `append` returns."""

    def __init__(self, path: Path, schema: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def append(self, batch: Any) -> None:
        self._writer.write_batch(batch)
        self._sink.flush()

    def close(self) -> None:
        try:
            self._writer.close()
        finally:  # a full disk
            self._sink.close()


def read_spool(path: Path) -> Iterator[Any]:
    """All whole batches of a spool, in order, one in memory at a time; a file that was cut ends before the cut."""
    try:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader
    except (pa.ArrowInvalid, OSError):
        return
