"""The run's tables as Parquet files that pyarrow, DuckDB and Polars read as they stand.

requests  one row per request, one file per point and attempt
loads     one row per point: how the load actor itself did
trials    one row per server start: settings asked and resolved, phases, outcome, evidence
points    derived from the others by `rank`; may be deleted

A point that is being measured is an Arrow IPC stream in `stream/`; it becomes a Parquet file when it ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from actors.load.spool import SpoolWriter, read_spool
from orchestrator.paths import RunPaths, whole_file
from orchestrator.schemas import loads_schema, request_schema, trials_schema

# Up to so many rows a file costs what its columns cost: dictionaries, zstd's set-up per column, and the statistics that
# a reader would skip rows by cost more than they save, to write and to read.
_FEW_ROWS = 1000
_FEW: dict[str, Any] = {"compression": "snappy", "use_dictionary": False, "write_statistics": False}
_MANY: dict[str, Any] = {"compression": "zstd", "use_dictionary": True}
# A point that has so little need not be read back from its stream.
_KEPT_BYTES = 1 << 18
# Threads that share the columns of a smaller file only wait for each other; a run has thousands of files.
_SMALL_BYTES = 1 << 20


def give_memory_back() -> None:
    """Let Arrow use the system's allocator from now on, in this process.

    Its own keeps what other threads have freed in a heap for each thread, and a driver has one for each slot: 200 of
    them grew by a hundred MiB in a thousand trials.
    """
    pa.set_memory_pool(pa.system_memory_pool())


def part_name(point_id: str, attempt: int) -> str:
    """File stem of one measurement of one point."""
    return f"{point_id}-{attempt}"


def part_file(paths: RunPaths, table: str, point_id: str, attempt: int) -> Path:
    """The file of one measurement in a table; of `trials` by trial id."""
    return paths.table(table) / f"{part_name(point_id, attempt)}.parquet"


class PointStream:
    """Batches of one point, on disk as they come."""

    def __init__(self, paths: RunPaths, point_id: str, attempt: int) -> None:
        self._paths = paths
        self._file = paths.stream / f"{part_name(point_id, attempt)}.arrows"
        self._part = part_file(paths, "requests", point_id, attempt)
        self._spool = SpoolWriter(self._file, request_schema())
        self._bytes = 0
        self._kept: list[Any] | None = []  # all of the point's batches while they are small

    def append(self, batch: Any) -> None:
        self._spool.append(batch)
        if self._kept is not None:
            self._bytes += batch.nbytes
            self._kept = [*self._kept, batch] if self._bytes <= _KEPT_BYTES else None

    def finish(self) -> None:
        """Turn the stream into its part of `requests` (temporary name, then rename)."""
        self._spool.close()
        batches = list(read_spool(self._file)) if self._kept is None else self._kept
        table = pa.Table.from_batches(batches, schema=request_schema())
        write_parquet(table, self._part)
        self._file.unlink()

    def abandon(self, mark: str = "") -> None:
        """Keep what came of a point that does not count, outside the dataset; `mark` goes into the file's name."""
        self._spool.close()
        _to_partial(self._paths, self._file, mark)


def _to_partial(paths: RunPaths, file: Path, mark: str = "") -> int:
    batches = list(read_spool(file))
    rows = sum(int(batch.num_rows) for batch in batches)
    if rows:
        table = pa.Table.from_batches(batches, schema=request_schema())
        write_parquet(table, paths.partial / f"{file.stem}{mark}.parquet")
    file.unlink()
    return rows


def salvage_streams(paths: RunPaths) -> int:
    """After a crash: move what was streamed of unfinished points to `partial/`. Returns the rows kept."""
    return sum(_to_partial(paths, file) for file in sorted(paths.stream.glob("*.arrows")))


def write_parquet(table: Any, file: Path) -> None:
    """Write whole or not at all."""
    with whole_file(file) as handle:
        if table.num_rows <= _FEW_ROWS:  # in one piece: the writer's own pieces are a call each
            packed = pa.BufferOutputStream()
            pq.write_table(table, packed, **_FEW)
            handle.write(packed.getvalue())
        else:
            pq.write_table(table, handle, **_MANY)


def write_load(paths: RunPaths, row: dict[str, Any], attempt: int) -> None:
    """One row of `loads`."""
    table = pa.Table.from_pylist([row], schema=loads_schema())
    write_parquet(table, part_file(paths, "loads", row["point_id"], attempt))


