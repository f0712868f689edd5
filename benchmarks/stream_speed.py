"""What the dataset costs per million request rows: batches in, Parquet out, metrics of all of them."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from orchestrator.paths import RunPaths
from orchestrator.points.metrics import summarise
from orchestrator.run_files.dataset import PointStream, read_point
from orchestrator.run_files.point_table import columns_of
from orchestrator.schemas import request_schema
from orchestrator.trial import LoadLevel

ROWS, BATCH, CHUNKS = 1_000_000, 2_000, 8


def batch(first: int) -> pa.RecordBatch:
    """2,000 requests of 8 chunks each, 1 ms apart."""
    index = np.arange(first, first + BATCH)
    start = index * 1_000_000
    gaps = np.arange(1, CHUNKS + 1) * 10_000_000
    chunk_ns = (start[:, None] + gaps[None, :]).ravel()
    offsets = pa.array(np.arange(0, BATCH * CHUNKS + 1, CHUNKS), pa.int32())
    filled: dict[str, object] = {
        "request_index": index, "scheduled_ns": start, "sent_ns": start, "first_token_ns": start + gaps[0],
        "end_ns": start + gaps[-1], "prompt_tokens": np.full(BATCH, 256), "cached_tokens": np.zeros(BATCH),
        "output_tokens": np.full(BATCH, CHUNKS * 4), "verify_ct": np.full(BATCH, CHUNKS),
        "correct_drafts": np.full(BATCH, CHUNKS * 3), "proposed_drafts": np.full(BATCH, CHUNKS * 4),
    }  # fmt: skip
    columns = []
    for field in request_schema():
        if field.name == "chunk_ns":
            columns.append(pa.ListArray.from_arrays(offsets, pa.array(chunk_ns, pa.int64())))
        elif field.name == "chunk_tokens":
            columns.append(pa.ListArray.from_arrays(offsets, pa.array(np.full(BATCH * CHUNKS, 4), pa.int32())))
        elif field.name in filled:
            columns.append(pa.array(filled[field.name]).cast(field.type))
        elif field.name == "warmup":
            columns.append(pa.array(np.zeros(BATCH, dtype=bool)))
        else:
            columns.append(pa.array(["ok"] * BATCH) if field.name == "status" else pa.nulls(BATCH, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=request_schema())


def main() -> None:
    """Print seconds and peak memory of each step."""
    with tempfile.TemporaryDirectory() as folder:
        paths = RunPaths(Path(folder))
        stream = PointStream(paths, "point", 1)
        began = time.perf_counter()
        for first in range(0, ROWS, BATCH):
            stream.append(batch(first))
        appended = time.perf_counter()
        stream.finish()
        finished = time.perf_counter()
        metrics = summarise(columns_of(read_point(paths, "point", 1)), level=LoadLevel("concurrency", 64))
        ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(  # noqa: T201
        f"{ROWS:,} requests: {appended - began:.2f} s made and appended, {finished - appended:.2f} s to Parquet, "
        f"{ended - finished:.2f} s read and summarised ({metrics.requests_ok:,} ok); peak {peak:.2f} GiB"
    )


if __name__ == "__main__":
    main()
