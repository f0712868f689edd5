"""Starts of earlier runs, read from run directories as a run leaves them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.happening import Happening, TrialEnded
from orchestrator.outcome import Diagnosis, Label, Measured, Phase, PhaseFact, outcome_from_diagnosis
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_tables import Place
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import ServerDied, ServerReady
from orchestrator.starts.phase_history import phase_seconds
from orchestrator.starts.start_history import past_starts
from orchestrator.sweeps.start_memory import StartMemory, silence_limits
from tests.fakes.killable_sweep import Silent
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario as asked
from tests.orchestrator.sweeping import sweep_on

PLACE = Place("host-a/0", "host-a", ("0",), "2026-11-29T10:00:00Z")
PHASES = (PhaseFact(Phase.LAUNCH, 0.0, 5.0), PhaseFact(Phase.WEIGHTS, 5.0, 100.0), PhaseFact(Phase.READY, 100.0))


def starts(parent: Path, **limits: Any) -> list[tuple[str, str | None]]:
    found = past_starts(parent, model=asked().model.path, engine=asked().engine.kind, **limits)
    return [(start.outcome, start.label) for start in found]


def run_of_one_start(root: Path, age_s: float = 0.0, question: Scenario | None = None) -> None:
    """A run in which the first trial's server was ready after 100 s."""
    question = question or asked()
    run = RunDirectory.create(root, question)
    trial = make_plan(question, 1).trials[0]
    ready = ServerReady(trial.trial_id, "http://127.0.0.1:1", 1, 100.0, PHASES, {"version": "0.5.23"})
    run.begin_trial(trial, 1, PLACE)
    run.end_trial(trial, 1, Measured(1), ready, PLACE)
    run.close(complete=False)
    os.utime(root, (1e9 - age_s, 1e9 - age_s))


def test_a_swept_run_tells_its_starts_with_phases_settings_and_outcomes(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", asked())
    sweep_on(run, asked(), [FakeSlot("host-a/0")])
    run.close(complete=True)

    found = past_starts(tmp_path, model=asked().model.path, engine=asked().engine.kind)
    assert len(found) == len(make_plan(asked(), 1).trials)
    assert {start.outcome for start in found} == {"measured"}
    assert {(start.host, start.gpu_count, start.version) for start in found} == {("fake-host", 1, "0.5.23")}
    assert [phase_seconds(start.phases) for start in found] == [{Phase.WEIGHTS: 0.1}] * len(found)
    settings = [trial.config.as_dict() for trial in make_plan(asked(), 1).trials]
    assert sorted(map(str, settings)) == sorted(str(start.settings) for start in found)


def test_a_start_that_died_tells_why_and_the_phases_that_it_left(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", asked())
    trial = make_plan(asked(), 1).trials[0]
    died = Diagnosis(Label.KV_BUDGET, Phase.KV_POOL, "Not enough memory", 12, -9)
    phases = (PhaseFact(Phase.WEIGHTS, 0.0, 20.0, 30.5), PhaseFact(Phase.KV_POOL, 20.0))
    server = ServerDied(trial.trial_id, died, phases, 21.0)
    run.begin_trial(trial, 1, PLACE)
    run.end_trial(trial, 1, outcome_from_diagnosis(died), server, PLACE)
    run.close(complete=True)

    (start,) = past_starts(tmp_path, model=asked().model.path, engine=asked().engine.kind)
    assert (start.outcome, start.label, start.evidence) == ("infeasible", "kv_budget", "Not enough memory")
    assert phase_seconds(start.phases) == {Phase.WEIGHTS: 20.0}
    assert start.resolved == {}


def test_runs_of_other_models_folders_of_others_and_damaged_runs_are_left_out(tmp_path: Path) -> None:
    run_of_one_start(tmp_path / "good")
    run_of_one_start(tmp_path / "other-model", question=asked(model={"path": "another/model"}))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/manifest.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "half").mkdir()
    (tmp_path / "half/manifest.json").write_text('{"schema": 1, "scen', encoding="utf-8")
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    damaged = tmp_path / "damaged"
    run_of_one_start(damaged)
    for part in RunPaths(damaged).table("trials").glob("*.parquet"):
        part.write_bytes(b"PAR1 torn")
    of_another_release = tmp_path / "renamed"
    run_of_one_start(of_another_release)
    manifest = json.loads((of_another_release / "manifest.json").read_text(encoding="utf-8"))
    (of_another_release / "manifest.json").write_text(json.dumps({**manifest, "schema": -1}), encoding="utf-8")

    assert starts(tmp_path) == [("measured", None)]
    assert starts(tmp_path / "no-such-folder") == []


def test_the_newest_runs_come_first_and_old_ones_are_not_read(tmp_path: Path) -> None:
    for name, age_s in (("old", 300.0), ("new", 0.0), ("middle", 100.0)):
        run_of_one_start(tmp_path / name, age_s)

    assert len(starts(tmp_path)) == 3
    assert len(starts(tmp_path, most_runs=2)) == 2
    assert len(starts(tmp_path, most_starts=1)) == 1


def test_a_run_learns_from_the_runs_beside_it_and_from_its_own_starts(tmp_path: Path) -> None:
    run_of_one_start(tmp_path / "earlier")
    question = asked()
    memory = StartMemory.beside(tmp_path / "now", question, Silent())
    trial = make_plan(question, 1).trials[0]

    def weights() -> tuple[float, str]:
        found = next(b for b in memory.budgets(trial) if b.phase is Phase.WEIGHTS)
        return found.total_s, found.source

    assert weights() == (410.0, "1 earlier start took at most 95 s")
    slower = replace(PHASES[1], ended_s=125.0), replace(PHASES[2], began_s=125.0)
    memory.saw("host-a/0", ServerReady(trial.trial_id, "u", 1, 125.0, (PHASES[0], *slower)))
    assert weights() == (390.0, "2 earlier starts took at most 120 s")
    died = ServerDied(trial.trial_id, Diagnosis(Label.KV_BUDGET, Phase.KV_POOL, "x"), (PHASES[0], *slower), 130.0)
    outcome = outcome_from_diagnosis(died.diagnosis)
    memory.saw("host-a/0", TrialEnded(trial, 1, outcome, died, "2026", b""))
    assert weights() == (330.0, "3 earlier starts took at most 120 s")


def test_a_memory_passes_on_all_that_it_sees() -> None:
    seen: list[tuple[str, Happening]] = []

    class Recorder:
        def saw(self, slot: str, happening: Happening) -> None:
            seen.append((slot, happening))

    ready = ServerReady("trial", "u", 1, 100.0, PHASES)
    StartMemory(asked(), [], Recorder()).saw("host-a/0", ready)

    assert seen == [("host-a/0", ready)]


def test_a_server_that_runs_already_has_no_start_to_limit() -> None:
    question = asked()
    attached = question.model_copy(update={"engine": question.engine.model_copy(update={"kind": "attach"})})
    trial = make_plan(question, 1).trials[0]

    assert StartMemory(attached, [], Silent()).budgets(trial) == ()


def test_a_phase_timeout_that_is_the_default_was_not_said() -> None:
    assert silence_limits(asked().timeouts).phase_s is None
    said = asked(timeouts={"phase_s": 1200.0, "silent_s": 50.0})
    assert (silence_limits(said.timeouts).phase_s, silence_limits(said.timeouts).silent_s) == (1200.0, 50.0)
