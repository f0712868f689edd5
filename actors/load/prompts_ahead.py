"""Prompts built before they are due: a long one takes a millisecond or more, in which no answer is read."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from actors.load.load_phase import Phase
from actors.workloads.request_source import RequestSource
from actors.workloads.session_script import SessionScript

# What is built before a phase begins, until the first of these is reached.
_MOST_SCRIPTS, _MOST_CHARACTERS, _MOST_SECONDS = 1000, 64_000_000, 2.0
# Short prompts are built in no time: only so many of them, if each takes less.
_FEW, _CHEAP_S = 16, 0.0002
# While the phase runs, building takes at most this share of the loop's time, in pieces of one prompt.
_SHARE = 0.1
_IDLE_S = 0.05


class PromptsAhead:
    """Sessions of one phase whose first prompt is there. `fill` before the phase, `keep_full` while it runs."""

    def __init__(self, source: RequestSource) -> None:
        self._source = source
        self._phase: Phase | None = None
        self._built: dict[int, SessionScript] = {}
        self._sizes: deque[tuple[int, int]] = deque()
        self._characters = 0

    async def fill(self, phase: Phase) -> None:
        """Build what the phase begins with."""
        self._phase, self._built = phase, {}
        self._sizes.clear()
        self._characters = 0
        took = 0.0
        while took < _MOST_SECONDS and not (len(self._built) >= _FEW and took < len(self._built) * _CHEAP_S):
            began = time.monotonic()
            if not self._build_next(phase):
                break
            took += time.monotonic() - began
            await asyncio.sleep(0)

    async def keep_full(self, phase: Phase) -> None:
        """Build one after the other as room comes, until cancelled."""
        if self._phase is not phase:
            return
        while True:
            began = time.monotonic()
            built = self._build_next(phase)
            took = time.monotonic() - began
            await asyncio.sleep(max(took / _SHARE, 0.002) if built else _IDLE_S)

    def take(self, phase: Phase, number: int) -> SessionScript:
        """The session, with its prompt if that was built."""
        if self._phase is not phase:
            return self._source.script(number, phase.stage)
        while self._sizes and self._sizes[0][0] <= number:
            self._characters -= self._sizes.popleft()[1]
        return self._built.pop(number, None) or self._source.script(number, phase.stage)

    def _build_next(self, phase: Phase) -> bool:
        """Whether there was room, and a session that is not built yet."""
        if len(self._built) >= _MOST_SCRIPTS or self._characters >= _MOST_CHARACTERS:
            return False
        number = phase.next_after(self._sizes[-1][0] if self._sizes else -1)
        if number is None:
            return False
        script = self._source.script(number, phase.stage)
        prompt = script.ask().prompt
        size = len(prompt.text or "") + 36 * len(prompt.input_ids or ())
        size += sum(len(content) for _, content in prompt.messages or ())
        self._built[number] = script
        self._sizes.append((number, size))
        self._characters += size
        return True
