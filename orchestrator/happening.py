"""What a run's slots, searches and hosts report to the thread that stores and shows it. Frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.hosts.host_event import HostEvent
from orchestrator.loads.load_spread import Again
from orchestrator.outcome import Outcome
from orchestrator.recoveries.failed_start import FailedStart
from orchestrator.recoveries.lineages import Recovery
from orchestrator.searches.course import NextPoint, PointSpared
from orchestrator.searches.search import Step
from orchestrator.server_start import ServerDied, ServerReady, StartProgress
from orchestrator.telemetry import Sample
from orchestrator.trial import ClientReport, Point, Trial


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
class TelemetryArrived:
    """What was sampled of the trial's server and GPUs since the last time, every few seconds; at least one sample."""

    trial: Trial
    attempt: int
    samples: tuple[Sample, ...]


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
class PointRepeated:
    """The point is measured again at once, with more load processes; what came of it so far does not count."""

    point: Point
    again: Again

    @property
    def note(self) -> str:
        """For the table of trials."""
        return f"{self.point.text}: {self.again.text}"


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
class TrialSettled:
    """Nothing more is done for a trial that was planned: it, its repairs and second tries have ended, or it was spared.

    `trial` is what was run last.
    """

    trial: Trial


@dataclass(frozen=True, slots=True)
class SlotEnded:
    """The slot does no more: it is through, was lost, or refuses and why."""

    lost: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class TrialAsked:
    """A happening: a search wants this trial."""

    trial: Trial
    why: str


@dataclass(frozen=True, slots=True)
class ReferenceAsked:
    """A slot begins the reference trial of its host, which has this number among those with one."""

    trial: Trial
    host: str
    number: int


@dataclass(frozen=True, slots=True)
class SearchStep:
    """A happening: a search has decided something."""

    step: Step
    host_class: str


@dataclass(frozen=True, slots=True)
class BestSoFar:
    """Another config leads an objective, as far as single trials tell. `value` with its unit, `number` without."""

    objective: str
    config_id: str
    value: str
    host_class: str
    number: float | None = None


Happening = (
    TrialBegan
    | StartProgress
    | ServerReady
    | PointBegan
    | TelemetryArrived
    | BatchArrived
    | PointEnded
    | PointBroke
    | PointRepeated
    | TrialEnded
    | TrialSpared
    | TrialSettled
    | NextPoint
    | PointSpared
    | TrialAsked
    | ReferenceAsked
    | SearchStep
    | BestSoFar
    | SlotEnded
    | HostEvent
)
