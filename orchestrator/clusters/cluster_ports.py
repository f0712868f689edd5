"""The ports of a Ray cluster and of what Specsweep starts on it: which, on whom, and that none meets another. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from orchestrator.clusters.cluster_finding import Finding
from orchestrator.clusters.start_command import RayStart

HEAD = "head_start_ray_commands"
# Ray's own range for workers; servers of ours begin above it, and Linux's ephemeral ports above those.
WORKER_PORTS = (10002, 19999)
SERVER_PORTS = (20000, 32479)


@dataclass(frozen=True, slots=True)
class FixedPort:
    """One port of `ray start`: its option, what we write, and what Ray takes without it (None: any that is free)."""

    option: str
    port: int
    what: str
    head_only: bool = False
    default: int | None = None


FIXED = (
    FixedPort("port", 6379, "GCS: every host and driver", head_only=True, default=6379),
    FixedPort("node-manager-port", 6380, "raylet: every host and driver"),
    FixedPort("object-manager-port", 6381, "objects: every host and driver"),
    FixedPort("runtime-env-agent-port", 6382, "runtime environments: this host"),
    FixedPort("dashboard-agent-grpc-port", 6383, "agent: the head"),
    FixedPort("dashboard-agent-listen-port", 6384, "agent's HTTP: the head, for jobs", default=52365),
    FixedPort("metrics-export-port", 6385, "metrics of the host, open without the token: your Prometheus"),
    FixedPort("dashboard-port", 8265, "dashboard and jobs: this host, by ssh", head_only=True, default=8265),
    FixedPort("ray-client-server-port", 10001, "Ray Client, not used by Specsweep", head_only=True, default=10001),
)


def port_findings(starts: Mapping[str, RayStart], places: Mapping[str, tuple[int | None, str]]) -> list[Finding]:
    """Ports that are random, or that meet; for each section with a `ray start`, at its place (line, key)."""
    return [finding for section, start in starts.items() for finding in _of_section(section, start, places[section])]


def _of_section(section: str, start: RayStart, place: tuple[int | None, str]) -> Iterator[Finding]:
    fixed: dict[str, int] = {}
    free = []
    for known in (k for k in FIXED if section == HEAD or not k.head_only):
        given = start.options.get(known.option)
        port = known.default if given is None else _port(given)
        if port is None and given is not None:
            yield Finding(*place, f"--{known.option}={given} is no port")
        elif not port:
            free.append(f"--{known.option}={known.port}")
        else:
            fixed[known.option] = port
    if free:
        yield Finding(*place, f"random ports, which no firewall can know; write {' '.join(free)}", is_fault=False)
    low, high = (
        _port(start.options.get(f"{end}-worker-port", str(default))) or 0
        for end, default in zip(("min", "max"), WORKER_PORTS, strict=True)
    )
    yield from _meetings(fixed, low, high, place)


def _meetings(fixed: Mapping[str, int], low: int, high: int, place: tuple[int | None, str]) -> Iterator[Finding]:
    for (one, port), (other, second) in combinations(fixed.items(), 2):
        if port == second:
            yield Finding(*place, f"--{one} and --{other} are both {port}")
    for name, port in fixed.items():
        if low <= port <= high:
            yield Finding(*place, f"--{name}={port} lies among the workers' ports {low}-{high}")
    if low >= high:
        ours = f"--min-worker-port={WORKER_PORTS[0]} --max-worker-port={WORKER_PORTS[1]}"
        yield Finding(*place, f"no ports for workers ({low}-{high}); write {ours}")
    elif high - low < 500:
        yield Finding(*place, f"only {high - low + 1} ports for workers ({low}-{high}); give 1000", is_fault=False)
    elif low <= SERVER_PORTS[1] and high >= SERVER_PORTS[0]:
        told = f"workers' ports {low}-{high} meet those of servers, {SERVER_PORTS[0]}-{SERVER_PORTS[1]}"
        yield Finding(*place, told, is_fault=False)


def _port(text: str) -> int | None:
    """0 for a random one, None for what is no port."""
    return int(text) if text.isdigit() and int(text) <= 65535 else None
