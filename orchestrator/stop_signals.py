"""Ctrl-C and SIGTERM (what `ray job stop` sends) handled in one way for a while."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# `timeout` and whoever signals a process and its group deliver one wish twice; nobody presses Ctrl-C twice so soon.
ONE_WISH_S = 0.5
Handler = Callable[[int, FrameType | None], Any] | signal.Handlers


class StopWish:
    """Tells the echo of a wish to stop from a second wish."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_s: float | None = None

    def is_echo(self) -> bool:
        """Of a signal that came now."""
        now_s = self._clock()
        if self._heard_s is not None and now_s - self._heard_s < ONE_WISH_S:
            return True
        self._heard_s = now_s
        return False


@contextlib.contextmanager
def stop_handled_by(handler: Handler) -> Iterator[None]:
    """Whatever handled them before does so again afterwards."""
    previous = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def stop_ignored() -> contextlib.AbstractContextManager[None]:
    """For what has to be finished however often somebody asks for an end."""
    return stop_handled_by(signal.SIG_IGN)
