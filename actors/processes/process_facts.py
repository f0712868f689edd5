"""What /proc tells of a process: command, user, environment, the service or container that it belongs to."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from actors.processes.process_identity import parent_of
from actors.processes.process_unit import Unit, unit_of

UNKNOWN = "?"


def command_of(pid: int) -> str:
    """The command line of a process in one line, '?' if it cannot be read."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return UNKNOWN
    return b" ".join(words).decode(errors="replace").strip() or UNKNOWN


def uid_of(pid: int) -> int | None:
    """The user that a process belongs to; None if it is gone or in another PID namespace."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def user_of(pid: int) -> str:
    """The name of the user, the number where it has none, '?' if the process cannot be seen."""
    uid = uid_of(pid)
    if uid is None:
        return UNKNOWN
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it cannot be read (other users, root's alone)."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def ancestors(pid: int) -> Iterator[int]:
    """Parent, grandparent and so on, without PID 1: that one is init, or what a container was started for."""
    seen = {pid}
    while (parent := parent_of(pid)) is not None and parent > 1 and parent not in seen:
        yield parent
        seen.add(parent)
        pid = parent


def unit_holding(pid: int) -> Unit | None:
    """The service, container or supervisor that a process belongs to; None where that is the one we are in as well."""
    own = _unit(os.getpid())
    found = _unit(pid)
    return None if found is None or (own is not None and found.name == own.name) else found


def server_root(pid: int) -> int:
    """The process that a holder of GPU memory was started as: the topmost ancestor that is part of the same server.

    Ends at another process group, another program, another cgroup, and below a supervisor.
    """
    for parent in ancestors(pid):
        same = _program(parent) == _program(pid) and _group(parent) == _group(pid) and _cgroup(parent) == _cgroup(pid)
        supervised = "SUPERVISOR_ENABLED" in environment_of(pid) and "SUPERVISOR_ENABLED" not in environment_of(parent)
        if not same or supervised:
            break
        pid = parent
    return pid


def _unit(pid: int) -> Unit | None:
    return unit_of(_cgroup(pid), environment_of(pid), pid)


def _cgroup(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _program(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""  # another user's: process group and cgroup then decide


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return -1
