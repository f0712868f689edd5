"""How Ray was started on this host, by what its processes were given: the raylet above us, the head's GCS, a dashboard.

Ray itself is not asked: what counts is what each process was started with, and a worker's own environment also holds
what a job or a driver added.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from orchestrator.trial import SECRET_NAME

Settings = tuple[tuple[str, str], ...]

# Ray's own configuration is in lower case behind the prefix. Others that matter to us; whole job configs, which may
# hold a user's secrets, stand in variables too and are left out.
_SETTING = re.compile(r"^RAY_[a-z][a-z0-9_]*$")
_ALSO = {"RAY_AUTH_MODE", "RAY_USE_TLS"}
# May name a bucket with its key.
_PRIVATE = {"RAY_object_spilling_config"}


@dataclass(frozen=True, slots=True)
class RayProcess:
    """A process of this cluster's: its name, command line and environment."""

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RayStart:
    """Settings of the raylet and of the GCS, and where a dashboard listens; None where none can be seen here."""

    raylet: Settings
    gcs: Settings | None
    dashboard_host: str | None


def ray_start() -> RayStart:
    """How the cluster of this worker was started on this host; outside a worker, by our own environment."""
    raylet = _raylet()
    if raylet is None:
        return RayStart(settings_in(os.environ), None, None)
    session = option_of(raylet.words, "session-name")
    return start_of(raylet, [p for p in _processes() if session and any(session in word for word in p.words)])


def start_of(raylet: RayProcess, processes: Iterable[RayProcess]) -> RayStart:
    """What these processes of one cluster tell."""
    gcs, dashboard = None, None
    for process in processes:
        if process.name == "gcs_server":
            gcs = _gcs_settings(process)
        elif any(word.endswith("dashboard/dashboard.py") for word in process.words):
            # Without a dashboard the same program runs for usage statistics only, and listens nowhere.
            dashboard = None if "--disable-frontend" in process.words else option_of(process.words, "host")
    return RayStart(settings_in(raylet.env), gcs, dashboard)


def settings_in(env: Mapping[str, str]) -> Settings:
    """The settings of Ray in an environment, sorted, without secrets."""
    names = (n for n in env if (_SETTING.match(n) or n in _ALSO) and n not in _PRIVATE and not SECRET_NAME.search(n))
    return tuple((name, env[name]) for name in sorted(names))


def option_of(words: Sequence[str], name: str) -> str | None:
    """The value of `--name=value` in a command line."""
    start = f"--{name}="
    return next((word.removeprefix(start) for word in words if word.startswith(start)), None)


def _gcs_settings(process: RayProcess) -> Settings:
    """`--system-config` goes to every raylet through the GCS; the GCS itself also reads its environment, which wins."""
    told = _system_config(option_of(process.words, "config_list"))
    found = {f"RAY_{name}": str(value) for name, value in told.items() if not isinstance(value, dict | list)}
    return settings_in({**found, **process.env})


def _system_config(encoded: str | None) -> dict[str, Any]:
    try:
        told = json.loads(base64.b64decode(encoded or ""))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _raylet() -> RayProcess | None:
    pid = os.environ.get("RAY_RAYLET_PID", "")
    return _process(psutil.Process(int(pid))) if pid.isdigit() and psutil.pid_exists(int(pid)) else None


def _processes() -> list[RayProcess]:
    return [found for process in psutil.process_iter() if (found := _process(process)) is not None]


def _process(process: psutil.Process) -> RayProcess | None:
    """None for a process that has ended or belongs to another user."""
    try:
        return RayProcess(process.name(), tuple(process.cmdline()), process.environ())
    except (psutil.Error, OSError):
        return None
