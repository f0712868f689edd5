"""The telemetry of trials as reports draw it: few values each, with the phases of the start and the points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOST_POINTS = 200


@dataclass(frozen=True, slots=True)
class Bucket:
    """Values of a stretch of time: its middle in seconds since the trial began."""

    at_s: float
    least: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over a trial. `source` is a GPU ("GPU 0", on several hosts "rank 1 GPU 0") or the server.

    `metric` is the column of the table, with its unit as suffix; `unit` is that unit for people. A stretch in which the
    quantity was not told has no bucket: a gap.
    """

    metric: str
    unit: str
    source: str
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a trial, seconds since it began: a phase of the start, or a point by workload and level."""

    name: str
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class TrialTelemetry:
    """One server start. `gpu_memory_peak_gib`: the most that one of its GPUs had in use; None where none tells."""

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
    run_dir: Path, trial_ids: Iterable[str] | None = None, most_points: int = MOST_POINTS
) -> dict[str, TrialTelemetry]:
    """The telemetry of these trials (None: of all that have some), by trial id: of the last start of each.

    At most `most_points` buckets a series. Reads also what is still being written of a run that goes on.
    """
    raise NotImplementedError
