"""How the guard starts a child: in a session of its own, bound to the guard's life. Standard library only."""

from __future__ import annotations

import ctypes
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence

PR_SET_PDEATHSIG = 1

_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LIBC = ctypes.CDLL(None, use_errno=True)


def spawn(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    output: int,
    *,
    limits: Mapping[str, int] | None = None,
    address_space_bytes: int | None = None,
) -> int:
    """Start a command, its output into a descriptor; its pid, to be reaped by the caller.

    `limits` are soft limits by name (`nofile`), -1 for unlimited. Raises OSError or ValueError if it cannot be run.
    """
    soft = [(_number(name), _value(limit)) for name, limit in (limits or {}).items()]

    def prepare() -> None:
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        # Ray workers block SIGINT, and children inherit the mask.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # Sent when the parent *thread* ends: safe here, since the guard's only thread lives as long as the guard.
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for kind, limit in soft:
            resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
        if address_space_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes, address_space_bytes))

    child = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - the guard has one thread
    )
    child.returncode = 0  # it is not reaped by Popen
    return child.pid


def limit_above_hard(limits: Mapping[str, int]) -> str | None:
    """The first limit that this host does not allow, in words."""
    for name, limit in limits.items():
        hard = resource.getrlimit(_number(name))[1]
        if hard != resource.RLIM_INFINITY and not 0 <= limit <= hard:
            wanted = "unlimited" if limit < 0 else str(limit)
            return f"engine.ulimits.{name} is {wanted}, above the hard limit of this host, {hard}"
    return None


def _number(name: str) -> int:
    number: int = getattr(resource, f"RLIMIT_{name.upper()}")
    return number


def _value(limit: int) -> int:
    return resource.RLIM_INFINITY if limit < 0 else limit
