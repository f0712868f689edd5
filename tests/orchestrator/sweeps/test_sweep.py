"""The loop of a run, on slots that answer from a script."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from orchestrator.outcome import Failed, Label
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import finished_work, read_events
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.schemas import request_schema
from orchestrator.server_start import LaunchSpec
from orchestrator.sweeps.sweep import Sweep
from orchestrator.trial import Point
from tests.fakes.killable_sweep import Silent
from tests.fakes.slot import FakeSlot, Script, report, request_batch
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import rows_per_point, sweep_on


def depth_dies(depth: int, label: Label, on: set[str] | None = None) -> Script:
    def script(name: str, spec: LaunchSpec) -> Label | None:
        return label if ("speculative_num_steps", depth) in spec.settings and (on is None or name in on) else None

    return script


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
    scenario = small_scenario(recovery={"mode": False})
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("a", depth_dies(2, Label.KV_BUDGET))
    _, result = sweep_on(run, scenario, [slot])
    run.close(complete=result.complete)

    assert result.complete
    assert len(slot.launched) == 3
    died = [t for t in dataset.read_rows(run.paths, "trials") if t["outcome"] == "infeasible"]
    assert [(t["label"], t["phase"], t["evidence"], t["line_number"], t["exit_code"]) for t in died] == [
        ("kv_budget", "kv_pool", "the line that shows it", 12, -9)
    ]


def test_a_trial_that_breaks_is_tried_once_more_on_another_slot(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())
    script = depth_dies(2, Label.NCCL_INIT, on={"a"})
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
    slot.run_point = lambda url, point, attempt, processes=1: iter([failing_batch(point), report(point, 5)])  # type: ignore[method-assign]
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
