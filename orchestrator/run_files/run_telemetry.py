"""The tables `telemetry_gpu` and `telemetry_server` of a run: samples as they come, a part when a trial ends.

What a driver that died had stored becomes a part when the run is opened again: samples are true whatever became of
their trial.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from actors.load.spool import SpoolWriter, read_spool
from orchestrator.paths import RunPaths
from orchestrator.run_files import dataset
from orchestrator.schemas import telemetry_schema
from orchestrator.telemetry import Sample

GPU, SERVER = "telemetry_gpu", "telemetry_server"
TABLES = (GPU, SERVER)


class RunTelemetry:
    """Of an open run directory. `identity` is what every row says of its run."""

    def __init__(self, paths: RunPaths, identity: dict[str, Any]) -> None:
        self._paths = paths
        self._identity = identity
        self._open: dict[tuple[str, int], dict[str, SpoolWriter]] = {}
        self._ended: set[tuple[str, int]] = set()

    def append(self, trial: dict[str, Any], samples: Sequence[Sample]) -> None:
        """Store samples of a server start, unless it has ended. `trial`: its ids and attempt, slot and host."""
        start = (trial["trial_id"], trial["attempt"])
        if start in self._ended:
            return
        rows = {SERVER: list(map(_server_row, samples)), GPU: [row for s in samples for row in _gpu_rows(s)]}
        writers = self._open.setdefault(start, {})
        for table, listed in rows.items():
            if not listed:
                continue
            schema = telemetry_schema(table)
            columns = {**self._identity, **trial}
            try:
                batch = pa.RecordBatch.from_pylist([columns | row for row in listed], schema=schema)
            except (ValueError, TypeError, OverflowError):  # what a driver or a server said fits into no column
                continue
            if table not in writers:
                writers[table] = SpoolWriter(stream_file(self._paths, table, *start), schema)
            writers[table].append(batch)

    def end(self, trial_id: str, attempt: int) -> None:
        """The server is gone: make its parts."""
        start = (trial_id, attempt)
        self._ended.add(start)
        for table, writer in self._open.pop(start, {}).items():
            writer.close()
            _finish(self._paths, table, stream_file(self._paths, table, *start))

    def close(self) -> None:
        """Nothing more is stored; starts that have not ended get their parts when the run is opened again."""
        for writers in self._open.values():
            for writer in writers.values():
                with contextlib.suppress(OSError):
                    writer.close()
        self._open.clear()


def stream_file(paths: RunPaths, table: str, trial_id: str, attempt: int) -> Path:
    """Where samples of a server that runs are kept: an Arrow IPC stream."""
    return paths.stream / f"{dataset.part_name(trial_id, attempt)}.{table}"


def salvage(paths: RunPaths) -> None:
    """After a crash: make parts of what is there."""
    for table in TABLES:
        for file in sorted(paths.stream.glob(f"*.{table}")):
            _finish(paths, table, file)


def _finish(paths: RunPaths, table: str, file: Path) -> None:
    batches = list(read_spool(file))
    if batches:
        rows = pa.Table.from_batches(batches, schema=telemetry_schema(table))
        dataset.write_parquet(rows, paths.table(table) / f"{file.stem}.parquet")
    file.unlink()


def read_telemetry(
    paths: RunPaths, table: str, trial_id: str, attempt: int, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """The columns (None: all but lists) of one server start as numpy arrays in order of time, also while it runs.

    Numbers that were not told are NaN. Empty if there are no rows that can be read.
    """
    part = dataset.part_file(paths, table, trial_id, attempt)
    rows = _part(part, columns)
    if rows is None:
        batches = list(_streamed(stream_file(paths, table, trial_id, attempt)))
        # The trial may have ended between the two looks.
        rows = pa.Table.from_batches(batches, schema=telemetry_schema(table)) if batches else _part(part, columns)
    if rows is None or not rows.num_rows:
        return {}
    return {name: rows[name].to_numpy() for name in rows.column_names if not pa.types.is_list(rows[name].type)}


def _part(file: Path, columns: Sequence[str] | None) -> Any | None:
    with contextlib.suppress(OSError, pa.ArrowInvalid):
        return dataset.read_file(file, columns)
    return None


def starts_with_telemetry(paths: RunPaths) -> dict[str, int]:
    """Trial id -> its last attempt that has samples, also of one that runs."""
    files = [*paths.table(SERVER).glob("*.parquet"), *paths.stream.glob(f"*.{SERVER}")]
    found: dict[str, int] = {}
    for file in sorted(files):
        trial_id, _, attempt = file.stem.rpartition("-")
        if attempt.isdigit():
            found[trial_id] = max(found.get(trial_id, 0), int(attempt))
    return found


def _streamed(file: Path) -> Iterator[Any]:
    if file.exists():
        yield from read_spool(file)


def _server_row(sample: Sample) -> dict[str, Any]:
    server = sample.server
    return _moment(sample) | {name: getattr(server, name) for name in server.__slots__}


def _gpu_rows(sample: Sample) -> Iterable[dict[str, Any]]:
    moment = _moment(sample)
    for gpu in sample.gpus:
        row = {name: getattr(gpu, name) for name in gpu.__slots__}
        yield moment | row | {"throttle": None if gpu.throttle is None else list(gpu.throttle)}


def _moment(sample: Sample) -> dict[str, Any]:
    return {"rank": sample.rank, "at_s": sample.at_s, "unix_s": sample.unix_s, "lived_s": sample.lived_s}
