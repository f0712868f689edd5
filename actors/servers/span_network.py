"""Where the ranks of a server on several hosts talk to each other: on the network that the cluster uses.

Left alone each library guesses by the host's name or its first interface, which on many hosts is loopback or a bridge
of containers; the ranks then wait for each other until their time is up.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

import psutil

from actors.servers.launch import free_ports

# SGLang's own queues between ranks; gloo's and NCCL's sockets (over InfiniBand NCCL still meets by these).
ADDRESS_VARIABLE = "SGLANG_HOST_IP"
INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
VARIABLES = (ADDRESS_VARIABLE, *INTERFACE_VARIABLES)
# Beside the meeting point SGLang takes some of the next ports for its queues with attention-DP.
_PORTS_IN_A_ROW = 8


def span_env(address: str, env: Mapping[str, str]) -> dict[str, str]:
    """What the ranks need to know of this host, which others reach by `address`. What `env` says already is kept."""
    interface = _interface_of(address)
    found = {ADDRESS_VARIABLE: address}
    if interface is not None:
        found |= dict.fromkeys(INTERFACE_VARIABLES, interface)
    return {name: value for name, value in found.items() if name not in env}


def _interface_of(address: str) -> str | None:
    """The network interface with an address; None for loopback, where nothing is to be chosen, and if none has it."""
    if address.startswith("127.") or address == "::1":
        return None
    for name, known in psutil.net_if_addrs().items():
        for one in known:
            if one.family in {socket.AF_INET, socket.AF_INET6} and one.address.partition("%")[0] == address:
                return name
    return None


def rendezvous(address: str, slot_index: int, skip: int) -> str:
    """HOST:PORT on this host where the ranks of a slot can meet; `skip` as of ports. ClusterRefusal if none is free."""
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{free_ports(slot_index, _PORTS_IN_A_ROW, skip=skip)}"
