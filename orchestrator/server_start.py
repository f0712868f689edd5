"""A server start on the wire: what a slot is asked for, and what it tells until the server is ready or dead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.trial import Diagnosis, Phase, PhaseFact, Settings


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What a slot needs to start one server. `command` is the prefix before the flags; times in seconds."""

    run_id: str
    trial_id: str
    engine: Literal["sglang", "emulator", "attach"]
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
    allow_faked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartProgress:
    """A sign of life from a starting server: the phase it is in, n of m graph captures, GiB free."""

    trial_id: str
    phase: Phase
    elapsed_s: float
    done: int | None = None
    total: int | None = None
    free_gib: float | None = None


@dataclass(frozen=True, slots=True)
class ServerReady:
    """The server said so and served a request. `resolved` is its own account of its settings, scrubbed of secrets."""

    trial_id: str
    url: str
    pid: int | None
    start_s: float
    phases: tuple[PhaseFact, ...]
    resolved: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerDied:
    """The server ended, or was ended by us, before it was ready or while it served."""

    trial_id: str
    diagnosis: Diagnosis
    phases: tuple[PhaseFact, ...]
    lived_s: float


StartEvent = StartProgress | ServerReady | ServerDied
