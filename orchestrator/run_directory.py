"""One run on disk: what has been measured goes there as it comes, in an order that survives any crash.

Order for a point: its batches (stream) -> `loads` row -> `requests` part -> journal line. A resumed run therefore
finds either the journal line, or a whole part that it can still adopt, or only a stream, which is kept aside.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from orchestrator import SCHEMA_VERSION, dataset
from orchestrator.errors import BadInput
from orchestrator.journal import Journal, RunState, read_events, replay
from orchestrator.paths import RunPaths, write_whole
from orchestrator.provenance import driver_facts, utc_now
from orchestrator.scenario import Scenario
from orchestrator.trial import (
    Cancelled,
    ClientReport,
    Failed,
    Infeasible,
    Outcome,
    Point,
    ServerDied,
    ServerReady,
    Trial,
)


class RunDirectory:
    """The open directory of a run; one driver at a time."""

    def __init__(self, paths: RunPaths, scenario: Scenario, lock: IO[bytes], state: RunState) -> None:
        self.paths = paths
        self.run_id = paths.root.name
        self.state = state
        self._engine = scenario.engine.kind
        self._lock = lock
        self._journal = Journal(paths.journal)
        self._streams: dict[str, dataset.PointStream] = {}
        self._discarded = False

    @classmethod
    def create(cls, root: Path, scenario: Scenario) -> RunDirectory:
        """A new run; BadInput if the directory holds one already."""
        paths = RunPaths(root.absolute())
        if paths.manifest.exists():
            raise BadInput(
                f"{root}: holds a run already; continue it with --resume {root}, or choose another --run-dir"
            )
        root.mkdir(parents=True, exist_ok=True)
        lock = _take_lock(paths)
        _write_manifest(paths, scenario, starts=[driver_facts()])
        run = cls(paths, scenario, lock, RunState())
        run._journal.append("run_started", at=utc_now())
        return run

    @classmethod
    def reopen(cls, root: Path, scenario: Scenario) -> RunDirectory:
        """Continue a run after whatever ended it: adopt whole parts, keep streams aside, cut torn journal lines."""
        paths = RunPaths(root.absolute())
        manifest = read_manifest(root)
        lock = _take_lock(paths)
        run = cls(paths, scenario, lock, replay(read_events(paths.journal)))
        run._repair()
        _write_manifest(paths, scenario, starts=[*manifest["starts"], driver_facts()])
        run._journal.append("run_resumed", at=utc_now())
        return run

    def _repair(self) -> None:
        known = set(self.state.done_points.items())
        for point_id, attempt in dataset.measured_parts(self.paths):
            if (point_id, attempt) in known:
                continue
            if point_id not in self.state.done_points and dataset.has_load(self.paths, point_id, attempt):
                self._mark_done(point_id, attempt, adopted=True)
            else:
                dataset.set_aside(self.paths, point_id, attempt)
        rows = dataset.salvage_streams(self.paths)
        if rows:
            self._journal.append("partial_kept", rows=rows)

    def begin_trial(self, trial: Trial, attempt: int, slot: str) -> None:
        """Record a start; `attempt` counts the starts of this trial over all resumptions, from 1."""
        self.state.attempts[trial.trial_id] = attempt
        self._journal.append("trial_started", trial_id=trial.trial_id, attempt=attempt, slot=slot, at=utc_now())

    def append(self, point: Point, attempt: int, batch: Any) -> None:
        """Store one batch of a point that is being measured."""
        if point.point_id not in self._streams:
            self._streams[point.point_id] = dataset.PointStream(self.paths, point.point_id, attempt)
        self._streams[point.point_id].append(batch)

    def end_point(self, point: Point, attempt: int, report: ClientReport, place: dict[str, str]) -> None:
        """The point is measured: make its part of the dataset, then say so in the journal."""
        stream = self._streams.pop(point.point_id, None)
        if stream is None:
            stream = dataset.PointStream(self.paths, point.point_id, attempt)
        dataset.write_load(self.paths, self._load_row(point, attempt, report, place), attempt)
        stream.finish()
        self._mark_done(point.point_id, attempt)

    def _mark_done(self, point_id: str, attempt: int, **facts: Any) -> None:
        self.state.done_points[point_id] = attempt
        self._journal.append("point_done", point_id=point_id, attempt=attempt, **facts)

    def abandon_point(self, point: Point) -> None:
        """The point did not end; what came of it is kept in `partial/`."""
        stream = self._streams.pop(point.point_id, None)
        if stream is not None:
            stream.abandon()

    def end_trial(
        self,
        trial: Trial,
        attempt: int,
        outcome: Outcome,
        server: ServerReady | ServerDied | None,
        place: dict[str, Any],
    ) -> None:
        """Record how a trial ended, in the dataset and in the journal."""
        row = self._trial_row(trial, attempt, outcome, server, place)
        dataset.write_trial(self.paths, row)
        told = {k: row[k] for k in ("label", "phase", "evidence", "exit_code")}
        self._journal.append(
            "trial_ended", trial_id=trial.trial_id, config_id=trial.config.config_id, attempt=attempt,
            outcome=outcome.kind, **told,
        )  # fmt: skip
        self.state.outcomes[trial.trial_id] = {"outcome": outcome.kind, "config_id": trial.config.config_id, **told}

    def keep_log(self, trial: Trial, attempt: int, compressed: bytes) -> None:
        """Store the server's log; earlier attempts keep theirs under their number."""
        file = self.paths.server_log(trial.trial_id)
        write_whole(file if attempt == 1 else file.with_name(f"server-{attempt}.log.zst"), compressed)

    def discard(self) -> None:
        """Remove a run in which nothing was started, so that its name is free again."""
        self._discarded = True
        for file in (self.paths.manifest, self.paths.journal, self.paths.lock):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.paths.root.rmdir()

    def close(self, *, complete: bool) -> None:
        for stream in self._streams.values():
            stream.abandon()
        self._streams.clear()
        if not self._discarded:
            self._journal.append("run_ended", complete=complete, at=utc_now())
        self._journal.close()
        self._lock.close()

    def _load_row(self, point: Point, attempt: int, report: ClientReport, place: dict[str, str]) -> dict[str, Any]:
        spec = point.spec
        return {
            "run_id": self.run_id, "trial_id": point.trial_id, "point_id": point.point_id,
            "config_id": point.config_id, "engine": self._engine, "attempt": attempt, "repeat": point.repeat,
            "workload": spec.workload, "level_kind": spec.level.kind, "level": spec.level.value,
            "input_tokens": spec.input_tokens, "output_tokens": spec.output_tokens,
            "slot": place["slot"], "host": place["host"], "began_at": place["began_at"],
            "client_json": json.dumps(asdict(report)),
        }  # fmt: skip

    def _trial_row(
        self,
        trial: Trial,
        attempt: int,
        outcome: Outcome,
        server: ServerReady | ServerDied | None,
        place: dict[str, Any],
    ) -> dict[str, Any]:
        diagnosis = outcome.diagnosis if isinstance(outcome, Infeasible | Failed) else None
        resolved = server.resolved if isinstance(server, ServerReady) else None
        measured = sum(p.point_id in self.state.done_points for p in trial.points)
        return {
            "run_id": self.run_id, "trial_id": trial.trial_id, "config_id": trial.config.config_id,
            "engine": self._engine, "attempt": attempt, "repeat": trial.repeat,
            "slot": place["slot"], "host": place["host"], "gpu_ids": place["gpu_ids"], "began_at": place["began_at"],
            "settings_json": json.dumps(trial.config.as_dict()),
            "resolved_json": json.dumps(resolved, default=str) if resolved is not None else None,
            "engine_version": str(resolved["version"]) if resolved and "version" in resolved else None,
            "start_s": server.start_s if isinstance(server, ServerReady) else None,
            "phases": [asdict(p) for p in server.phases] if server is not None else [],
            "outcome": outcome.kind,
            "label": diagnosis.label if diagnosis else None,
            "phase": diagnosis.phase if diagnosis else None,
            "evidence": diagnosis.evidence if diagnosis else outcome.reason if isinstance(outcome, Cancelled) else None,
            "line_number": diagnosis.line_number if diagnosis else None,
            "exit_code": diagnosis.exit_code if diagnosis else None,
            "points": measured,
        }  # fmt: skip


