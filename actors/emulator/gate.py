"""Holds up the steps of the engine: for a while, until a file is there, for ever, each a little, or more and more."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

_LONGEST_S = 3600.0
_LOOK_S = 0.02


@dataclass
class Gate:
    """Called by the engine before each step's tokens leave; answers the seconds by which it delayed them."""

    closed: bool = False
    _stalled_until: float = 0.0
    _decays_since: float = 0.0
    _halving_s: float | None = None
    _awaited: list[Path] = field(default_factory=list)
    _crawls: list[tuple[float, Path | None]] = field(default_factory=list)

    def stall(self, seconds: float) -> None:
        """Nothing leaves for so long from now on."""
        self._stalled_until = max(self._stalled_until, time.monotonic() + seconds)

    def hold(self, until: Path) -> None:
        """Nothing leaves before this file is there."""
        self._awaited.append(until)

    def crawl(self, seconds: float, whenever: Path | None) -> None:
        """From now on every step takes so much longer, or every step that finds this file there."""
        self._crawls.append((seconds, whenever))

    def decay(self, halving_s: float) -> None:
        """From now on the speed halves every so many seconds."""
        self._decays_since, self._halving_s = time.monotonic(), halving_s

    async def __call__(self, seconds: float) -> float:
        began = time.monotonic()
        if self._halving_s is not None:
            halvings = min(60.0, (began - self._decays_since) / self._halving_s)
            await asyncio.sleep(min(_LONGEST_S, seconds * (2**halvings - 1)))
        for longer_s, whenever in self._crawls:
            if whenever is None or whenever.exists():
                await asyncio.sleep(longer_s)
        while (left := self._stalled_until - time.monotonic()) > 0:  # noqa: ASYNC110 - may be put off meanwhile
            await asyncio.sleep(left)
        while any(not awaited.exists() for awaited in self._awaited):  # noqa: ASYNC110 - another process's file
            await asyncio.sleep(_LOOK_S)
        self._awaited.clear()
        if self.closed:
            await asyncio.Event().wait()
        return time.monotonic() - began
