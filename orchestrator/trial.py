"""The frozen values that travel between driver and hosts: configs, trials, points, reports.

engine config = server settings and environment; trial = one config, one fresh server start, on one slot;
point = workload x load level, measured inside a trial.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.sglang.options import SettingValue
from orchestrator.traffic import POISSON, Arrival, Draw, Traffic


def content_hash(value: Any, length: int = 12) -> str:
    """Hex digest of a JSON value, independent of key order: the identity of configs and points."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


SECRET_NAME = re.compile(r"(?:key|key_id|token|secret|password|passwd)$", re.IGNORECASE)
# A name alone before the host (`ssh://git@host`) is none.
_PASSWORD_IN_URL = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/@:'\"]*:[^\s/@'\"]+|\*\*\*)@")


def without_passwords(text: str) -> str:
    """Text without names and passwords in addresses (`https://***@host`)."""
    return _PASSWORD_IN_URL.sub(r"\1***@", text) if "://" in text else text


def is_secret_variable(name: str, value: str) -> bool:
    """Whether the value of a variable is stored nowhere: it is named like a secret, or has a password in an address."""
    return SECRET_NAME.search(name) is not None or _PASSWORD_IN_URL.search(value) is not None


Settings = tuple[tuple[str, SettingValue | tuple[SettingValue, ...]], ...]


def freeze_settings(settings: dict[str, Any]) -> Settings:
    """Sorted, hashable form of a settings mapping; lists become tuples."""
    return tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in settings.items()))


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What one server is started with. `settings` holds SGLang option names; `config_id` is their content hash.

    `build`: which of the two builds of `nightly` serves it; empty for the scenario's own engine.
    """

    settings: Settings
    env: tuple[tuple[str, str], ...] = ()
    build: str = ""

    @property
    def config_id(self) -> str:
        """Hash of settings, environment and build; the values of variables named like secrets do not count, nor do
        passwords in addresses.
        """
        shown = [(name, "" if SECRET_NAME.search(name) else without_passwords(value)) for name, value in self.env]
        return content_hash([self.settings, shown, *([self.build] if self.build else [])])

    def as_dict(self) -> dict[str, Any]:
        """The settings, the environment as `env.NAME`, values of variables named like secrets hidden, and the build if
        it is one of two.
        """
        shown = ((name, "***" if SECRET_NAME.search(name) else without_passwords(value)) for name, value in self.env)
        variables = {f"env.{name}": value for name, value in shown}
        told = {k: list(v) if isinstance(v, tuple) else v for k, v in self.settings} | variables
        return told | {"build": self.build} if self.build else told

    @property
    def speculation_depth(self) -> int:
        """`speculative_num_steps`, 0 without speculation."""
        depth = dict(self.settings).get("speculative_num_steps", 0)
        return depth if isinstance(depth, int) else 0


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """Closed loop: `concurrency` requests in flight. Open loop: `rate` requests per second, or a `trace` that is
    replayed `value` times as fast as it was recorded.
    """

    kind: Literal["concurrency", "rate", "trace"]
    value: float

    @property
    def open_loop(self) -> bool:
        """Whether requests are due at times of their own, not when an earlier one has ended."""
        return self.kind != "concurrency"

    def __str__(self) -> str:
        if self.kind == "concurrency":
            return f"C={self.value:g}"
        return f"{self.value:g} req/s" if self.kind == "rate" else f"trace x{self.value:g}"


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
    `traffic` says what is sent where `dataset` and the lengths beside it are not enough. `tokenizer` is a folder on the
    load host whose tokenizer counts the prompts' tokens. `request_timeout_s` is the longest time in which a request may
    show no progress; there is no limit of its whole time.
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
    traffic: tuple[Traffic, ...] = ()
    arrival: Arrival = POISSON
    tokenizer: str = ""

    @property
    def mix(self) -> tuple[Traffic, ...]:
        """All kinds of requests of the point, at least one."""
        return self.traffic or (
            Traffic(
                self.workload,
                1.0,
                self.dataset,
                Draw(mean=self.input_tokens),
                Draw(mean=self.output_tokens),
                self.shared_prefix_tokens,
            ),
        )


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a point's load that one of `count` load processes offers: every `count`-th request from `index` on.

    Times of records count from `origin_unix_ns` where that is given, so that those of all shards can be merged.
    """

    index: int = 0
    count: int = 1
    origin_unix_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One point of one trial. `point_id` is the resume key: config x point spec x repeat."""

    point_id: str
    trial_id: str
    config_id: str
    repeat: int
    spec: PointSpec

    @property
    def text(self) -> str:
        """`chat C=16`, for people."""
        return f"{self.spec.workload} {self.spec.level}"


@dataclass(frozen=True, slots=True)
class Repaired:
    """Where a repaired config comes from: the asked config, the one that died last, what differs from the asked one.

    `changes` are (setting, asked, now), None for what was left open. `why` is of the last repair.
    """

    asked_id: str
    from_id: str
    changes: tuple[tuple[str, Any, Any], ...]
    why: str

    @property
    def text(self) -> str:
        """`asked mem_fraction_static 0.7, served at 0.62; ...`, for remarks and progress."""
        return "; ".join(
            f"{name} {now} (was left open)" if asked is None else f"asked {name} {asked}, served at {now}"
            for name, asked, now in self.changes
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """One fresh server start and the points to be measured on it, in order. `repaired` if its config is a repair.

    `host_class`: only hosts of this class run it; empty in a run whose hosts are all of one.
    """

    trial_id: str
    config: EngineConfig
    repeat: int
    points: tuple[Point, ...]
    estimated_s: float
    repaired: Repaired | None = None
    host_class: str = ""

    @property
    def asked_id(self) -> str:
        """The config that it measures or stands for."""
        return self.repaired.asked_id if self.repaired else self.config.config_id


@dataclass(frozen=True, slots=True)
class ClientReport:
    """How the load actor itself did at one point; a client that was the bottleneck voids the point.

    Duration and CPU seconds are those of sending. `schedule_delay_p99_ms` is our own lateness, without the wait at
    `max_concurrency`, which `gated_requests` had. `cache_flushed` is None where the server cannot flush;
    `reconnects` counts measured requests that found their kept-alive connection closed and went out on a new one.
    Deltas are the growth of the server's counters over the drained point, None where it has no such counter. `server_*`
    are the server's own figures, asked for while the measured load ran: requests running (mean and most), most queued,
    largest share of the KV cache in use; None where it does not tell. `profile`: where traces were written, or why not.
    `workload_hash` is the same where the same was sent. `processes` shared the load. `gc_pause_max_ms` is the longest
    stop for garbage collection, `backlog_p99_kib` what waited in our sockets unread, sampled. `notes`: what to know of
    the prompts. `began_unix_s`: when sending began, by the load host's wall clock. `gpu_power_w`: mean power of the
    server's GPUs while it was sent, None where they do not tell.
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
    processes: int = 1
    gc_pause_max_ms: float = 0.0
    backlog_p99_kib: float | None = None
    workload_hash: str = ""
    notes: tuple[str, ...] = ()
    began_unix_s: float | None = None
    gpu_power_w: float | None = None
