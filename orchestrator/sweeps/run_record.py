"""What happenings leave in the directory of a run, in the order of each slot."""

from __future__ import annotations

from typing import Any

from orchestrator.happening import (
    BatchArrived,
    Happening,
    PointBroke,
    PointEnded,
    PointRepeated,
    TelemetryArrived,
    TrialBegan,
    TrialEnded,
)
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_tables import EndNotes, Place
from orchestrator.server_start import ServerReady
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.trial import Trial


def record(run: RunDirectory, slot: SlotFacts, happening: Happening) -> None:
    """Store what happened on a slot; what is only to be shown leaves nothing."""
    match happening:
        case TrialBegan(trial, attempt, began_at):
            run.begin_trial(trial, attempt, place_of(slot, began_at))
        case ServerReady():
            run.server_ready(happening)
        case BatchArrived(point, attempt, batch):
            run.append(point, attempt, batch)
        case PointEnded(point, attempt, report, began_at):
            run.end_point(point, attempt, report, place_of(slot, began_at))
        case PointBroke(point):
            run.abandon_point(point)
        case PointRepeated(point):
            run.abandon_point(point, mark="-client-too-slow")
        case TelemetryArrived(trial, attempt, samples):
            run.telemetry.append(start_columns(slot, trial, attempt), samples)
        case TrialEnded():
            _end_trial(run, slot, happening)
        case _:
            pass


def _end_trial(run: RunDirectory, slot: SlotFacts, ended: TrialEnded) -> None:
    run.telemetry.end(ended.trial.trial_id, ended.attempt)
    if ended.log:
        run.keep_log(ended.trial, ended.attempt, ended.log)
    aside = EndNotes(ended.notes, ended.refused)
    place = place_of(slot, ended.began_at)
    run.end_trial(ended.trial, ended.attempt, ended.outcome, ended.server, place, aside, ended.recovery)


def place_of(slot: SlotFacts, began_at: str) -> Place:
    """Where and when something happened, as the tables tell it."""
    return Place(slot.name, slot.host, slot.gpu_ids, began_at, slot.host_class)


def start_columns(slot: SlotFacts, trial: Trial, attempt: int) -> dict[str, Any]:
    """What every row of telemetry says of its server start."""
    ids = {"trial_id": trial.trial_id, "config_id": trial.config.config_id, "attempt": attempt}
    return ids | {"slot": slot.name, "host": slot.host}
