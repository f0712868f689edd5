"""What was computed from files of the dataset, kept so that ranking again need not read them.

It is never the truth: a row counts only for the very files that it was made of, and only for the formulas that made it.
The folder `derived/` may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.paths import whole_file

# Name, key, value.
Row = tuple[str, str, bytes]
_FORMULAS = b"specsweep_formulas"
# With checksums, or a bit that a disk lost would be a number of the ranking.
_PACKED: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": False,
    "write_statistics": False,
    "write_page_checksum": True,
}
# Rows that are in memory at once: of ten thousand points all would be tens of MiB, twice over.
_PIECE = 200
_SCHEMA = pa.schema([("name", pa.string()), ("key", pa.string()), ("value", pa.large_binary())])


@cache
def formulas() -> str:
    """A hash of all that metrics and rankings are computed by: whatever of it changes, everything is computed anew."""
    import psutil

    return formulas_of(Path(__file__).parent.parent, psutil.Process().create_time())


def formulas_of(package: Path, began: float) -> str:
    """Of a process that `began` then (seconds since 1970) with what was in the package. Of one whose text has changed
    since, e.g. by an upgrade during a run of hours, nobody knows what it computes by: that is like nothing else.
    """
    digest = hashlib.sha256(f"numpy {np.__version__}".encode())
    for file in sorted(package.rglob("*")):
        if file.suffix in {".py", ".tsv"}:
            digest.update(file.name.encode() + file.read_bytes())
            if file.stat().st_ctime >= began:
                return f"of process {os.getpid()} {os.urandom(16).hex()}"
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
    """Values by name, each with the key of what it was made of: another key is another value.

    Values stay in the file, and packed until they are stored: of ten thousand points they would be tens of MiB.
    """

    def __init__(self, file: Path, *, anew: bool = False) -> None:
        """`anew`: forget what is kept."""
        self._file = file
        self._keys = {} if anew else {name: key for name, key, _ in _read(_whole(file), values=False)}
        self._next: dict[str, str] = {}
        self._fresh: list[bytes] = []

    def kept(self, keys: Mapping[str, str]) -> dict[str, bytes]:
        """By name, the values that were made of these; without those of which there are none."""
        wanted = {name: key for name, key in keys.items() if self._keys.get(name) == key}
        if not wanted:
            return {}
        found = {name: value for name, key, value in _read(_whole(self._file)) if wanted.get(name) == key}
        for name in wanted.keys() - found.keys():  # the file is damaged, or another ranking has written it since
            del self._keys[name]
        return found

    def keep(self, keys: Mapping[str, str], fresh: Mapping[str, bytes]) -> None:
        """Store these too, next time; of `fresh` the values are given, of the others they are kept already."""
        self._next |= keys
        if fresh:
            packed = pa.BufferOutputStream()
            _write(packed, ((name, keys[name], value) for name, value in fresh.items()))
            self._fresh.append(packed.getvalue().to_pybytes())

    @property
    def differs(self) -> bool:
        """Whether what is to be stored is not just what is kept."""
        return self._next != self._keys

    def store(self) -> None:
        """Keep what `keep` was told, and nothing else."""
        if not self.differs:
            return
        told = dict.fromkeys(self._next, False)
        with whole_file(self._file) as handle:
            _write(handle, self._told(told))

    def _told(self, told: dict[str, bool]) -> Iterator[Row]:
        """Each name once: as it was computed, else as it is kept. `told` are those that are through."""
        for packed in (*reversed(self._fresh), _whole(self._file)):
            for name, key, value in _read(packed):
                if self._next.get(name) == key and not told[name]:
                    told[name] = True
                    yield name, key, value


def _write(to: Any, rows: Iterable[Row]) -> None:
    schema = _SCHEMA.with_metadata({_FORMULAS: formulas().encode()})
    left = iter(rows)
    with pq.ParquetWriter(to, schema, **_PACKED) as writer:
        while piece := list(islice(left, _PIECE)):
            writer.write_table(pa.table([list(column) for column in zip(*piece, strict=True)], schema=schema))


def _whole(file: Path) -> bytes:
    """Empty if there is no such file."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _read(packed: bytes, *, values: bool = True) -> Iterator[Row]:
    """Name, key and value (empty unless asked for) of each row; of a damaged file as far as it goes, of one that other
    formulas made nothing.
    """
    names = _SCHEMA.names if values else _SCHEMA.names[:2]
    try:
        with pq.ParquetFile(pa.BufferReader(packed), page_checksum_verification=True) as kept:
            metadata = kept.schema_arrow.metadata or {}
            if metadata.get(_FORMULAS) != formulas().encode() or kept.schema_arrow.names != _SCHEMA.names:
                return
            for batch in kept.iter_batches(_PIECE, columns=names, use_threads=False):
                columns = [column.to_pylist() for column in batch.columns]
                yield from zip(*columns, strict=True) if values else ((*row, b"") for row in zip(*columns, strict=True))
    except (OSError, ValueError, pa.ArrowException):
        return
