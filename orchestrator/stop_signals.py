"""Ctrl-C and SIGTERM (what `ray job stop` sends) handled in one way for a while."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], Any] | signal.Handlers


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
