"""What a running sweep shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from actors.diagnosis.advice import advice
from orchestrator.config_label import config_labels
from orchestrator.course import PointSpared
from orchestrator.happening import (
    BatchArrived,
    BestSoFar,
    Happening,
    PointBegan,
    PointEnded,
    PointRepeated,
    ReferenceAsked,
    SearchStep,
    SlotEnded,
    TrialAsked,
    TrialBegan,
    TrialEnded,
    TrialSpared,
)
from orchestrator.host_event import HostEvent
from orchestrator.line_allowance import LineAllowance
from orchestrator.lineages import Recovery
from orchestrator.outcome import Cancelled, Failed, Infeasible, Phase
from orchestrator.planner import Plan
from orchestrator.recovery import Again, NoMove, Repair, repair_text
from orchestrator.resolved_settings import setting_changes
from orchestrator.server_start import ServerReady, StartProgress
from orchestrator.trial import Trial

MOST_EVIDENCE = 240
# Without a terminal, a summary at least so often.
SUMMARY_S = 60.0
MOST_SLOTS = 4


@dataclass
class _SlotView:
    config: str = "-"
    doing: str = "waiting"
    since: float = 0.0
    tokens: int = 0
    point_since: float = 0.0
    free_gib: float | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)  # notes of the running trial


@dataclass
class _Counts:
    trials: int = 0
    points: int = 0
    infeasible: int = 0
    failed: int = 0
    again: int = 0
    asked: bool = False  # by a search
    started: float = field(default_factory=time.monotonic)


class Progress:
    """A Watcher. Use as a context manager; `live` is on for terminals."""

    def __init__(self, plan: Plan, slots: list[str], console: Console, clock: Callable[[], float] = time.monotonic):
        self._plan = plan
        self._console = console
        self._clock = clock
        self._settings = {c.config_id: c.as_dict() for c in plan.configs}
        self._labels = config_labels(self._settings)
        self._views = {slot: _SlotView() for slot in slots}
        self._counts = _Counts(started=clock())
        self._total_trials, self._total_points = len(plan.trials), plan.points
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=2, transient=True)
        self._is_live = console.is_terminal
        self._allowance, self._ended = LineAllowance(clock()), threading.Event()

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        else:
            threading.Thread(target=self._say_summaries, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._is_live:
            self._live.stop()
        else:
            self._ended.set()
            self.say_summary()

    def saw(self, slot: str, happening: Happening) -> None:
        if isinstance(happening, HostEvent):
            self._say(slot or "cluster", happening.text)
        elif isinstance(happening, TrialAsked | SearchStep | BestSoFar):
            self._saw_search(happening)
        else:  # a slot that is not known has joined
            self._saw(slot, self._views.setdefault(slot, _SlotView(since=self._clock())), happening)

    def _saw(self, slot: str, view: _SlotView, happening: Happening) -> None:
        notes: tuple[str, ...] = getattr(happening, "notes", ())
        for note in (n for n in notes if n not in view.told):
            self._say(slot, f"{view.config}: {note}")
        match happening:
            case TrialBegan(trial, attempt, _):
                view.config, view.tokens, view.told = self._label(trial), 0, []
                view.asked = trial.config.as_dict()
                self._doing(view, f"starting{f' (attempt {attempt})' if attempt > 1 else ''}")
            case StartProgress():
                view.free_gib = happening.free_gib
                view.doing = _phase_text(happening)
            case ServerReady():
                self._doing(view, "ready")
                self._say_routine(slot, f"{view.config}: ready after {happening.start_s:.1f} s")
                for change in setting_changes(view.asked, happening.resolved):
                    self._say(slot, f"{view.config}: {change}")
            case PointBegan(point):
                self._doing(view, f"{point.spec.workload} {point.spec.level}")
                view.tokens, view.point_since = 0, self._clock()
            case BatchArrived(_, _, batch):
                view.tokens += _output_tokens(batch)
            case PointEnded(point, _, report, _):
                self._counts.points += 1
                told = f"{point.spec.workload} {point.spec.level}: {report.requests} requests"
                self._say_routine(slot, f"{view.config}: {told}")
            case ReferenceAsked(trial, host, _):
                self._total_trials, self._total_points = self._total_trials + 1, self._total_points + len(trial.points)
                self._know(trial)
                self._say_routine(slot, f"{self._label(trial)}: reference of {host}")
            case _:
                self._saw_end(slot, view, happening)

    def _saw_search(self, happening: TrialAsked | SearchStep | BestSoFar) -> None:
        place = f"search, {of}" if (of := _class_of(happening)) else "search"
        match happening:
            case TrialAsked(trial, why):
                self._counts.asked = True
                self._total_trials, self._total_points = self._total_trials + 1, self._total_points + len(trial.points)
                self._know(trial)
                start = f"start {trial.repeat + 1}"
                reason = f", {why}" if why and why != start else ""
                self._say_routine(place, f"{self._label(trial)}: {start}{reason}")
            case SearchStep(step, _):
                self._say(place, f"{step.name}: {step.text}")
            case BestSoFar(objective, config_id, value, _):
                self._say(place, f"best so far for {objective}: {self._labels.get(config_id, config_id)}, {value}")

    def _know(self, trial: Trial) -> None:
        """A search may ask for configs that no list has."""
        config = trial.config
        if trial.repaired is None and config.config_id not in self._labels:
            self._settings[config.config_id] = config.as_dict()
            self._labels = config_labels(self._settings)

    def _saw_end(self, slot: str, view: _SlotView, happening: Happening) -> None:
        if isinstance(happening, SlotEnded) and happening.lost and happening.refused is None:
            self._doing(view, "lost")
        if isinstance(happening, PointSpared):
            self._total_points -= 1
            point = happening.point.spec
            self._say_routine(
                slot, f"{view.config}: not measured at {point.workload} {point.level}: {happening.reason}"
            )
            return
        if isinstance(happening, PointRepeated):
            view.tokens, view.point_since = 0, self._clock()
            view.told.append(happening.note)
            self._say(slot, f"{view.config}: {happening.note}")
            return
        if isinstance(happening, TrialEnded):
            self._trial_ended(slot, view, happening)
            return
        if not isinstance(happening, TrialSpared):
            return
        trial = happening.trial
        self._total_trials, self._total_points = self._total_trials - 1, self._total_points - len(trial.points)
        self._say(slot, f"{self._label(trial)}: not started again, it died in another trial")

    def _doing(self, view: _SlotView, what: str) -> None:
        view.doing, view.since = what, self._clock()

    def _label(self, trial: Trial) -> str:
        """A repaired config is called by the one that was asked."""
        if trial.repaired is None:
            return self._labels[trial.config.config_id]
        return f"{self._labels[trial.repaired.asked_id]} (repaired)"

    def _trial_ended(self, slot: str, view: _SlotView, ended: TrialEnded) -> None:
        outcome = ended.outcome
        # What was stopped is not done: `--resume` does it. What is tried again is told at its last end.
        again = ended.recovery is not None and isinstance(ended.recovery.decision, Again)
        self._counts.trials += not isinstance(outcome, Cancelled) and not again
        self._counts.again += again
        told: str = outcome.kind
        if isinstance(outcome, Infeasible | Failed):
            died = outcome.diagnosis
            told = f"{outcome.kind} ({died.label}, {died.phase}): {_in_short(died.evidence)}"
            # Where Specsweep makes the change itself, its line follows.
            repairs = ended.recovery is not None and isinstance(ended.recovery.decision, Repair)
            moves = () if repairs else advice(died)
            told += f" -> {moves[0]}" if moves else ""
            self._counts.infeasible += isinstance(outcome, Infeasible)
            self._counts.failed += isinstance(outcome, Failed) and not again
        self._say(slot, f"{view.config}: {told}")
        if ended.recovery is not None:
            self._say(slot, f"{view.config}: {self._recovery(ended.recovery, ended.trial)}")
        view.config, view.free_gib = "-", None
        self._doing(view, "waiting")
        if ended.refused is not None:
            self._say(slot, f"this slot is not used any more: {ended.refused}")
            self._doing(view, "not used any more")

    def _recovery(self, recovery: Recovery, trial: Trial) -> str:
        """What follows, in one line."""
        match recovery.decision:
            case Repair(changes) if not recovery.is_applied:
                return f"suggested: {repair_text(changes)}"
            case Repair(changes) if recovery.is_known:
                other = self._labels.get(recovery.into or "", "another repaired config")
                return f"repaired it would be {other}, which stands for it: {repair_text(changes)}"
            case Repair(changes):
                self._total_trials, self._total_points = self._total_trials + 1, self._total_points + len(trial.points)
                return f"trying again: {repair_text(changes)}"
            case Again(how):
                return f"trying the same again ({how})"
            case NoMove(reason):
                return f"no further try: {reason}"

    def _say_routine(self, slot: str, text: str) -> None:
        if self._is_live or self._allowance.grants(self._clock()):
            self._say(slot, text)

    def _say_summaries(self) -> None:
        """Also while nothing happens: weights may load for half an hour."""
        while not self._ended.wait(SUMMARY_S):
            self.say_summary()

    def say_summary(self) -> None:
        """One line on how far the run is; `specsweep status` reads it."""
        held, self._allowance.held_back = self._allowance.held_back, 0
        told = [self._summary(self._clock()), *([f"{held} lines not shown"] if held else [])]
        at_work = [(slot, view) for slot, view in list(self._views.items()) if view.config != "-"]
        told += [f"{slot} {view.config}: {view.doing}" for slot, view in at_work[:MOST_SLOTS]]
        told += [f"and {len(at_work) - MOST_SLOTS} more slots"] if len(at_work) > MOST_SLOTS else []
        self._say("progress", "; ".join(told))

    def _say(self, slot: str, text: str) -> None:
        minutes, seconds = divmod(int(self._clock() - self._counts.started), 60)
        self._console.print(Text(f"{minutes:02d}:{seconds:02d} {slot}  {text}"), soft_wrap=True)

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for name in ("slot", "config", "doing", "for", "tok/s", "free GiB"):
            table.add_column(name, overflow="fold")
        now = self._clock()
        for slot, view in self._views.items():
            speed = view.tokens / (now - view.point_since) if view.tokens and now > view.point_since else None
            table.add_row(
                escape(slot),
                escape(view.config),
                escape(view.doing),
                f"{now - view.since:.0f} s",
                "-" if speed is None else f"{speed:.0f}",
                "-" if view.free_gib is None else f"{view.free_gib:.1f}",
            )
        return Group(table, Text(self._summary(now)))

    def _summary(self, now: float) -> str:
        counts = self._counts
        elapsed = now - counts.started
        eta = ", a search goes on" if counts.asked else ""
        if 0 < counts.trials < self._total_trials and not counts.asked:  # what a search will ask is not known
            eta = f", about {elapsed / counts.trials * (self._total_trials - counts.trials):.0f} s left"
        again = f", {counts.again} tried again" if counts.again else ""
        points = self._total_points or counts.points  # rates that are searched are in no plan
        return (
            f"{counts.trials} of {self._total_trials} trials, {counts.points} of {points} points, "
            f"{counts.infeasible} infeasible, {counts.failed} failed{again}, {elapsed:.0f} s{eta}"
        )


def _class_of(happening: TrialAsked | SearchStep | BestSoFar) -> str:
    return happening.trial.host_class if isinstance(happening, TrialAsked) else happening.host_class


def _in_short(evidence: str) -> str:
    """As much of it as a line of progress can hold; the ranking and the dataset have all."""
    return evidence if len(evidence) <= MOST_EVIDENCE else f"{evidence[: MOST_EVIDENCE - 4].rstrip()} ..."


def _phase_text(progress: StartProgress) -> str:
    text = "ready" if progress.phase is Phase.READY else f"starting: {progress.phase}"
    if progress.total:
        text += f" {progress.done}/{progress.total}"
    return text


def _output_tokens(batch: Any) -> int:
    import pyarrow.compute as pc

    total = pc.sum(batch.column("output_tokens")).as_py()
    return int(total or 0)
