"""Monotonic clocks that leap where a server would pause: limits of minutes pass at once.

A test that waits for a short limit fails where the machine stands still for as long; one that leaps over a long limit
does not, and takes no time. Loops of asyncio follow the clock, those of uvloop do not.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import math
import os
import struct
import termios
import time
from pathlib import Path
from typing import Protocol

import pytest

import actors.guards.guard

# Rounds of the event loop until whoever reads a connection in it has been given what is there.
_ROUNDS = 3
# A leap is made of so many, between which timers of this loop run: what ends too early has ended before the leap has.
_PIECES = 8
_SITE = Path(__file__).with_name("leaping")
# Guards start without a site and without our environment.
_GUARD = """
import os, runpy
os.environ["LEAPING_CLOCK"] = {clock!r}
runpy.run_path({site!r} + "/sitecustomize.py")
runpy.run_path({guard!r}, run_name="__main__")
"""


class Leaping(Protocol):
    """What servers ask of a clock."""

    async def leap(self, seconds: float, written: asyncio.BaseTransport | None) -> None:
        """So much later, but not before a client in this loop has read what was written to it."""


class LeapingClock:
    """The clock of this process, while the test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_ns = 0
        seconds, nanoseconds = time.monotonic, time.monotonic_ns
        monkeypatch.setattr(time, "monotonic", lambda: seconds() + self._ahead_ns / 1e9)
        monkeypatch.setattr(time, "monotonic_ns", lambda: nanoseconds() + self._ahead_ns)
        monkeypatch.setattr("actors.wire.http_connection._clock", time.monotonic_ns)  # has its own name for it

    async def leap(self, seconds: float, written: asyncio.BaseTransport | None = None) -> None:
        await _read(written)
        for _ in range(_PIECES if seconds else 0):
            self._ahead_ns += math.ceil(seconds * 1e9 / _PIECES)
            await _rounds()


class ClockOfChildren:
    """The clock of Python processes that are started from now on, guards too; ours goes on. They see one leap."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._file = folder / "ahead_ns"
        self._ahead_ns = 0
        self._file.write_bytes(struct.pack("q", 0))
        monkeypatch.setenv("LEAPING_CLOCK", str(self._file))
        monkeypatch.setenv("PYTHONPATH", str(_SITE), prepend=os.pathsep)
        guard = folder / "guard_by_this_clock.py"
        guard.write_text(_GUARD.format(clock=str(self._file), site=str(_SITE), guard=str(actors.guards.guard._SCRIPT)))
        monkeypatch.setattr(actors.guards.guard, "_SCRIPT", guard)

    async def leap(self, seconds: float, written: asyncio.BaseTransport | None = None) -> None:
        await _read(written)
        self.leap_by(seconds)

    def leap_by(self, seconds: float) -> None:
        """So much later, now."""
        self._ahead_ns += round(seconds * 1e9)
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", self._ahead_ns))


async def _read(transport: asyncio.BaseTransport | None) -> None:
    while transport is not None and _on_its_way(transport):  # noqa: ASYNC110 - the system does not tell
        await asyncio.sleep(0.001)
    await _rounds()


async def _rounds() -> None:
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


def _on_its_way(transport: asyncio.BaseTransport) -> bool:
    """Whether the other side's system has not yet got all that was written."""
    given = transport.get_extra_info("socket")
    if given is None or given.fileno() < 0:
        return False
    waiting = array.array("i", [0])
    fcntl.ioctl(given.fileno(), termios.TIOCOUTQ, waiting)
    return waiting[0] > 0
