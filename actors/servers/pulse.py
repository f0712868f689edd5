"""Feels for signs of life that nobody asks for: what the processes do, and while it serves, what the log says."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from actors.servers.follower import LogTail, Segment
from actors.servers.life_event import ActivitySeen, LogSpoke, TokensFlowed
from actors.servers.lifeline import Lifeline
from actors.servers.log_line import clean
from actors.servers.tree_activity import TreeActivity
from orchestrator.outcome import Phase

_SHORTEST_S, _LONGEST_S = 0.25, 10.0
# So many looks fall into the time that a server may be silent.
_LOOKS = 8
# SGLang tells every fortieth decode step and every prefill.
_TOKENS = ("Decode batch", "Prefill batch")
# Lines that only answer somebody who asks whether it lives are no work.
_ASKED = re.compile(r'"(?:GET|HEAD) /|^Health check failed\.|^tic start time: ')


def tells_tokens(segment: Segment) -> bool:
    """Whether a line of SGLang's log says that requests get tokens."""
    return clean(segment.text).message.startswith(_TOKENS)


def tells_work(segment: Segment) -> bool:
    """Whether a line of a log is about something that a hung server does not do."""
    return not _ASKED.search(clean(segment.text).message)


class Pulse:
    """Of one server. Without budgets for its phases there is nothing to compare with, and it is left alone."""

    def __init__(self, lifeline: Lifeline, log: Path, activity: TreeActivity) -> None:
        self._lifeline = lifeline
        self._log = log
        self._activity = activity
        self._tail: LogTail | None = None

    async def feel(self) -> None:
        """Until the life is over."""
        while not self._lifeline.is_over and (every_s := self._interval_s()):
            await asyncio.sleep(every_s)
            if self._lifeline.life.is_ready:
                await self._listen()
            sample = await asyncio.to_thread(self._activity.sample)
            await self._lifeline.feed(ActivitySeen(time.monotonic(), sample))

    def _interval_s(self) -> float | None:
        shortest = min((budget.silent_s for budget in self._lifeline.life.rules.budgets), default=None)
        now = self._lifeline.life.rules.budget(Phase.SERVING if self._lifeline.life.is_ready else self._phase())
        silent_s = now.silent_s if now is not None else shortest
        return None if silent_s is None else min(max(silent_s / _LOOKS, _SHORTEST_S), _LONGEST_S)

    def _phase(self) -> Phase:
        return self._lifeline.life.signs.phase

    async def _listen(self) -> None:
        """What the log gained since it serves."""
        if self._tail is None:
            size = self._log.stat().st_size if self._log.exists() else 0
            self._tail = LogTail(self._log, size)
        segments = await asyncio.to_thread(self._tail.read)
        now = time.monotonic()
        if any(map(tells_tokens, segments)):
            await self._lifeline.feed(TokensFlowed(now))
        elif any(map(tells_work, segments)):
            await self._lifeline.feed(LogSpoke(now))
