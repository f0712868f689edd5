"""A server start on the wire: what a slot is asked for, and what it tells until the server is ready or dead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.outcome import Diagnosis, Phase, PhaseFact
from orchestrator.trial import Settings

# A container runtime may take this long to end a container, besides the container's own grace.
CONTAINER_END_S = 60.0
# Proof that GPU memory is back may take this long: a minute, then what is left of ours is ended, and a little again.
GPU_RETURN_S = 90.0
# Left in a rendered command line: only the host where the server starts knows them.
HOST_WORD, PORT_WORD = "{host}", "{port}"


@dataclass(frozen=True, slots=True)
class UserCommand:
    """A command that the user wants run beside a server, and the seconds that it may take."""

    command: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class PhaseBudget:
    """What a phase of a server's life may take, and where that is known from, in words.

    When `total_s` is over, that is told. `silent_s` ends the server: so long without a line in its log and without any
    CPU time, disk traffic or GPU activity. Of serving only `silent_s` counts.
    """

    phase: Phase
    total_s: float
    silent_s: float
    source: str
    silent_source: str


@dataclass(frozen=True, slots=True)
class LoadSeen:
    """What the load of a point saw of its server: whether tokens came, and after how many quiet seconds it gave up."""

    tokens_came: bool = False
    hung_s: float | None = None


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What a slot needs to start one server. Times in seconds.

    `command` is the prefix before the flags, for engine `command` the whole line with HOST_WORD and PORT_WORD in it.
    `version` is the SGLang version that the scenario expects; None to take what the host has.
    `ulimits` are soft limits by name, -1 for unlimited. The maps by host hold (pattern, path): the first whose pattern
    meets the name of the host replaces `model_path`, or `draft_path` wherever it stands in the settings. Without
    `phase_budgets` only `start_timeout_s` and `phase_timeout_s` limit a start, and nothing limits the silence after.
    `network_key` is asked of callers by a server that others can reach, if it has no key of its own.
    `telemetry_s`: how often server and GPUs are sampled, 0 for never.
    A server over several hosts is started once on each of its `nnodes` hosts, with the `node_rank` of that host; they
    meet at `dist_init_addr`, "HOST:PORT" on the host of rank 0, which alone serves HTTP.
    """

    run_id: str
    trial_id: str
    engine: Literal["sglang", "emulator", "attach", "command"]
    command: tuple[str, ...]
    model_path: str
    settings: Settings
    env: tuple[tuple[str, str], ...]
    extra_args: tuple[str, ...] = ()
    work_dir: str | None = None
    address_space_limit_gib: float | None = None
    start_timeout_s: float = 1800.0
    phase_timeout_s: float = 900.0
    stop_grace_s: float = 30.0
    url: str | None = None
    version: str | None = None
    allow_faked: tuple[str, ...] = ()
    ready_path: str = "/health"
    served_name: str | None = None
    before_start: tuple[UserCommand, ...] = ()
    after_stop: tuple[UserCommand, ...] = ()
    ulimits: tuple[tuple[str, int], ...] = ()
    draft_path: str | None = None
    model_path_by_host: tuple[tuple[str, str], ...] = ()
    draft_path_by_host: tuple[tuple[str, str], ...] = ()
    phase_budgets: tuple[PhaseBudget, ...] = ()
    network_key: str | None = None
    nnodes: int = 1
    node_rank: int = 0
    dist_init_addr: str | None = None
    telemetry_s: float = 0.0

    @property
    def is_follower(self) -> bool:
        """Whether this is a part of a server that serves no requests itself: rank 0 on another host does."""
        return self.node_rank > 0

    @property
    def aside_s(self) -> float:
        """The longest that a slot is busy with other things than starting and ending the server itself."""
        commands = (*self.before_start, *self.after_stop)
        return sum(c.timeout_s for c in commands) + (CONTAINER_END_S if self.command else 0.0)


@dataclass(frozen=True, slots=True)
class StartProgress:
    """A sign of life from a starting server: the phase it is in, n of m graph captures, GiB free.

    `notes` are worth telling the user once, e.g. that a phase takes longer than it ever did.
    """

    trial_id: str
    phase: Phase
    elapsed_s: float
    done: int | None = None
    total: int | None = None
    free_gib: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineSoftware:
    """What the interpreter or the image of a server has installed, by name: `sglang`, `torch`, `cuda`, ...

    `unknown` says why there is no torch among them.
    """

    versions: tuple[tuple[str, str], ...] = ()
    unknown: str = ""

    @property
    def sglang(self) -> str | None:
        return dict(self.versions).get("sglang")


NOT_ASKED = EngineSoftware(unknown="not asked")


@dataclass(frozen=True, slots=True)
class ServerReady:
    """The server said so and served a request. `resolved` is its own account of its settings, scrubbed of secrets.

    `version` is the SGLang version that was found before the launch, None where the command does not show it;
    `software` what was found beside it.
    """

    trial_id: str
    url: str
    pid: int | None
    start_s: float
    phases: tuple[PhaseFact, ...]
    resolved: dict[str, Any] = field(default_factory=dict)
    version: str | None = None
    software: EngineSoftware = NOT_ASKED

    @property
    def told_version(self) -> str | None:
        """By the server's own account, else as found before the launch."""
        told = self.resolved.get("version") or self.version
        return str(told) if told else None


@dataclass(frozen=True, slots=True)
class ServerDied:
    """The server ended, or was ended by us, before it was ready or while it served."""

    trial_id: str
    diagnosis: Diagnosis
    phases: tuple[PhaseFact, ...]
    lived_s: float
    software: EngineSoftware = NOT_ASKED


StartEvent = StartProgress | ServerReady | ServerDied
