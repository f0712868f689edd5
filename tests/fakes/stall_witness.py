"""Whether this machine stood still: speeds that were measured meanwhile say nothing about the program."""

from __future__ import annotations

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
# Nor may all tests of one session measure anew for longer, so that CI ends in its 40 minutes.
_MOST_AGAIN_S = 240.0


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


class Again:
    """How long the tests of this session have measured anew."""

    spent_s = 0.0


def undisturbed(measure: Callable[[], T], agrees: Callable[[T], bool]) -> T:
    """What was measured; anew where it does not agree with the figures and the machine stood still meanwhile."""
    found, moved, took_s = _watched(measure)
    for _ in range(_MOST_DISTURBED):
        if agrees(found) or moved or Again.spent_s + took_s > _MOST_AGAIN_S:
            break
        found, moved, took_s = _watched(measure)
        Again.spent_s += took_s
    return found


def _watched(measure: Callable[[], T]) -> tuple[T, bool, float]:
    """What was measured, whether the machine did not stand still, and how long it took."""
    began = time.monotonic()
    with StallWitness() as witness:
        found = measure()
    return found, witness.longest_s < _STALL_S, time.monotonic() - began
