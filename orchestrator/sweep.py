"""The loop of a run: every slot works through its trials in a thread, one place stores what they report."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.foresight import Foresight
from orchestrator.outcome import Outcome
from orchestrator.planner import Plan
from orchestrator.run_directory import RunDirectory
from orchestrator.run_tables import EndNotes, Place
from orchestrator.server_start import LaunchSpec, ServerReady
from orchestrator.slot_port import SlotFacts, SlotPort
from orchestrator.trial import Trial
from orchestrator.trial_run import (
    BatchArrived,
    Happening,
    PointBroke,
    PointEnded,
    SlotEnded,
    TrialBegan,
    TrialEnded,
    TrialRun,
)

# A trial that broke (not: that is infeasible) is tried once more, on another slot if there is one.
MOST_ATTEMPTS = 2


class Watcher(Protocol):
    """Shows what happens; has no part in it."""

    def saw(self, slot: str, happening: Happening) -> None:
        """Called for every happening, in order, by the one thread that stores them."""


@dataclass
class SweepResult:
    """How the trials of a run ended. `complete` is False if the run was cancelled or all slots were lost."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    complete: bool = True
    cancelled: bool = False


class TrialQueue:
    """The trials of each slot in their order. Thread-safe.

    A slot that is through takes from the one with most left, then waits for what others may hand back.
    """

    def __init__(self, plan: Plan, slot_count: int) -> None:
        self._changed = threading.Condition()
        self._queues = [list(slot) for slot in plan.slots]
        self._handed_back: list[tuple[Trial, int]] = []
        self._alive = set(range(slot_count))
        self._running = 0

    def take(self, slot: int) -> Trial | None:
        """The next trial for a slot; blocks while others may still hand one back, None if there is nothing left."""
        with self._changed:
            while True:
                trial = self._next(slot)
                if trial is not None:
                    self._running += 1
                    return trial
                if not self._running and not self._handed_back:
                    return None
                self._changed.wait(timeout=1.0)

    def _next(self, slot: int) -> Trial | None:
        own = self._queues[slot] if slot < len(self._queues) else []
        if own:
            return own.pop(0)
        longest = max(self._queues, key=lambda q: sum(t.estimated_s for t in q), default=[])
        if longest:
            return longest.pop()
        for i, (_, broke_on) in enumerate(self._handed_back):
            if broke_on != slot or self._alive == {slot}:
                return self._handed_back.pop(i)[0]
        return None

    def done(self, slot: int, again: Trial | None) -> None:
        """The slot's trial ended; `again` is what another slot should try once more."""
        with self._changed:
            self._running -= 1
            if again is not None:
                self._handed_back.append((again, slot))
            self._changed.notify_all()

    def leave(self, slot: int) -> None:
        """The slot takes no more."""
        with self._changed:
            self._alive.discard(slot)
            self._changed.notify_all()

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


class Sweep:
    """Runs a plan on slots. `launch_spec` makes what a slot needs for a trial's server."""

    def __init__(
        self,
        plan: Plan,
        slots: list[SlotPort],
        run: RunDirectory,
        launch_spec: Callable[[Trial], LaunchSpec],
        watcher: Watcher,
        foresight: Foresight | None = None,
    ) -> None:
        self._slots = slots
        self._run = run
        self._launch_spec = launch_spec
        self._watcher = watcher
        self._foresight = foresight
        self._trials = TrialQueue(plan, len(slots))
        self._happenings: queue.Queue[tuple[int, Happening]] = queue.Queue(maxsize=256)
        self._cancelled = threading.Event()
        self._result = SweepResult()
        self._earlier = dict(run.state.attempts)
        self._tries: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._faults: list[Exception] = []

    def run(self) -> SweepResult:
        """Until every slot has nothing left to do."""
        for i, slot in enumerate(self._slots):
            threading.Thread(target=self._work, args=(i,), name=slot.facts.name, daemon=True).start()
        working = len(self._slots)
        while working:
            i, happening = self._happenings.get()
            if isinstance(happening, SlotEnded):
                working -= 1
            self._store(i, happening)
        if self._faults:
            raise self._faults[0]
        self._result.complete = not self._trials.left and not self.cancelled
        self._result.cancelled = self.cancelled
        return self._result

    def cancel(self) -> None:
        """Stop every server and end the run; what was measured is kept. Safe in a signal handler: it only marks."""
        self._cancelled.set()
        threading.Thread(target=self._interrupt_all, daemon=True).start()

    def _interrupt_all(self) -> None:
        self._trials.clear()
        for slot in self._slots:
            threading.Thread(target=slot.interrupt, daemon=True).start()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _work(self, i: int) -> None:
        """One slot's thread: trials until none is left."""
        try:
            lost = False
            while not lost and not self._cancelled.is_set():
                trial = self._trials.take(i)
                if trial is None:
                    break
                lost = self._run_trial(i, trial)
        except Exception as error:  # noqa: BLE001 - the edge of a thread: told by run(), never swallowed
            self._faults.append(error)
        finally:
            self._trials.leave(i)
            self._happenings.put((i, SlotEnded()))

    def _run_trial(self, i: int, trial: Trial) -> bool:
        """Returns whether the slot was lost."""
        tries = self._tries[trial.trial_id] = self._tries.get(trial.trial_id, 0) + 1
        attempt = self._earlier.get(trial.trial_id, 0) + tries
        foreseen = self._foresight.death_of(trial, attempt) if self._foresight else None
        work = foreseen or TrialRun(self._slots[i], trial, attempt, self._launch_spec(trial), self._cancelled)
        again = None
        try:
            for happening in work.run():
                if self._foresight:
                    self._foresight.saw(self._slots[i].facts, happening)
                self._happenings.put((i, happening))
            if work.refused is not None:  # says nothing about the trial
                self._refusals[trial.trial_id] = self._refusals.get(trial.trial_id, 0) + 1
            counted = tries - self._refusals.get(trial.trial_id, 0)
            if counted < MOST_ATTEMPTS and not self._cancelled.is_set():
                again = work.rest
        finally:
            self._trials.done(i, again)
        return work.lost

    def _store(self, i: int, happening: Happening) -> None:
        """Everything that is kept goes through here, in the order of each slot."""
        slot = self._slots[i].facts
        match happening:
            case TrialBegan(trial, attempt, began_at):
                self._run.begin_trial(trial, attempt, place_of(slot, began_at))
            case ServerReady():
                self._run.server_ready(happening)
            case BatchArrived(point, attempt, batch):
                self._run.append(point, attempt, batch)
            case PointEnded(point, attempt, report, began_at):
                self._run.end_point(point, attempt, report, place_of(slot, began_at))
            case PointBroke(point):
                self._run.abandon_point(point)
            case TrialEnded():
                self._end_trial(i, happening)
            case _:
                pass  # only to be shown
        self._watcher.saw(slot.name, happening)

    def _end_trial(self, i: int, ended: TrialEnded) -> None:
        place = place_of(self._slots[i].facts, ended.began_at)
        if ended.log:
            self._run.keep_log(ended.trial, ended.attempt, ended.log)
        aside = EndNotes(ended.notes, ended.refused)
        self._run.end_trial(ended.trial, ended.attempt, ended.outcome, ended.server, place, aside)
        self._result.outcomes[ended.trial.trial_id] = ended.outcome


def place_of(slot: SlotFacts, began_at: str) -> Place:
    """Where and when something happened, as the tables tell it."""
    return Place(slot.name, slot.host, slot.gpu_ids, began_at)
