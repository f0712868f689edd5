"""The lines that a run tells as it goes: what happened, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from actors.diagnosis.advice import advice
from orchestrator.happening import (
    BestSoFar,
    Happening,
    PointEnded,
    PointRepeated,
    ReferenceAsked,
    SearchStep,
    TrialAsked,
    TrialBegan,
    TrialEnded,
    TrialSpared,
)
from orchestrator.hosts.host_event import HostEvent
from orchestrator.outcome import Failed, Infeasible
from orchestrator.plural import plural
from orchestrator.recoveries.lineages import Recovery
from orchestrator.recoveries.recovery import Again, NoMove, Repair, repair_text
from orchestrator.searches.course import PointSpared
from orchestrator.server_start import ServerReady
from orchestrator.sglang.resolved_settings import setting_changes
from orchestrator.watching.live_state import LiveState

MOST_EVIDENCE = 240


@dataclass(frozen=True, slots=True)
class Line:
    """What is told of a place: a slot, a host, a search. `is_routine`: may be left out where there are too many."""

    place: str
    text: str
    is_routine: bool = False


class ProgressLines:
    """Remembers what was told of each slot's trial, so that nothing is told twice."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._told: dict[str, list[str]] = {}  # slot -> notes of its running trial
        self._asked: dict[str, dict[str, Any]] = {}  # slot -> settings of its running trial

    def of(self, slot: str, happening: Happening) -> Iterator[Line]:
        """The lines about a happening that the state has taken in."""
        match happening:
            case HostEvent():
                yield Line(slot or "cluster", happening.text)
            case TrialAsked() | SearchStep() | BestSoFar():
                yield self._of_search(happening)
            case TrialBegan(trial, _, _):
                self._told[slot], self._asked[slot] = [], trial.config.as_dict()
            case TrialEnded():
                label = self._state.label(happening.trial)
                yield from self._notes(slot, label, happening)
                yield from self._end(slot, label, happening)
            case _:
                label = self._state.config_on(slot)
                yield from self._notes(slot, label, happening)
                yield from self._of_trial(slot, label, happening)

    def _notes(self, slot: str, label: str, happening: Happening) -> Iterator[Line]:
        notes: tuple[str, ...] = getattr(happening, "notes", ())
        told = self._told.get(slot, [])
        yield from (Line(slot, f"{label}: {note}") for note in notes if note not in told)

    def _of_search(self, happening: TrialAsked | SearchStep | BestSoFar) -> Line:
        host_class = happening.trial.host_class if isinstance(happening, TrialAsked) else happening.host_class
        place = f"search, {host_class}" if host_class else "search"
        match happening:
            case TrialAsked(trial, why):
                start = f"start {trial.repeat + 1}"
                reason = f", {why}" if why and why != start else ""
                return Line(place, f"{self._state.label(trial)}: {start}{reason}", is_routine=True)
            case SearchStep(step, _):
                return Line(place, f"{step.name}: {step.text}")
            case BestSoFar(objective, config_id, value):
                label = self._state.labels.get(config_id, config_id)
                return Line(place, f"best so far for {objective}: {label}, {value}")

    def _of_trial(self, slot: str, label: str, happening: Happening) -> Iterator[Line]:
        match happening:
            case ServerReady():
                yield Line(slot, f"{label}: ready after {happening.start_s:.1f} s", is_routine=True)
                for change in setting_changes(self._asked.get(slot, {}), happening.resolved):
                    yield Line(slot, f"{label}: {change}")
            case PointEnded(point, _, report, _):
                yield Line(slot, f"{label}: {point.text}: {plural(report.requests, 'request')}", is_routine=True)
            case PointSpared(point, reason):
                yield Line(slot, f"{label}: not measured at {point.text}: {reason}", is_routine=True)
            case PointRepeated():
                self._told.setdefault(slot, []).append(happening.note)
                yield Line(slot, f"{label}: {happening.note}")
            case ReferenceAsked(trial, host, _):
                yield Line(slot, f"{self._state.label(trial)}: reference of {host}", is_routine=True)
            case TrialSpared(trial):
                yield Line(slot, f"{self._state.label(trial)}: not started again, it died in another trial")

    def _end(self, slot: str, label: str, ended: TrialEnded) -> Iterator[Line]:
        outcome, recovery = ended.outcome, ended.recovery
        told: str = outcome.kind
        if isinstance(outcome, Infeasible | Failed):
            died = outcome.diagnosis
            told = f"{outcome.kind} ({died.label}, {died.phase}): {_in_short(died.evidence)}"
            # Where Specsweep makes the change itself, its line follows.
            repairs = recovery is not None and isinstance(recovery.decision, Repair)
            moves = () if repairs else advice(died)
            told += f" -> {moves[0]}" if moves else ""
        yield Line(slot, f"{label}: {told}")
        if recovery is not None:
            yield Line(slot, f"{label}: {self._recovery(recovery)}")
        if ended.refused is not None:
            yield Line(slot, f"this slot is not used any more: {ended.refused}")

    def _recovery(self, recovery: Recovery) -> str:
        """What follows, in one line."""
        match recovery.decision:
            case Repair(changes) if not recovery.is_applied:
                return f"suggested: {repair_text(changes)}"
            case Repair(changes) if recovery.is_known:
                other = self._state.labels.get(recovery.into or "", "another repaired config")
                return f"repaired it would be {other}, which stands for it: {repair_text(changes)}"
            case Repair(changes):
                return f"trying again: {repair_text(changes)}"
            case Again(how):
                return f"trying the same again ({how})"
            case NoMove(reason):
                return f"no further try: {reason}"


def _in_short(evidence: str) -> str:
    """As much of it as a line of progress can hold; the ranking and the dataset have all."""
    return evidence if len(evidence) <= MOST_EVIDENCE else f"{evidence[: MOST_EVIDENCE - 4].rstrip()} ..."
