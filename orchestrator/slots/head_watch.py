"""Whether the head's Ray still answers: without it Ray ends a driver after a while, from C++ and without a word.

Calls that need the head then wait as long; those to actors that are known go on. So this is a thread that asks nobody
but the network, and what it does when the head is gone must not need the head.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

_RECONNECT_VARIABLE = "RAY_gcs_rpc_server_reconnect_timeout_s"
_RECONNECT_S = 60.0  # what Ray takes where that is not set
_PROBE_S = 2.0
_EVERY_S = 1.0


def patience_s(environment: dict[str, str]) -> float:
    """How long the head may be silent: so that there is time before Ray ends us, and for a head that comes back."""
    try:
        limit_s = float(environment.get(_RECONNECT_VARIABLE, _RECONNECT_S))
    except ValueError:
        limit_s = _RECONNECT_S
    return max(limit_s - 10.0, limit_s / 2)


def reachable(address: str) -> bool:
    """Whether something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def watching_head(
    address: str, on_lost: Callable[[float], None], *, silent_s: float | None = None,
    ask: Callable[[str], bool] = reachable, clock: Callable[[], float] = time.monotonic, every_s: float = _EVERY_S,
) -> Iterator[None]:  # fmt: skip
    """While this is on, `on_lost` is called once, in a thread, when the head has not answered for `silent_s`.

    It is told for how many seconds.
    """
    limit_s = patience_s(dict(os.environ)) if silent_s is None else silent_s
    over = threading.Event()

    def watch() -> None:
        heard = clock()
        while not over.wait(every_s):
            if ask(address):
                heard = clock()
            elif clock() - heard >= limit_s:
                if not over.is_set():
                    on_lost(clock() - heard)
                return

    thread = threading.Thread(target=watch, name="head", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
