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


class EarlyInterrupt:
    """Ctrl-C and SIGTERM (what `ray job stop` sends) before the sweep has handlers of its own.

    What is raised while Ray starts may come up in a callback of its own, which swallows it: so it is also remembered.
    While it is `held`, nothing is raised.
    """

    def __init__(self) -> None:
        self._heard = False
        self._is_held = False
        self._wish = StopWish()

    def listening(self) -> contextlib.AbstractContextManager[None]:
        return stop_handled_by(self._hear)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For what has to be finished first. Others may handle the signals within."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def check(self) -> None:
        """KeyboardInterrupt if one of them came."""
        if self._heard:
            raise KeyboardInterrupt

    def _hear(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._heard = True
        if not self._wish.is_echo() and not self._is_held:
            raise KeyboardInterrupt
