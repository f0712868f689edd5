"""Fetches what a slot samples while a trial runs there, beside the thread that drives the trial."""

from __future__ import annotations

import threading
from collections.abc import Callable

from orchestrator.happening import Happening, TelemetryArrived
from orchestrator.slots.slot_port import SlotLost, SlotPort, TrialBroken
from orchestrator.trial import Trial

# A driver that dies loses what was sampled since the last time.
PULL_S = 2.0
# The slot that was just asked to stop its server answers at once.
_LAST_S = 15.0


class TelemetryPull:
    """One trial. `put` takes the happenings, from a thread of its own; it may block.

    A slot that does not answer costs samples, and nothing else: whoever drives the trial learns what became of it.
    """

    def __init__(
        self, slot: SlotPort, trial: Trial, attempt: int, put: Callable[[Happening], None], every_s: float | None = None
    ) -> None:
        self._slot = slot
        self._trial = trial
        self._attempt = attempt
        self._put = put
        self._every_s = PULL_S if every_s is None else every_s
        self._over = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._follow, name=f"{slot.facts.name} telemetry", daemon=True)

    def begin(self) -> None:
        """To be called when the launch has told something: until then the slot has the samples of the server before."""
        if not self._thread.is_alive() and not self._over.is_set():
            self._thread.start()

    def end(self, *, lost: bool) -> None:
        """The server is stopped: fetch the rest, unless the slot is lost."""
        self._lost = lost
        self._over.set()
        if self._thread.is_alive() and not lost:
            self._thread.join(_LAST_S)
            self._lost = True

    def _follow(self) -> None:
        while not self._over.wait(self._every_s):
            self._fetch()
        if not self._lost:
            self._fetch()

    def _fetch(self) -> None:
        try:
            samples = self._slot.telemetry()
        except (SlotLost, TrialBroken):
            return
        if samples and not self._lost:
            self._put(TelemetryArrived(self._trial, self._attempt, samples))
