"""One trial on one slot: launch, load point after point, stop. Reports everything as happenings, stores nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import zstandard

from orchestrator.failed_start import FailedStart, read_failed_start
from orchestrator.lineages import Recovery
from orchestrator.outcome import (
    Cancelled,
    Diagnosis,
    Failed,
    Infeasible,
    Label,
    Measured,
    Outcome,
    Phase,
    outcome_from_diagnosis,
)
from orchestrator.provenance import utc_now
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, ServerReady, StartProgress
from orchestrator.slot_port import SlotLost, SlotPort, TrialBroken
from orchestrator.trial import ClientReport, Point, Trial

# A start is told in the first part of a log; what a long load wrote is not read for its numbers.
LOG_HEAD_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TrialBegan:
    """A server is about to be started."""

    trial: Trial
    attempt: int
    began_at: str


@dataclass(frozen=True, slots=True)
class PointBegan:
    """The load of a point begins."""

    point: Point


@dataclass(frozen=True, slots=True)
class BatchArrived:
    """Request records of the running point."""

    point: Point
    attempt: int
    batch: Any


@dataclass(frozen=True, slots=True)
class PointEnded:
    """The point is measured."""

    point: Point
    attempt: int
    report: ClientReport
    began_at: str


@dataclass(frozen=True, slots=True)
class PointBroke:
    """The point did not end; what came of it does not count."""

    point: Point


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """The server is stopped and its log is here. `notes` tell what went wrong in the end, and cost nothing.

    `refused`: why the slot takes no more servers; None if it does. `failed` has the numbers of its death, `recovery`
    what follows it.
    """

    trial: Trial
    attempt: int
    outcome: Outcome
    server: ServerReady | ServerDied | None
    began_at: str
    log: bytes
    notes: tuple[str, ...] = ()
    refused: str | None = None
    failed: FailedStart | None = None
    recovery: Recovery | None = None


@dataclass(frozen=True, slots=True)
class TrialSpared:
    """The trial is not started: its config died in another trial, and what stands for it runs anyway."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class SlotEnded:
    """The slot does no more."""


Happening = (
    TrialBegan
    | StartProgress
    | ServerReady
    | PointBegan
    | BatchArrived
    | PointEnded
    | PointBroke
    | TrialEnded
    | TrialSpared
    | SlotEnded
)


class _Answers:
    """Whether any measured request of a point succeeded, and what the first failure said."""

    def __init__(self) -> None:
        self._ok = 0
        self._failed = 0
        self._first: str | None = None

    def count(self, batch: Any) -> None:
        columns = (batch.column(name).to_pylist() for name in ("warmup", "status", "http_status", "error"))
        for warmup, status, http_status, error in zip(*columns, strict=True):
            if status in {"ok", "empty", "cancelled"}:
                self._ok += not warmup and status == "ok"
            else:
                self._failed += not warmup
                self._first = self._first or f"{status} {http_status or ''} {error or ''}"[:300]

    def load(self, point: Point, report: ClientReport | None) -> LoadSeen:
        """What is told to whoever judges the server. A load gives up after as long as one request may take."""
        hung = report is not None and report.stopped_by == "hung"
        return LoadSeen(self._ok > 0, point.spec.request_timeout_s if hung else None)

    def verdict(self, point: Point) -> Failed | None:
        """A point without a single success is not a measurement of the config."""
        if self._ok or not self._failed:
            return None
        told = f"none of {self._failed} requests at {point.spec.workload} {point.spec.level} succeeded: {self._first}"
        return Failed(Diagnosis(Label.CLIENT_ERRORS, Phase.SERVING, " ".join(told.split())))


