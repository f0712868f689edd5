"""`specsweep cluster check|init`: a cluster file examined without a host being asked, or written for given hosts."""

from __future__ import annotations

import importlib.metadata
import os
import re
import secrets
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from orchestrator.clusters.cluster_address import address_fault, same_host
from orchestrator.clusters.cluster_check import PYTHONS, TOKEN, check_cluster
from orchestrator.clusters.cluster_file import ClusterFile, read_cluster
from orchestrator.clusters.cluster_finding import Finding
from orchestrator.clusters.cluster_template import ClusterPlan, cluster_text
from orchestrator.clusters.ray_schema import ray_verdict
from orchestrator.errors import BadInput
from orchestrator.paths import user_file, write_whole
from orchestrator.plural import plural
from orchestrator.provenance import package_version
from orchestrator.scenarios.yaml_tree import YamlTree, parse_yaml
from orchestrator.terminal import print_json

_INTERPRETER = re.compile(r"^[\w.+/~-]*python[\w.]*$")
# Ray writes it into command lines of a shell.
_USER = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]*$")
_NAMED = re.compile(r"^python3\.(\d+)$")
_REQUIREMENT = re.compile(r"^([A-Za-z0-9_.-]+)(\[[\w,]+\])?")


def check(path: Path, *, as_json: bool, console: Console) -> None:
    """Print what is wrong with a cluster file, faults first; BadInput if there are any."""
    tree = _read(path)
    found, absent = findings(tree)
    if as_json:
        listed = [{**asdict(finding), "file": str(path)} for finding in found]
        print_json({"findings": listed, "ray_not_asked": absent}, console)
    else:
        for finding in found:
            console.print(escape(finding.told(str(path))), soft_wrap=True, highlight=False)
        if absent:
            console.print(escape(f"{path}: not checked against Ray's own schema: {absent}"), soft_wrap=True)
    faults = sum(finding.is_fault for finding in found)
    if faults:
        raise BadInput(f"{path}: {plural(faults, 'fault')}; nothing was started")
    if not as_json:
        console.print(escape(f"{path}: no faults, {plural(len(found), 'warning')}"), soft_wrap=True)


def findings(tree: YamlTree) -> tuple[list[Finding], str | None]:
    """What is wrong with the file, or with its keys alone, and why Ray's own check could not be had (None: it was)."""
    cluster = read_cluster(tree)
    if isinstance(cluster, list):
        return cluster, None
    verdict = ray_verdict(tree)
    if verdict.findings:
        return list(verdict.findings), None
    python = (sys.version_info.major, sys.version_info.minor)
    found = check_cluster(cluster, tree, python, package_version("ray"))
    return [*found, *_local_files(cluster.file_mounts, tree), *_key_file(cluster, tree)], verdict.absent


def _key_file(cluster: ClusterFile, tree: YamlTree) -> list[Finding]:
    """The key that `ray up` logs in with must be a file of this machine."""
    key = cluster.auth.ssh_private_key
    if key is None or (file := Path(key).expanduser()).is_file():
        return []
    told = f"{file} is not there: `ray up` cannot log in with it"
    return [Finding(tree.line_of(("auth", "ssh_private_key")), "auth.ssh_private_key", told, is_fault=False)]


def _local_files(mounts: dict[str, str], tree: YamlTree) -> list[Finding]:
    """Files of this machine that `ray up` would send; the token above all."""
    found = []
    for target, source in mounts.items():
        file, line = Path(source).expanduser(), tree.line_of(("file_mounts", target))
        if not file.exists():
            todo = "; `specsweep cluster init` makes one" if target == TOKEN else ""
            found.append(Finding(line, f"file_mounts.{target}", f"{file} is not there yet{todo}", is_fault=False))
        elif target == TOKEN and file.stat().st_mode & 0o077:
            told = f"others can read {file}: chmod 600 {file}"
            found.append(Finding(line, f"file_mounts.{target}", told, is_fault=False))
    return found


@dataclass(frozen=True)
class InitRequest:
    """Arguments of `specsweep cluster init`."""

    head: str
    workers: str
    user: str
    key: str | None
    python: str | None
    out: Path
    force: bool


def init(request: InitRequest, console: Console) -> None:
    """Write a cluster file for these hosts, and a token if there is none; BadInput for hosts that cannot be right."""
    workers = [word.strip() for word in request.workers.split(",") if word.strip()]
    _refuse_hosts(request.head, workers)
    python = request.python or f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not _INTERPRETER.match(python):
        raise BadInput(f"--python {python}: give the name or path of an interpreter, e.g. python3.11")
    if (named := _NAMED.match(python)) and int(named[1]) not in PYTHONS:
        raise BadInput(f"--python {python}: Specsweep needs Python 3.{PYTHONS[0]} to 3.{PYTHONS[-1]}")
    if not _USER.match(request.user):
        raise BadInput(f"--user {request.user!r}: give the name of the user that ssh logs in as, e.g. ray")
    text = cluster_text(
        ClusterPlan(request.head, workers, request.user, python, own_pins(), request.key, _token_source())
    )
    found, _ = findings(parse_yaml(text.encode(), str(request.out), "cluster file"))
    if faults := [finding for finding in found if finding.is_fault]:
        raise BadInput("\n".join(fault.told(str(request.out)) for fault in faults))
    _write_new(request.out, text, force=request.force)
    console.print(escape(f"wrote {request.out}: head {request.head}, {plural(len(workers), 'worker')}"), soft_wrap=True)
    console.print(escape(_token_told()), soft_wrap=True)
    console.print(escape(f"next: specsweep cluster check {request.out}; ray up -y {request.out}"), soft_wrap=True)


def _refuse_hosts(head: str, workers: list[str]) -> None:
    for option, address in (("--head", head), *(("--workers", worker) for worker in workers)):
        if fault := address_fault(address):
            raise BadInput(f"{option}: {fault}")
    for i, worker in enumerate(workers):
        if same_host(worker, head):
            raise BadInput(f"--workers: {worker} is the head; it is a host of the cluster already")
        if any(same_host(worker, other) for other in workers[:i]):
            raise BadInput(f"--workers: {worker} is given twice")


def own_pins() -> dict[str, str]:
    """Exact versions of what Specsweep needs, as installed here: a driver and its hosts must not differ."""
    pins = {}
    for requirement in importlib.metadata.requires("specsweep") or ():
        match = _REQUIREMENT.match(requirement)
        if match and "extra ==" not in requirement and (version := package_version(match[1])):
            pins[match[0]] = version
    return pins


def _token_source() -> str:
    """Where Ray looks for the token on this machine."""
    return os.environ.get("RAY_AUTH_TOKEN_PATH") or TOKEN


def _token_told() -> str:
    """Make a token of 256 bits that only this user can read, if there is none; what was done."""
    file = Path(_token_source()).expanduser()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return f"token: {file}, which was there already"
    with os.fdopen(opened, "w", encoding="ascii") as stream:
        stream.write(secrets.token_hex(32))
    return f"token: made {file}; whoever has it can run code on the hosts"


def _write_new(path: Path, text: str, *, force: bool) -> None:
    if path.is_dir():
        raise BadInput(f"-o {path}: is a folder; give a file")
    if path.exists() and not force:
        raise BadInput(f"-o {path}: is there already; give another one, or --force to write over it")
    with user_file(f"-o {path}", "written"):
        write_whole(path, text.encode())


def _read(path: Path) -> YamlTree:
    with user_file(str(path), "read", absent="no such cluster file; `specsweep cluster init` writes one"):
        data = path.read_bytes()
    return parse_yaml(data, str(path), "cluster file")
