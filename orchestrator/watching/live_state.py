"""What a run is doing, from what its slots, searches and hosts report. Pure: whoever calls it has the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from orchestrator.happening import (
    BestSoFar,
    Happening,
    PointBegan,
    PointBroke,
    PointEnded,
    PointRepeated,
    ReferenceAsked,
    SearchStep,
    SlotEnded,
    TelemetryArrived,
    TrialAsked,
    TrialBegan,
    TrialEnded,
    TrialSettled,
    TrialSpared,
)
from orchestrator.hosts.host_event import HostEvent
from orchestrator.outcome import Cancelled, Failed, Infeasible, Measured, Phase
from orchestrator.planning.planner import Plan
from orchestrator.recoveries.recovery import Again, Repair
from orchestrator.scenarios.config_label import config_labels
from orchestrator.searches.course import PointSpared
from orchestrator.server_start import ServerReady, StartProgress
from orchestrator.telemetry import Sample
from orchestrator.trial import Trial
from orchestrator.watching.live_view import BestView, Counts, LiveView, SlotState, SlotView, TimeLeft
from orchestrator.watching.time_left import SearchBounds, TrialTimes, plan_left_s, search_left

# More trials than these are not looked at each time that somebody asks.
_MANY = 500


@dataclass(slots=True)
class _Slot:
    """A slot, and what is needed to say more of it later. Times by the caller's clock."""

    view: SlotView
    since_s: float
    trial: Trial | None = None
    began_s: float = 0.0
    tokens: int = 0
    point_since_s: float = 0.0
    samples: dict[int, Sample] = field(default_factory=dict)  # the newest of each of its hosts


class LiveState:
    """The state of a run. Not thread-safe. `bounds`: of a run that searches; `now_s` is of any monotonic clock."""

    def __init__(self, plan: Plan, slots: Iterable[str], now_s: float, bounds: SearchBounds | None = None) -> None:
        self._settings = {c.config_id: c.as_dict() for c in plan.configs}
        self.labels = config_labels(self._settings)
        self._slots = {name: _Slot(SlotView(name), now_s) for name in slots}
        self._began_s = now_s
        self._counts = Counts(all_trials=len(plan.trials), all_points=plan.points)
        self._asked = bounds is not None
        self._bounds = bounds
        self._times = TrialTimes()
        self._waiting = {trial.trial_id: trial for trial in plan.trials}
        self._left_at: tuple[float, TimeLeft | None] = (now_s, None)
        self._best: dict[tuple[str, str], BestView] = {}

    def label(self, trial: Trial) -> str:
        """A repaired config is called by the one that was asked."""
        if trial.repaired is None:
            return self.labels[trial.config.config_id]
        return f"{self.labels[trial.repaired.asked_id]} (repaired)"

    def config_on(self, slot: str) -> str:
        """The label of what runs there; `-` if nothing does."""
        return (self._slots[slot].view.config if slot in self._slots else "") or "-"

    def saw(self, slot: str, happening: Happening, now_s: float) -> None:
        """Take in what happened."""
        match happening:
            case SearchStep(step, _) if step.name == "void" and self._bounds is not None:
                self._bounds = self._bounds.after_void()
            case HostEvent() | SearchStep():  # of no slot
                pass
            case TrialAsked(trial, _):
                self._asked = True
                self._plan_another(trial)
            case BestSoFar(objective, config_id, text, host_class):
                best = BestView(objective, self.labels.get(config_id, config_id), text, happening.number, host_class)
                self._best[objective, host_class] = best
            case TrialSpared(trial):
                self._waiting.pop(trial.trial_id, None)
                self._count(all_trials=-1, all_points=-len(trial.points))
            case TrialSettled(trial):
                self._waiting.pop(trial.trial_id, None)
            case _ if slot:  # one that is not known has joined
                self._saw(self._slots.setdefault(slot, _Slot(SlotView(slot), now_s)), happening, now_s)

    def _saw(self, slot: _Slot, happening: Happening, now_s: float) -> None:
        match happening:
            case TrialBegan(trial, attempt, _):
                self._waiting.pop(trial.trial_id, None)
                slot.trial, slot.began_s, slot.samples = trial, now_s, {}
                slot.view = SlotView(slot.view.name, config=self.label(trial), trial_id=trial.trial_id)
                _does(slot, "starting", f"starting{f' (attempt {attempt})' if attempt > 1 else ''}", now_s)
            case StartProgress():
                _starts(slot, happening, now_s)
            case ServerReady():
                _does(slot, "ready", "ready", now_s)
            case TelemetryArrived(_, _, samples):
                slot.samples |= {sample.rank: sample for sample in samples}
            case TrialEnded():
                self._trial_ended(slot, happening, now_s)
            case SlotEnded() if happening.lost and happening.refused is None:
                _does(slot, "lost", "lost", now_s)
            case ReferenceAsked(trial, _, _):
                self._plan_another(trial)
            case _:
                self._saw_point(slot, happening, now_s)

    def _saw_point(self, slot: _Slot, happening: Happening, now_s: float) -> None:
        match happening:
            case PointBegan(point):
                _does(slot, "measuring", point.text, now_s)
                slot.view = replace(slot.view, point=point.text, tok_s=None)
                _count_anew(slot, now_s)
            case PointRepeated() | PointBroke():
                _count_anew(slot, now_s)
            case PointEnded():
                self._count(points=1)
            case PointSpared():
                self._count(all_points=-1)

    def produced(self, slot: str, tokens: int) -> None:
        """Requests of the running point have ended, with so many output tokens."""
        if slot in self._slots:
            self._slots[slot].tokens += tokens

    def _plan_another(self, trial: Trial) -> None:
        self._waiting[trial.trial_id] = trial
        self._count(all_trials=1, all_points=len(trial.points))
        config = trial.config
        if trial.repaired is None and config.config_id not in self.labels:  # a search may ask for what no list has
            self._settings[config.config_id] = config.as_dict()
            self.labels = config_labels(self._settings)

    def _trial_ended(self, slot: _Slot, ended: TrialEnded, now_s: float) -> None:
        outcome, trial, recovery = ended.outcome, ended.trial, ended.recovery
        decision = recovery.decision if recovery is not None else None
        # What was stopped is not done: `--resume` does it. What is tried again counts at its last end.
        if isinstance(decision, Again):
            self._waiting[trial.trial_id] = trial
            self._count(again=1)
        elif not isinstance(outcome, Cancelled):
            self._count(trials=1, measured=int(isinstance(outcome, Measured)), failed=int(isinstance(outcome, Failed)))
        self._count(infeasible=int(isinstance(outcome, Infeasible)))
        if isinstance(outcome, Measured) and slot.trial is not None:
            self._times.learn(slot.trial, now_s - slot.began_s)
        if recovery is not None and isinstance(decision, Repair) and recovery.is_applied and not recovery.is_known:
            self._count(all_trials=1, all_points=len(trial.points))
        slot.trial, slot.tokens, slot.samples, slot.view = None, 0, {}, SlotView(slot.view.name)
        _does(slot, "waiting", "waiting", now_s)
        if ended.refused is not None:
            _does(slot, "unused", "not used any more", now_s)

    def _count(self, **more: int) -> None:
        grown = {name: getattr(self._counts, name) + by for name, by in more.items()}
        self._counts = replace(self._counts, **grown)

    def view(self, now_s: float) -> LiveView:
        """The run at this moment."""
        return LiveView(
            counts=self._counts,
            slots=tuple(_seen(slot, now_s) for slot in self._slots.values()),
            best=tuple(self._best.values()),
            elapsed_s=now_s - self._began_s,
            left=self._left_by_now(now_s),
            is_search=self._asked,
            most_starts=self._bounds.most if self._bounds else None,
            starts_each_void=self._bounds.each_void if self._bounds else 0,
        )

    def _left_by_now(self, now_s: float) -> TimeLeft | None:
        """Of a large plan it is computed now and then only, and runs down in between."""
        pause_s = len(self._waiting) / 1000 if len(self._waiting) > _MANY else 0.0
        computed_s, left = self._left_at
        if left is None or now_s - computed_s >= pause_s:
            self._left_at = computed_s, left = now_s, self._left(now_s)
        return left and left.after(now_s - computed_s)

    def _left(self, now_s: float) -> TimeLeft | None:
        working = [slot for slot in self._slots.values() if slot.view.state not in ("lost", "unused")]
        running = [(slot.trial, now_s - slot.began_s) for slot in working if slot.trial is not None]
        waiting = list(self._waiting.values())
        if self._asked:
            mean_s = self._times.mean_s([*waiting, *(trial for trial, _ in running)])
            if self._bounds is None or mean_s is None:
                return None
            running_s = [since_s for _, since_s in running]
            return search_left(mean_s, self._counts.trials, len(waiting), running_s, self._bounds, len(working))
        if not waiting and not running:
            return None
        one_class = {trial.host_class for trial in waiting} | {trial.host_class for trial, _ in running}
        slots_of = Counter(trial.host_class for trial, _ in running)
        if len(one_class) == 1:
            slots_of[one_class.pop()] = len(working)
        left_s = plan_left_s(self._times, running, waiting, dict(slots_of))
        return TimeLeft(left_s, left_s)