def write_trial(paths: RunPaths, row: dict[str, Any]) -> None:
    """One row of `trials`."""
    table = pa.Table.from_pylist([row], schema=trials_schema())
    write_parquet(table, part_file(paths, "trials", row["trial_id"], row["attempt"]))


def read_rows(paths: RunPaths, name: str) -> list[dict[str, Any]]:
    """All rows of a small table as dicts; empty if the run has none yet."""
    rows: list[dict[str, Any]] = []
    for file in sorted(paths.table(name).glob("*.parquet")):
        with contextlib.suppress(pa.ArrowInvalid):  # a damaged file is no row; who needs it says so
            rows += read_file(file).to_pylist()
    return rows


def read_point(paths: RunPaths, point_id: str, attempt: int, columns: Sequence[str] | None = None) -> Any:
    """The request rows of one measurement, as a table; of `columns` those that the file has, None for all.

    OSError or pyarrow.ArrowInvalid if the file is gone or damaged.
    """
    return read_file(part_file(paths, "requests", point_id, attempt), columns)


def read_file(path: str | Path, columns: Sequence[str] | None = None) -> Any:
    """One file of a table; OSError or pyarrow.ArrowInvalid if it is gone or damaged."""
    file = Path(path)
    if file.stat().st_size <= _SMALL_BYTES:  # in one piece, not a piece for each column
        with pq.ParquetFile(pa.BufferReader(file.read_bytes())) as part:
            return part.read(_wanted(part, columns), use_threads=False)
    with pq.ParquetFile(file) as part:
        return part.read(_wanted(part, columns), use_threads=True)


def _wanted(part: Any, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    there = set(part.schema_arrow.names)
    return [name for name in columns if name in there]


def measured_parts(paths: RunPaths, table: str = "requests") -> list[tuple[str, int]]:
    """(point id, attempt) of every part of `requests`, or of every row of `loads`."""
    parts = []
    for file in sorted(paths.table(table).glob("*.parquet")):
        point_id, _, attempt = file.stem.rpartition("-")
        parts.append((point_id, int(attempt)))
    return parts


def has_load(paths: RunPaths, point_id: str, attempt: int) -> bool:
    """Whether the point's `loads` row, which is written first, is there."""
    return part_file(paths, "loads", point_id, attempt).exists()


def read_load(paths: RunPaths, point_id: str, attempt: int) -> dict[str, Any] | None:
    """The `loads` row of one measurement of one point; None if there is none, or it cannot be read."""
    return _row(part_file(paths, "loads", point_id, attempt))


def read_trial(paths: RunPaths, trial_id: str, attempt: int) -> dict[str, Any] | None:
    """The `trials` row of one server start; None if there is none, or it cannot be read."""
    return _row(part_file(paths, "trials", trial_id, attempt))


def _row(file: Path) -> dict[str, Any] | None:
    try:
        (row,) = read_file(file).to_pylist()
    except (OSError, pa.ArrowInvalid):
        return None
    return dict(row)


def is_whole(paths: RunPaths, point_id: str, attempt: int) -> bool:
    """Whether both files of a measured point are there and can be read."""
    for table in ("loads", "requests"):
        try:
            pq.ParquetFile(part_file(paths, table, point_id, attempt)).close()
        except (OSError, pa.ArrowInvalid):
            return False
    return True


def set_aside(paths: RunPaths, point_id: str, attempt: int) -> None:
    """Move a measurement that does not count out of the dataset, so that no reader meets it."""
    paths.partial.mkdir(parents=True, exist_ok=True)
    for table, mark in (("requests", ""), ("loads", "loads-")):
        file = part_file(paths, table, point_id, attempt)
        with contextlib.suppress(FileNotFoundError):
            file.replace(paths.partial / f"{mark}{file.name}")


def set_aside_torn_loads(paths: RunPaths, counted: Mapping[str, int]) -> None:
    """Rows of `loads` that were written, but whose part of `requests` never came: their points are measured again."""
    for point_id, attempt in measured_parts(paths, "loads"):
        if counted.get(point_id) != attempt:
            set_aside(paths, point_id, attempt)


def write_points(paths: RunPaths, rows: Iterable[dict[str, Any]]) -> None:
    """Replace the derived `points` table, in pieces: a row as a dict is ten times what it is in the table."""
    left = iter(rows)
    pieces = []
    while piece := list(islice(left, _FEW_ROWS)):
        pieces.append(pa.Table.from_pylist(piece))
    if pieces:  # a column that is empty in one piece has the type of the others
        write_parquet(pa.concat_tables(pieces, promote_options="permissive"), paths.points)
    else:  # of what is gone nothing is told any more
        paths.points.unlink(missing_ok=True)
