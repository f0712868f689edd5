"""`specsweep export`: what a run measured as CSV, JSON lines or Parquet, or as lines of bench_serving."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from orchestrator.errors import BadInput
from orchestrator.exchange.export_format import write_csv, write_jsonl, write_parquet
from orchestrator.exchange.export_rows import Rows, point_rows, trial_rows
from orchestrator.exchange.stored_run import StoredRun, read_run
from orchestrator.paths import user_file, whole_file
from orchestrator.points.bench_serving import BACKENDS, LoadArguments, bench_serving_line
from orchestrator.rankings.trial_facts import start_facts
from orchestrator.run_files import dataset
from orchestrator.run_files.point_table import MeasuredPoint, columns_of
from orchestrator.schemas import request_schema
from orchestrator.trial import ClientReport

BENCH_SERVING = "bench-serving"
_WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}
# What a request is of, beside its own columns.
_OF_POINT = ("workload", "level_kind", "level", "host", "repeat")


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """`form`: csv, jsonl, parquet or bench-serving; `what`: points, trials or requests; `out`: None for the output."""

    run_dir: Path
    form: str
    what: str = "points"
    out: Path | None = None


def export(request: ExportRequest) -> list[str]:
    """Write it; what to say of it besides. BadInput for what is no run, or cannot be written so."""
    if request.form == BENCH_SERVING and request.what != "points":
        raise BadInput(f"--as {BENCH_SERVING}: has a line for each point; --what {request.what} has other rows")
    if request.form == "parquet" and request.out is None:
        raise BadInput("--as parquet: is not for a terminal; name a file by --out")
    run = read_run(request.run_dir)
    if request.out is None:
        _write(run, request, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        with user_file(f"--out {request.out}", "written"), whole_file(request.out) as file:
            _write(run, request, file)
    lost = len(run.missing)
    return [f"{lost} measured points are left out: their files are damaged or gone"] if lost else []


def _write(run: StoredRun, request: ExportRequest, file: IO[bytes]) -> None:
    if request.form == BENCH_SERVING:
        for line in bench_serving_lines(run):
            file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
    elif request.what == "requests":
        _write_requests(run, request.form, file)
    else:
        rows = _points(run) if request.what == "points" else _trials(run)
        _WRITERS[request.form](rows.columns, rows.rows, file)


def _points(run: StoredRun) -> Rows:
    facts = {trial["trial_id"]: start_facts(trial, run.scenario.engine) for trial in run.trials}
    settings = {c: config.settings for c, config in run.configs.items()}
    return point_rows([point.row() for point in run.points], facts, run.labels, settings)


def _trials(run: StoredRun) -> Rows:
    settings = {c: config.settings for c, config in run.configs.items()}
    return trial_rows(run.trials, run.scenario.engine, run.labels, settings)


def bench_serving_lines(run: StoredRun) -> Iterator[dict[str, Any]]:
    """What bench_serving would have told of each point, from its requests; the tag is the config."""
    workloads = {workload.name: workload for workload in run.scenario.workloads}
    for point in run.points:
        load, workload = point.load, workloads.get(point.load["workload"])
        name = workload.dataset if workload else ""
        drawn = not str(name).startswith("file:")
        yield bench_serving_line(
            columns_of(_requests(run, point)),
            level=point.level,
            client=ClientReport(**json.loads(load["client_json"])),
            given=LoadArguments(
                backend=BACKENDS.get(workload.api, "sglang") if workload else "sglang",
                dataset=str(name),
                input_tokens=load["input_tokens"] if drawn else None,
                output_tokens=load["output_tokens"] if drawn else None,
                max_concurrency=workload.max_concurrency if workload else None,
                tag=run.labels.get(load["config_id"], load["config_id"]),
            ),
        )


def _requests(run: StoredRun, point: MeasuredPoint) -> Any:
    return dataset.read_point(run.paths, point.load["point_id"], point.load["attempt"])


def _write_requests(run: StoredRun, form: str, file: IO[bytes]) -> None:
    """Point by point, so that memory does not grow with the run."""
    columns = (*_OF_POINT, *request_schema().names)
    if form != "parquet":
        rows = (row for point in run.points for row in _with_point(run, point).to_pylist())
        _WRITERS[form](columns, rows, file)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts, level, number = pa.string(), pa.float64(), pa.int32()
    kinds = {"workload": texts, "level_kind": texts, "level": level, "host": texts, "repeat": number}
    schema = pa.schema([*((name, kinds[name]) for name in _OF_POINT), *request_schema()])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for point in run.points:
            table = _with_point(run, point)
            have = set(table.column_names)
            arrays = [
                table.column(f.name).cast(f.type) if f.name in have else pa.nulls(table.num_rows, f.type)
                for f in schema
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _with_point(run: StoredRun, point: MeasuredPoint) -> Any:
    """The requests of a point, with what all of them share."""
    import pyarrow as pa

    table = _requests(run, point)
    for i, name in enumerate(_OF_POINT):
        table = table.add_column(i, name, pa.array([point.load[name]] * table.num_rows))
    return table
