"""Where a server is in its life, what it is held to, and what is to be done about it. Frozen, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from orchestrator.outcome import Diagnosis, Phase
from orchestrator.server_start import LaunchSpec, PhaseBudget

ATTACH_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What a server is held to. Seconds.

    `proof` is what makes it ready, besides a request that it served: its own ready words and a living process (`log`),
    a living process (`answer`), or nothing else (`attached`; such a server is never ended by us).
    `stuck_s`: without progress in its log. `linger_s`: after so much quiet its log is read for a cause of death, since
    SGLang lives on for 12 minutes after it failed to get its port. `suspect_s`: what a server that looks hung gets to
    answer. `kill_s`: between SIGKILL and giving up on it.
    """

    proof: Literal["log", "answer", "attached"]
    start_s: float
    stuck_s: float
    grace_s: float
    budgets: tuple[PhaseBudget, ...] = ()
    linger_s: float = 30.0
    suspect_s: float = 30.0
    abort_s: float = 5.0
    kill_s: float = 15.0

    def budget(self, phase: Phase) -> PhaseBudget | None:
        """What the phase may take; None if nothing was said."""
        return next((budget for budget in self.budgets if budget.phase is phase), None)


def rules_of(spec: LaunchSpec) -> Rules:
    """The rules for the server of a launch."""
    if spec.engine == "attach":
        return Rules("attached", min(spec.start_timeout_s, ATTACH_LIMIT_S), float("inf"), spec.stop_grace_s)
    proof: Literal["log", "answer"] = "answer" if spec.engine == "command" else "log"
    return Rules(proof, spec.start_timeout_s, spec.phase_timeout_s, spec.stop_grace_s, spec.phase_budgets)


class Cause(StrEnum):
    """Why a life ended."""

    REFUSED = "refused"  # it was never started
    DIED = "died"  # by itself
    STOPPED = "stopped"  # we were asked to
    OVERDUE = "overdue"  # its start reached a hard limit
    STALLED = "stalled"  # its start was silent for longer than its phase may be
    LINGERED = "lingered"  # its log named a cause of death, its processes lived on
    DISQUALIFIED = "disqualified"  # its results are worth nothing
    HUNG = "hung"  # it served, and does so no more
    GONE = "gone"  # it was attached to, and nobody listens there any more


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a life ended. `told` is in words; `refusal` is the last that it answered instead of serving.

    `refused` is the diagnosis of a server that was not started or is disqualified; `survived`: processes are left.
    """

    cause: Cause
    phase: Phase
    told: str = ""
    refusal: str = ""
    exit_code: int | None = None
    refused: Diagnosis | None = None
    survived: bool = False


@dataclass(frozen=True, slots=True)
class Launching:
    """Nothing of it runs yet; `until_s` is when it must."""

    until_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Starting:
    """Its process lives, its log has not said the ready words."""


@dataclass(frozen=True, slots=True)
class Proving:
    """A request of ours is under way; `is_proven` once it was served and only its account is awaited."""

    is_proven: bool = False


@dataclass(frozen=True, slots=True)
class Serving:
    """It is ready and shows it."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """It was ready but shows no life; it has been asked to serve a request of ours within `limit_s`.

    `why` in words. `busy_counts`: whether CPU time clears it, which ranks that wait for each other use as well.
    """

    since_s: float
    limit_s: float
    why: str
    busy_counts: bool = True


@dataclass(frozen=True, slots=True)
class Stopping:
    """It is being ended: its requests dropped, then SIGTERM, then SIGKILL. `due_s` is when the next stage begins."""

    stage: Literal["dropping", "terminating", "killing"]
    due_s: float
    grace_s: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Ended:
    """It is over; nothing comes after this."""

    verdict: Verdict


State = Launching | Starting | Proving | Serving | Suspect | Stopping | Ended


@dataclass(frozen=True, slots=True)
class Signs:
    """What was seen of a server, times on the clock of the events.

    `moved_s`: last progress in its log. `stirred_s`: last sign of life of any kind. `warn_s`: how long its phase may
    take until that is told. `refusal`, `health`: what it last answered instead of serving.
    """

    began_s: float
    phase: Phase = Phase.LAUNCH
    phase_since_s: float = 0.0
    moved_s: float = 0.0
    stirred_s: float = 0.0
    tokens_s: float = float("-inf")
    examined_s: float = float("-inf")
    warn_s: float = float("inf")
    aside_s: float = 0.0
    refusal: str = ""
    health: str = ""


@dataclass(frozen=True, slots=True)
class Life:
    """One server: its rules, where it is, and what was seen of it. `now_s` never goes back."""

    rules: Rules
    now_s: float
    signs: Signs
    state: State = field(default_factory=Launching)

    @classmethod
    def begin(cls, rules: Rules, at_s: float) -> Life:
        """A life before its launch."""
        return cls(rules, at_s, Signs(at_s, Phase.LAUNCH, at_s, at_s, at_s))

    @property
    def is_ready(self) -> bool:
        """Whether it has proven that it serves, and was not found to be worthless, hung or unwanted since."""
        return isinstance(self.state, Serving | Suspect)

    @property
    def verdict(self) -> Verdict | None:
        """How it ended or is being ended; None as long as it goes on."""
        return self.state.verdict if isinstance(self.state, Stopping | Ended) else None


@dataclass(frozen=True, slots=True)
class Prove:
    """Ask it for a token until it gives one."""


@dataclass(frozen=True, slots=True)
class AskAccount:
    """Ask it for its settings."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask it for a token once, and its health path; the answers must come within so many seconds."""

    limit_s: float


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Examine:
    """Read its log for a cause of death. `told`: in what way it takes too long, empty if it is only looked at."""

    told: str = ""


@dataclass(frozen=True, slots=True)
class AbortAll:
    """Have it drop its requests."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to it, after the grace SIGKILL to its tree."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to its tree now."""


@dataclass(frozen=True, slots=True)
class DeclareReady:
    """It can be measured."""


@dataclass(frozen=True, slots=True)
class DeclareDead:
    """It is over."""

    verdict: Verdict


Action = Prove | AskAccount | Probe | Warn | Examine | AbortAll | Terminate | Kill | DeclareReady | DeclareDead
