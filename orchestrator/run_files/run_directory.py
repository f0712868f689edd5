"""One run on disk: what has been measured goes there as it comes, in an order that survives any crash.

Order for a point: its batches (stream) -> `loads` row -> `requests` part -> journal line. A resumed run therefore
finds either the journal line, or a whole part that it can still adopt, or only a stream, which is kept aside.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from orchestrator.errors import BadInput
from orchestrator.hosts.host_event import HostEvent
from orchestrator.outcome import Cancelled, Measured, Outcome
from orchestrator.paths import RunPaths, user_file, write_whole
from orchestrator.planning.planner import Plan, is_probed, make_class_plan, trial_of
from orchestrator.provenance import driver_facts, utc_now
from orchestrator.recoveries.lineages import Lineages, Recovery
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import Journal, RunState, read_events, replay
from orchestrator.run_files.run_lock import take_lock
from orchestrator.run_files.run_manifest import manifest_bytes, read_manifest, write_manifest
from orchestrator.run_files.run_tables import (
    NO_NOTES,
    EndNotes,
    Place,
    RunFacts,
    load_row,
    server_as_json,
    server_from_json,
    trial_row,
)
from orchestrator.run_files.run_telemetry import RunTelemetry, salvage
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import expand
from orchestrator.searches.asked_trials import AskedTrial, AskedTrials
from orchestrator.searches.search_state import probed_mark
from orchestrator.server_start import ServerDied, ServerReady
from orchestrator.trial import ClientReport, Point, Trial


class RunDirectory:
    """The open directory of a run; one driver at a time. `lineages` are those that its journal tells.

    `asked`: what searches asked for. `versions`: what servers said of their release, by trial id, as far as known.
    """

    def __init__(self, paths: RunPaths, run_id: str, scenario: Scenario, lock: IO[bytes], state: RunState) -> None:
        self.paths = paths
        self.run_id = run_id
        self.state = state
        self._scenario = scenario
        self._lineages: dict[str, Lineages] = {}
        self._manifest: dict[str, Any] = {}
        self.host_classes: tuple[str, ...] = ()
        self._run_facts = RunFacts(self.run_id, scenario.engine.kind)
        self.telemetry = RunTelemetry(paths, asdict(self._run_facts))
        self._lock = lock
        self._journal = Journal(paths.journal)
        self.asked = AskedTrials(scenario, state.of_search, self._journal.append)
        self.versions: dict[str, str | None] = {}
        self._streams: dict[str, dataset.PointStream] = {}
        self.reused_version = next((str(e["engine_version"]) for e in state.ends if e.get("engine_version")), None)
        self._discarded = False
        dataset.give_memory_back()

    @classmethod
    def create(cls, root: Path, scenario: Scenario) -> RunDirectory:
        """A new run; BadInput if the directory holds one already."""
        paths = RunPaths(root.absolute())
        if paths.manifest.exists():
            raise BadInput(
                f"{root}: holds a run already; continue it with --resume {root}, or choose another --run-dir"
            )
        with user_file(f"--run-dir {root}", "written"):
            root.mkdir(parents=True, exist_ok=True)
            lock = take_lock(paths)
            # By this id hosts know the run's processes: no other directory of this name, wherever, may have it.
            run_id = f"{paths.root.name}-{secrets.token_hex(3)}"
            manifest = write_manifest(paths, run_id, scenario, starts=[driver_facts()])
        run = cls(paths, run_id, scenario, lock, RunState())
        run._manifest = manifest
        run._journal.append("run_started", at=utc_now())
        return run

    @classmethod
    def reopen(cls, root: Path, scenario: Scenario) -> RunDirectory:
        """Continue a run after whatever ended it: adopt whole parts, keep streams aside, cut torn journal lines."""
        paths = RunPaths(root.absolute())
        manifest = read_manifest(root)
        lock = take_lock(paths)
        run = cls(paths, manifest["run_id"], scenario, lock, replay(read_events(paths.journal)))
        run._repair()
        run.host_classes = classes = tuple(manifest.get("host_classes", ()))
        run._end_torn_trials()
        run._manifest = write_manifest(paths, run.run_id, scenario, [*manifest["starts"], driver_facts()], classes)
        run._journal.append("run_resumed", at=utc_now())
        run.asked.begin_start()
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
        for point_id, attempt in known:
            if not dataset.is_whole(self.paths, point_id, attempt):
                del self.state.done_points[point_id]
                dataset.set_aside(self.paths, point_id, attempt)
                self._journal.append("point_lost", point_id=point_id, attempt=attempt)
        dataset.set_aside_torn_loads(self.paths, self.state.done_points)
        salvage(self.paths)
        rows = dataset.salvage_streams(self.paths)
        if rows:
            self._journal.append("partial_kept", rows=rows)

    @property
    def trial_classes(self) -> tuple[str, ...]:
        """The classes as trials have them: none (an empty one) in a run on hosts of one class."""
        return self.host_classes if len(self.host_classes) > 1 else ("",)

    def keep_classes(self, classes: Sequence[str]) -> None:
        """The classes of hosts that the run measures on, from now on and for every resumption."""
        self.host_classes = tuple(classes)
        if classes:
            self._manifest["host_classes"] = list(classes)
            write_whole(self.paths.manifest, manifest_bytes(self._manifest))

    def plan(self, scenario: Scenario, slots: Sequence[str], done: frozenset[str] = frozenset()) -> Plan:
        """What is left to do on slots of these classes; of a run that searches, what it asked for so far."""
        if self.is_adaptive:
            return Plan(tuple(expand(scenario)), (tuple(self._asked_trials(done)),))
        classes = self.trial_classes
        own = [of if len(classes) > 1 else "" for of in slots]
        return make_class_plan(scenario, own, classes, done, lambda c: self.lineages_of(c).stand_ins)

    @property
    def is_adaptive(self) -> bool:
        """Whether results decide what is started."""
        return self._scenario.search.method != "grid"

    def _asked_trials(self, done: frozenset[str]) -> list[Trial]:
        """Of this start, as they are run by now, with the points that are left."""
        found = []
        for asked in self.asked.of_this_start:
            if asked.is_reference:
                continue
            trial = self.lineages_of(asked.host_class).trial_to_run(self.trial_of(asked))
            if trial is None or trial.trial_id in done:
                continue
            left = tuple(p for p in trial.points if p.point_id not in done)
            if left or (is_probed(self._scenario) and probed_mark(trial.trial_id) not in done):
                found.append(replace(trial, points=left))
        return found

    def is_finished(self, point: Point) -> bool:
        """Whether a point is measured, or is not to be."""
        return point.point_id in self.state.done_points or point.point_id in self.state.of_search.spared

    def is_done(self, trial: Trial) -> bool:
        """Whether nothing of a trial is left to do."""
        died = self.state.outcomes.get(trial.trial_id, {}).get("outcome") == "infeasible"
        return died or all(map(self.is_finished, trial.points))

    def whole(self, trial: Trial) -> Trial:
        """The trial with all its points, also those that an earlier start of it measured."""
        return trial_of(self._scenario, trial.config, trial.repaired, trial.repeat, trial.host_class)

    def trial_of(self, asked: AskedTrial) -> Trial:
        """What was asked, with all its points."""
        return trial_of(self._scenario, asked.config, None, asked.repeat, asked.host_class)

    def _known_trials(self) -> list[Trial]:
        """All that the run may have started, as asked and as repaired."""
        asked = list(self.asked.all)
        planned = (
            [] if self.is_adaptive
            else make_class_plan(self._scenario, (), self.trial_classes, frozenset(), lambda _: {}).trials
        )  # fmt: skip
        repeats = sorted({*range(self._scenario.measure.repeats), *(trial.repeat for trial in asked)})
        repaired = [trial for c in self.trial_classes for trial in self.lineages_of(c).repaired_trials(repeats)]
        return [*planned, *map(self.trial_of, asked), *repaired]

    def _end_torn_trials(self) -> None:
        """Trials that had begun when the driver ended: tell what is known of them."""
        torn = self.state.torn_trials()
        for trial in self._known_trials():
            began = torn.pop(trial.trial_id, None)
            if began is None:
                continue
            whole = all(map(self.is_finished, trial.points)) and not is_probed(self._scenario)
            measured = sum(p.point_id in self.state.done_points for p in trial.points)
            outcome: Outcome = Measured(measured) if whole else Cancelled("the driver ended")
            self.end_trial(trial, began.attempt, outcome, server_from_json(began.server), Place.of(began.place))

    def lineages_of(self, host_class: str = "") -> Lineages:
        """What stands for what among the trials of a class of hosts: what dies on one may run on another.

        The class is empty where a run has hosts of one class.
        """
        if host_class not in self._lineages:
            ends = [event for event in self.state.ends if event.get("host_class", "") == host_class]
            asked = [trial.config for trial in self.asked.all if trial.host_class == host_class]
            self._lineages[host_class] = Lineages(self._scenario, ends, host_class, asked)
        return self._lineages[host_class]

    def host_event(self, event: HostEvent) -> None:
        """Record what became of a host."""
        told = event.as_json()
        self._journal.append(event.change, **told)
        self.state.of_hosts.append({"event": event.change, **told})

    def begin_trial(self, trial: Trial, attempt: int, place: Place) -> None:
        """Record a start; `attempt` counts the starts of this trial over all resumptions, from 1."""
        self.state.attempts[trial.trial_id] = attempt
        self._journal.note("trial_started", trial_id=trial.trial_id, attempt=attempt, place=asdict(place))

    def server_ready(self, server: ServerReady) -> None:
        """Record what the server is, so that it is known even if its trial never ends."""
        self.versions[server.trial_id] = server.told_version
        self._journal.note("server_ready", trial_id=server.trial_id, server=server_as_json(server))

    def append(self, point: Point, attempt: int, batch: Any) -> None:
        """Store one batch of a point that is being measured."""
        if point.point_id not in self._streams:
            self._streams[point.point_id] = dataset.PointStream(self.paths, point.point_id, attempt)
        self._streams[point.point_id].append(batch)

    def end_point(self, point: Point, attempt: int, report: ClientReport, place: Place) -> None:
        """The point is measured: make its part of the dataset, then say so in the journal."""
        stream = self._streams.pop(point.point_id, None)
        if stream is None:
            stream = dataset.PointStream(self.paths, point.point_id, attempt)
        dataset.write_load(self.paths, load_row(self._run_facts, point, attempt, report, place), attempt)
        stream.finish()
        self._mark_done(point.point_id, attempt)

    def _mark_done(self, point_id: str, attempt: int, **facts: Any) -> None:
        self.state.done_points[point_id] = attempt
        self._journal.append("point_done", point_id=point_id, attempt=attempt, **facts)

    def take_over(self, trial: Trial, points: Mapping[str, int], source: str, version: str | None) -> None:
        """Count points of another run as done, whose files are in the dataset already: point id -> attempt."""
        for point_id, attempt in points.items():
            self._mark_done(point_id, attempt, reused_from=source)
        self.reused_version = version or self.reused_version
        attempt, whole = max(points.values()), len(points) == len(trial.points)
        self.begin_trial(trial, attempt, Place("", "", (), "", trial.host_class))
        self._note_end(trial, attempt, {"outcome": "measured" if whole else "cancelled"},
                       reused_from=source, engine_version=version)  # fmt: skip

    def abandon_point(self, point: Point, mark: str = "") -> None:
        """The point did not end, or is measured again; what came of it is kept in `partial/`."""
        stream = self._streams.pop(point.point_id, None)
        if stream is not None:
            stream.abandon(mark)

    def end_trial(
        self,
        trial: Trial,
        attempt: int,
        outcome: Outcome,
        server: ServerReady | ServerDied | None,
        place: Place,
        notes: EndNotes = NO_NOTES,
        recovery: Recovery | None = None,
    ) -> None:
        """Record how a trial ended and what follows, in the dataset and in the journal."""
        measured = sum(p.point_id in self.state.done_points for p in trial.points)
        row = trial_row(self._run_facts, trial, attempt, outcome, server, place, measured) | notes.columns()
        dataset.write_trial(self.paths, row)
        told = {k: row[k] for k in ("outcome", "label", "phase", "evidence", "exit_code", "host")}
        self._note_end(trial, attempt, told, **({} if recovery is None else {"recovery": recovery.as_json()}))

    def _note_end(self, trial: Trial, attempt: int, told: dict[str, Any], **facts: Any) -> None:
        config_id = trial.config.config_id
        on = {"host_class": trial.host_class} if trial.host_class else {}
        self._journal.append(
            "trial_ended", trial_id=trial.trial_id, config_id=config_id, attempt=attempt, **told, **facts, **on
        )
        self.state.outcomes[trial.trial_id] = {"config_id": config_id, **told}

    def keep_log(self, trial: Trial, attempt: int, compressed: bytes) -> None:
        """Store the server's log; earlier attempts keep theirs under their number."""
        file = self.paths.server_log(trial.trial_id)
        write_whole(file if attempt == 1 else file.with_name(f"server-{attempt}.log.zst"), compressed)

    @property
    def is_discarded(self) -> bool:
        """Whether nothing of the run remains."""
        return self._discarded

    def discard(self) -> None:
        """Remove a run in which nothing was started, so that its name is free again."""
        self._discarded = True
        paths = self.paths
        for file in (paths.manifest, paths.journal, paths.lock, paths.hosts, paths.live):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.paths.root.rmdir()

    def close(self, *, complete: bool) -> None:
        """Nothing more is stored. What cannot be written any more (a full disk) stays as it is: `reopen` repairs it."""
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.abandon()
        self._streams.clear()
        self.telemetry.close()
        if not self._discarded:
            with contextlib.suppress(OSError):
                self._journal.append("run_ended", complete=complete, at=utc_now())
        self._journal.close()
        self._lock.close()
