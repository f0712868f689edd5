"""Plays the start of a server: its lines, its seconds, its memory, and where it has to wait for other nodes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from actors.emulator.held_memory import HeldMemory, OutOfGpuMemory
from actors.emulator.log import LogWriter
from actors.emulator.memory import Death, MemoryPlan, plan_memory
from actors.emulator.profiles import GpuMemory, Profile
from actors.emulator.resolution import Settings
from actors.emulator.startup import Event, Hold, Meet, Pause, Raw, Say, joining, timeline
from actors.gpus.gpu_account import write_account

if TYPE_CHECKING:
    from actors.emulator.span import Span


class StartDies(Exception):
    """The schedulers die; `death` is what of."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.message)
        self.death = death


class Start:
    """One start. `profile` is the profile with the GPUs as they were found, None where nobody keeps a ledger; then
    `account` may be where to tell what would be held.
    """

    def __init__(
        self, settings: Settings, log: LogWriter, speedup: float, held: HeldMemory | None, span: Span | None,
        account: Path | None = None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._account = account
        self._gpu: GpuMemory | None = None
        self._log = log
        self._speedup = speedup
        self._held = held
        self.span = span

    @property
    def profile(self) -> Profile | None:
        return self._held.profile if self._held else None

    def play(self, profile: Profile) -> MemoryPlan:
        """Until all graphs are captured. StartDies where it does not get so far."""
        self._gpu = profile.gpu
        self._tell(0.0)
        try:
            for event in joining(profile):
                self._play(event)
            plan = self._plan(profile)
            for event in timeline(self._settings, plan, self.profile or profile):
                self._play(event)
        except OutOfGpuMemory as found:
            raise StartDies(found.death) from None
        if plan.death is not None:
            raise StartDies(plan.death)
        return plan

    def _plan(self, profile: Profile) -> MemoryPlan:
        """All nodes plan by the least that is free on any of their GPUs."""
        if self._held and self.span:
            self._held.agree(self._least_of_all(self.span, self._held.least_gib))
        plan = plan_memory(self._settings, self.profile or profile)
        unbalanced = self._held.unbalanced() if self._held else None
        return replace(plan, death=unbalanced) if unbalanced else plan

    def _play(self, event: Event) -> None:
        if isinstance(event, Hold):
            if self._held:
                self._held.hold(event.taken_gib, event.phase, event.graph)
            self._tell(event.taken_gib)
        elif isinstance(event, Pause):
            time.sleep(event.seconds / self._speedup)
        elif isinstance(event, Raw):
            self._log.raw(event.text)
        elif isinstance(event, Say):
            {"main": self._log.say, "first": self._log.rank, "all": self._log.every_rank}[event.who](event.text)
        elif isinstance(event, Meet) and self.span:
            self._meet(self.span, event.after)

    def _tell(self, taken_gib: float) -> None:
        """What every rank holds now, where somebody wants to know it and keeps no ledger."""
        if self._account is not None and self._gpu is not None:
            context_gib = self._gpu.total_gib - self._gpu.free_gib
            write_account(self._account, context_gib + taken_gib, self._gpu.total_gib, self._settings.ranks.count)

    def _meet(self, span: Span, after: str) -> None:
        with _dying():
            if after == "init":
                span.meet(self._settings.args)
            else:
                span.meet_after(after, self._speedup)

    def _least_of_all(self, span: Span, number: float) -> float:
        with _dying():
            return span.least(number)
        raise AssertionError


@contextlib.contextmanager
def _dying() -> Iterator[None]:
    """A node without the others dies."""
    from actors.emulator.span import SpanBroken

    try:
        yield
    except SpanBroken as broken:
        raise StartDies(broken.death) from None
