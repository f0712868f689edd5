"""What is wrong with the hosts of a cluster for a benchmark, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.clusters.raylet_settings import (
    DETECTION,
    ISOLATION,
    MOST_NICENESS,
    MOST_OOM_SCORE,
    OPEN_FILES,
    PRIORITY,
    SLOW_DETECTION_S,
    detection_s,
    missing_isolation,
)
from orchestrator.host_report import HostReport

LEAST_SCRATCH_GIB = 5.0
LEAST_SHM_GIB = 2.0
MOST_CLOCK_S = 0.5
LOOPBACK = ("127.0.0.1", "localhost", "::1")
RESTART = "and start Ray there anew"


@dataclass(frozen=True, slots=True)
class HostSeen:
    """One host: its name, the GPUs that Ray was told of, its report, and how far its clock is from this machine's.

    `clock_off_s` is True only within `clock_error_s`, half the time that asking took.
    """

    name: str
    gpus: int
    report: HostReport
    clock_off_s: float | None = None
    clock_error_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HostWarning:
    """`hosts` are those that it is about, none for the cluster as a whole."""

    hosts: tuple[str, ...]
    what: str
    todo: str

    def told(self) -> str:
        """One line: hosts, at most four by name, what is wrong, what to do."""
        more = f" and {len(self.hosts) - 4} more" if len(self.hosts) > 4 else ""
        names = f"{', '.join(self.hosts[:4])}{more}: " if self.hosts else ""
        return f"{names}{self.what}. {self.todo}"


def host_warnings(seen: Sequence[HostSeen], model: str | None = None) -> list[HostWarning]:
    """All that is wrong, the same on several hosts told once. `model` is the path that hosts were asked for."""
    found: dict[tuple[str, str], list[str]] = {}
    for host in seen:
        for what, todo in _of_host(host, is_alone=len(seen) == 1, model=model):
            found.setdefault((what, todo), []).append(host.name)
    warnings = [HostWarning(tuple(hosts), what, todo) for (what, todo), hosts in found.items()]
    return [*warnings, *_of_cluster(seen)]


def _of_host(host: HostSeen, *, is_alone: bool, model: str | None) -> Iterator[tuple[str, str]]:
    yield from _priority(host.report)
    if not is_alone:  # where the driver, the head and the servers are one host, none can be cut off
        yield from _loss(host.report)
    yield from _access(host.report)
    yield from _room(host)
    yield from _hardware(host)
    if host.clock_off_s is not None and abs(host.clock_off_s) > MOST_CLOCK_S + host.clock_error_s:
        way = "ahead of" if host.clock_off_s > 0 else "behind"
        told = f"the clock is {abs(host.clock_off_s):.1f} s {way} this machine's (known to {host.clock_error_s:.2f} s)"
        yield told, "Times in logs and tables do not fit together: let chrony or ntpd set the clocks"
    if model is not None and host.gpus and host.report.model_present is False:
        yield f"the model {model} is not there", "Copy it there, or say where it is by model.path_by_host"


def _priority(report: HostReport) -> Iterator[tuple[str, str]]:
    settings = " ".join(f"{name}={value}" for name, value in PRIORITY.items())
    if report.niceness > MOST_NICENESS:
        told = f"servers would run at nice {report.niceness}, behind everything else on the host"
        yield told, f"Set {settings} before `ray start` {RESTART}"
    if report.oom_score_adj > MOST_OOM_SCORE:
        told = f"servers would be the first that the kernel kills for memory (oom_score_adj {report.oom_score_adj})"
        yield told, f"Set {settings} before `ray start` {RESTART}"
    if report.open_files < OPEN_FILES:
        told = f"a process may have only {report.open_files} files open"
        yield told, f"`ulimit -n {OPEN_FILES}` before `ray start` (LimitNOFILE of a systemd unit) {RESTART}"


def _loss(report: HostReport) -> Iterator[tuple[str, str]]:
    """How soon the loss of a host is noticed, by the head and by the host itself."""
    if report.gcs_settings is not None and (lost_s := detection_s(dict(report.gcs_settings))) > SLOW_DETECTION_S:
        settings = " ".join(f"{name}={value}" for name, value in DETECTION.items())
        yield (
            f"this head notices the loss of a host after about {lost_s:.0f} s",
            f"Set {settings} before `ray start` on the head {RESTART}",
        )
    if missing := missing_isolation(dict(report.ray_settings)):
        settings = " ".join(f"{name}={ISOLATION[name]}" for name in missing)
        yield (
            "a host that is cut off keeps its servers for minutes",
            f"Set {settings} before `ray start`, on every host {RESTART}",
        )


def _access(report: HostReport) -> Iterator[tuple[str, str]]:
    mode = dict(report.ray_settings).get("RAY_AUTH_MODE")
    if mode != "token":
        told = "Ray asks for no token" if mode else "RAY_AUTH_MODE is not set, so Ray may ask for no token"
        yield (
            f"{told}: whoever reaches its ports runs code as this user",
            f"RAY_AUTH_MODE=token and the same ~/.ray/auth_token on all hosts, {RESTART.removeprefix('and ')}",
        )
    if report.dashboard_host is not None and report.dashboard_host not in LOOPBACK:
        yield (
            f"the dashboard listens on {report.dashboard_host}",
            "`ray start --dashboard-host=127.0.0.1`, and go there through ssh",
        )


def _room(host: HostSeen) -> Iterator[tuple[str, str]]:
    report = host.report
    if report.scratch_free_gib < LEAST_SCRATCH_GIB:
        told = f"only {report.scratch_free_gib:.1f} GiB are free for logs and records in the temporary folder"
        yield told, f"Make room, or set TMPDIR before `ray start` {RESTART}"
    if host.gpus and report.shm_free_gib is not None and report.shm_free_gib < LEAST_SHM_GIB:
        told = f"only {report.shm_free_gib:.1f} GiB are free in /dev/shm, which GPUs of one server share data through"
        yield told, "In a container: --shm-size or --ipc=host (Kubernetes: an emptyDir with medium Memory)"


def _hardware(host: HostSeen) -> Iterator[tuple[str, str]]:
    gpus = host.report.gpus
    if gpus and host.gpus and host.gpus != len(gpus):
        told = f"Ray has {host.gpus} GPUs where the driver has {len(gpus)}"
        yield told, f"Look at `nvidia-smi` and at --num-gpus and CUDA_VISIBLE_DEVICES of `ray start` {RESTART}"
    if gpus and len({(gpu.name, round(gpu.total_gib)) for gpu in gpus}) > 1:
        told = f"GPUs of one host differ ({host.report.host_class})"
        yield told, "Slots of it cannot be compared: leave the odd ones out by CUDA_VISIBLE_DEVICES of `ray start`"


def _of_cluster(seen: Sequence[HostSeen]) -> Iterator[HostWarning]:
    """What is wrong with no host but with their differences."""
    serving = [host for host in seen if host.gpus] or list(seen)
    anew = (
        "Results would differ for no reason that a config has: install the same everywhere, or choose by slots.labels"
    )
    checks: tuple[tuple[str, Sequence[HostSeen], Callable[[HostReport], str | None], str], ...] = (
        ("Ray", seen, lambda r: r.ray_version, "A cluster needs one release of Ray: install the same everywhere"),
        ("Python", seen, lambda r: r.python_version.rpartition(".")[0] or None, "Use the same Python everywhere"),
        ("SGLang", serving, lambda r: r.engine_version, anew),
        ("NVIDIA driver", serving, lambda r: r.driver_version, anew),
    )
    for name, hosts, version, todo in checks:
        if differing := _differing(hosts, version):
            yield HostWarning((), f"hosts differ in {name}: {differing}", todo)
    if any(host.gpus for host in seen) and (classes := _differing(serving, lambda r: r.host_class)):
        told = f"hosts of several classes: {classes}"
        yield HostWarning((), told, "Each measures and is ranked for itself; choose one by slots.accelerator or labels")


def _differing(hosts: Sequence[HostSeen], told: Callable[[HostReport], str | None]) -> str:
    """`1.2 on h1, h2; 1.3 on h3`; empty if all that tell are the same."""
    by_value: dict[str, list[str]] = {}
    for host in hosts:
        if (value := told(host.report)) is not None:
            by_value.setdefault(value, []).append(host.name)
    listed = (f"{value} on {_some(names)}" for value, names in sorted(by_value.items()))
    return "; ".join(listed) if len(by_value) > 1 else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
