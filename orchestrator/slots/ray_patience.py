"""Ray's waits for its own processes, made longer: 30 s may be little on a busy machine, or where the disk is cold.

There is no public switch for the wait for the raylet (`Node.__init__` of Ray's node.py asks `get_node` until 30 s are
over), and a cluster that is started anew meets the same machine. However long it takes, Ctrl-C is heard.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

START_S = 120.0
_LOOK_S = 0.2
_PIECE_MS = 500
_TOO_LATE = "Timed out waiting for file"
# Whoever set them knows better. The server for jobs is asked for by `ray start` only.
_WAITS = {"RAY_gcs_server_port_wait_time_s": f"{START_S:g}", "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{START_S:g}"}


@contextlib.contextmanager
def patient_start(look: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Around the start of a cluster, or of a node of one, in this process. `look` is called now and then while it waits
    for processes, and may raise: there is nothing of C++ then that has to be left in order.
    """
    given = {name: value for name, value in _WAITS.items() if name not in os.environ}
    os.environ.update(given)
    from ray._private import node, services

    longer: dict[tuple[Any, str], Callable[[Any], Any]] = {
        (services, "get_node"): lambda ask: patient(ask, raylet_lives, look=look),
        (node, "wait_for_persisted_port"): lambda wait: interruptible(wait, look=look),
    }
    rays = {place: getattr(*place) for place in longer if hasattr(*place)}
    try:
        for (module, name), wait in rays.items():
            setattr(module, name, longer[module, name](wait))
        yield
    finally:
        for (module, name), wait in rays.items():
            setattr(module, name, wait)
        for name in given:
            os.environ.pop(name, None)


def patient(
    ask: Callable[..., Any], lives: Callable[[], bool], clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep, look: Callable[[], object] = lambda: None,
) -> Callable[..., Any]:  # fmt: skip
    """`ask` raises RuntimeError while a raylet has not registered: it is asked again while the raylet lives."""
    until = clock() + START_S

    def asked(*arguments: Any, **named: Any) -> Any:
        while True:
            look()
            try:
                return ask(*arguments, **named)
            except RuntimeError:
                if clock() >= until or not lives():
                    raise
            pause(_LOOK_S)

    return asked


def interruptible(
    wait: Callable[..., Any], clock: Callable[[], float] = time.monotonic, look: Callable[[], object] = lambda: None
) -> Callable[..., Any]:
    """`wait` for a port's file, which is C++ and deaf to Ctrl-C until its time is over, in short pieces."""

    def waited(*arguments: Any, timeout_ms: int, **named: Any) -> Any:
        until = clock() + timeout_ms / 1000
        while True:
            look()
            left_ms = max(0, round((until - clock()) * 1000))
            try:
                return wait(*arguments, timeout_ms=min(left_ms, _PIECE_MS), **named)
            except Exception as error:
                if left_ms <= _PIECE_MS or _TOO_LATE not in str(error):
                    raise

    return waited


def raylet_lives() -> bool:
    """Whether a raylet is among the processes that this one has started."""
    return any(word.endswith("/raylet/raylet") for _, words in _started() for word in words)


def end_start(folder: str) -> None:
    """End what a start of Ray that failed has left: processes of ours that were told this folder. Ray ends them at our
    end only; until then they take the CPUs that the next start needs.
    """
    for process, words in _started():
        if any(folder in word for word in words):
            with contextlib.suppress(psutil.Error):
                process.kill()


def _started() -> Iterator[tuple[psutil.Process, list[str]]]:
    """The processes that this one has started, and those below them, with their command lines."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            yield child, child.cmdline()
