"""The rows of `loads` and `trials`, made of what happened. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from orchestrator.outcome import Cancelled, Failed, Infeasible, Outcome, Phase, PhaseFact
from orchestrator.run_files.engine_software import software_json, software_of_json
from orchestrator.server_start import NOT_ASKED, ServerDied, ServerReady
from orchestrator.trial import ClientReport, Point, Repaired, Trial


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What every row says of its run."""

    run_id: str
    engine: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where and when: slot, host, GPU indices there, UTC wall-clock time, the host's class (empty: not known)."""

    slot: str
    host: str
    gpu_ids: tuple[str, ...]
    began_at: str
    host_class: str = ""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Self:
        """From the journal."""
        return cls(told["slot"], told["host"], tuple(told["gpu_ids"]), told["began_at"], told.get("host_class", ""))


@dataclass(frozen=True, slots=True)
class EndNotes:
    """What went wrong besides when a server was stopped, and why its slot takes no more servers (None if it does)."""

    notes: tuple[str, ...] = ()
    slot_refused: str | None = None

    def columns(self) -> dict[str, Any]:
        """As the row of the trial has them."""
        return {"notes": list(self.notes), "slot_refused": self.slot_refused}


NO_NOTES = EndNotes()


def server_as_json(server: ServerReady) -> dict[str, Any]:
    """For the journal. A server's account of itself is large: it is not copied."""
    told = {field.name: getattr(server, field.name) for field in fields(server)}
    return told | {"phases": [asdict(phase) for phase in server.phases], "software": software_json(server.software)}


def server_from_json(told: dict[str, Any] | None) -> ServerReady | None:
    """A ServerReady from the journal."""
    if told is None:
        return None
    phases = tuple(PhaseFact(**{**fact, "phase": Phase(fact["phase"])}) for fact in told["phases"])
    return ServerReady(**{**told, "phases": phases, "software": software_of_json(told.get("software")) or NOT_ASKED})


def load_row(run: RunFacts, point: Point, attempt: int, report: ClientReport, place: Place) -> dict[str, Any]:
    """The row of a measured point."""
    spec = point.spec
    return {
        "run_id": run.run_id, "trial_id": point.trial_id, "point_id": point.point_id, "config_id": point.config_id,
        "engine": run.engine, "attempt": attempt, "repeat": point.repeat, "workload": spec.workload,
        "level_kind": spec.level.kind, "level": spec.level.value, "input_tokens": spec.input_tokens,
        "output_tokens": spec.output_tokens, "slot": place.slot, "host": place.host, "began_at": place.began_at,
        "client_json": json.dumps(asdict(report)), "host_class": place.host_class,
    }  # fmt: skip


def trial_row(
    run: RunFacts,
    trial: Trial,
    attempt: int,
    outcome: Outcome,
    server: ServerReady | ServerDied | None,
    place: Place,
    measured_points: int,
) -> dict[str, Any]:
    """The row of a server start."""
    diagnosis = outcome.diagnosis if isinstance(outcome, Infeasible | Failed) else None
    ready = server if isinstance(server, ServerReady) else None
    reason = outcome.reason if isinstance(outcome, Cancelled) else None
    return {
        "run_id": run.run_id, "trial_id": trial.trial_id, "config_id": trial.config.config_id, "engine": run.engine,
        "attempt": attempt, "repeat": trial.repeat, "slot": place.slot, "host": place.host,
        "gpu_ids": list(place.gpu_ids), "began_at": place.began_at,
        "settings_json": json.dumps(trial.config.as_dict()),
        "resolved_json": json.dumps(ready.resolved, default=str) if ready else None,
        "engine_version": ready.told_version if ready else None,
        "start_s": ready.start_s if ready else None,
        "phases": [asdict(p) for p in server.phases] if server is not None else [],
        "outcome": outcome.kind,
        "label": diagnosis.label if diagnosis else None,
        "phase": diagnosis.phase if diagnosis else None,
        "evidence": diagnosis.evidence if diagnosis else reason,
        "line_number": diagnosis.line_number if diagnosis else None,
        "exit_code": diagnosis.exit_code if diagnosis else None,
        "points": measured_points,
        "repaired_from": trial.repaired.from_id if trial.repaired else None,
        "repair_json": _repair_json(trial.repaired) if trial.repaired else None,
        "host_class": place.host_class,
        "software_json": json.dumps(software_json(server.software)) if server is not None else None,
    }  # fmt: skip


def _repair_json(repaired: Repaired) -> str:
    changes = [{"name": name, "asked": asked, "now": now} for name, asked, now in repaired.changes]
    return json.dumps({"asked_config": repaired.asked_id, "changes": changes, "why": repaired.why})
