"""Whether this machine stood still: speeds that were measured meanwhile say nothing about the program."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_SLEEP_S = 0.02
# Emulated servers make up for less (`RESYNC_S`), and what is left of it is within the bounds of the figures.
_STALL_S = 0.3
# A machine that stands still in each of so many measurements is none to measure on.
_MOST_DISTURBED = 3


class StallWitness:
    """Use as a context: `longest_s` is by how much a short sleep was overslept meanwhile, at worst."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(_SLEEP_S):
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - before - _SLEEP_S)
            before = now


def undisturbed(measure: Callable[[], T], agrees: Callable[[T], bool], none_after_s: float = math.inf) -> T:
    """What was measured; anew where it does not agree with the figures and the machine stood still meanwhile.

    What takes minutes is not begun again later than `none_after_s`.
    """
    began = time.monotonic()
    for _ in range(_MOST_DISTURBED):
        with StallWitness() as witness:
            found = measure()
        if agrees(found) or witness.longest_s < _STALL_S or time.monotonic() - began > none_after_s:
            return found
    return measure()