class TrialRun:
    """Drives one slot through one trial.

    Afterwards `lost` tells that the slot cannot be used any more, `refused` that it says so itself and why, and `rest`
    is what a second attempt would have to do, if the trial broke.
    """

    def __init__(
        self, slot: SlotPort, trial: Trial, attempt: int, spec: LaunchSpec, cancelled: threading.Event
    ) -> None:
        self._slot = slot
        self._trial = trial
        self._attempt = attempt
        self._spec = spec
        self._cancelled = cancelled
        self._server: ServerReady | ServerDied | None = None
        self._measured: set[str] = set()
        self.lost = False
        self.refused: str | None = None
        self.rest: Trial | None = None

    def run(self) -> Iterator[Happening]:
        """All that happens, the last being TrialEnded. The server is stopped whatever happens."""
        began_at = utc_now()
        yield TrialBegan(self._trial, self._attempt, began_at)
        outcome: Outcome
        try:
            outcome = yield from self._run_server()
        except SlotLost as error:
            outcome = self._lost(error)
        except TrialBroken as error:
            outcome = Failed(Diagnosis(Label.UNKNOWN, Phase.LAUNCH, str(error)))
        log, notes = self._clean_up()
        if self._cancelled.is_set() and not isinstance(outcome, Measured):
            outcome = Cancelled("the run was stopped")
        if isinstance(outcome, Failed):
            left = tuple(p for p in self._trial.points if p.point_id not in self._measured)
            self.rest = replace(self._trial, points=left)
        failed = self._failed_start(outcome, log)
        yield TrialEnded(self._trial, self._attempt, outcome, self._server, began_at, log, notes, self.refused, failed)

    def _failed_start(self, outcome: Outcome, log: bytes) -> FailedStart | None:
        """The numbers of a death, from all that the server left."""
        if not isinstance(outcome, Infeasible | Failed):
            return None
        settings, server = dict(self._trial.config.settings), self._server
        phases = server.phases if server else ()
        account = server.resolved if isinstance(server, ServerReady) else None
        return read_failed_start(outcome.diagnosis, phases, settings, log=log_head(log), account=account)

    def _run_server(self) -> Generator[Happening, None, Outcome]:
        for event in self._slot.launch(self._spec):
            if isinstance(event, StartProgress):
                yield event
            else:
                self._server = event
        if isinstance(self._server, ServerReady):
            yield self._server
            return (yield from self._run_points(self._server.url))
        if self._server is None:
            return Failed(Diagnosis(Label.UNKNOWN, Phase.LAUNCH, "the launch ended without a word"))
        return outcome_from_diagnosis(self._server.diagnosis)

    def _run_points(self, url: str) -> Generator[Happening, None, Outcome]:
        for point in self._trial.points:
            if self._cancelled.is_set():
                return Cancelled("the run was stopped")
            broken = yield from self._run_point(url, point)
            if broken is not None:
                return broken
        return Measured(len(self._trial.points))

    def _run_point(self, url: str, point: Point) -> Generator[Happening, None, Outcome | None]:
        """Returns None if the point was measured, else the outcome that ends the trial."""
        began_at = utc_now()
        yield PointBegan(point)
        report: ClientReport | None = None
        seen = _Answers()
        try:
            for item in self._slot.run_point(url, point, self._attempt):
                if isinstance(item, ClientReport):
                    report = item
                else:
                    seen.count(item)
                    yield BatchArrived(point, self._attempt, item)
            died = self._slot.died(seen.load(point, report))
        except SlotLost:
            yield PointBroke(point)
            raise
        except TrialBroken as error:
            yield PointBroke(point)
            return Failed(Diagnosis(Label.UNKNOWN, Phase.SERVING, str(error)))
        outcome = self._judge(point, report, died) or seen.verdict(point)
        if outcome is None and report is not None:
            self._measured.add(point.point_id)
            yield PointEnded(point, self._attempt, report, began_at)
        else:
            yield PointBroke(point)
        return outcome

    def _judge(self, point: Point, report: ClientReport | None, died: ServerDied | None) -> Outcome | None:
        if died is not None:
            return outcome_from_diagnosis(died.diagnosis)
        if self._cancelled.is_set() or (report is not None and report.stopped_by == "cancelled"):
            return Cancelled("the run was stopped")
        if report is None:
            return Failed(Diagnosis(Label.HOST_LOST, Phase.SERVING, "the load ended without a report"))
        if report.stopped_by == "hung":
            told = f"no request made progress at {point.spec.workload} {point.spec.level}; the server still runs"
            return Failed(Diagnosis(Label.HUNG, Phase.SERVING, told))
        return None

    def _lost(self, error: SlotLost) -> Failed:
        self.lost = True
        return Failed(Diagnosis(Label.HOST_LOST, Phase.SERVING, str(error)))

    def _clean_up(self) -> tuple[bytes, tuple[str, ...]]:
        """Stop the server and fetch its log; a lost slot has neither."""
        notes: tuple[str, ...] = ()
        try:
            stopped = self._slot.stop()
            notes, self.refused = stopped.notes, stopped.refused
            self.lost = self.lost or self.refused is not None
            return self._slot.server_log(), notes
        except SlotLost:
            self.lost = True
            return b"", notes
        except TrialBroken as error:
            return zstandard.compress(f"the log could not be fetched: {error}\n".encode()), notes


def log_head(compressed: bytes, most: int = LOG_HEAD_BYTES) -> str:
    """The beginning of a compressed log; whatever a damaged one still gives."""
    with contextlib.suppress(zstandard.ZstdError):
        return zstandard.ZstdDecompressor().stream_reader(compressed).read(most).decode("utf-8", "replace")
    return ""