def _does(slot: _Slot, state: SlotState, doing: str, now_s: float) -> None:
    slot.view, slot.since_s = replace(slot.view, state=state, doing=doing), now_s


def _starts(slot: _Slot, seen: StartProgress, now_s: float) -> None:
    text = "ready" if seen.phase is Phase.READY else f"starting: {seen.phase}"
    text += f" {seen.done}/{seen.total}" if seen.total else ""
    if slot.view.phase != seen.phase:
        slot.since_s = now_s
    state: SlotState = "ready" if seen.phase is Phase.READY else "starting"
    slot.view = replace(
        slot.view, state=state, doing=text, phase=str(seen.phase), done=seen.done, total=seen.total,
        free_gib=seen.free_gib,
    )  # fmt: skip


def _count_anew(slot: _Slot, now_s: float) -> None:
    slot.tokens, slot.point_since_s = 0, now_s


def _seen(slot: _Slot, now_s: float) -> SlotView:
    over_s = now_s - slot.point_since_s
    tok_s = slot.tokens / over_s if slot.tokens and over_s > 0 else slot.view.tok_s
    view = replace(slot.view, for_s=now_s - slot.since_s, tok_s=tok_s)
    if 0 not in slot.samples:
        return view
    server = slot.samples[0].server  # rank 0 alone serves
    free = [sample.gpu_free_gib for sample in slot.samples.values() if sample.gpu_free_gib is not None]
    return replace(
        view,
        tok_s=server.generation_tok_s or view.tok_s,  # a gauge that is renewed now and then
        running=server.running_requests,
        queued=server.queued_requests,
        kv_usage=server.token_usage,
        free_gib=min(free, default=view.free_gib),
    )
