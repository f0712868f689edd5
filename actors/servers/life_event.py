"""What can happen to a server, as its lifecycle is told it. `at_s` is monotonic time in seconds. Frozen, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.outcome import Diagnosis, Phase

# A blocked server wakes some timers: watchdogs of NCCL use about 0.3 % of a CPU in each process.
IDLE_CPU_SHARE = 0.02
# The kernel counts CPU time in ticks of 10 ms; one tick may be left over from before.
IDLE_CPU_S = 0.015
IDLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Activity:
    """What the processes of a server did during `span_s` seconds.

    `busiest_cpu_s` is the CPU time of the busiest process, `moved_bytes` what all of them read and wrote,
    `gpu_percent` the use of the busiest GPU (None where it cannot be seen).
    """

    span_s: float
    processes: int
    busiest_cpu_s: float
    moved_bytes: int = 0
    gpu_percent: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing was done that a waiting server does not do as well."""
        cpu_limit_s = max(IDLE_CPU_S, IDLE_CPU_SHARE * self.span_s)
        return self.busiest_cpu_s <= cpu_limit_s and self.moved_bytes < IDLE_BYTES and not self.gpu_percent

    def __str__(self) -> str:
        """What an idle sample saw nothing of."""
        gpu = "" if self.gpu_percent is None else " and no GPU activity"
        return f"no CPU time or disk traffic of its {self.processes} process(es){gpu}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened at this time."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class LaunchBegan(Event):
    """A guard is about to start the server, which must run within so many seconds."""

    within_s: float


@dataclass(frozen=True, slots=True)
class LaunchRefused(Event):
    """The server was not started, and will not be."""

    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class ServerRuns(Event):
    """Its process lives (one that was attached to: it can be asked). Its orderly end may take `aside_s` more."""

    aside_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LogMoved(Event):
    """The log told a new phase, count or free memory; `said_ready` once it has said the ready words."""

    phase: Phase
    said_ready: bool = False


@dataclass(frozen=True, slots=True)
class LogSpoke(Event):
    """The log grew by lines that tell no progress; while it serves: by lines about work."""


@dataclass(frozen=True, slots=True)
class ActivitySeen(Event):
    """A sample of what the processes do; None where they cannot be seen, which is no silence."""

    activity: Activity | None


@dataclass(frozen=True, slots=True)
class TokensFlowed(Event):
    """A request got tokens: by the load, or by the log's lines about decoding."""


@dataclass(frozen=True, slots=True)
class LoadHung(Event):
    """No request of the load got a byte for this long."""

    quiet_s: float


@dataclass(frozen=True, slots=True)
class ProofGiven(Event):
    """The server has served a request of ours."""


@dataclass(frozen=True, slots=True)
class ProofRefused(Event):
    """It answered that request with something else; `reached` is False if nobody listens there."""

    told: str
    reached: bool = True


@dataclass(frozen=True, slots=True)
class HealthAnswered(Event):
    """What its health path says, in words; never believed, only told."""

    told: str


@dataclass(frozen=True, slots=True)
class AccountGiven(Event):
    """The server told its settings; `fault` if they show that its results are worth nothing."""

    fault: Diagnosis | None = None


@dataclass(frozen=True, slots=True)
class Examined(Event):
    """The log was read for a cause of death; whether there is one."""

    has_cause: bool


@dataclass(frozen=True, slots=True)
class StopAsked(Event):
    """Its end is wanted: SIGTERM, after the grace SIGKILL."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class RequestsDropped(Event):
    """It was told to drop what it is doing."""


@dataclass(frozen=True, slots=True)
class ProcessEnded(Event):
    """The last process of its tree is gone. `exit_code` is None if nobody could see it."""

    exit_code: int | None
