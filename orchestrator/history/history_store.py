"""The history dataset on disk or in an object store: one Parquet part a night, and one for each thing said of it.

DIR/nights/<time>-<run>-<random>.parquet, DIR/marks/<time>-<random>.parquet. Parts are never changed, and two writers,
also on two hosts that share the folder, never meet. On a file system a part is written under a temporary name, synced
and renamed; an object store shows an object when it is whole. Readers skip what is temporary or torn, and tell it. Of
an object store no more is asked than to list, get and put objects under DIR: no folder is made, nothing is deleted.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from orchestrator.errors import SpecsweepError
from orchestrator.history.history_place import PLACE_ERRORS, HistoryPlace, place_of
from orchestrator.history.night_history import History, Mark
from orchestrator.history.night_rows import night_rows, nights_of
from orchestrator.nights.night import NIGHT_SCHEMA, Night, stamp_of
from orchestrator.paths import write_whole

_READERS = 8
_NIGHTS, _MARKS = "nights", "marks"
# Put anew before every night: whether it can be is known before hours of measuring. No part, so readers pass it by.
_PROBE = ".writable"
Part = TypeVar("Part")


class HistoryStore:
    """A history at a place. `place` is how messages call it."""

    def __init__(self, where: HistoryPlace) -> None:
        self._where, self._fs, self._root = where, where.filesystem, where.root
        self.place = where.shown

    @classmethod
    def at(cls, location: str) -> HistoryStore:
        """A folder, or any URI that pyarrow knows (file://, s3://, gs://, abfs://, hdfs://). BadInput for others."""
        return cls(place_of(location))

    def prepare(self) -> None:
        """Before a night begins: is it a place that can be written? SpecsweepError if not."""
        try:
            for folder in (_NIGHTS, _MARKS) if self._where.has_folders else ():
                self._fs.create_dir(f"{self._root}/{folder}", recursive=True)
            if self._where.is_local:
                probe = Path(self._root) / _NIGHTS / f".probe-{secrets.token_hex(4)}.tmp"
                probe.touch()
                probe.unlink()
            else:
                self._put(f"{self._root}/{_NIGHTS}/{_PROBE}", b"specsweep\n")
        except PLACE_ERRORS as error:
            raise SpecsweepError(f"history {self.place}: cannot be written: {self._where.told(error)}") from None

    def exists(self) -> bool:
        """Whether a history is there: a run, or a mistyped folder, is none. SpecsweepError if that cannot be told."""
        try:
            return bool(self._fs.get_file_info(f"{self._root}/{_NIGHTS}").type == pafs.FileType.Directory)
        except PLACE_ERRORS as error:
            raise SpecsweepError(f"history {self.place}: cannot be read: {self._where.told(error)}") from None

    def append(self, night: Night) -> str:
        """Keep a night for good; the name of its part. SpecsweepError if it cannot be written."""
        run = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(night.run).name)[:60]
        stem = "-".join(part for part in (night.night_id, run) if part)
        return self._write(_NIGHTS, stem, [_for_arrow(row) for row in night_rows(night)], night_schema())

    def mark(self, mark: Mark) -> str:
        """Keep what a person said of a night."""
        return self._write(_MARKS, f"{stamp_of(mark.marked_at)}-{mark.night_id}", [mark.as_json()], mark_schema())

    def read(self) -> History:
        """All that is there. SpecsweepError if the place cannot be read at all."""
        nights, torn = self._parts(
            _NIGHTS, lambda table: nights_of(_named(table, night_schema(), ("night_id", "night_at", "scenario")))
        )
        marks, torn_marks = self._parts(
            _MARKS, lambda table: [Mark(**row) for row in _named(table, mark_schema(), Mark.__slots__)]
        )
        return History.of(nights, marks, (*torn, *torn_marks))

    def _write(self, folder: str, stem: str, rows: Sequence[Mapping[str, Any]], schema: Any) -> str:
        name = f"{stem}-{secrets.token_hex(6)}.parquet"
        path = f"{self._root}/{folder}/{name}"
        try:
            packed = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), packed, compression="zstd")
            if self._where.is_local:
                write_whole(Path(path), packed.getvalue().to_pybytes())
            else:
                if self._where.has_folders:
                    self._fs.create_dir(f"{self._root}/{folder}", recursive=True)
                self._put(path, packed.getvalue())
        except (*PLACE_ERRORS, TypeError, OverflowError) as error:
            told = self._where.told(error)
            raise SpecsweepError(f"history {self.place}: {folder}/{name} cannot be written: {told}") from None
        return f"{folder}/{name}"

    def _put(self, path: str, data: Any) -> None:
        with self._fs.open_output_stream(path) as stream:
            stream.write(data)

    def _parts(self, folder: str, take: Callable[[Any], list[Part]]) -> tuple[list[Part], list[str]]:
        """What all whole parts of a folder hold, by name, and what is wrong with the others."""
        selector = pafs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        try:
            found = sorted(info.path for info in self._fs.get_file_info(selector) if info.is_file)
        except PLACE_ERRORS as error:
            raise SpecsweepError(f"history {self.place}: cannot be read: {self._where.told(error)}") from None
        names = [path for path in found if path.endswith(".parquet") and not path.rpartition("/")[2].startswith(".")]
        torn = [
            f"{folder}/{path.rpartition('/')[2]}: left by a writer that was stopped; may be deleted"
            for path in found
            if path.endswith(".tmp")
        ]
        items: list[Part] = []
        with ThreadPoolExecutor(_READERS) as pool:
            for path, (own, fault) in zip(names, pool.map(lambda p: self._part(p, take), names), strict=True):
                items += own
                if fault:
                    torn.append(f"{folder}/{path.rpartition('/')[2]}: {fault}")
        return items, torn

    def _part(self, path: str, take: Callable[[Any], list[Part]]) -> tuple[list[Part], str]:
        try:
            with self._fs.open_input_file(path) as file:
                whole = pa.BufferReader(file.read())  # one request; Parquet by itself asks for the end first
            table = pq.read_table(whole, use_threads=False)
            schema = int((table.schema.metadata or {}).get(b"specsweep_history", b"0"))
            if schema > NIGHT_SCHEMA:
                return [], f"was written by a newer release (schema {schema}); not read"
            return take(table), ""
        except (*PLACE_ERRORS, KeyError, TypeError) as error:
            return [], f"cannot be read ({self._where.told(error)}); not counted"


