"""A slot without a server: answers from a script, at once or with small pauses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import zstandard

from orchestrator.outcome import Diagnosis, Label, Phase, PhaseFact
from orchestrator.schemas import request_schema
from orchestrator.server_start import (
    NOT_ASKED,
    EngineSoftware,
    LaunchSpec,
    LoadSeen,
    ServerDied,
    ServerReady,
    StartEvent,
    StartProgress,
)
from orchestrator.slots.slot_port import SlotFacts, SlotLost, StopFacts, TrialBroken
from orchestrator.telemetry import Sample
from orchestrator.trial import ClientReport, Point

Script = Callable[[str, LaunchSpec], Label | None]


def request_batch(
    point: Point,
    attempt: int,
    first: int,
    rows: int,
    engine: str = "emulator",
    *,
    speculates: bool = False,
    slowness: float = 1.0,
) -> Any:
    """A batch of plausible requests, numbered from `first`; each takes 80 ms times `slowness`."""
    schema = request_schema()
    filled: dict[str, Any] = {
        "run_id": "run", "trial_id": point.trial_id, "point_id": point.point_id, "config_id": point.config_id,
        "engine": engine, "attempt": attempt, "warmup": False, "in_flight": 1, "requested_output_tokens": 4,
        "prompt_tokens": 8, "cached_tokens": 0, "output_tokens": 4, "status": "ok", "http_status": 200,
        "finish_reason": "length", "prompt_hash": "h", "chunk_tokens": [1, 3],
    }  # fmt: skip
    if speculates:
        filled |= {"verify_ct": 1, "correct_drafts": 2, "proposed_drafts": 2}
    listed = []
    for i in range(first, first + rows):
        start, first_ns, end_ns = (int(ns * slowness) for ns in (i * 1e8, i * 1e8 + 2e7, i * 1e8 + 8e7))
        times = {
            "scheduled_ns": start, "sent_ns": start, "first_token_ns": first_ns,
            "end_ns": end_ns, "chunk_ns": [first_ns, end_ns],
        }  # fmt: skip
        listed.append({**dict.fromkeys(schema.names), **filled, **times, "request_index": i})
    return pa.RecordBatch.from_pylist(listed, schema=schema)


def report(point: Point, requests: int, stopped_by: Any = "requests", slowness: float = 1.0) -> ClientReport:
    """A client that had no trouble."""
    return ClientReport(
        point_id=point.point_id,
        duration_s=requests / 10 * slowness,
        cpu_s=0.01,
        loop_lag_p99_ms=0.5,
        schedule_delay_p99_ms=0.1,
        peak_concurrency=1,
        requests=requests,
        stopped_by=stopped_by,
    )


class FakeSlot:
    """Measures every point with `batches` batches of 5 requests; `script` decides what a launch dies of."""

    def __init__(
        self,
        name: str,
        script: Script | None = None,
        batches: int = 2,
        pause_s: float = 0.0,
        account: Callable[[LaunchSpec], dict[str, Any]] = lambda spec: {"version": "0.5.23"},
        host: str = "fake-host",
        slowness: Callable[[LaunchSpec, Point], float] = lambda spec, point: 1.0,
        *,
        software: Callable[[LaunchSpec], EngineSoftware] = lambda spec: NOT_ASKED,
    ) -> None:
        self.facts = SlotFacts(name, host, ("0",))
        self._slowness = slowness
        self._software = software
        self._script = script or (lambda name, spec: None)
        self._batches = batches
        self.account = account
        self._pause = threading.Event()
        self._pause_s = pause_s
        self.launched: list[str] = []
        self.measured: list[str] = []
        self.stops = 0
        self.sampled: list[Sample] = []  # what the next call of `telemetry` tells
        self.loads_seen: list[LoadSeen] = []
        self.stopped_by: Any = "requests"
        self._last = ""
        self.interrupted = threading.Event()
        self.lose_at: str | None = None
        self.lose_load_once_at: str | None = None
        self.lose_after_point_of: str | None = None
        self.refuses: str | None = None
        self.on_point: Callable[[Point], None] = lambda point: None

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        self.launched.append(spec.trial_id)
        self._spec = spec
        self._speculates = "speculative_algorithm" in dict(spec.settings)
        yield StartProgress(spec.trial_id, Phase.WEIGHTS, 0.1)
        self._wait()
        label = self._script(self.facts.name, spec)
        if self.lose_at == spec.trial_id:
            raise SlotLost(f"{self.facts.name}: host is gone")
        if label is not None:
            evidence = Diagnosis(label, Phase.KV_POOL, "the line that shows it", 12, -9)
            weights = PhaseFact(Phase.WEIGHTS, 0.0, 0.1, 30.5)
            yield ServerDied(spec.trial_id, evidence, (weights,), 0.2, self._software(spec))
            return
        phases = (PhaseFact(Phase.WEIGHTS, 0.0, 0.1, 30.5), PhaseFact(Phase.READY, 0.1))
        account, software = self.account(spec), self._software(spec)
        yield ServerReady(spec.trial_id, "http://127.0.0.1:1", 1, 0.2, phases, account, software=software)

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        self.measured.append(point.point_id)
        self._last = point.trial_id
        self.on_point(point)
        if self.lose_load_once_at == point.trial_id:
            self.lose_load_once_at = None
            yield request_batch(point, attempt, 0, 5)
            raise TrialBroken("the load actor was lost")
        slowness = self._slowness(self._spec, point)
        for i in range(self._batches):
            self._wait()
            if self.interrupted.is_set():
                yield report(point, i * 5, "cancelled")
                return
            yield request_batch(point, attempt, i * 5, 5, speculates=self._speculates, slowness=slowness)
        yield report(point, self._batches * 5, self.stopped_by, slowness)

    def _wait(self) -> None:
        if self._pause_s:
            self._pause.wait(self._pause_s)

    def died(self, load: LoadSeen) -> ServerDied | None:
        self.loads_seen.append(load)
        if self.lose_after_point_of == self._last:
            raise SlotLost(f"{self.facts.name}: host is gone")
        return None

    def interrupt(self) -> None:
        self.interrupted.set()

    def stop(self) -> StopFacts:
        self.stops += 1
        return StopFacts(0, 0.0, None, refused=self.refuses)

    def telemetry(self) -> tuple[Sample, ...]:
        told, self.sampled = tuple(self.sampled), []
        return told

    def server_log(self) -> bytes:
        return zstandard.compress(b"a server log\n")
