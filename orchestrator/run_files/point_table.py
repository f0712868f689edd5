"""The derived table: one row of metrics per measured point, computed from the raw tables of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.cost import with_cost
from orchestrator.paths import RunPaths
from orchestrator.points.metrics import summarise
from orchestrator.points.point_metrics import PointMetrics
from orchestrator.run_files import dataset
from orchestrator.run_files.run_configs import RunConfig, speculation_asks
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sglang.speculation_proof import SpeculationAsk
from orchestrator.trial import ClientReport, LoadLevel


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One measurement of one point, with where it was made."""

    load: dict[str, Any]
    level: LoadLevel
    metrics: PointMetrics

    @property
    def value(self) -> PointValue:
        """What ranking needs of it."""
        return PointValue(
            config_id=self.load["config_id"],
            workload=self.load["workload"],
            level=self.level,
            repeat=self.load["repeat"],
            metrics=self.metrics.values(),
            void_reasons=self.metrics.void_reasons,
            absent=self.metrics.absent(),
            trial_id=self.load["trial_id"],
            host=self.load["host"],
            within_run=self.metrics.within_run,
        )

    def row(self) -> dict[str, Any]:
        """The row of the `points` table."""
        names = ("run_id", "trial_id", "point_id", "config_id", "engine", "attempt", "repeat", "workload", "level_kind")
        identity = {name: self.load[name] for name in (*names, "level", "slot", "host", "began_at")}
        identity |= {name: self.load.get(name) or "" for name in ("host_class", "reused_from")}
        validity = {
            "valid": self.metrics.valid,
            "void_reasons": list(self.metrics.void_reasons),
            "warnings": list(self.metrics.warnings),
            "state": self.metrics.state,
            "state_reason": self.metrics.state_reason,
            "by_traffic_json": json.dumps({k: asdict(v) for k, v in self.metrics.by_traffic.items()}),
            "within_run_json": json.dumps({k: asdict(v) for k, v in self.metrics.within_run.items()}),
        }
        return identity | self.metrics.values() | validity


@dataclass(frozen=True, slots=True)
class PointTask:
    """All that the metrics of one measurement are made of; `client_json` as `loads` has it, `gpus` of its server."""

    paths: RunPaths
    point_id: str
    attempt: int
    level: LoadLevel
    client_json: str
    request_limits: Mapping[str, float] | None
    speculation: SpeculationAsk | None
    gpus: int
    gpu_hour_cost: float | None

    @property
    def name(self) -> str:
        """Of its files."""
        return dataset.part_name(self.point_id, self.attempt)

    @property
    def asks(self) -> str:
        """All but its files, as a text."""
        return repr((self.level, self.request_limits, self.speculation, self.gpus, self.gpu_hour_cost))


def point_tasks(
    paths: RunPaths,
    scenario: Scenario,
    configs: Mapping[str, RunConfig],
    rows: Iterable[dict[str, Any]],
    counted: Mapping[str, int],
) -> list[tuple[dict[str, Any], PointTask]]:
    """The rows of `loads` that count, in the order of measuring, each with what is to be computed.

    `counted` has the attempt that counts by point id (`RunState.done_points`). `configs` are those of the run: a point
    whose server did not speculate as its config asked is void.
    """
    slo = {w.name: w.slo.limits() if w.slo else None for w in scenario.workloads}
    gpus, cost = scenario.slots.server_gpus, scenario.slots.gpu_hour_cost
    loads = sorted(rows, key=lambda row: (row["began_at"], row["point_id"]))
    asks = speculation_asks(scenario, configs, _drafted(loads))
    return [
        (
            load,
            PointTask(
                paths=paths,
                point_id=load["point_id"],
                attempt=load["attempt"],
                level=LoadLevel(load["level_kind"], load["level"]),
                client_json=load["client_json"],
                request_limits=slo.get(load["workload"]),
                speculation=asks.get((load["config_id"], load["workload"])),
                gpus=gpus,
                gpu_hour_cost=cost,
            ),
        )
        for load in loads
        if counted.get(load["point_id"]) == load["attempt"]
    ]


def measured_points(
    paths: RunPaths,
    scenario: Scenario,
    configs: Mapping[str, RunConfig],
    rows: Iterable[dict[str, Any]],
    counted: Mapping[str, int],
) -> list[MeasuredPoint]:
    """The `point_tasks` whose files are whole, computed now; `RunRows.points` keeps what it computed."""
    tasks = point_tasks(paths, scenario, configs, rows, counted)
    return [measured_point(load, told) for load, task in tasks if (told := summarised(task)) is not None]


def _drafted(loads: list[dict[str, Any]]) -> dict[str, float]:
    """Tokens that each config's servers drafted, where they count them."""
    drafted: dict[str, float] = {}
    for load in loads:
        tokens = from_json(load["client_json"]).get("drafted_tokens_delta") or 0.0
        drafted[load["config_id"]] = drafted.get(load["config_id"], 0.0) + tokens
    return drafted


