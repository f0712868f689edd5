"""The start of a server whose log we cannot read: up when its ready path answers 200, ready when it has served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from actors.servers.endpoint import Endpoint
from orchestrator.outcome import Phase, PhaseFact
from orchestrator.server_start import StartProgress

_RETRY_S = 0.2
_ASK_TIMEOUT_S = 10.0


class CoarseTimeline:
    """Phases of such a start: launch until it answers, warmup until it has served. No line of the log moves it."""

    def __init__(self) -> None:
        self.phase = Phase.LAUNCH
        self._facts: dict[Phase, PhaseFact] = {Phase.LAUNCH: PhaseFact(Phase.LAUNCH, 0.0)}

    @property
    def is_ready(self) -> bool:
        """Never by its log: `answered` tells."""
        return False

    @property
    def phases(self) -> tuple[PhaseFact, ...]:
        return tuple(self._facts.values())

    def advance(self, text: str, at_s: float, *, is_bar: bool = False) -> bool:
        """A line of the log, which says nothing to us."""
        del text, at_s, is_bar
        return False

    def enter(self, phase: Phase, at_s: float) -> None:
        """The next phase begins."""
        self._facts[self.phase] = replace(self._facts[self.phase], ended_s=at_s)
        self._facts[phase] = PhaseFact(phase, at_s)
        self.phase = phase

    def progress(self, trial_id: str, elapsed_s: float) -> StartProgress:
        """The present state as an event."""
        return StartProgress(trial_id, self.phase, round(elapsed_s, 3))


class TemplateStart:
    """Asks the server until it has served a request."""

    def __init__(self, endpoint: Endpoint, ready_path: str, timeline: CoarseTimeline, lived_s: Callable[[], float]):
        self._endpoint = endpoint
        self._ready_path = ready_path
        self._timeline = timeline
        self._lived_s = lived_s

    async def answered(self, refused: Callable[[str], Awaitable[None]]) -> None:
        """Return when the server has served a request; tells what it answers instead until then."""
        while (unready := await self._endpoint.unready(self._ready_path, _ASK_TIMEOUT_S)) is not None:
            await refused(unready)
            await asyncio.sleep(_RETRY_S)
        self._timeline.enter(Phase.WARMUP, self._lived_s())
        while (refusal := await self._endpoint.refusal()) is not None:
            await refused(str(refusal))
            await asyncio.sleep(_RETRY_S)
        self._timeline.enter(Phase.READY, self._lived_s())
