"""Telemetry as reports draw it: few values, gaps, phases and points on one clock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.paths import RunPaths
from orchestrator.reports.telemetry_series import Bucket, Series, TrialTelemetry, Window, buckets, telemetry_of
from orchestrator.run_files import dataset
from orchestrator.run_files.run_telemetry import RunTelemetry
from orchestrator.schemas import loads_schema, trials_schema
from orchestrator.telemetry import GpuSample, Sample, ServerSample

START = {"trial_id": "t-r0", "config_id": "t", "attempt": 1, "slot": "a/0", "host": "a"}


def sample(at_s: float, used_gib: float | None = 10.0, running: int | None = 1, **changes: Any) -> Sample:
    """The server's process ran 2 s after the trial began, which was at 1000 s of the host's wall clock."""
    gpus = (GpuSample("0", used_gib, 80.0),)
    lived_s = at_s - 2.0 if at_s > 2.0 else None
    return replace(Sample(at_s, 1000.0 + at_s, lived_s, ServerSample(running), gpus), **changes)


def stored(root: Path, samples: list[Sample], *, ended: bool = True) -> RunTelemetry:
    telemetry = RunTelemetry(RunPaths(root), {"run_id": "run", "engine": "sglang"})
    telemetry.append(START, samples)
    if ended:
        telemetry.end("t-r0", 1)
    return telemetry


def the_trial(root: Path, **arguments: Any) -> TrialTelemetry:
    (trial,) = telemetry_of(root, **arguments).values()
    return trial


def series_of(trial: TrialTelemetry, metric: str) -> list[Series]:
    return [series for series in trial.series if series.metric == metric]


def write_trial(root: Path, phases: list[dict[str, Any]]) -> None:
    row = {**dict.fromkeys(trials_schema().names), "trial_id": "t-r0", "attempt": 1, "phases": phases,
           "began_at": "2026-11-30T11:00:00.000+00:00"}  # fmt: skip
    dataset.write_trial(RunPaths(root), row)


def write_load(root: Path, level: float, **client: Any) -> None:
    row = {**dict.fromkeys(loads_schema().names), "trial_id": "t-r0", "point_id": f"p{level:g}", "attempt": 1,
           "workload": "chat", "level_kind": "concurrency", "level": level, "began_at": "1970-01-01T00:16:50.000+00:00",
           "client_json": json.dumps(client)}  # fmt: skip
    dataset.write_load(RunPaths(root), row, 1)


def test_values_fall_into_stretches_with_their_least_mean_and_most() -> None:
    at_s = np.array([0.0, 1.0, 2.0, 7.0])

    assert buckets(at_s, np.array([4.0, 1.0, 5.0, 9.0]), 2.0) == (
        Bucket(1.0, 1.0, 2.5, 4.0),
        Bucket(3.0, 5.0, 5.0, 5.0),
        Bucket(7.0, 9.0, 9.0, 9.0),
    )


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(-1e6, 1e6)), min_size=1, max_size=60), st.floats(0.5, 300))
def test_buckets_are_those_of_a_plain_loop(values: list[tuple[float, float]], bucket_s: float) -> None:
    listed = sorted(values)
    plain: dict[int, list[float]] = {}
    for at_s, value in listed:
        plain.setdefault(int(at_s // bucket_s), []).append(value)
    found = buckets(np.array([a for a, _ in listed]), np.array([v for _, v in listed]), bucket_s)

    assert [(b.least, b.most) for b in found] == [(min(own), max(own)) for own in plain.values()]
    assert [b.mean for b in found] == pytest.approx([sum(own) / len(own) for own in plain.values()], abs=1e-3)
    assert [b.at_s for b in found] == pytest.approx([(i + 0.5) * bucket_s for i in plain], abs=1e-3)


def test_a_long_trial_has_no_more_buckets_than_asked_for_and_keeps_its_extremes(tmp_path: Path) -> None:
    used = [10.0] * 999
    used[500] = 79.0
    stored(tmp_path, [sample(float(i), gib) for i, gib in enumerate(used)])
    trial = the_trial(tmp_path, most_points=50)
    (memory,) = series_of(trial, "memory_used_gib")

    assert len(memory.buckets) == 50
    assert max(bucket.most for bucket in memory.buckets) == 79.0
    assert (trial.gpu_memory_peak_gib, trial.gpu_memory_total_gib, trial.ended_s) == (79.0, 80.0, 998.0)
    assert (memory.source, memory.unit) == ("GPU 0", "GiB")


def test_a_short_trial_keeps_every_sample(tmp_path: Path) -> None:
    stored(tmp_path, [sample(float(i)) for i in range(10)])
    (running,) = series_of(the_trial(tmp_path), "running_requests")

    assert running.buckets == tuple(Bucket(float(i), 1.0, 1.0, 1.0) for i in range(10))
    assert running.source == "server"


def test_what_was_not_told_has_no_series_and_a_server_that_was_silent_a_gap(tmp_path: Path) -> None:
    stored(tmp_path, [sample(float(i), running=None if 5 <= i < 10 else 3) for i in range(20)])
    trial = the_trial(tmp_path)
    (running,) = series_of(trial, "running_requests")

    assert {series.metric for series in trial.series} == {"memory_used_gib", "running_requests"}
    gaps = [b.at_s - a.at_s for a, b in zip(running.buckets, running.buckets[1:], strict=False)]
    assert [gap > running.gap_s for gap in gaps].count(True) == 1


def test_phases_and_points_are_on_the_clock_of_the_trial(tmp_path: Path) -> None:
    stored(tmp_path, [sample(float(i)) for i in range(30)])
    phases = [("weights", 0.0, 4.5), ("ready", 4.5, None)]
    none = {"free_gib": None, "detail": ""}
    write_trial(tmp_path, [{"phase": p, "began_s": b, "ended_s": e, **none} for p, b, e in phases])
    write_load(tmp_path, 4.0, began_unix_s=1018.0, duration_s=5.0)
    write_load(tmp_path, 1.0, began_unix_s=None, duration_s=6.0)  # of an earlier release: the driver began it at 1010 s
    trial = the_trial(tmp_path)

    assert trial.phases == (Window("weights", 2.0, 6.5), Window("ready", 6.5, 29.0))
    assert trial.points == (Window("chat C=1", 10.0, 16.0), Window("chat C=4", 18.0, 23.0))
    assert trial.began_at == "2026-11-30T11:00:00.000+00:00"


def test_a_trial_that_runs_is_there_without_phases(tmp_path: Path) -> None:
    running = stored(tmp_path, [sample(0.5), sample(1.5)], ended=False)
    trial = the_trial(tmp_path)
    running.close()

    assert (trial.phases, trial.points, trial.ended_s) == ((), (), 1.5)
    assert trial.began_at == "1970-01-01T00:16:40.000+00:00"


def test_hosts_of_one_server_are_told_apart(tmp_path: Path) -> None:
    stored(tmp_path, [sample(float(i), rank=rank) for i in range(3) for rank in (0, 1)])

    sources = {series.source for series in the_trial(tmp_path, each_gpu=True).series}
    assert sources == {"rank 0 GPU 0", "rank 1 GPU 0", "rank 0 server", "rank 1 server"}


def test_gpus_of_a_trial_are_one_series_unless_each_is_wanted(tmp_path: Path) -> None:
    """Also where the samples of a rank came later than those of the other."""
    of_rank_0 = [sample(float(i), gpus=(GpuSample("0", 1.0), GpuSample("1", 3.0))) for i in range(3)]
    of_rank_1 = [sample(float(i), rank=1, gpus=(GpuSample("0", 8.0 + i), GpuSample("1"))) for i in range(3)]
    stored(tmp_path, [*of_rank_0, *of_rank_1])
    (together,) = series_of(the_trial(tmp_path), "memory_used_gib")
    each = series_of(the_trial(tmp_path, each_gpu=True), "memory_used_gib")

    assert together.source == "4 GPUs"
    assert together.buckets == (
        Bucket(0.0, 1.0, 4.0, 8.0),
        Bucket(1.0, 1.0, 4.3333, 9.0),
        Bucket(2.0, 1.0, 4.6667, 10.0),
    )
    assert [(series.source, series.buckets[2].mean) for series in each] == [
        ("rank 0 GPU 0", 1.0), ("rank 0 GPU 1", 3.0), ("rank 1 GPU 0", 10.0),
    ]  # fmt: skip


def test_only_the_trials_that_are_asked_for_and_have_samples(tmp_path: Path) -> None:
    stored(tmp_path, [sample(1.0)])

    assert telemetry_of(tmp_path, ["other"]) == {}
    assert list(telemetry_of(tmp_path, ["other", "t-r0"])) == ["t-r0"]
    assert telemetry_of(tmp_path / "nothing") == {}


def test_a_damaged_part_is_a_trial_without_telemetry(tmp_path: Path) -> None:
    stored(tmp_path, [sample(1.0)])
    (part,) = (tmp_path / "dataset" / "telemetry_server").iterdir()
    part.write_bytes(part.read_bytes()[:100])

    assert telemetry_of(tmp_path) == {}


def test_a_damaged_table_of_gpus_costs_the_gpus_only(tmp_path: Path) -> None:
    stored(tmp_path, [sample(1.0), sample(2.0)])
    (part,) = (tmp_path / "dataset" / "telemetry_gpu").iterdir()
    part.write_bytes(b"")
    trial = the_trial(tmp_path)

    assert {series.metric for series in trial.series} == {"running_requests"}
    assert trial.gpu_memory_peak_gib is None
