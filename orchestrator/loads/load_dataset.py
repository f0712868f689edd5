"""The request records of one `specsweep load`, written in parts as they come: memory does not grow with the load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.paths import user_file, write_whole

# Of a part, uncompressed; a record of 250 chunks has about 3 KiB.
_PART_BYTES = 8 << 20


class LoadDataset:
    """`requests-0001.parquet`, ... in a folder, each whole; what has not filled a part waits in memory, as Arrow.

    BadInput if there can be no such folder.
    """

    def __init__(self, folder: Path) -> None:
        with user_file(f"--out {folder}", "made"):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._batches: list[Any] = []
        self._bytes = 0
        self._parts = 0

    def append(self, batch: Any) -> None:
        """Add records; once in a while a part is written."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        import pyarrow as pa

        from orchestrator.run_files.dataset import write_parquet

        if not self._batches:
            return
        self._parts += 1
        write_parquet(pa.Table.from_batches(self._batches), self.folder / f"requests-{self._parts:04d}.parquet")
        self._batches, self._bytes = [], 0

    def table(self) -> Any:
        """All records; only the columns that metrics need."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from orchestrator.schemas import request_schema

        files = sorted(self.folder.glob("requests-*.parquet"))
        return pa.concat_tables([request_schema().empty_table(), *map(pq.read_table, files)])

    def describe(self, name: str, value: dict[str, Any]) -> None:
        """Write a JSON file beside the records."""
        write_whole(self.folder / name, json.dumps(value, indent=1, allow_nan=False).encode() + b"\n")
