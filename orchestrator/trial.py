"""The frozen values that travel between driver and hosts: configs, trials, points, outcomes.

engine config = server settings and environment; trial = one config, one fresh server start, on one slot;
point = workload x load level, measured inside a trial.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from orchestrator.options import SettingValue


def content_hash(value: Any, length: int = 12) -> str:
    """Hex digest of a JSON value, independent of key order: the identity of configs and points."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


SECRET_NAME = re.compile(r"(?:key|key_id|token|secret|password|passwd)$", re.IGNORECASE)

Settings = tuple[tuple[str, SettingValue | tuple[SettingValue, ...]], ...]


def freeze_settings(settings: dict[str, Any]) -> Settings:
    """Sorted, hashable form of a settings mapping; lists become tuples."""
    return tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in settings.items()))


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What one server is started with. `settings` holds SGLang option names; `config_id` is their content hash."""

    settings: Settings
    env: tuple[tuple[str, str], ...] = ()

    @property
    def config_id(self) -> str:
        """Hash of settings and environment; the values of variables named like secrets do not count."""
        shown = [(name, "" if SECRET_NAME.search(name) else value) for name, value in self.env]
        return content_hash([self.settings, shown])

    def as_dict(self) -> dict[str, Any]:
        """The settings, and the environment as `env.NAME`, values of variables named like secrets hidden."""
        variables = {f"env.{name}": "***" if SECRET_NAME.search(name) else value for name, value in self.env}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.settings} | variables

    @property
    def speculation_depth(self) -> int:
        """`speculative_num_steps`, 0 without speculation."""
        depth = dict(self.settings).get("speculative_num_steps", 0)
        return depth if isinstance(depth, int) else 0


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """Closed loop: `concurrency` requests in flight. Open loop: `rate` requests per second (Poisson arrivals)."""

    kind: Literal["concurrency", "rate"]
    value: float

    def __str__(self) -> str:
        return f"C={self.value:g}" if self.kind == "concurrency" else f"{self.value:g} req/s"


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """A profile of the server's steps, taken under load of its own after the measured window.

    `output_dir` is a folder on the server's host; the folder of a point is made below it.
    """

    output_dir: str
    duration_s: float
    activities: tuple[str, ...] = ("CPU", "GPU")
    by_stage: bool = False
    with_stack: bool = False
    record_shapes: bool = False


@dataclass(frozen=True, slots=True)
class PointSpec:
    """All that decides what a load actor does at one point, but not on which server it does it.

    An empty `model` is the one that the server lists first. `extra_body` is a JSON object that every request carries.
    `counters` are pairs of what is counted (drafted, accepted, verified) and its name in the server's metrics.
    """

    workload: str
    level: LoadLevel
    api: Literal["generate", "completions", "chat"]
    dataset: str
    input_tokens: int
    output_tokens: int
    warmup_s: float
    warmup_requests: int
    duration_s: float | None
    requests: int | None
    temperature: float
    ignore_eos: bool
    request_timeout_s: float
    max_concurrency: int | None = None
    shared_prefix_tokens: int = 0
    model: str = "default"
    seed: int = 0
    profile: ProfileSpec | None = None
    extra_body: str = ""
    counters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """One point of one trial. `point_id` is the resume key: config x point spec x repeat."""

    point_id: str
    trial_id: str
    config_id: str
    repeat: int
    spec: PointSpec


@dataclass(frozen=True, slots=True)
class Trial:
    """One fresh server start and the points to be measured on it, in order."""

    trial_id: str
    config: EngineConfig
    repeat: int
    points: tuple[Point, ...]
    estimated_s: float


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

    CAPTURE_ERROR = "capture_error"
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


INFEASIBLE = frozenset(
    {
        Label.KV_BUDGET,
        Label.OOM_KV_ALLOC,
        Label.STATE_POOL,
        Label.OOM_WEIGHTS,
        Label.OOM_GRAPH_TARGET,
        Label.OOM_GRAPH_DRAFT,
        Label.RUNTIME_OOM,
        Label.RUNTIME_POOL,
        Label.FLAG_INVALID,
        Label.CONFIG_CONFLICT,
        Label.OUT_OF_MEMORY,
    }
)


class Phase(StrEnum):
    """Where a server was in its life."""

    LAUNCH = "launch"
    ARGS = "args"
    DIST_INIT = "dist_init"
    WEIGHTS = "weights"
    DRAFT_WEIGHTS = "draft_weights"
    KV_POOL = "kv_pool"
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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a server died, with the log line that shows it (1-based number; 0 if no line does)."""

    label: Label
    phase: Phase
    evidence: str
    line_number: int = 0
    exit_code: int | None = None

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


@dataclass(frozen=True, slots=True)
class ClientReport:
    """How the load actor itself did at one point; a client that was the bottleneck voids the point.

    Duration and CPU seconds are those of sending. `schedule_delay_p99_ms` is our own lateness, without the wait at
    `max_concurrency`, which `gated_requests` had. `cache_flushed` is None where the server cannot flush;
    `reconnects` counts measured requests that found their kept-alive connection closed and went out on a new one.
    Deltas are the growth of the server's counters over the drained point, None where it has no such counter. `server_*`
    are the server's own figures, asked for while the measured load ran: requests running (mean and most), most queued,
    largest share of the KV cache in use; None where it does not tell. `profile`: where traces were written, or why not.
    """

    point_id: str
    duration_s: float
    cpu_s: float
    loop_lag_p99_ms: float
    schedule_delay_p99_ms: float
    peak_concurrency: int
    requests: int
    stopped_by: Literal["duration", "requests", "cancelled", "hung"]
    verify_calls_delta: float | None = None
    generation_tokens_delta: float | None = None
    requests_delta: float | None = None
    gated_requests: int = 0
    cache_flushed: bool | None = None
    reconnects: int = 0
    server_running_mean: float | None = None
    server_running_max: int | None = None
    server_queued_max: int | None = None
    server_token_usage_max: float | None = None
    profile: str | None = None
    drafted_tokens_delta: float | None = None
    accepted_tokens_delta: float | None = None
