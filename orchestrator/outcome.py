"""What became of a server start or a trial: labels and phases of failures, diagnoses, outcomes. Frozen, on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Label(StrEnum):
    """Why a server could not start or serve. The first group is infeasible by nature, the second is broken."""

    KV_BUDGET = "kv_budget"
    OOM_KV_ALLOC = "oom_kv_alloc"
    STATE_POOL = "state_pool"
    OOM_WEIGHTS = "oom_weights"
    OOM_GRAPH_TARGET = "oom_graph_target"
    OOM_GRAPH_DRAFT = "oom_graph_draft"
    RUNTIME_OOM = "runtime_oom"
    RUNTIME_POOL = "runtime_pool"
    FLAG_INVALID = "flag_invalid"
    CONFIG_CONFLICT = "config_conflict"
    OUT_OF_MEMORY = "out_of_memory"  # of an engine whose phases we do not know
    KERNEL_ARCH = "kernel_arch"

    CAPTURE_ERROR = "capture_error"
    JIT_TOOLCHAIN = "jit_toolchain"
    CUDA_IMA = "cuda_ima"
    SEGFAULT_ABORT = "segfault_abort"
    SOFTWARE_BUG = "software_bug"
    GPU_UNEQUAL = "gpu_unequal"
    SHM_OR_DISK = "shm_or_disk"
    NCCL_INIT = "nccl_init"
    NCCL_TIMEOUT = "nccl_timeout"
    NET_CONFIG = "net_config"
    PEER_RANK_FAILED = "peer_rank_failed"
    HEALTH_STALE = "health_stale"
    MODEL_DOWNLOAD = "model_download"
    MODEL_MISSING = "model_missing"
    PORT_IN_USE = "port_in_use"
    GPU_OCCUPIED = "gpu_occupied"
    HOST_OOM = "host_oom"
    WATCHDOG_HANG = "watchdog_hang"
    START_TIMEOUT = "start_timeout"
    STOP_REQUESTED = "stop_requested"
    CLIENT_ERRORS = "client_errors"
    HUNG = "hung"
    HOST_LOST = "host_lost"
    COMMAND_NOT_FOUND = "command_not_found"
    USER_COMMAND = "user_command"
    UNKNOWN = "unknown"

    READY = "ready"  # a log that shows no failure: the server came up, or what it shows is healthy
    BENIGN = "benign"  # frightening lines of a healthy server


# How the evidence of a death begins that was foreseen: no server was started.
PREDICTED = "predicted:"

# GPU memory was too small for these settings: whatever needs more dies as well.
OUT_OF_GPU_MEMORY = frozenset(
    {
        Label.KV_BUDGET,
        Label.OOM_KV_ALLOC,
        Label.STATE_POOL,
        Label.OOM_WEIGHTS,
        Label.OOM_GRAPH_TARGET,
        Label.OOM_GRAPH_DRAFT,
        Label.RUNTIME_OOM,
        Label.RUNTIME_POOL,
        Label.OUT_OF_MEMORY,
    }
)
INFEASIBLE = OUT_OF_GPU_MEMORY | {Label.FLAG_INVALID, Label.CONFIG_CONFLICT, Label.KERNEL_ARCH}


class Phase(StrEnum):
    """Where a server was in its life.

    `launch` is ours: until the server writes its first line. `spawn` is the server's: its arguments are accepted and it
    starts its processes. `state_pool` is the part of `kv_pool` that holds the states of linear-attention and
    sliding-window layers: a timeline counts it to `kv_pool`, a diagnosis can tell them apart.
    """

    LAUNCH = "launch"
    ARGS = "args"
    SPAWN = "spawn"
    DIST_INIT = "dist_init"
    WEIGHTS = "weights"
    DRAFT_WEIGHTS = "draft_weights"
    KV_POOL = "kv_pool"
    STATE_POOL = "state_pool"
    GRAPH_TARGET = "graph_target"
    GRAPH_DRAFT = "graph_draft"
    HTTP_BIND = "http_bind"
    WARMUP = "warmup"
    READY = "ready"
    SERVING = "serving"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class PhaseFact:
    """One phase of a start-up: seconds since launch, and GiB free when it was left (None if the log is silent)."""

    phase: Phase
    began_s: float
    ended_s: float | None = None
    free_gib: float | None = None
    detail: str = ""


class Confidence(StrEnum):
    """How sure a diagnosis is.

    high: a line of the log names the cause, or we saw it ourselves. medium: a line hints at it, or an exception is told
    by the place in the start that it broke. low: nothing but how the process ended, or a line without its place.
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a server died, with the log line that shows it (1-based number; 0 if no line does).

    `rule` names the rule that told it (empty where none did). It and `confidence` say how the verdict was found, not
    what it is: diagnoses that differ in them only are equal.
    """

    label: Label
    phase: Phase
    evidence: str
    line_number: int = 0
    exit_code: int | None = None
    confidence: Confidence = field(default=Confidence.HIGH, compare=False)
    rule: str = field(default="", compare=False)

    @property
    def infeasible(self) -> bool:
        return self.label in INFEASIBLE


@dataclass(frozen=True, slots=True)
class Measured:
    """All points of the trial were measured."""

    points: int
    kind: Literal["measured"] = "measured"


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The config cannot run on this slot by its nature; a result, not an accident."""

    diagnosis: Diagnosis
    kind: Literal["infeasible"] = "infeasible"


@dataclass(frozen=True, slots=True)
class Failed:
    """Something broke; says nothing about the config."""

    diagnosis: Diagnosis
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Stopped by the user before it was through."""

    reason: str
    kind: Literal["cancelled"] = "cancelled"


Outcome = Measured | Infeasible | Failed | Cancelled


def outcome_from_diagnosis(diagnosis: Diagnosis) -> Infeasible | Failed:
    """Infeasible where the label says that the config cannot run, failed otherwise."""
    return Infeasible(diagnosis) if diagnosis.infeasible else Failed(diagnosis)