def summarised(task: PointTask) -> bytes | None:
    """The metrics as JSON, which `measured_point` reads; None if the rows are gone or damaged."""
    try:
        table = dataset.read_point(task.paths, task.point_id, task.attempt, _READ)
    except (OSError, pa.ArrowInvalid):
        return None
    client = ClientReport(**json.loads(task.client_json))
    metrics = summarise(
        columns_of(table),
        level=task.level,
        client=client,
        request_limits=task.request_limits,
        speculation=task.speculation,
    )
    return metrics_json(with_cost(metrics, task.gpus, task.gpu_hour_cost, client.gpu_power_w))


def metrics_json(metrics: PointMetrics) -> bytes:
    """Every value exactly, also one that is no number; `metrics_of_json` gives the same metrics again."""
    return to_json(metrics, inf_nan_mode="constants", fallback=_number)


def _number(value: Any) -> Any:
    return value.item()  # numpy's integers


def metrics_of_json(told: bytes) -> PointMetrics:
    metrics: PointMetrics = _reader().validate_json(told)
    return metrics


@cache
def _reader() -> TypeAdapter[PointMetrics]:
    return TypeAdapter(PointMetrics)


def measured_point(load: dict[str, Any], told: bytes) -> MeasuredPoint:
    """From a row of `loads` and what `summarised` told of its requests."""
    return MeasuredPoint(load, LoadLevel(load["level_kind"], load["level"]), metrics_of_json(told))


def missing_points(counted: Mapping[str, int], points: list[MeasuredPoint]) -> list[str]:
    """Points that the journal says were measured but that are not among those that could be read."""
    read = {point.load["point_id"] for point in points}
    return [point_id for point_id in counted if point_id not in read]


_NUMBERS = ("scheduled_ns", "sent_ns", "first_token_ns", "end_ns", "prompt_tokens", "cached_tokens", "output_tokens",
            "verify_ct", "correct_drafts", "proposed_drafts", "retractions", "requested_output_tokens",
            "asked_input_tokens", "queue_ms")  # fmt: skip
_READ = (*_NUMBERS, "warmup", "error", "status", "traffic", "prompt_hash", "chunk_ns", "chunk_tokens")


def columns_of(table: Any) -> dict[str, Any]:
    """A table of `requests` as `metrics.summarise` takes it: numpy arrays, lists as (flat values, offsets), texts as
    (codes, names). Columns that a file of an earlier release lacks are left out.
    """
    whole = table.combine_chunks()
    there = set(whole.column_names)
    columns: dict[str, Any] = {name: _numbers(whole.column(name)) for name in _NUMBERS if name in there}
    columns["warmup"] = whole.column("warmup").to_numpy()
    columns["error"] = _Texts(whole.column("error"))
    for name in ("status", "traffic"):
        if name in there:
            columns[name] = _coded(whole.column(name))
    if "prompt_hash" in there:
        columns["prompt_hash"] = _numbered(whole.column("prompt_hash"))
    for name in ("chunk_ns", "chunk_tokens"):
        columns[name] = _flat(whole.column(name))
    return columns


_EMPTY = pa.scalar("")


class _Texts:
    """Texts of which few are asked for."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def __getitem__(self, index: int) -> str | None:
        text: str | None = self._column[index].as_py()
        return text


def _numbers(column: Any) -> Any:
    return column.to_numpy().astype("float64", copy=False)


def _coded(column: Any) -> tuple[Any, list[str]]:
    """(code of each row, text of each code); a missing text is an empty one."""
    encoded = column.fill_null("").dictionary_encode().unify_dictionaries().combine_chunks()
    if not len(encoded):
        return np.zeros(0, dtype=np.int64), []
    chunk = encoded.chunk(0) if hasattr(encoded, "chunk") else encoded
    return chunk.indices.to_numpy(), chunk.dictionary.to_pylist()


def _numbered(column: Any) -> Any:
    """A number for each different text, -1 for a missing or empty one; the texts themselves are many."""
    import pyarrow.compute as pc

    encoded = column.combine_chunks().dictionary_encode()
    numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    empty = pc.index(encoded.dictionary, _EMPTY).as_py()
    return numbers if empty < 0 else np.where(numbers == empty, -1, numbers)


def _flat(column: Any) -> tuple[Any, Any]:
    if not column.num_chunks:
        return np.zeros(0), np.zeros(1, dtype=np.int64)
    lists = column.chunk(0)
    return lists.values.to_numpy(zero_copy_only=False), lists.offsets.to_numpy()


def store_points(paths: RunPaths, points: list[MeasuredPoint]) -> None:
    """Write the `points` table anew."""
    dataset.write_points(paths, (point.row() for point in points))
