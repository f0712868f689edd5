"""The loop of a run, on slots that answer from a script."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from orchestrator import dataset
from orchestrator.errors import BadInput
from orchestrator.journal import finished_work, read_events
from orchestrator.paths import RunPaths
from orchestrator.planner import make_plan
from orchestrator.run_command import launch_spec, scenario_to_resume
from orchestrator.run_directory import RunDirectory
from orchestrator.run_ranking import rank_run
from orchestrator.scenario import Scenario
from orchestrator.schemas import request_schema
from orchestrator.server_start import LaunchSpec
from orchestrator.sweep import Sweep, SweepResult
from orchestrator.sweep_space import expand
from orchestrator.trial import Failed, Label, Point
from tests.fakes.killable_sweep import SCENARIO as KILLABLE
from tests.fakes.killable_sweep import Silent
from tests.fakes.slot import FakeSlot, Script, report, request_batch
from tests.orchestrator.scenarios import small_scenario


def sweep_on(run: RunDirectory, scenario: Scenario, slots: list[FakeSlot]) -> tuple[Sweep, SweepResult]:
    plan = make_plan(scenario, len(slots), finished_work(run.state))
    sweep = Sweep(plan, list(slots), run, lambda t: launch_spec(scenario, "run", t), Silent())
    return sweep, sweep.run()


def depth_dies(depth: int, label: Label, on: set[str] | None = None) -> Script:
    def script(name: str, spec: LaunchSpec) -> Label | None:
        return label if ("speculative_num_steps", depth) in spec.settings and (on is None or name in on) else None

    return script


def rows_per_point(paths: RunPaths) -> dict[str, int]:
    return {p: dataset.read_point(paths, p, attempt).num_rows for p, attempt in dataset.measured_parts(paths)}


def test_every_point_is_measured_once_and_stored_with_its_trial(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())
    slots = [FakeSlot("a"), FakeSlot("b")]
    _, result = sweep_on(run, small_scenario(), slots)
    run.close(complete=result.complete)

    assert result.complete
    assert {o.kind for o in result.outcomes.values()} == {"measured"}
    assert rows_per_point(run.paths) == {
        p.point_id: 10 for t in make_plan(small_scenario(), 1).trials for p in t.points
    }
    trials = dataset.read_rows(run.paths, "trials")
    assert sorted(t["outcome"] for t in trials) == ["measured"] * 3
    assert trials[0]["phases"][0] == {
        "phase": "weights",
        "began_s": 0.0,
        "ended_s": 0.1,
        "free_gib": 30.5,
        "detail": "",
    }
    assert trials[0]["engine_version"] == "0.5.23"
    log = run.paths.server_log(trials[0]["trial_id"]).read_bytes()
    assert zstandard.decompress(log) == b"a server log\n"
    assert sum(slot.stops for slot in slots) == 3
    assert [e["event"] for e in read_events(run.paths.journal)][-1] == "run_ended"
    assert not list(run.paths.stream.iterdir())


def test_an_infeasible_config_is_a_result_with_its_evidence_and_is_not_tried_again(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())
    slot = FakeSlot("a", depth_dies(2, Label.KV_BUDGET))
    _, result = sweep_on(run, small_scenario(), [slot])
    run.close(complete=result.complete)

    assert result.complete
    assert len(slot.launched) == 3
    died = [t for t in dataset.read_rows(run.paths, "trials") if t["outcome"] == "infeasible"]
    assert [(t["label"], t["phase"], t["evidence"], t["line_number"], t["exit_code"]) for t in died] == [
        ("kv_budget", "kv_pool", "the line that shows it", 12, -9)
    ]


def test_a_trial_that_breaks_is_tried_once_more_on_another_slot(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())
    script = depth_dies(2, Label.PORT_IN_USE, on={"a"})
    slots = [FakeSlot("a", script, pause_s=0.01), FakeSlot("b", script, pause_s=0.01)]
    _, result = sweep_on(run, small_scenario(sweep={"configs": [{"speculative_num_steps": 2}]}), slots[:1] + slots[1:])
    run.close(complete=result.complete)

    assert [o.kind for o in result.outcomes.values()] == ["measured"]
    assert len(slots[1].launched) == 1


def test_a_trial_that_breaks_everywhere_is_failed_after_two_attempts(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())
    slot = FakeSlot("a", depth_dies(2, Label.UNKNOWN))
    _, result = sweep_on(run, small_scenario(), [slot])
    run.close(complete=result.complete)

    assert sorted(o.kind for o in result.outcomes.values()) == ["failed", "measured", "measured"]
    assert len(slot.launched) == 4
    assert sorted(t["attempt"] for t in dataset.read_rows(run.paths, "trials")) == [1, 1, 1, 2]


def test_a_slot_that_is_lost_leaves_its_work_to_the_others(tmp_path: Path) -> None:
    scenario = small_scenario(sweep={"axes": {"speculative_num_steps": list(range(8))}})
    run = RunDirectory.create(tmp_path / "run", scenario)
    slots = [FakeSlot("a", pause_s=0.01), FakeSlot("b", pause_s=0.01)]
    slots[0].lose_at = make_plan(scenario, 2).slots[0][0].trial_id
    _, result = sweep_on(run, scenario, slots)
    run.close(complete=result.complete)

    assert result.complete
    assert slots[0].launched == [slots[0].lose_at]
    assert {o.kind for o in result.outcomes.values()} == {"measured"}
    assert len(rows_per_point(run.paths)) == 16


def test_a_lost_load_costs_its_point_but_not_the_slot_and_its_records_are_kept_aside(tmp_path: Path) -> None:
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("a")
    slot.lose_load_once_at = make_plan(scenario, 1).slots[0][1].trial_id
    _, result = sweep_on(run, scenario, [slot])
    run.close(complete=result.complete)

    assert result.complete
    assert {o.kind for o in result.outcomes.values()} == {"measured"}
    assert len(slot.launched) == 4
    assert len(rows_per_point(run.paths)) == 6
    assert [pq.read_table(file).num_rows for file in run.paths.partial.iterdir()] == [5]


def test_a_slot_lost_just_after_a_point_leaves_no_row_of_it_twice(tmp_path: Path) -> None:
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "run", scenario)
    slots = [FakeSlot("a", pause_s=0.01), FakeSlot("b", pause_s=0.01)]
    slots[0].lose_after_point_of = make_plan(scenario, 2).slots[0][0].trial_id
    _, result = sweep_on(run, scenario, slots)
    run.close(complete=result.complete)

    assert result.complete
    assert list(rows_per_point(run.paths).values()) == [10] * 6
    assert [pq.read_table(file).num_rows for file in run.paths.partial.iterdir()] == [10]


def test_when_all_slots_are_lost_the_run_is_not_complete_and_resumes(tmp_path: Path) -> None:
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("a")
    slot.lose_at = make_plan(scenario, 1).slots[0][1].trial_id
    _, result = sweep_on(run, scenario, [slot])
    run.close(complete=result.complete)
    assert not result.complete

    again = RunDirectory.reopen(tmp_path / "run", scenario)
    healthy = FakeSlot("b")
    _, result = sweep_on(again, scenario, [healthy])
    again.close(complete=result.complete)

    assert result.complete
    assert len(healthy.measured) == 4
    assert rows_per_point(again.paths) == dict.fromkeys(rows_per_point(again.paths), 10)
    assert len(rows_per_point(again.paths)) == 6


def test_cancel_keeps_what_was_measured_stops_every_server_and_resume_does_only_the_rest(tmp_path: Path) -> None:
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("a", pause_s=0.01)
    plan = make_plan(scenario, 1)
    sweep = Sweep(plan, [slot], run, lambda t: launch_spec(scenario, "run", t), Silent())
    third: list[Point] = []

    def cancel_at_third(point: Point) -> None:
        third.append(point)
        if len(third) == 3:
            sweep.cancel()

    slot.on_point = cancel_at_third
    result = sweep.run()
    run.close(complete=result.complete)

    assert not result.complete
    assert slot.stops == len(slot.launched) == 2
    assert set(rows_per_point(run.paths)) == {p.point_id for p in third[:2]}

    again = RunDirectory.reopen(tmp_path / "run", scenario)
    fresh = FakeSlot("b")
    sweep_on(again, scenario, [fresh])
    again.close(complete=True)

    assert set(fresh.measured) == {p.point_id for t in plan.trials for p in t.points} - {p.point_id for p in third[:2]}
    assert len(rows_per_point(again.paths)) == 6


def test_a_second_driver_on_the_same_run_is_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())

    with pytest.raises(BadInput, match="another specsweep process is working on this run"):
        RunDirectory.reopen(tmp_path / "run", small_scenario())
    run.close(complete=False)
    with pytest.raises(BadInput, match="holds a run already"):
        RunDirectory.create(tmp_path / "run", small_scenario())


def killed_driver(root: Path, after_s: float) -> None:
    """Start the driver, and SIGKILL it some time after it has begun to measure."""
    driver = subprocess.Popen([sys.executable, "-m", "tests.fakes.killable_sweep", str(root)])
    deadline = time.monotonic() + 60
    while not (root / "stream").exists() and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(after_s)
    driver.send_signal(signal.SIGKILL)
    driver.wait()


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_any_moment_a_run_is_finished_by_resume_without_lost_or_double_points(
    tmp_path: Path, seed: int
) -> None:
    root = tmp_path / "run"
    rng = random.Random(seed)
    for _ in range(2):
        killed_driver(root, rng.uniform(0, 0.5))
    finished = subprocess.run([sys.executable, "-m", "tests.fakes.killable_sweep", str(root)], check=False)

    assert finished.returncode == 0
    paths = RunPaths(root)
    planned = {p.point_id for t in make_plan(KILLABLE, 1).trials for p in t.points}
    infeasible = {
        p.point_id for t in make_plan(KILLABLE, 1).trials if t.config.speculation_depth == 9 for p in t.points
    }
    parts = dataset.measured_parts(paths)
    assert sorted(point for point, _ in parts) == sorted(planned - infeasible)
    rows = pq.read_table(paths.table("requests")).select(["point_id", "request_index"]).to_pylist()
    assert len(rows) == 20 * len(parts)
    assert len({(r["point_id"], r["request_index"]) for r in rows}) == len(rows)
    assert not list(paths.stream.iterdir())
    trials = {t["trial_id"]: t for t in sorted(dataset.read_rows(paths, "trials"), key=lambda t: t["attempt"])}
    assert {t["outcome"] for t in trials.values()} == {"measured", "infeasible"}
    assert len(trials) == 6
    ranked = rank_run(root)
    assert {row.config_id for row in ranked.rankings[0].rows} | {c.config_id for c in ranked.infeasible} == {
        t.config.config_id for t in make_plan(KILLABLE, 1).trials
    }


def test_a_driver_killed_between_the_last_point_and_the_end_of_its_trial_loses_nothing(tmp_path: Path) -> None:
    scenario = small_scenario(sweep={"configs": [{"speculative_num_steps": 2}]})
    run = RunDirectory.create(tmp_path / "run", scenario)
    sweep_on(run, scenario, [FakeSlot("a")])
    run.close(complete=True)
    journal = run.paths.journal
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if '"trial_ended"' not in line and '"run_ended"' not in line))
    for file in run.paths.table("trials").iterdir():
        file.unlink()

    again = RunDirectory.reopen(tmp_path / "run", scenario)
    again.close(complete=True)

    (trial,) = dataset.read_rows(again.paths, "trials")
    assert (trial["outcome"], trial["attempt"], trial["engine_version"], trial["slot"]) == (
        "measured",
        1,
        "0.5.23",
        "a",
    )
    assert len(rank_run(again.paths.root).rankings[0].rows) == 1


def failing_batch(point: Point) -> object:
    batch = request_batch(point, 1, 0, 5).to_pydict()
    batch["status"] = ["http_error"] * 5
    batch["http_status"] = [401] * 5
    batch["error"] = ['{"error":"Unauthorized"}'] * 5
    return pa.RecordBatch.from_pydict(batch, schema=request_schema())


def test_a_point_without_a_single_success_fails_its_trial_with_what_the_server_said(tmp_path: Path) -> None:
    scenario = small_scenario(sweep={"configs": [{"speculative_num_steps": 2}]})
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("a")
    slot.run_point = lambda url, point, attempt: iter([failing_batch(point), report(point, 5)])  # type: ignore[method-assign]
    _, result = sweep_on(run, scenario, [slot])
    run.close(complete=result.complete)

    (outcome,) = result.outcomes.values()
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.label == "client_errors"
    assert outcome.diagnosis.evidence == (
        'none of 5 requests at chat C=1 succeeded: http_error 401 {"error":"Unauthorized"}'
    )
    assert finished_work(run.state) == frozenset()


def test_a_fault_in_a_slots_thread_ends_the_run_with_that_fault(tmp_path: Path) -> None:
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("a")
    slot.stop = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]

    with pytest.raises(ZeroDivisionError):
        sweep_on(run, scenario, [slot])


@pytest.mark.parametrize("table", ["loads", "requests"])
@pytest.mark.parametrize("damage", ["deleted", "cut"])
def test_a_point_whose_files_are_gone_or_cut_is_told_by_rank_and_measured_again_by_resume(
    tmp_path: Path, table: str, damage: str
) -> None:
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "run", scenario)
    sweep_on(run, scenario, [FakeSlot("a")])
    run.close(complete=True)
    part = sorted(run.paths.table(table).iterdir())[0]
    lost = part.stem.rpartition("-")[0]
    if damage == "deleted":
        part.unlink()
    else:
        part.write_bytes(part.read_bytes()[:200])

    (note, *_) = rank_run(run.paths.root).notes[:1]
    again = RunDirectory.reopen(run.paths.root, scenario)
    slot = FakeSlot("b")
    sweep_on(again, scenario, [slot])
    again.close(complete=True)

    assert note == f"1 measured points are gone from dataset/ or damaged ({lost}): --resume measures them again"
    assert slot.measured == [lost]
    assert len(rows_per_point(again.paths)) == 6
    assert not [n for n in rank_run(run.paths.root).notes if "damaged" in n]


def test_secrets_are_not_stored_and_resume_asks_for_the_scenario_that_has_them(tmp_path: Path) -> None:
    engine = {
        "kind": "emulator",
        "settings": {"speculative_algorithm": "NEXTN"},
        "env": {"HF_TOKEN": "hf_0123456789", "PLAIN": "shown"},
        "extra_args": ["--api-key", "sk-0123456789", "--admin-api-key=sk-9876543210"],
    }
    scenario = small_scenario(engine=engine)
    run = RunDirectory.create(tmp_path / "run", scenario)
    sweep_on(run, scenario, [FakeSlot("a")])
    run.close(complete=True)
    rank_run(run.paths.root)

    for file in run.paths.root.rglob("*"):
        for secret in (b"hf_0123456789", b"sk-0123456789", b"sk-9876543210"):
            assert not file.is_file() or secret not in file.read_bytes(), file
    with pytest.raises(BadInput, match="secrets, which are not stored; give the scenario as well"):
        scenario_to_resume(run.paths.root, None)
    assert scenario_to_resume(run.paths.root, scenario) == scenario
    rotated = small_scenario(engine={**engine, "env": {"HF_TOKEN": "hf_another_one", "PLAIN": "shown"}})
    assert {c.config_id for c in expand(rotated)} == {c.config_id for c in expand(scenario)}
    assert scenario_to_resume(run.paths.root, rotated) == rotated


def test_a_run_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(BadInput, match="cannot be written"):
        RunDirectory.create(tmp_path / "file" / "run", small_scenario())