def _take_lock(paths: RunPaths) -> IO[bytes]:
    lock = paths.lock.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BadInput(f"{paths.root}: another specsweep process is working on this run") from None
    return lock


def _write_manifest(paths: RunPaths, scenario: Scenario, starts: list[dict[str, Any]]) -> None:
    manifest = {
        "schema": SCHEMA_VERSION,
        "run_id": paths.root.name,
        "engine": scenario.engine.kind,
        "seed": scenario.seed,
        "scenario": scenario.model_dump(mode="json"),
        "starts": starts,
    }
    write_whole(paths.manifest, json.dumps(manifest, indent=1).encode() + b"\n")


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of a run directory; BadInput if it is none, or of another schema."""
    file = RunPaths(root).manifest
    try:
        manifest = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"{root}: is not a run directory (no {file.name}); runs are in runs/<name>-<time>/") from None
    except (ValueError, NotADirectoryError):
        raise BadInput(f"{root}: its {file.name} cannot be read") from None
    if manifest.get("schema") != SCHEMA_VERSION:
        raise BadInput(f"{root}: has schema {manifest.get('schema')}, this specsweep reads {SCHEMA_VERSION}")
    loaded: dict[str, Any] = manifest
    return loaded


def new_run_root(name: str, stamp: str, parent: Path = Path("runs")) -> Path:
    """`runs/<name>-<time>`, with a number behind it if that is taken."""
    root = parent / f"{name}-{stamp}"
    number = 2
    while root.exists():
        root = parent / f"{name}-{stamp}-{number}"
        number += 1
    return root
