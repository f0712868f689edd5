"""A slot whose servers are as fast as a test says, config by config and start by start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from orchestrator.server_start import LaunchSpec, StartEvent
from orchestrator.trial import Point
from tests.fakes.slot import FakeSlot

Pace = Callable[[dict[str, Any], int], float]
_TIMES = ("scheduled_ns", "sent_ns", "first_token_ns", "end_ns")


class PacedSlot(FakeSlot):
    """`pace(settings, repeat)` is how fast a start is; 1 is the plain FakeSlot."""

    def __init__(self, name: str, pace: Pace, **more: Any) -> None:
        super().__init__(name, **more)
        self._pace = pace
        self._settings: dict[str, Any] = {}

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        self._settings = dict(spec.settings)
        yield from super().launch(spec)

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        pace = self._pace(self._settings, point.repeat)
        for part in super().run_point(url, point, attempt, processes):
            yield _slowed(part, pace) if isinstance(part, pa.RecordBatch) else part


def _slowed(batch: Any, pace: float) -> Any:
    rows = batch.to_pylist()
    for row in rows:
        row |= {name: round(row[name] / pace) for name in _TIMES}
        row["chunk_ns"] = [round(ns / pace) for ns in row["chunk_ns"]]
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)
