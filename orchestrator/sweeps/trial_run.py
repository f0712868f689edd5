"""One trial on one slot: launch, load point after point, stop. Reports everything as happenings, stores nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import zstandard

from orchestrator.happening import (
    BatchArrived,
    Happening,
    PointBegan,
    PointBroke,
    PointEnded,
    PointRepeated,
    TrialBegan,
    TrialEnded,
)
from orchestrator.loads.load_spread import LoadSpread
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
from orchestrator.points.point_answers import PointAnswers
from orchestrator.provenance import utc_now
from orchestrator.recoveries.failed_start import FailedStart, read_failed_start
from orchestrator.searches.course import NextPoint
from orchestrator.server_start import LaunchSpec, ServerDied, ServerReady, StartProgress
from orchestrator.slots.slot_port import SlotLost, SlotPort, TrialBroken
from orchestrator.sweeps.telemetry_pull import TelemetryPull
from orchestrator.trial import ClientReport, Point, Trial

# A start is told in the first part of a log; what a long load wrote is not read for its numbers.
LOG_HEAD_BYTES = 4 << 20
# Prompts depend on the repeat; no plan has as many.
_OTHER_PROMPTS = 1_000_000


class TrialRun:
    """Drives one slot through one trial.

    Afterwards `lost` tells that the slot cannot be used any more, `refused` that it says so itself and why, and `rest`
    is what a second attempt would have to do, if the trial broke. `spread` is what the slot's loads needed so far.
    `asks`: the trial asks before every point which one it is; else all are measured in order.
    """

    def __init__(
        self, slot: SlotPort, trial: Trial, attempt: int, spec: LaunchSpec, cancelled: threading.Event,
        spread: LoadSpread | None = None, *, asks: bool = False,
    ) -> None:  # fmt: skip
        self._slot = slot
        self._spread = spread or LoadSpread(slot.facts.load_processes)
        self._repeated: list[str] = []
        self._trial = trial
        self._attempt = attempt
        self._spec = spec
        self._cancelled = cancelled
        self._asks = asks
        self._pull: TelemetryPull | None = None
        self._fixed = iter(trial.points)
        self._server: ServerReady | ServerDied | None = None
        self._measured: set[str] = set()
        self.lost = False
        self.refused: str | None = None
        self.rest: Trial | None = None

    def sampling(self, put: Callable[[Happening], None]) -> TrialRun:
        """The same, but what the slot samples meanwhile goes to `put`, from another thread."""
        if self._spec.telemetry_s:
            self._pull = TelemetryPull(self._slot, self._trial, self._attempt, put)
        return self

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
        if self._pull is not None:
            self._pull.end(lost=self.lost and self.refused is None)
        notes = (*self._repeated, *notes)
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
            if self._pull is not None:
                self._pull.begin()
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
        point = yield from self._next_point()
        while point is not None:
            if self._cancelled.is_set():
                return Cancelled("the run was stopped")
            broken = yield from self._run_point(url, point)
            if broken is not None:
                return broken
            point = yield from self._next_point()
        if self._asks and self._cancelled.is_set():  # nobody has said that it is through
            return Cancelled("the run was stopped")
        return Measured(len(self._measured))

    def _next_point(self) -> Generator[Happening, None, Point | None]:
        if not self._asks:
            return next(self._fixed, None)
        asked = NextPoint(self._trial)
        yield asked
        return asked.answer.wait(self._cancelled)

    def _run_point(self, url: str, point: Point) -> Generator[Happening, None, Outcome | None]:
        """Returns None if the point was measured, else the outcome that ends the trial.

        A point whose client was the bottleneck is measured once more.
        """
        began_at = utc_now()
        yield PointBegan(point)
        outcome, report, ttft_ms = yield from self._load(url, point, self._spread.processes_for(point.spec))
        again = self._spread.again(point.spec, report, ttft_ms) if outcome is None and report is not None else None
        if again is not None and report is not None:
            repeated = PointRepeated(point, again)
            self._repeated.append(repeated.note)
            yield repeated
            began_at = utc_now()
            warm = report.cache_flushed is not True
            outcome, report, ttft_ms = yield from self._load(url, point, again.processes, warm=warm)
            if report is not None:
                self._spread.repeated(report, ttft_ms)
        if outcome is None and report is not None:
            self._measured.add(point.point_id)
            yield PointEnded(point, self._attempt, report, began_at)
        else:
            yield PointBroke(point)
        return outcome

    def _load(
        self, url: str, point: Point, processes: int, *, warm: bool = False
    ) -> Generator[Happening, None, tuple[Outcome | None, ClientReport | None, float | None]]:
        """Offer the load of a point once: what ends the trial, the client's report, the median TTFT in ms.

        `warm`: the server may have kept the point's prompts, so others are sent.
        """
        report: ClientReport | None = None
        seen = PointAnswers()
        sent = replace(point, repeat=point.repeat + _OTHER_PROMPTS) if warm else point
        try:
            for item in self._slot.run_point(url, sent, self._attempt, processes):
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
            return Failed(Diagnosis(Label.UNKNOWN, Phase.SERVING, str(error))), None, None
        return self._judge(point, report, died) or seen.verdict(point), report, seen.median_ttft_ms

    def _judge(self, point: Point, report: ClientReport | None, died: ServerDied | None) -> Outcome | None:
        if died is not None:
            return outcome_from_diagnosis(died.diagnosis)
        if self._cancelled.is_set() or (report is not None and report.stopped_by == "cancelled"):
            return Cancelled("the run was stopped")
        if report is None:
            return Failed(Diagnosis(Label.HOST_LOST, Phase.SERVING, "the load ended without a report"))
        if report.stopped_by == "hung":
            told = f"no request made progress at {point.text}; the server still runs"
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
