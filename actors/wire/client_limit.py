"""Limits of our own side: which was met, what it is set to, and what to do. They say nothing about the server."""

from __future__ import annotations

import contextlib
import errno
import resource
from pathlib import Path

_CLIENT_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})


def raise_file_limit() -> None:
    """Open files as many as the system lets this process: each stream is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (hard, int(_setting("fs/nr_open", "0"))):  # a hard limit above the kernel's own cannot be had
        if soft == hard or 0 < most <= soft:
            return
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return


def is_client_limit(error: BaseException) -> bool:
    """Whether an error is of our own host or process, not of the server."""
    return isinstance(error, OSError) and error.errno in _CLIENT_LIMITS


def limit_text(error: OSError) -> str:
    """`EMFILE: what is used up, its present value, what to do`."""
    number = error.errno or 0
    name = errno.errorcode.get(number, str(number))
    return f"{name}: {_account(number)}"


def _account(number: int) -> str:
    if number == errno.EMFILE:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"this load process may open {soft} files, and each stream needs one; raise its limit "
            "(ulimit -Hn, LimitNOFILE=, docker --ulimit nofile=), or spread the load over more processes"
        )
    if number == errno.ENFILE:
        return (
            f"the load host has no open file left (in use, free, most: {_setting('fs/file-nr')}); raise fs.file-max, "
            "or send from more hosts"
        )
    if number == errno.EADDRNOTAVAIL:
        return (
            "the load host has no local port left for connections to this server, or no address of its family "
            f"(net.ipv4.ip_local_port_range is {_setting('net/ipv4/ip_local_port_range')}); widen the range, "
            "or send from more hosts"
        )
    return (
        "the load host has no memory left for sockets (net.ipv4.tcp_mem, in pages: "
        f"{_setting('net/ipv4/tcp_mem')}); give it more memory, or send from more hosts"
    )


def _setting(name: str, unknown: str = "unknown") -> str:
    """Present value of a kernel setting, numbers apart by one space."""
    try:
        return " ".join(Path("/proc/sys", name).read_text(encoding="ascii").split())
    except OSError:
        return unknown
