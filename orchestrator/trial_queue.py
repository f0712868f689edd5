"""Which trial a slot takes next: its own, another's, or one that was handed back to be tried once more. Thread-safe."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from orchestrator.planner import Plan
from orchestrator.remedies import Kind
from orchestrator.trial import Trial


@dataclass(frozen=True, slots=True)
class HandedBack:
    """A trial to be tried once more; `how` says whether on another host, or alone."""

    trial: Trial
    how: Kind


class TrialQueue:
    """The trials of each slot in their order. `hosts` are those of the slots.

    A slot that is through takes from the one with most left, then waits for what others may hand back.
    """

    def __init__(self, plan: Plan, hosts: list[str]) -> None:
        self._changed = threading.Condition()
        self._queues = [list(slot) for slot in plan.slots]
        self._hosts = hosts
        self._handed_back: list[tuple[HandedBack, int]] = []
        self._alive = set(range(len(hosts)))
        self._busy: set[int] = set()
        self._alone = False

    def take(self, slot: int) -> Trial | None:
        """The next trial for a slot; blocks while others may still hand one back, None if there is nothing left."""
        with self._changed:
            while True:
                trial = None if self._alone else self._next(slot)
                if trial is not None:
                    self._busy.add(slot)
                    return trial
                if not self._busy and not self._handed_back:
                    return None
                self._changed.wait(timeout=1.0)

    def _next(self, slot: int) -> Trial | None:
        own = self._queues[slot] if slot < len(self._queues) else []
        if own:
            return own.pop(0)
        longest = max(self._queues, key=lambda q: sum(t.estimated_s for t in q), default=[])
        if longest:
            return longest.pop()
        for i, (back, broke_on) in enumerate(self._handed_back):
            if back.how is Kind.ALONE and not self._busy:
                self._alone = True
                return self._handed_back.pop(i)[0].trial
            if back.how is not Kind.ALONE and self._may_take(slot, broke_on):
                return self._handed_back.pop(i)[0].trial
        return None

    def _may_take(self, slot: int, broke_on: int) -> bool:
        """A slot on another host if one is left, else another slot, else the same."""
        elsewhere = {s for s in self._alive if self._hosts[s] != self._hosts[broke_on]}
        return slot in (elsewhere or self._alive - {broke_on} or self._alive)

    def done(self, slot: int, again: HandedBack | None = None) -> None:
        """The slot's trial ended; `again` is what should be tried once more."""
        with self._changed:
            self._free(slot)
            if again is not None:
                self._handed_back.append((again, slot))
            self._changed.notify_all()

    def leave(self, slot: int) -> None:
        """The slot takes no more, whatever it was doing."""
        with self._changed:
            self._alive.discard(slot)
            self._free(slot)
            self._changed.notify_all()

    def _free(self, slot: int) -> None:
        self._busy.discard(slot)
        self._alone = self._alone and bool(self._busy)

    def clear(self) -> None:
        """Nothing more is to be taken."""
        with self._changed:
            for waiting in self._queues:
                waiting.clear()
            self._handed_back.clear()
            self._changed.notify_all()

    @property
    def left(self) -> int:
        """Trials that nobody has taken."""
        with self._changed:
            return sum(map(len, self._queues)) + len(self._handed_back)