def _named(table: Any, schema: Any, names: Iterable[str]) -> list[dict[str, Any]]:
    """Rows as a writer of ours makes them, of which none lacks these. ValueError or ArrowInvalid for columns of other
    kinds, which are told now and not met by whoever computes with them; columns of a later release are left out.
    """
    for name in names:
        if table[name].null_count:
            raise ValueError(f"{name} is missing")
    known = [field for field in schema if field.name in table.schema.names]
    return list(table.select([field.name for field in known]).cast(pa.schema(known)).to_pylist())


def _for_arrow(row: Mapping[str, Any]) -> dict[str, Any]:
    """Maps as pairs."""
    return {
        **row,
        "reference": _pairs(row["reference"]),
        "candidate": _pairs(row["candidate"]),
        "hosts": [_pairs(host) for host in row["hosts"]],
    }


def _pairs(told: Mapping[str, Any]) -> dict[str, Any]:
    return {**told, "facts": list(told["facts"].items())}


def _fields(kind: Any, names: Iterable[str]) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


@cache
def night_schema() -> Any:
    """A row a series of a night; of a gap one row with nulls. Columns are added at the end."""
    text, number, flag = pa.string(), pa.float64(), pa.bool_()
    facts = pa.map_(text, text)
    build = pa.struct([("name", text), ("facts", facts)])
    host = pa.struct([("name", text), ("host_class", text), ("facts", facts)])
    pair = pa.struct([("host", text), ("candidate_first", flag), ("reference", number), ("candidate", number)])
    start = pa.struct(
        [("host", text), ("candidate_first", flag),
         *_fields(text, ("reference", "candidate", "diagnosis", "evidence"))]
    )  # fmt: skip
    return pa.schema(
        [
            *_fields(text, ("night_id", "night_at", "scenario", "run", "night_verdict", "gap")),
            ("reference", build),
            ("candidate", build),
            ("hosts", pa.list_(host)),
            *_fields(text, ("series_id", "metric", "unit", "better", "kind", "config", "label", "workload", "level")),
            *_fields(text, ("host_class", "verdict", "reason")),
            *_fields(number, ("floor", "difference", "low", "high", "worse", "p", "q", "noise_sd")),
            ("noise_df", pa.int32()),
            ("noise_source", text),
            ("finds", number),
            ("too_noisy", flag),
            ("evidence", pa.list_(text)),
            ("missing", text),
            ("pairs", pa.list_(pair)),
            ("starts", pa.list_(start)),
            ("expected", number),
            ("cut", text),
            *_fields(number, ("noise_night_sd", "noise_night_df")),
            ("noise_night_source", text),
        ],
        metadata={"specsweep_history": str(NIGHT_SCHEMA), "table": _NIGHTS},
    )


@cache
def mark_schema() -> Any:
    """A row a human verdict."""
    return pa.schema(
        _fields(pa.string(), ("night_id", "series_id", "verdict", "note", "marked_by", "marked_at")),
        metadata={"specsweep_history": str(NIGHT_SCHEMA), "table": _MARKS},
    )
