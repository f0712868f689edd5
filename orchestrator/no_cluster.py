"""Why a cluster cannot be joined, from what Ray said, and what to do about it. Pure."""

from __future__ import annotations

START = "Start one with `ray up ray_cluster.yaml`, or use --address local to embed one on this machine."
TOKEN = (
    "This machine has another token than the cluster, or none: put the cluster's into ~/.ray/auth_token (mode 0600) or "
    "name its file by RAY_AUTH_TOKEN_PATH, with RAY_AUTH_MODE=token."
)
NO_HOST = (
    "The address answers, but Ray takes drivers on hosts of the cluster only: run it on one of them, mostly the head, "
    "or send it there by `specsweep submit`. If this is such a host, its raylet does not run."
)

SHORTER = "Ray's sockets need a short path: set TMPDIR to a folder such as /tmp."


def no_cluster(address: str, told: str) -> str:
    """The whole message for a user. `told` is what Ray printed, or its error; its last line counts."""
    last = told.strip().splitlines()[-1] if told.strip() else "no answer"
    return f"no Ray cluster at --address {address}: {last}\n{_todo(told)}"


def _todo(told: str) -> str:
    if "InvalidAuthToken" in told or "Unauthenticated" in told:
        return TOKEN
    if "Failed to connect to Ray cluster" in told or "Can't find a `node_ip_address.json`" in told:
        return NO_HOST
    return SHORTER if "AF_UNIX path length" in told else START
