"""What a run keeps when its driver is killed, its files are damaged, or its scenario has secrets."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import BadInput
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import read_events, replay
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.sweep_space import expand
from orchestrator.sweeps.run_command import scenario_to_resume
from tests.fakes import killable_sweep
from tests.fakes.killable_sweep import SCENARIO as KILLABLE
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import rows_per_point, sweep_on


def test_a_second_driver_on_the_same_run_is_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())

    with pytest.raises(BadInput, match="another specsweep process is working on this run"):
        RunDirectory.reopen(tmp_path / "run", small_scenario())
    run.close(complete=False)
    with pytest.raises(BadInput, match="holds a run already"):
        RunDirectory.create(tmp_path / "run", small_scenario())


# Drivers are forked from a process that has the imports behind it; Python's start would take most of the time.
_DRIVERS = multiprocessing.get_context("forkserver")
_DRIVERS.set_forkserver_preload(["tests.fakes.killable_sweep"])


def started_driver(root: Path, main: Callable[[Path], None] = killable_sweep.main) -> ForkServerProcess:
    driver = _DRIVERS.Process(target=main, args=(root,))
    driver.start()
    return driver


def killed_driver(root: Path, after_s: float, main: Callable[[Path], None] = killable_sweep.main) -> None:
    """Start the driver, and SIGKILL it some time after it has begun to measure."""
    driver = started_driver(root, main)
    deadline = time.monotonic() + 60
    while not (root / "stream").exists() and driver.is_alive() and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(after_s)
    driver.kill()
    driver.join()


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_any_moment_a_run_is_finished_by_resume_without_lost_or_double_points(
    tmp_path: Path, seed: int
) -> None:
    root = tmp_path / "run"
    rng = random.Random(seed)
    for _ in range(2):
        killed_driver(root, rng.uniform(0, 0.5))
    finished = started_driver(root)
    finished.join()

    assert finished.exitcode == 0
    paths = RunPaths(root)
    planned = {p.point_id for t in make_plan(KILLABLE, 1).trials for p in t.points}
    died = {p.point_id for t in make_plan(KILLABLE, 1).trials if t.config.speculation_depth == 9 for p in t.points}
    repaired = {
        p.point_id for t in RunDirectory.reopen(root, KILLABLE).lineages_of().repaired_trials() for p in t.points
    }
    parts = dataset.measured_parts(paths)
    measured = {point for point, _ in parts}
    assert len(measured) == len(parts)
    assert measured - repaired == planned - died
    assert len(measured & repaired) == 2
    rows = pq.read_table(paths.table("requests")).select(["point_id", "request_index"]).to_pylist()
    assert len(rows) == 20 * len(parts)
    assert len({(r["point_id"], r["request_index"]) for r in rows}) == len(rows)
    assert not list(paths.stream.iterdir())
    trials = {t["trial_id"]: t for t in sorted(dataset.read_rows(paths, "trials"), key=lambda t: t["attempt"])}
    fractions = [
        (json.loads(t["settings_json"]).get("mem_fraction_static"), t["outcome"])
        for t in trials.values()
        if json.loads(t["settings_json"]).get("speculative_num_steps") == 9
    ]
    assert sorted(fractions, key=str) == [(0.9, "infeasible"), (0.95, "measured"), (None, "infeasible")]
    assert [t["outcome"] for t in dataset.read_rows(paths, "trials")].count("infeasible") == 2
    assert len(trials) == 8
    ranked = rank_run(root)
    assert len(ranked.rankings[0].rows) == 6
    assert ranked.infeasible == ()
    (story,) = ranked.repaired
    assert ranked.configs[story.served_as or ""]["mem_fraction_static"] == 0.95


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_a_search_is_finished_by_resume_as_if_nothing_had_happened(
    tmp_path: Path, seed: int
) -> None:
    root = tmp_path / "run"
    rng = random.Random(seed)
    for _ in range(2):
        killed_driver(root, rng.uniform(0, 0.9), killable_sweep.search)
    finished = started_driver(root, killable_sweep.search)
    finished.join()

    assert finished.exitcode == 0
    paths = RunPaths(root)
    rows = rows_per_point(paths)
    assert len(rows) == len(dataset.measured_parts(paths))
    measured = Counter[tuple[int, int]]()
    for load in dataset.read_rows(paths, "loads"):
        trial = next(t for t in dataset.read_rows(paths, "trials") if t["trial_id"] == load["trial_id"])
        measured[json.loads(trial["settings_json"]).get("speculative_num_steps", 0), load["repeat"]] += rows[
            load["point_id"]
        ]
    # 20 requests a point. What has lost at C=1 is not measured at C=4; the best two are measured once more.
    assert measured == {(0, 0): 20, (1, 0): 20, (2, 0): 40, (3, 0): 40, (4, 0): 40, (4, 1): 40, (9, 0): 40, (9, 1): 40}
    state = replay(read_events(paths.journal))
    assert {event["reason"] for event in state.of_search.spared.values()} == {"had lost by far"}
    assert len(state.of_search.spared) == 2
    assert [step["text"] for step in state.of_search.steps] == ["2 of 6 play off"]
    assert not list(paths.stream.iterdir())
    assert state.ended


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


def test_a_row_of_loads_whose_requests_never_came_is_no_row_of_the_resumed_run(tmp_path: Path) -> None:
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "run", scenario)
    sweep_on(run, scenario, [FakeSlot("a")])
    run.close(complete=True)
    part = sorted(run.paths.table("requests").iterdir())[0]
    lines = run.paths.journal.read_text().splitlines(keepends=True)
    point_id = part.stem.rpartition("-")[0]
    told = [line for line in lines if point_id not in line or '"point_done"' not in line]
    run.paths.journal.write_text("".join(told))
    part.unlink()

    again = RunDirectory.reopen(run.paths.root, scenario)
    assert point_id not in {row["point_id"] for row in dataset.read_rows(again.paths, "loads")}
    assert (again.paths.partial / f"loads-{part.name}").exists()
    sweep_on(again, scenario, [FakeSlot("b")])
    again.close(complete=True)

    rows = [row["point_id"] for row in dataset.read_rows(again.paths, "loads")]
    assert sorted(rows) == sorted(set(rows))
    assert len(rows) == 6


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
