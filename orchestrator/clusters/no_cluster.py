"""Why a cluster cannot be joined, from what Ray said, and what to do about it. Pure."""

from __future__ import annotations

import re

START = "Start one with `ray up ray_cluster.yaml`, or use --address local to embed one on this machine."
TOKEN = (
    "This machine has another token than the cluster, or none: put the cluster's into ~/.ray/auth_token (mode 0600) or "
    "name its file by RAY_AUTH_TOKEN_PATH, with RAY_AUTH_MODE=token."
)
NO_HOST = (
    "The address answers, but Ray takes drivers on hosts of the cluster only: run it on one of them, mostly the head, "
    "or send it there by `specsweep submit`. If this is such a host, its raylet does not run."
)

BUSY = (
    "Ray's own processes do not come up, however often they are started: this machine is too busy; see what runs here."
)
SHORTER = "Ray's sockets need a short path: set TMPDIR to a folder such as /tmp."


OWN = "Ray could not be started on this machine. To join a cluster that runs, name it: --address HEAD:6379."
# The raylet (its agent among it) and the head's own server, as Ray's node.py and its Cython parts tell it.
_SLOW = ("timed out during startup", "Timed out waiting for file")
# What Ray's C++ parts write: time, severity, process and thread, place in the source.
_LOGGED = re.compile(r"^\[[^\]]* ([DIWEF]) \d+ \d+\] \S+:\d+: ")


def no_cluster(address: str, told: str) -> str:
    """The whole message for a user. `told` is what Ray printed, or its error; the last line that is a reason counts."""
    return f"no Ray cluster at --address {address}: {_reason(told)}\n{_todo(address, told)}"


def is_slow_start(told: str) -> bool:
    """Whether Ray's own processes were there, but not in the time that Ray gives them."""
    return any(words in told for words in _SLOW)


def _reason(told: str) -> str:
    lines = [line for line in told.strip().splitlines() if line.strip()]
    refused = [line for line in lines if "InvalidAuthToken" in line]
    # Ray also warns of what does no harm.
    others = [line for line in lines if (logged := _LOGGED.match(line)) is None or logged[1] not in "DIW"]
    line = (refused or others or lines or ["no answer"])[-1]
    return _LOGGED.sub("", line)


def _todo(address: str, told: str) -> str:
    if "InvalidAuthToken" in told or "Unauthenticated" in told:
        return TOKEN
    if "Failed to connect to Ray cluster" in told or "Can't find a `node_ip_address.json`" in told:
        return NO_HOST
    if "AF_UNIX path length" in told:
        return SHORTER
    if is_slow_start(told):
        return BUSY
    return OWN if address == "local" else START
