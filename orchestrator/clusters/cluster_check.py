"""What a cluster file must say for a benchmark on its hosts: token, priority, limits, ports, addresses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from orchestrator.clusters.cluster_address import is_example, same_host
from orchestrator.clusters.cluster_file import ClusterFile
from orchestrator.clusters.cluster_finding import Finding
from orchestrator.clusters.cluster_ports import port_findings
from orchestrator.clusters.raylet_settings import (
    DETECTION,
    OPEN_FILES,
    PRIORITY,
    SLOW_DETECTION_S,
    detection_s,
    missing_isolation,
)
from orchestrator.clusters.start_command import RayStart, ray_start_in, sources_in
from orchestrator.scenarios.yaml_tree import Path, YamlTree, dotted

TOKEN = "~/.ray/auth_token"
HEAD, WORKERS = "head_start_ray_commands", "worker_start_ray_commands"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PYTHON = re.compile(r"\bpython(3)\.(\d+)\b")
_RAY_PIN = re.compile(r"\bray(\[[\w,]+\])?==([\d.]+)")
PYTHONS = range(11, 15)


def check_cluster(cluster: ClusterFile, tree: YamlTree, python: tuple[int, int], ray: str | None) -> list[Finding]:
    """All faults and warnings by line. `python` and `ray` are the driver's, which the hosts' must equal."""
    found = [*_hosts(cluster, tree), *_software(cluster, tree, python, ray)]
    starts: dict[str, tuple[Path, RayStart]] = {}
    for section in (HEAD, WORKERS):
        seen = _start_of(cluster, section)
        if isinstance(seen, tuple):
            starts[section] = seen
        elif section == HEAD or cluster.provider.worker_ips:
            found.append(_at(tree, (section,), seen or "has no `ray start`", is_fault=seen is None))
    for path, start in starts.values():
        found += _settings(path, start, tree)
        found += _token(cluster, path, start, tree)
    found += port_findings({section: start for section, (_, start) in starts.items()}, _lines(starts, tree))
    if HEAD in starts:
        found += _head(cluster, *starts[HEAD], tree)
    if HEAD in starts and WORKERS in starts:
        found += _joining(cluster, starts[HEAD][1], *starts[WORKERS], tree)
    return sorted(found, key=lambda finding: (not finding.is_fault, finding.line or 0))


def _lines(starts: dict[str, tuple[Path, RayStart]], tree: YamlTree) -> dict[str, tuple[int | None, str]]:
    return {section: (tree.line_of(path), dotted(path)) for section, (path, _) in starts.items()}


def _at(tree: YamlTree, path: Path, message: str, *, is_fault: bool = True) -> Finding:
    return Finding(tree.line_of(path), dotted(path), message, is_fault)


def _start_of(cluster: ClusterFile, section: str) -> tuple[Path, RayStart] | str | None:
    """The `ray start` of a section with its place; why it cannot be seen; None if there is none."""
    commands: list[str] = getattr(cluster, section)
    for i, command in enumerate(commands):
        if (start := ray_start_in(command)) is not None:
            return (section, i), start
    hidden = next((program for command in commands if (program := sources_in(command))), None)
    return hidden and f"starts Ray by `{hidden}`, so its settings, limits and ports cannot be checked here"


def _hosts(cluster: ClusterFile, tree: YamlTree) -> Iterator[Finding]:
    hosts: list[tuple[Path, str]] = [(("provider", "head_ip"), cluster.provider.head_ip)]
    hosts += [(("provider", "worker_ips", i), ip) for i, ip in enumerate(cluster.provider.worker_ips)]
    for (first, one), (second, other) in combinations(hosts, 2):
        if same_host(one, other):
            yield _at(
                tree, second, f"{other} is already {dotted(first)}: each host once, the head not among the workers"
            )
    for path, address in hosts:
        if is_example(address):
            yield _at(tree, path, f"{address} is an address for documents, fill in yours", is_fault=False)
    workers = len(cluster.provider.worker_ips)
    if not workers:
        yield _at(tree, ("provider", "worker_ips"), "is empty: the head will be the only host", is_fault=False)
    if cluster.max_workers is not None and cluster.max_workers < workers:
        told = f"is {cluster.max_workers}, so {workers - cluster.max_workers} of {workers} workers are never started"
        yield _at(tree, ("max_workers",), told)
    if cluster.min_workers is not None and cluster.min_workers < workers:
        told = f"is {cluster.min_workers}: Ray starts only so many of {workers} workers, and others when asked for GPUs"
        yield _at(tree, ("min_workers",), told, is_fault=False)


def _software(cluster: ClusterFile, tree: YamlTree, python: tuple[int, int], ray: str | None) -> Iterator[Finding]:
    """Ray refuses a driver whose Python differs in its minor, or whose Ray differs at all, from the hosts'."""
    sections = ("setup_commands", "head_setup_commands", "worker_setup_commands")
    commands = [((section, i), text) for section in sections for i, text in enumerate(getattr(cluster, section))]
    pythons = [(path, int(match[2])) for path, text in commands for match in _PYTHON.finditer(text)]
    for path, minor in dict.fromkeys(pythons):
        if minor not in PYTHONS:
            yield _at(tree, path, f"uses Python 3.{minor}; Specsweep needs 3.{PYTHONS[0]} to 3.{PYTHONS[-1]}")
        elif minor != python[1]:
            told = f"uses Python 3.{minor}, this is 3.{python[1]}: Ray refuses a driver with another one than its hosts"
            yield _at(tree, path, told, is_fault=False)
    if not pythons:
        told = "no setup command names its Python (e.g. python3.11): each host may have another one"
        yield _at(tree, ("setup_commands",), told, is_fault=False)
    pins = [(path, match[1] or "", match[2]) for path, text in commands for match in _RAY_PIN.finditer(text)]
    for path, _, version in pins:
        if ray is not None and version != ray:
            told = f"pins Ray {version}, this is {ray}: a driver and its hosts need the same"
            yield _at(tree, path, told, is_fault=False)
    if pins and not any("default" in extras for _, extras, _ in pins):
        told = "installs ray without [default]: no dashboard on the head, so no `ray job submit`"
        yield _at(tree, pins[0][0], told, is_fault=False)


