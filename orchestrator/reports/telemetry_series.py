"""The telemetry of trials as reports draw it: few values each, with the phases of the start and the points."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from orchestrator.paths import RunPaths
from orchestrator.run_files import dataset
from orchestrator.run_files.run_telemetry import GPU, SERVER, read_telemetry, starts_with_telemetry
from orchestrator.trial import LoadLevel

MOST_POINTS = 200
# Name of a column -> its values in order of time; numbers that were not told are NaN.
Columns = Mapping[str, Any]
# Column -> its unit for people; what has none is a share or a number of tokens.
OF_GPU = {
    "memory_used_gib": "GiB",
    "power_w": "W",
    "sm_clock_mhz": "MHz",
    "temperature_c": "C",
    "utilization_percent": "%",
}
OF_SERVER = {
    "running_requests": "requests",
    "queued_requests": "requests",
    "generation_tok_s": "tok/s",
    "token_usage": "",
    "cache_hit_rate": "",
    "accept_length": "tokens",
    "retracted_requests": "requests",
    "rss_gib": "GiB",
    "cpu_cores": "cores",
}


class Bucket(NamedTuple):
    """Values of a stretch of time: its middle in seconds since the trial began. A tuple, since a run has a million."""

    at_s: float
    least: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over a trial. `source` is the server, its GPUs together ("8 GPUs"), or one of them ("GPU 0";
    on several hosts "rank 1 GPU 0").

    `metric` is the column of the table, with its unit as suffix; `unit` is that unit for people. A stretch in which the
    quantity was not told has no bucket: two buckets further apart than `gap_s` have a gap between them.
    """

    metric: str
    unit: str
    source: str
    gap_s: float
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a trial, seconds since it began: a phase of the start, or a point by workload and level."""

    name: str
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class _Drawn:
    """How much of it is drawn."""

    most_points: int
    bucket_s: float
    each_gpu: bool


@dataclass(frozen=True, slots=True)
class TrialTelemetry:
    """One server start. `gpu_memory_peak_gib`: the most that one of its GPUs had in use; None where none tells.

    `began_at`: UTC, of the first sample if the trial has not ended. `ended_s`: of the last sample. Of a trial
    that runs there are no phases yet.
    """

    trial_id: str
    attempt: int
    began_at: str
    ended_s: float
    engine: str
    phases: tuple[Window, ...]
    points: tuple[Window, ...]
    series: tuple[Series, ...]
    gpu_memory_peak_gib: float | None = None
    gpu_memory_total_gib: float | None = None


def telemetry_of(
    run_dir: Path,
    trial_ids: Iterable[str] | None = None,
    most_points: int = MOST_POINTS,
    *,
    each_gpu: bool = False,
    loads: Iterable[Mapping[str, Any]] | None = None,
) -> dict[str, TrialTelemetry]:
    """The telemetry of these trials (None: of all that have some), by trial id: of the last start of each.

    At most `most_points` buckets a series. All GPUs of a trial are one series, unless `each_gpu` is wanted. Reads also
    what is still being written of a run that goes on. `loads`: the rows of that table, if the caller has them.
    """
    paths = RunPaths(run_dir)
    attempts = starts_with_telemetry(paths)
    wanted = list(attempts if trial_ids is None else dict.fromkeys(trial_ids))
    of_starts = _loads_by_start(dataset.read_rows(paths, "loads") if loads is None else loads) if wanted else {}
    found = {}
    for trial_id in wanted:
        if trial_id not in attempts:
            continue
        start = (trial_id, attempts[trial_id])
        server = read_telemetry(paths, SERVER, *start)
        gpus = read_telemetry(paths, GPU, *start, ("at_s", "rank", "gpu", "memory_total_gib", *OF_GPU))
        row = dataset.read_trial(paths, *start)
        if server:  # the other is empty where there is no GPU
            own = of_starts.get(start, [])
            found[trial_id] = trial_telemetry(server, gpus, row, own, most_points, each_gpu=each_gpu)
    return found


def _loads_by_start(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("reused_from") is None:
            found.setdefault((row["trial_id"], row["attempt"]), []).append(row)
    return found


def trial_telemetry(
    server: Columns,
    gpus: Columns,
    trial: Mapping[str, Any] | None,
    loads: Iterable[Mapping[str, Any]],
    most_points: int = MOST_POINTS,
    *,
    each_gpu: bool = False,
) -> TrialTelemetry:
    """Of the tables of one server start, its row of `trials` if it has ended, and its rows of `loads`.

    `server` is not empty; `gpus` is where nothing is known of any.
    """
    began_unix_s = float(server["unix_s"][0] - server["at_s"][0])
    ended_s = float(server["at_s"].max())
    drawn = _Drawn(most_points, max(math.nextafter(ended_s, math.inf), 1.0) / most_points, each_gpu)
    used, total = (gpus.get(name, np.empty(0)) for name in ("memory_used_gib", "memory_total_gib"))
    return TrialTelemetry(
        trial_id=server["trial_id"][0],
        attempt=int(server["attempt"][0]),
        began_at=trial["began_at"] if trial else _utc(began_unix_s),
        ended_s=ended_s,
        engine=server["engine"][0],
        phases=tuple(_phases(trial["phases"], server, ended_s)) if trial else (),
        points=tuple(sorted((_point(row, began_unix_s) for row in loads), key=lambda window: window.began_s)),
        series=(*_series(gpus, OF_GPU, drawn), *_series(server, OF_SERVER, drawn)),
        gpu_memory_peak_gib=_known(used, np.max),
        gpu_memory_total_gib=_known(total, np.min),
    )


def _known(values: Any, which: Callable[[Any], Any]) -> float | None:
    told = values[~np.isnan(values)]
    return float(which(told)) if len(told) else None


def _phases(phases: Sequence[Mapping[str, Any]], server: Columns, ended_s: float) -> Iterable[Window]:
    """Phases are told since the process ran; that is so many seconds after the trial began."""
    shift_s = _known(server["at_s"] - server["lived_s"], np.min) or 0.0
    for phase in phases:
        ended = phase["ended_s"] + shift_s if phase["ended_s"] is not None else ended_s
        began = phase["began_s"] + shift_s
        yield Window(phase["phase"], round(began, 3), round(max(ended, began), 3))


def _point(load: Mapping[str, Any], trial_unix_s: float) -> Window:
    """The stretch in which its load was sent, by the wall clocks of the load's host and of the slot's.

    Points of earlier releases tell only when the driver began with them.
    """
    client = json.loads(load["client_json"])
    began_unix_s = client.get("began_unix_s") or datetime.fromisoformat(load["began_at"]).timestamp()
    began_s = began_unix_s - trial_unix_s
    name = f"{load['workload']} {LoadLevel(load['level_kind'], load['level'])}"
    return Window(name, round(began_s, 3), round(began_s + client["duration_s"], 3))


def _series(table: Columns, columns: Mapping[str, str], drawn: _Drawn) -> Iterable[Series]:
    """A series for each source and column that has values."""
    if not table:
        return
    of = np.array(_sources(table, each_gpu=drawn.each_gpu))
    places = {source: of == source for source in dict.fromkeys(of.tolist())}
    for column, unit in columns.items():
        values = table[column].astype(float)
        for source, place in places.items():
            own = place & ~np.isnan(values)
            if own.any():
                order = np.argsort(table["at_s"][own], kind="stable")
                at_s, told = table["at_s"][own][order], values[own][order]
                times = np.unique(at_s)
                usual_s = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
                gap_s = round(max(3 * usual_s, 2 * drawn.bucket_s), 3)
                few = len(times) <= drawn.most_points
                yield Series(
                    column, unit, source, gap_s, moments(at_s, told) if few else buckets(at_s, told, drawn.bucket_s)
                )


def _sources(table: Columns, *, each_gpu: bool) -> list[str]:
    ranks = table["rank"].tolist()
    several = len(set(ranks)) > 1
    if "gpu" not in table:
        return [f"rank {rank} server" if several else "server" for rank in ranks]
    gpus = table["gpu"].tolist()
    count = len(set(zip(ranks, gpus, strict=True)))
    if count > 1 and not each_gpu:
        return [f"{count} GPUs"] * len(gpus)
    return [f"rank {rank} GPU {gpu}" if several else f"GPU {gpu}" for rank, gpu in zip(ranks, gpus, strict=True)]


def buckets(at_s: Any, values: Any, bucket_s: float) -> tuple[Bucket, ...]:
    """Values at rising times, in stretches of this length from 0 on; stretches without values are left out."""
    places, starts = np.unique((at_s // bucket_s).astype(int), return_index=True)
    return _reduced(((places + 0.5) * bucket_s).round(3), starts, values)


def moments(at_s: Any, values: Any) -> tuple[Bucket, ...]:
    """Values at rising times, those of one time together."""
    times, starts = np.unique(at_s, return_index=True)
    return _reduced(times, starts, values)


def _reduced(times: Any, starts: Any, values: Any) -> tuple[Bucket, ...]:
    least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    means = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    told = (column.tolist() for column in (times, least, means.round(4), most))
    return tuple(Bucket(*one) for one in zip(*told, strict=True))


def _utc(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
