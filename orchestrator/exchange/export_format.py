"""Rows as CSV, JSON lines or Parquet, into a binary file."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

# A spreadsheet takes a text that begins so for a formula, and runs it (OWASP, CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], file: IO[bytes]) -> None:
    """With a head and lines as RFC 4180 has them, in UTF-8. Nothing is an empty cell, lists are JSON.

    Texts that a spreadsheet would run as a formula get an apostrophe in front; numbers are numbers.
    """
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow([_safe(name) for name in columns])
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    text.detach()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _safe(json.dumps(value) if isinstance(value, list | tuple | dict) else str(value))


def _safe(text: str) -> str:
    text = text.replace("\x00", "")
    return "'" + text if text.startswith(_FORMULA) else text


def write_jsonl(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], file: IO[bytes]) -> None:
    """One object a line with all columns; what is no number is null."""
    for row in rows:
        told = {name: _number(row.get(name)) for name in columns}
        file.write(json.dumps(told, allow_nan=False, default=str).encode() + b"\n")


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_parquet(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], file: IO[bytes]) -> None:
    """In one piece; a column without any value is one of texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    listed = list(rows)
    arrays = [pa.array([row.get(name) for row in listed], from_pandas=True) for name in columns]
    whole = [array.cast(pa.string()) if pa.types.is_null(array.type) else array for array in arrays]
    pq.write_table(pa.table(whole, names=list(columns)), file, compression="zstd")
