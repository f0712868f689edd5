"""The nodes of one emulated server: they wait for each other, agree on numbers, and see each other die.

What torch does over its store and its sockets is one connection here, from every other node to node 0. A node that
dies closes it; the others notice in their next collective, as real ones do.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from actors.emulator.memory import Death
from actors.emulator.ranks import LocalRanks

# What torch waits for the others if --dist-timeout does not say: for NCCL and for gloo, which the CPU has.
MEETING_S = {"cuda": 600.0, "cpu": 1800.0}
# What a rank that has loaded its weights waits for the others.
LOADING_S = 480.0
# The start speed-up shortens that, but nodes do not start at the same moment, and this machine may stand still.
LEAST_LOADING_S = 30.0
END = b'"end"'
_RETRY_S = 0.05
# How often the clock is looked at while another node is waited for.
_LOOK_S = 0.5
_PAIR = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error"
_HINT = (
    "This is typically caused by a remote worker hanging or bugs in the application. Check the logs of the remote "
    "worker before reporting an error. GLHF! \N{BEACH WITH UMBRELLA}\N{VARIATION SELECTOR-16}"
)


class SpanBroken(Exception):
    """This node cannot go on: the others did not come, or one is gone. `death` is what its schedulers die of."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.message)
        self.death = death


@dataclass
class Peer:
    """Another node. `said` holds what it sent and nobody has taken yet."""

    connection: socket.socket
    address: tuple[str, int]
    said: bytes = b""

    def send(self, word: object) -> None:
        with contextlib.suppress(OSError):  # that it is gone shows when it is read
            self.connection.sendall(json.dumps(word).encode() + b"\n")

    def line(self, until: float | None = None) -> Any:
        """What it says next; waits for it, TimeoutError after `until`. SpanBroken if it is gone."""
        while b"\n" not in self.said:
            left_s = None if until is None else max(until - time.monotonic(), 0)
            if select.select([self.connection], [], [], None if left_s is None else min(left_s, _LOOK_S))[0]:
                self.said += self.read()
            elif left_s == 0:
                raise TimeoutError
        line, _, self.said = self.said.partition(b"\n")
        return json.loads(line)

    def read(self) -> bytes:
        """What has come; SpanBroken if it is gone."""
        try:
            data = self.connection.recv(1 << 12)
        except OSError:
            data = b""
        if not data:
            raise SpanBroken(gone(self.address))
        return data

    def stir(self) -> None:
        """Take in what has come, without waiting; SpanBroken if it is gone."""
        while select.select([self.connection], [], [], 0)[0]:
            self.said += self.read()


@dataclass
class Span:
    """This node's part. Node 0 has the others as peers, the others have node 0."""

    ranks: LocalRanks
    peers: list[Peer] = field(default_factory=list)

    def meet(self, args: Mapping[str, Any]) -> None:
        """Wait until all nodes are there, in real time. SpanBroken with torch's words if they do not come."""
        host, _, port = str(args["dist_init_addr"]).rpartition(":")
        place = (host.strip("[]"), int(port))
        limit_s = args["dist_timeout"] or MEETING_S["cpu" if args["device"] == "cpu" else "cuda"]
        if self.ranks.serves:
            self._gather(place, limit_s)
        else:
            self._join(place, limit_s)

    def least(self, number: float, until: float | None = None) -> float:
        """A collective: the smallest of all nodes' numbers. SpanBroken without a node, TimeoutError after `until`."""
        if self.ranks.serves:
            found = min([number, *(float(peer.line(until)) for peer in self.peers)])
            self._tell(found)
            return found
        self._tell(number)
        return min([float(peer.line(until)) for peer in self.peers], default=number)

    def meet_after(self, phase: str, speedup: float) -> None:
        """The barrier that ends a phase of the start. SpanBroken with SGLang's words if a node does not come."""
        if phase != "load":
            self.least(0.0)
            return
        try:
            self.least(0.0, time.monotonic() + max(LOADING_S / speedup, LEAST_LOADING_S))
        except (SpanBroken, TimeoutError):
            told = (
                f"TP rank {self.ranks.first} could finish the model loading, but there are other ranks that didn't "
                "finish loading. It is likely due to unexpected failures (e.g., OOM) or a slow node."
            )
            raise SpanBroken(Death("barrier", "ValueError", told)) from None

    def broken(self) -> Death | None:
        """What the schedulers of this node die of now that they serve; None as long as all nodes are there."""
        try:
            for peer in self.peers:
                peer.stir()
        except SpanBroken as broken:
            return replace(broken.death, phase="peer_serving")
        return None

    @property
    def is_ended(self) -> bool:
        """Whether node 0 has said that it is over."""
        return any(END in peer.said for peer in self.peers)

    def end(self) -> None:
        """Tell the others to end in order."""
        for peer in self.peers:
            peer.send("end")

    def leave(self) -> None:
        """The schedulers of this node are gone."""
        for peer in self.peers:
            peer.connection.close()

    def _tell(self, word: object) -> None:
        for peer in self.peers:
            peer.send(word)

    def _gather(self, place: tuple[str, int], limit_s: float) -> None:
        until = time.monotonic() + limit_s
        family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        with socket.create_server(place, family=family) as server:
            while len(self.peers) < self.ranks.nodes - 1:
                left_s = until - time.monotonic()
                if left_s <= 0 or not select.select([server], [], [], left_s)[0]:
                    joined = f"{len(self.peers) + 1}/{self.ranks.nodes} clients joined."
                    told = f"Timed out after {limit_s + 1:.0f} seconds waiting for clients. {joined}"
                    raise SpanBroken(Death("meeting", "torch.distributed.DistStoreError", told))
                connection, address = server.accept()
                self.peers.append(Peer(connection, address[:2]))
        for peer in self.peers:
            peer.line()
        self._tell("all here")

    def _join(self, place: tuple[str, int], limit_s: float) -> None:
        until = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(OSError):
                peer = Peer(socket.create_connection(place, timeout=max(until - time.monotonic(), _RETRY_S)), place)
                peer.connection.settimeout(None)
                break
            if time.monotonic() >= until:
                told = (
                    f"The client socket has timed out after {limit_s * 1000:.0f}ms while trying to connect to "
                    f"({place[0]}, {place[1]})."
                )
                raise SpanBroken(Death("meeting", "torch.distributed.DistNetworkError", told))
            time.sleep(_RETRY_S)
        self.peers.append(peer)
        peer.send(self.ranks.node)
        peer.line()


def gone(address: tuple[str, int]) -> Death:
    """What gloo says once another node's socket is closed."""
    where = f"[{address[0]}]:{address[1]}"
    return Death("peer", "RuntimeError", f"{_PAIR} {where}: Connection reset by peer. {_HINT}")
