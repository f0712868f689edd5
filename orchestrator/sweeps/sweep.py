"""The loop of a run: every slot works through its trials in a thread, one place stores what they report."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from orchestrator.happening import Happening, ReferenceAsked, SlotEnded, TrialEnded, TrialSettled, TrialSpared
from orchestrator.hosts.host_event import HostChange, HostEvent
from orchestrator.loads.load_spread import LoadSpread
from orchestrator.outcome import Infeasible, Measured, Outcome
from orchestrator.planning.planner import Plan
from orchestrator.provenance import utc_now
from orchestrator.recoveries.lineages import Recovery
from orchestrator.recoveries.recovery import Again
from orchestrator.recoveries.remedies import Kind
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.searches.asked_trials import FIRST_REFERENCE, AskedTrial
from orchestrator.searches.course import NextPoint
from orchestrator.server_start import LaunchSpec
from orchestrator.slots.slot_port import SlotFacts, SlotPort, SlotSource
from orchestrator.sweeps.conductor import Conductor
from orchestrator.sweeps.foresight import Foresight, PredictedDeath
from orchestrator.sweeps.reference_trials import ReferenceTrials
from orchestrator.sweeps.run_record import record
from orchestrator.sweeps.trial_queue import HandedBack, TrialQueue
from orchestrator.sweeps.trial_run import TrialRun
from orchestrator.trial import Trial


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


class Sweep:
    """Runs a plan on slots. `launch_spec` makes what a slot needs for a trial's server.

    `source` gives further slots while the run goes on; if none is left, the run waits for them.
    """

    def __init__(
        self,
        plan: Plan,
        slots: list[SlotPort],
        run: RunDirectory,
        launch_spec: Callable[[Trial], LaunchSpec],
        watcher: Watcher,
        foresight: Foresight | None = None,
        source: SlotSource | None = None,
    ) -> None:
        self._run = run
        self._launch_spec = launch_spec
        self._watcher = watcher
        self._foresight = foresight
        self._source = source
        self._conductor: Conductor | None = None
        self._references: ReferenceTrials | None = None
        self._slots: list[SlotPort] = []
        self._spreads: list[LoadSpread] = []
        self._trials = TrialQueue(plan)
        self._joining = threading.Lock()
        self._working, self._closed = 0, False
        self._is_classed = "" not in run.trial_classes  # the plan of a search is empty at first
        self._happenings: queue.Queue[tuple[int | None, Happening]] = queue.Queue(maxsize=256)
        self._cancelled = threading.Event()
        self._result = SweepResult()
        self._earlier = dict(run.state.attempts)
        self._starts: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._deciding = threading.Lock()
        self._faults: list[Exception] = []
        for slot in slots:
            self._add(slot)

    def _add(self, slot: SlotPort) -> int:
        self._slots.append(slot)
        self._spreads.append(LoadSpread(slot.facts.load_processes))
        self._working += 1
        return self._trials.join(slot.facts.host, self._class_of(slot))

    def _class_of(self, slot: SlotPort) -> str:
        """The class as trials have it: none in a run on hosts of one class."""
        return slot.facts.host_class if self._is_classed else ""

    def _start(self, i: int) -> None:
        threading.Thread(target=self._work, args=(i,), name=self._slots[i].facts.name, daemon=True).start()

    def follow(self, conductor: Conductor | None, references: ReferenceTrials | None = None) -> None:
        """Before `run`: besides the plan do what these ask for, and let `conductor` decide the points of trials."""
        self._conductor, self._references = conductor, references

    def join(self, slot: SlotPort) -> bool:
        """Another slot takes part from now on; whether the run still needs it. From any thread."""
        with self._joining:
            if self._closed or self.cancelled or not self._trials.needs(self._class_of(slot)):
                return False
            i = self._add(slot)
        self._start(i)
        return True

    def tell(self, event: HostEvent) -> None:
        """Something happened to a host: it is stored and shown. From any thread."""
        self._happenings.put((None, event))

    def run(self) -> SweepResult:
        """Until nothing is left to do, or nobody who could."""
        try:
            if self._conductor is not None:
                self._show("search", self._conductor.begin(self._trials, self._deciding))
            for i in range(self._working):
                self._start(i)
            if self._source:
                self._source.begin(self)
            while not self._is_over():
                self._store(*self._happenings.get())
        except BaseException:  # nothing is stored any more: no slot may start another server while they are stopped
            self._cancelled.set()
            self._trials.clear()
            raise
        if self._faults:
            raise self._faults[0]
        self._result.complete = not self._trials.left and not self._trials.is_open and not self.cancelled
        self._result.cancelled = self.cancelled
        return self._result

    def _is_over(self) -> bool:
        """Whether no slot works, and none comes any more."""
        if self._working:
            return False
        if self._source is not None and self._may_go_on(self._source):
            self._wait_for_slots(self._source)
        with self._joining:
            self._closed = not self._working
        while self._closed and not self._happenings.empty():
            self._store(*self._happenings.get())
        return self._closed

    def needs_slots(self) -> bool:
        """Whether there are trials that nobody has taken, or a search that may ask for more. From any thread."""
        return bool(self._trials.left or self._trials.is_open) and not self.cancelled and not self._faults

    def _may_go_on(self, source: SlotSource) -> bool:
        return self.needs_slots() and source.may_give()

    def _wait_for_slots(self, source: SlotSource) -> None:
        """Store what hosts do until a slot has joined, or none has come in time."""
        deadline = time.monotonic() + source.patience_s
        told = f"at most {source.patience_s:g} s, with {self._trials.left} trials to do"
        self._store(None, HostEvent(HostChange.AWAITED, "", utc_now(), told))
        while not self._working and self._may_go_on(source) and (time.monotonic() < deadline or source.is_making()):
            with contextlib.suppress(queue.Empty):
                self._store(*self._happenings.get(timeout=1.0))

    def cancel(self) -> None:
        """Stop every server and end the run; what was measured is kept. Safe in a signal handler: it only marks."""
        self._cancelled.set()
        threading.Thread(target=self._interrupt_all, daemon=True).start()

    def _interrupt_all(self) -> None:
        self._trials.clear()
        for slot in list(self._slots):
            threading.Thread(target=slot.interrupt, daemon=True).start()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _work(self, i: int) -> None:
        """One slot's thread: trials until none is left."""
        end = SlotEnded()
        try:
            trial = self._take(i)
            while trial is not None and not end.lost and not self._cancelled.is_set():
                end, following = self._run_trial(i, trial)
                trial = following if following is not None or end.lost else self._take(i)
        except Exception as error:  # noqa: BLE001 - the edge of a thread: told by run(), never swallowed
            self._faults.append(error)
        finally:
            self._trials.leave(i)
            self._happenings.put((i, end))

    def _take(self, i: int) -> Trial | None:
        """What a slot does next: the reference of its host, what the queue has, the reference at the end of it all."""
        if self._references is None:
            return self._trials.take(i)
        host, host_class = self._slots[i].facts.host, self._class_of(self._slots[i])
        hosts = [slot.facts.host for slot in list(self._slots) if self._class_of(slot) == host_class]
        reference = self._references.first(host, host_class, hosts)
        trial = None if reference is not None else self._trials.take(i)
        if trial is not None or self.cancelled:
            return trial
        reference = reference or self._references.last(host, host_class)
        if reference is not None:
            with self._deciding:
                self._run.lineages_of(host_class).know(reference.config)
            self._happenings.put((i, ReferenceAsked(reference, host, self._references.number(host))))
        return reference

    def _run_trial(self, i: int, planned: Trial) -> tuple[SlotEnded, Trial | None]:
        """Returns whether the slot can go on, and what it does next without asking the queue."""
        with self._deciding:
            trial = self._run.lineages_of(planned.host_class).trial_to_run(planned)
        if trial is None:
            self._happenings.put((i, TrialSpared(planned)))
            self._happenings.put((i, TrialSettled(planned)))
            self._trials.done(i)
            return SlotEnded(), None
        work, began_s = self._work_on(i, trial), time.monotonic()
        following, again = None, None
        try:
            for happening in work.run():
                if self._foresight:
                    self._foresight.saw(self._slots[i].facts, happening)
                if isinstance(happening, TrialEnded):
                    if isinstance(happening.outcome, Measured):
                        self._trials.learn(planned, time.monotonic() - began_s)
                    ended = self._decide(happening)
                    self._happenings.put((i, ended))
                    following, again = self._next_step(work, ended)
                    if trial.repeat >= FIRST_REFERENCE:
                        again = None  # on another host it would say nothing about this one
                    if following is None and again is None and not self.cancelled:
                        self._happenings.put((i, TrialSettled(trial)))
                else:
                    self._happenings.put((i, happening))
        finally:
            if following is None:
                self._trials.done(i, again)
        return SlotEnded(work.lost, work.refused), following

    def _work_on(self, i: int, trial: Trial) -> TrialRun | PredictedDeath:
        """A start of the trial on a slot, unless its server is sure to die."""
        starts = self._starts[trial.trial_id] = self._starts.get(trial.trial_id, 0) + 1
        attempt = self._earlier.get(trial.trial_id, 0) + starts
        foreseen = self._foresight.death_of(trial, attempt) if self._foresight else None
        if foreseen is not None:
            return foreseen
        asks = self._conductor is not None and self._conductor.decides(trial)
        spec, spread = self._launch_spec(trial), self._spreads[i]
        work = TrialRun(self._slots[i], trial, attempt, spec, self._cancelled, spread, asks=asks)
        return work.sampling(lambda sampled: self._happenings.put((i, sampled)))

    def _decide(self, ended: TrialEnded) -> TrialEnded:
        """What follows is decided before the end is told, so that the journal has both or neither."""
        trial_id = ended.trial.trial_id
        with self._deciding:
            if ended.refused is not None:  # by the slot: says nothing about the trial
                self._refusals[trial_id] = self._refusals.get(trial_id, 0) + 1
            starts = self._starts[trial_id] - self._refusals.get(trial_id, 0)
            recovery = self._run.lineages_of(ended.trial.host_class).after(
                ended.trial, ended.outcome, ended.failed, starts
            )
        return replace(ended, recovery=recovery)

    def _next_step(self, work: TrialRun | PredictedDeath, ended: TrialEnded) -> tuple[Trial | None, HandedBack | None]:
        """What this slot does at once, or what the queue gets back."""
        recovery = ended.recovery
        if isinstance(ended.outcome, Infeasible):
            with self._deciding:
                following = self._run.lineages_of(ended.trial.host_class).trial_to_run(ended.trial)
            following = following if following is not ended.trial else None
        else:
            following = work.rest if _asks_for(recovery, Kind.CLEAN) else None
        if following is not None and work.lost:
            return None, HandedBack(following, Kind.ELSEWHERE)
        for how in (Kind.ELSEWHERE, Kind.ALONE):
            if work.rest is not None and _asks_for(recovery, how):
                return None, HandedBack(work.rest, how)
        return following, None

    def _store(self, i: int | None, happening: Happening) -> None:
        """Everything that is kept goes through here, in the order of each slot."""
        if isinstance(happening, HostEvent):
            self._run.host_event(happening)
            self._watcher.saw(happening.host, happening)
            if self._conductor is not None and not self.cancelled:  # it may be about slots that joined
                self._show("search", self._conductor.ask())
        elif i is not None:
            self._keep(i, self._slots[i].facts, happening)
            self._watcher.saw(self._slots[i].facts.name, happening)

    def _keep(self, i: int, slot: SlotFacts, happening: Happening) -> None:
        record(self._run, slot, happening)
        match happening:
            case TrialEnded(trial, _, outcome):
                self._result.outcomes[trial.trial_id] = outcome
            case ReferenceAsked(trial, host, number):
                self._run.asked.begin_block(host, number)
                self._run.asked.ask(AskedTrial(trial.config, trial.repeat, trial.host_class, f"reference of {host}"))
            case NextPoint(trial, answer) if self._conductor is not None:
                point, spared = self._conductor.next_point(trial)
                answer.say(point)
                self._show(slot.name, spared)
            case TrialSettled(trial) if self._conductor is not None and not self.cancelled:
                self._show("search", self._conductor.settled(trial))
            case SlotEnded():
                self._end_slot(i, happening)

    def _show(self, place: str, happenings: Iterable[Happening]) -> None:
        for happening in happenings:
            self._watcher.saw(place, happening)

    def _end_slot(self, i: int, ended: SlotEnded) -> None:
        with self._joining:
            self._working -= 1
        if self._faults:  # nothing more is asked for, and nobody waits for it
            self._trials.close()
        if ended.lost and self._source is not None:
            self._source.ended(self._slots[i], ended.refused)


def _asks_for(recovery: Recovery | None, how: Kind) -> bool:
    return recovery is not None and recovery.decision == Again(how)
