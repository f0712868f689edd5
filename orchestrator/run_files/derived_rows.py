"""What was computed from files of the dataset, kept so that ranking again need not read them.

It is never the truth: a row counts only for the very files that it was made of, and only for the formulas that made it.
The folder `derived/` may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.paths import whole_file

# Name -> (key, value), None for a value that is kept.
Fresh = Mapping[str, tuple[str, bytes | None]]
_FORMULAS = b"specsweep_formulas"
_SCHEMA = pa.schema([("name", pa.string()), ("key", pa.string()), ("value", pa.large_binary())])


@cache
def formulas() -> str:
    """A hash of all that metrics and rankings are computed by: whatever of it changes, everything is computed anew."""
    digest = hashlib.sha256(f"numpy {np.__version__}".encode())
    for file in sorted(Path(__file__).parent.parent.rglob("*")):
        if file.suffix in {".py", ".tsv"}:
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def file_marks(folder: Path) -> dict[str, str]:
    """Stem of each Parquet file in a folder -> what tells it from any other that bore its name: size, time, inode."""
    marks = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".parquet"):
                    seen = entry.stat()
                    marks[entry.name.removesuffix(".parquet")] = f"{seen.st_size}.{seen.st_mtime_ns}.{seen.st_ino}"
    except FileNotFoundError:
        return {}
    return dict(sorted(marks.items()))


class DerivedRows:
    """Values by name, each with the key of what it was made of: another key is another value."""

    def __init__(self, file: Path, *, anew: bool = False) -> None:
        """`anew`: forget what is kept."""
        self._file = file
        self._table = None if anew else _read(file)
        names = [] if self._table is None else self._table.column("name").to_pylist()
        keys = [] if self._table is None else self._table.column("key").to_pylist()
        self._kept = {name: (key, i) for i, (name, key) in enumerate(zip(names, keys, strict=True))}

    def get(self, name: str, key: str) -> bytes | None:
        """The value that was made of this; None if there is none."""
        kept_key, row = self._kept.get(name, ("", -1))
        if self._table is None or row < 0 or kept_key != key:
            return None
        value: bytes = self._table.column("value")[row].as_py()
        return value

    def differs(self, rows: Fresh) -> bool:
        """Whether these are not just what is kept."""
        return {name: key for name, (key, _) in rows.items()} != {name: key for name, (key, _) in self._kept.items()}

    def store(self, rows: Fresh) -> None:
        """Keep these and no others; what is kept already needs no value."""
        if not self.differs(rows):
            return
        values = [self.get(name, key) if value is None else value for name, (key, value) in rows.items()]
        columns = [list(rows), [key for key, _ in rows.values()], values]
        table = pa.table(columns, schema=_SCHEMA.with_metadata({_FORMULAS: formulas().encode()}))
        with whole_file(self._file) as handle:
            pq.write_table(table, handle, compression="zstd", use_dictionary=False, write_statistics=False)


def _read(file: Path) -> pa.Table | None:
    """What is kept, None if there is nothing whole, or other formulas made it."""
    try:
        table = pq.read_table(pa.BufferReader(file.read_bytes()))
    except (OSError, pa.ArrowInvalid):
        return None
    if table.schema.metadata is None or table.schema.metadata.get(_FORMULAS) != formulas().encode():
        return None
    return None if table.schema.names != _SCHEMA.names else table.combine_chunks()
