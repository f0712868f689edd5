"""What a load tells: its document, its histograms, and the parts that it keeps."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.loads.load_dataset import LoadDataset
from orchestrator.loads.load_document import LoadResult
from orchestrator.points.load_histogram import histogram
from orchestrator.points.metrics import summarise
from orchestrator.points.point_view import print_point
from orchestrator.run_files.point_table import columns_of
from orchestrator.trial import ClientReport, LoadLevel
from tests.actors.load_specs import point, spec
from tests.fakes.slot import request_batch

CLIENT = ClientReport("load", 10.0, 9.9, 1.0, 0.0, 4, 5, "duration")


def result(client: ClientReport, **more: object) -> LoadResult:
    columns = columns_of(pa.Table.from_batches([request_batch(point(), 1, 0, 5)]))
    level = LoadLevel("concurrency", 1)
    return LoadResult("http://h:1", spec(seed=11), summarise(columns, level=level, client=client), client, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("processes", "more"), [(1, 2), (4, 8)])
def test_a_client_that_was_too_slow_is_void_and_says_how_many_processes_to_give(processes: int, more: int) -> None:
    told = result(replace(CLIENT, processes=processes, cpu_s=99.0)).document()
    assert told["valid"] is False
    (reason,) = [reason for reason in told["void_reasons"] if "bottleneck" in reason]
    assert reason.startswith("the client was the bottleneck")
    assert reason.endswith(f"; give --processes {more}")


def test_a_lost_process_makes_the_load_void() -> None:
    told = result(replace(CLIENT, cpu_s=1.0), faults=("load process 2 of 3: killed by SIGKILL",)).document()
    assert (told["void_reasons"], told["valid"]) == (["load process 2 of 3: killed by SIGKILL"], False)


def test_what_is_no_number_is_null_and_the_cpu_share_is_that_of_one_process() -> None:
    told = result(
        replace(CLIENT, processes=2, cpu_s=9.0, loop_lag_p99_ms=math.nan, backlog_p99_kib=math.inf)
    ).document()
    assert (told["client"]["cpu_share"], told["client"]["loop_lag_ms_p99"], told["client"]["backlog_kib_p99"]) == (
        0.45, None, None,
    )  # fmt: skip
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert result(replace(CLIENT, duration_s=0.0)).document()["client"]["cpu_share"] is None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=60))
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    lines = histogram(values, "ms")
    known = [value for value in values if math.isfinite(value)]
    assert sum(int(line.rsplit(maxsplit=1)[1]) for line in lines) == len(known)
    assert bool(lines) == bool(known)


def test_a_histogram_has_equal_steps_or_where_values_are_far_apart_equal_factors() -> None:
    bar = "#" * 50
    assert histogram([1, 1, 2, 3], "ms") == [f"1 - 2 ms |{bar} 2", f"2 - 3 ms |{bar} 2"]
    assert histogram([1.0, 9.0, 99.0, 100.0], "ms") == [f"  1 -  10 ms |{bar} 2", f" 10 - 100 ms |{bar} 2"]
    assert histogram([5.0, 5.0], "ms") == [f"5 - 5 ms |{bar} 2"]


def test_records_are_written_in_parts_and_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [request_batch(point(), 1, 5 * i, 5) for i in range(4)]
    monkeypatch.setattr("orchestrator.loads.load_dataset._PART_BYTES", batches[0].nbytes * 2)
    dataset = LoadDataset(tmp_path / "out")
    for batch in batches[:3]:
        dataset.append(batch)
    assert [file.name for file in dataset.folder.iterdir()] == ["requests-0001.parquet"]
    dataset.append(batches[3])
    dataset.flush()
    assert sorted(file.name for file in dataset.folder.iterdir()) == ["requests-0001.parquet", "requests-0002.parquet"]
    assert dataset.table().equals(pa.Table.from_batches(batches))
    assert len(columns_of(LoadDataset(tmp_path / "empty").table())["sent_ns"]) == 0
    assert np.isfinite(columns_of(dataset.table())["sent_ns"]).all()


def test_brackets_in_what_a_server_said_are_shown_as_they_are() -> None:
    told = result(CLIENT).document() | {"void_reasons": ["failed: [/INST] is no token"], "warnings": ["[red]"]}
    console = Console(file=StringIO(), width=200)
    print_point(told, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "void: failed: [/INST] is no token\n" in shown
    assert "note: [red]\n" in shown
    assert "ttft_ms" in shown
