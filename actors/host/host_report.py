"""What this host is: asked in a process of Ray's on the host, since servers inherit priority and limits from that."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import psutil

from actors.gpus.gpu_place import driver_version, gpu_links, gpu_places
from actors.host.ray_settings import ray_start
from actors.processes.command_output import output_of
from actors.servers.container_options import ContainerRefusal, parse_run
from actors.servers.engine_version import software_in, version_probe
from actors.servers.launch import server_environment
from orchestrator.host_report import HostReport
from orchestrator.memory.model_folder import is_hub_name, model_folder

_GIB = 2**30
_PROBE_S = 20.0
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def host_report(
    engine_command: tuple[str, ...] = (),
    model_path: str | None = None,
    path_by_host: tuple[tuple[str, str], ...] = (),
) -> HostReport:
    """This host, hardware, software and how Ray was started here.

    `engine_command` is how a server would be started (empty: by this interpreter), `path_by_host` as in a scenario.
    """
    start = ray_start()
    hostname = socket.gethostname()
    mapped = next((path for pattern, path in path_by_host if fnmatchcase(hostname, pattern)), model_path)
    return HostReport(
        hostname=hostname,
        cpu_model=cpu_model(),
        cpus=len(os.sched_getaffinity(0)),
        memory_gib=memory_gib(),
        kernel=platform.release(),
        gpus=gpu_places(),
        gpu_links=gpu_links(),
        driver_version=driver_version(),
        engine_version=engine_version(engine_command, os.environ),
        model_present=model_present(mapped),
        niceness=os.getpriority(os.PRIO_PROCESS, 0),
        oom_score_adj=_number(Path("/proc/self/oom_score_adj")) or 0,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        scratch_free_gib=_free_gib(Path(tempfile.gettempdir())) or 0.0,
        ray_settings=start.raylet,
        shm_free_gib=_free_gib(Path("/dev/shm")),
        python_version=platform.python_version(),
        ray_version=_installed("ray"),
        gcs_settings=start.gcs,
        dashboard_host=start.dashboard_host,
    )


def host_clock() -> float:
    """This host's clock, seconds since 1970."""
    return time.time()


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model as the kernel names it; the architecture where it names none, as on ARM."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()


def memory_gib(limits: Sequence[str] = _CGROUP_LIMITS) -> float:
    """The host's memory, or the limit of the container where that is lower."""
    found = [_number(Path(limit)) for limit in limits]
    return min([psutil.virtual_memory().total, *(limit for limit in found if limit)]) / _GIB


def engine_version(
    command: tuple[str, ...],
    env: Mapping[str, str],
    ask: Callable[[Sequence[str], Mapping[str, str]], str | None] | None = None,
) -> str | None:
    """The SGLang that a command would start. None if there is none, or a container would have to be started to tell."""
    if not command:
        return _installed("sglang")
    try:
        if parse_run(command) is not None:
            return None
    except ContainerRefusal:  # the launch says what is wrong with it
        return None
    inherited = server_environment(env)
    probe = version_probe(command, inherited)
    if probe is None:
        return None
    if probe[0] == sys.executable:
        return _installed("sglang")
    return software_in((ask or _ask)(probe, inherited) or "", probe[0]).sglang


def model_present(path: str | None) -> bool | None:
    """Whether a model's files are on this host. None for no path, and for a hub name that is not in the cache here:
    the server may fetch it, or look elsewhere by an environment of its own.
    """
    if path is None:
        return None
    if model_folder(path) is not None or Path(path).expanduser().is_file():
        return True
    return None if is_hub_name(path) and not Path(path).is_dir() else False


def _ask(probe: Sequence[str], env: Mapping[str, str]) -> str | None:
    return output_of(probe, limit_s=_PROBE_S, env=env)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such file; `max` for no limit
        return None


def _free_gib(folder: Path) -> float | None:
    try:
        return shutil.disk_usage(folder).free / _GIB
    except OSError:
        return None
