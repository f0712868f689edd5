"""Which service, container or supervisor started a process, and how that is stopped for good. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

_CONTAINER = re.compile(r"(?:^|[/:-])(docker|libpod|nerdctl|cri-containerd|crio|containerd)[-/:](?P<id>[0-9a-f]{64})")
_POD = re.compile(r"pod(?P<uid>[0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12})")
_LXC = re.compile(r"/lxc(?:\.payload\.|/)(?P<name>[^/.]+)")
_SERVICE = re.compile(r"(?P<name>[^/]+\.service)(?=/|$)")
_RUNTIMES = {"docker": "docker", "libpod": "podman", "nerdctl": "nerdctl", "containerd": "nerdctl"}
# Run every login and every container; that a process is below them says nothing about who started it.
_HOSTS_OF_ALL = re.compile(r"^(?:user@\d+|init|dbus|ssh|sshd|cron|crond|docker|containerd|podman|kubelet)\.service$")


@dataclass(frozen=True, slots=True)
class Unit:
    """What holds a process, as a user calls it, and the command that stops it so that it stays stopped."""

    kind: Literal["systemd", "container", "pod", "lxc", "supervisord"]
    name: str
    stop: str

    def __str__(self) -> str:
        return f"{self.name} (stop it with: {self.stop})"


def unit_of(cgroup: str, environment: Mapping[str, str], pid: int) -> Unit | None:
    """By the text of /proc/PID/cgroup and the environment; None for what was started by hand or cannot be told.

    The innermost counts: a supervisord in a container restarts what a stopped container would not.
    """
    paths = [line.split(":", 2)[2] for line in cgroup.splitlines() if line.count(":") >= 2]
    path = max(paths, key=len, default="/")
    if name := environment.get("SUPERVISOR_PROCESS_NAME"):
        program = f"{environment.get('SUPERVISOR_GROUP_NAME', name)}:{name}"
        return Unit("supervisord", f"supervisord program {program}", f"supervisorctl stop {program}")
    return _pod(path) or _container(path) or _service(path) or _lxc(path) or _started_by_systemd(environment, pid)


def _pod(path: str) -> Unit | None:
    if (found := _POD.search(path)) is None:
        return None
    uid = found["uid"].replace("_", "-")
    find = f"kubectl get pods -A -o custom-columns=NAME:.metadata.name,UID:.metadata.uid | grep {uid}"
    return Unit("pod", f"Kubernetes pod {uid}", f"scaling what owns it to 0; its name: {find}")


def _container(path: str) -> Unit | None:
    if (found := _CONTAINER.search(path)) is None:
        return None
    runtime, short = _RUNTIMES.get(found[1], "crictl"), found["id"][:12]
    return Unit("container", f"container {short} of {runtime}", f"{runtime} stop {short}")


def _service(path: str) -> Unit | None:
    names = [name for name in _SERVICE.findall(path) if not _HOSTS_OF_ALL.match(name)]
    if not names:
        return None
    of_user = "/user@" in path
    return Unit("systemd", names[-1], f"systemctl {'--user ' if of_user else ''}stop {names[-1]}")


def _lxc(path: str) -> Unit | None:
    if (found := _LXC.search(path)) is None:
        return None
    return Unit("lxc", f"LXC container {found['name']}", f"lxc-stop -n {found['name']}, on the container host")


def _started_by_systemd(environment: Mapping[str, str], pid: int) -> Unit | None:
    """Where the cgroup says nothing (a systemd inside a container): the main process of a unit knows itself."""
    if "INVOCATION_ID" not in environment or environment.get("SYSTEMD_EXEC_PID") != str(pid):
        return None
    return Unit(
        "systemd", f"a systemd unit (invocation {environment['INVOCATION_ID'][:12]})", f"systemctl status {pid}"
    )


def restart_policy(unit: Unit, ask: Callable[[list[str]], str | None]) -> str | None:
    """How a unit is restarted when its process ends (`always`, `on-failure`, ...); None if not, or not known.

    `ask` runs a command and returns its output, None if it failed.
    """
    if unit.kind == "pod":
        return "always"  # kubelet's default, and the only one of a deployment
    if unit.kind == "supervisord":
        return "autorestart"
    if unit.kind == "systemd" and unit.name.endswith(".service"):
        words = ["systemctl", *(["--user"] if "--user" in unit.stop else []), "show", "-p", "Restart", "--value"]
        said = ask([*words, unit.name])
    elif unit.kind == "container" and not unit.stop.startswith("crictl"):
        runtime, _, short = unit.stop.split()
        said = ask([runtime, "inspect", "-f", "{{.HostConfig.RestartPolicy.Name}}", short])
    else:
        return None
    policy = (said or "").strip()
    return None if policy in {"", "no"} else policy