def _settings(path: Path, start: RayStart, tree: YamlTree) -> Iterator[Finding]:
    """Settings in the environment of this `ray start`; what is sourced may hold them, so they are warned of only."""
    unseen = f" (unless `{start.sourced}` sets it)" if start.sourced else ""
    for name, wanted in PRIORITY.items():
        value = start.env.get(name)
        if value is None:
            told = f"{name}={wanted} is missing before `ray start`: servers run at Ray's priority, and are measured so"
            yield _at(tree, path, told + unseen, is_fault=not unseen)
        elif value.lstrip("-").isdigit() and int(value) > int(wanted):
            yield _at(tree, path, f"{name}={value}: servers inherit it; write {wanted}")
    if path[0] == HEAD and (lost_s := detection_s(start.env)) > SLOW_DETECTION_S:
        wanted = " ".join(f"{name}={value}" for name, value in DETECTION.items())
        told = f"a lost host is noticed after about {lost_s:.0f} s; write {wanted} before `ray start`{unseen}"
        yield _at(tree, path, told, is_fault=False)
    if missing := missing_isolation(start.env):
        told = f"without {', '.join(missing)} a host that is cut off keeps its servers for minutes{unseen}"
        yield _at(tree, path, told, is_fault=False)
    if start.open_files is None:
        told = f"`ulimit -n {OPEN_FILES}` is missing before `ray start`: servers and load run out of files{unseen}"
        yield _at(tree, path, told, is_fault=False)
    elif start.open_files < OPEN_FILES:
        yield _at(tree, path, f"`ulimit -n {start.open_files}` is too low for servers and load; write {OPEN_FILES}")


def _token(cluster: ClusterFile, path: Path, start: RayStart, tree: YamlTree) -> Iterator[Finding]:
    mode = start.env.get("RAY_AUTH_MODE")
    if mode is None and not start.sourced:
        yield _at(tree, path, "RAY_AUTH_MODE=token is missing before `ray start`; say it", is_fault=False)
    elif mode not in (None, "token"):
        yield _at(tree, path, f"RAY_AUTH_MODE={mode}: whoever reaches the ports runs code as {cluster.auth.ssh_user}")
        return
    if "RAY_AUTH_TOKEN" in start.env:
        yield _at(tree, path, "has the token itself; it is then in process lists and logs: mount it as a file")
        return
    wanted = start.env.get("RAY_AUTH_TOKEN_PATH", TOKEN)
    if not any(_same_file(target, wanted) for target in cluster.file_mounts):
        told = f'has no "{wanted}": hosts without the same token cannot join; write "{wanted}": "{TOKEN}"'
        yield _at(tree, ("file_mounts",), told)


def _same_file(one: str, other: str) -> bool:
    return one.replace("$HOME", "~") == other.replace("$HOME", "~")


def _head(cluster: ClusterFile, path: Path, start: RayStart, tree: YamlTree) -> Iterator[Finding]:
    if "head" not in start.options:
        yield _at(tree, path, "`ray start` lacks --head")
    dashboard = start.options.get("dashboard-host", LOOPBACK[0])
    if dashboard not in LOOPBACK:
        told = f"--dashboard-host={dashboard}: reachable from outside; write {LOOPBACK[0]} and go there through ssh"
        yield _at(tree, path, told)
    if start.options.get("include-dashboard", "true").lower() == "false":
        told = "--include-dashboard=false: no jobs can be submitted; `specsweep run --address` works"
        yield _at(tree, path, told, is_fault=False)
    if cluster.provider.worker_ips and "autoscaling-config" not in start.options:
        told = "lacks --autoscaling-config=~/ray_bootstrap_config.yaml: the head would start no worker"
        yield _at(tree, path, told)


def _joining(cluster: ClusterFile, head: RayStart, path: Path, start: RayStart, tree: YamlTree) -> Iterator[Finding]:
    """Whether workers join this head."""
    port = head.options.get("port", "6379")
    host, _, joined = start.options.get("address", "").rpartition(":")
    if "head" in start.options:
        yield _at(tree, path, "--head among the workers: each would be a cluster of its own")
    elif not host or not (host in {"$RAY_HEAD_IP", "${RAY_HEAD_IP}"} or same_host(host, cluster.provider.head_ip)):
        yield _at(tree, path, f"--address must be $RAY_HEAD_IP:{port}, to join this head")
    elif joined != port:
        yield _at(tree, path, f"--address ends in :{joined}, but the head listens on --port={port}")
