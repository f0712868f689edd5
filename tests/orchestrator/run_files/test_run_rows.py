"""What an earlier ranking computed is used only where it is what would be computed now."""

from __future__ import annotations

import json
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import BadInput
from orchestrator.paths import RunPaths, whole_file
from orchestrator.rankings import run_ranking
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files import dataset, derived_rows, point_table
from orchestrator.run_files.compute_pool import ComputePool
from orchestrator.run_files.derived_rows import DerivedRows, formulas_of
from orchestrator.run_files.point_table import metrics_json, metrics_of_json
from orchestrator.run_files.run_rows import RunRows
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import finished_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 configs x 2 levels, not yet ranked."""
    return finished_run(tmp_path_factory.mktemp("runs") / "small", small_scenario(), FakeSlot("a"))


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "small")
    return tmp_path / "small"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The points whose metrics were computed."""
    points: list[str] = []
    real = point_table.summarised

    def noted(task: point_table.PointTask) -> bytes | None:
        points.append(task.point_id)
        return real(task)

    monkeypatch.setattr("orchestrator.run_files.run_rows.summarised", noted)
    return points


def test_a_second_ranking_computes_nothing_and_says_the_same(root: Path, computed: list[str]) -> None:
    rank_run(root)
    first = (root / "ranking.json").read_bytes()
    assert len(computed) == 6
    computed.clear()

    rank_run(root)

    assert computed == []
    assert (root / "ranking.json").read_bytes() == first


def test_anew_computes_everything_again(root: Path, computed: list[str]) -> None:
    rank_run(root)
    computed.clear()

    rank_run(root, anew=True)

    assert len(computed) == 6


def test_only_the_point_whose_file_was_replaced_is_computed_again(root: Path, computed: list[str]) -> None:
    rank_run(root)
    part = sorted(RunPaths(root).table("requests").iterdir())[0]
    table = pq.read_table(part)
    twice = table.set_column(table.schema.get_field_index("output_tokens"), "output_tokens", [[8] * table.num_rows])
    pq.write_table(twice, part)
    computed.clear()

    rank_run(root)

    point_id = part.stem.rpartition("-")[0]
    rows = pq.read_table(RunPaths(root).points).to_pylist()
    assert computed == [point_id]
    assert {row["point_id"]: row["output_tokens_mean"] for row in rows if row["output_tokens_mean"] != 4} == {
        point_id: 8
    }


def test_other_formulas_compute_everything_again(
    root: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rank_run(root)
    computed.clear()
    monkeypatch.setattr(derived_rows, "formulas", lambda: "those of another release")

    rank_run(root)

    assert len(computed) == 6


def test_other_limits_of_requests_compute_the_points_again(root: Path, computed: list[str]) -> None:
    assert rank_run(root).rankings[0].rows
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["scenario"]["workloads"][0]["slo"] = {"ttft_ms": 1.0}
    (root / "manifest.json").write_text(json.dumps(manifest))
    computed.clear()

    rank_run(root)

    assert len(computed) == 6
    goodput = pq.read_table(RunPaths(root).points).column("goodput_rps").to_pylist()
    assert goodput == [0.0] * 6


@pytest.mark.parametrize("damage", ["deleted", "cut", "other columns"])
def test_a_run_whose_derived_rows_are_gone_or_damaged_is_ranked_the_same(root: Path, damage: str) -> None:
    rank_run(root)
    first = (root / "ranking.json").read_bytes()
    for file in (root / "derived").iterdir():
        if damage == "deleted":
            file.unlink()
        elif damage == "cut":
            file.write_bytes(file.read_bytes()[:100])
        else:
            pq.write_table(pq.read_table(file).drop_columns(["key"]), file)

    rank_run(root)

    assert (root / "ranking.json").read_bytes() == first
    assert sorted(file.stem for file in (root / "derived").iterdir()) == ["configs", "loads", "points", "trials"]


def test_a_deleted_table_of_points_comes_back_though_nothing_is_computed(root: Path, computed: list[str]) -> None:
    rank_run(root)
    first = pq.read_table(RunPaths(root).points)
    RunPaths(root).points.unlink()
    computed.clear()

    rank_run(root)

    assert computed == []
    assert pq.read_table(RunPaths(root).points).equals(first)


def test_a_ranking_that_fails_on_the_way_keeps_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise BadInput("no")

    monkeypatch.setattr(run_ranking, "_assemble", refused)

    with pytest.raises(BadInput):
        rank_run(root)

    assert not (root / "derived").exists()


def test_several_processes_compute_what_one_does(root: Path) -> None:
    paths = RunPaths(root)
    with RunRows(paths, anew=True, pool=ComputePool(fewest_tasks=2, processes=2)) as read:
        shared = (read.trials(), read.loads())
    with RunRows(paths, anew=True) as read:
        assert (read.trials(), read.loads()) == shared
    assert len(shared[1]) == 6


def test_a_value_is_kept_for_the_key_that_it_was_made_of_and_no_other(tmp_path: Path) -> None:
    stored(tmp_path, {"a": "1", "b": "2"}, {"a": b"one", "b": b"two"})
    kept = DerivedRows(tmp_path / "d.parquet")

    assert kept.kept({"a": "1", "b": "2"}) == {"a": b"one", "b": b"two"}
    assert kept.kept({"a": "2", "c": "1"}) == {}
    assert DerivedRows(tmp_path / "d.parquet", anew=True).kept({"a": "1"}) == {}


def stored(folder: Path, keys: dict[str, str], fresh: dict[str, bytes]) -> DerivedRows:
    derived = DerivedRows(folder / "d.parquet")
    derived.keep(keys, fresh)
    derived.store()
    return DerivedRows(folder / "d.parquet")


def test_what_is_kept_is_stored_with_what_is_new_and_without_what_is_gone(tmp_path: Path) -> None:
    stored(tmp_path, {"a": "1", "b": "2", "c": "3"}, {"a": b"one", "b": b"two", "c": b"three"})
    now = stored(tmp_path, {"a": "1", "b": "4", "d": "5"}, {"b": b"four", "d": b"five"})

    assert now.kept({"a": "1", "b": "4", "d": "5"}) == {"a": b"one", "b": b"four", "d": b"five"}
    assert now.kept({"b": "2", "c": "3"}) == {}
    assert now.differs
    now.keep({"a": "1", "b": "4", "d": "5"}, {})
    assert not now.differs


def test_values_of_several_hundred_kilobytes_and_thousands_of_names_come_back(tmp_path: Path) -> None:
    fresh = {f"n{i}": b"x" * (300_000 if i == 7 else i) for i in range(2500)}
    now = stored(tmp_path, dict.fromkeys(fresh, "k"), fresh)

    assert now.kept(dict.fromkeys(fresh, "k")) == fresh


def test_values_that_are_damaged_are_computed_and_stored_again(tmp_path: Path) -> None:
    stored(tmp_path, {"a": "1"}, {"a": bytes(range(256)) * 40})
    file = tmp_path / "d.parquet"
    now = DerivedRows(file)
    file.unlink()  # or cut, or written by a ranking beside this one

    assert now.kept({"a": "1"}) == {}
    now.keep({"a": "1"}, {"a": b"again"})
    assert now.differs
    now.store()
    assert DerivedRows(file).kept({"a": "1"}) == {"a": b"again"}


def test_a_value_of_which_a_bit_was_lost_is_computed_again(tmp_path: Path) -> None:
    value = b"".join(b'{"output_throughput_tok_s":%d.25}' % n for n in range(300))
    stored(tmp_path, {"a": "1"}, {"a": value})
    file = tmp_path / "d.parquet"
    whole = file.read_bytes()

    for place in range(8, len(whole) - 8, 7):
        lost = bytearray(whole)
        lost[place] ^= 16
        file.write_bytes(lost)
        assert DerivedRows(file).kept({"a": "1"}) in ({}, {"a": value})


def test_metrics_survive_as_json_exactly_also_numbers_that_are_none(root: Path) -> None:
    paths = RunPaths(root)
    with RunRows(paths) as read:
        loads = read.loads()
        points = read.points(small_scenario(), {}, loads, {load["point_id"]: load["attempt"] for load in loads})
    metrics = points[0].metrics
    odd = replace(metrics, output_throughput_tok_s=math.inf, accept_length=0.1 + 0.2, by_traffic={})

    assert metrics_of_json(metrics_json(metrics)) == metrics
    assert metrics_of_json(metrics_json(odd)) == odd
    unknown = metrics_of_json(metrics_json(replace(metrics, window_s=math.nan)))
    assert unknown.window_s is not None
    assert math.isnan(unknown.window_s)


def test_what_a_program_computed_whose_text_was_changed_while_it_ran_counts_for_no_other(tmp_path: Path) -> None:
    (tmp_path / "metrics.py").write_text("x = 1")
    later, before = time.time() + 60, time.time() - 60

    assert formulas_of(tmp_path, later) == formulas_of(tmp_path, later)
    assert formulas_of(tmp_path, before) != formulas_of(tmp_path, before)
    assert formulas_of(tmp_path, before) != formulas_of(tmp_path, later)


def test_points_that_are_all_gone_are_not_in_the_table_of_points(root: Path) -> None:
    rank_run(root)
    paths = RunPaths(root)
    assert paths.points.exists()

    dataset.write_points(paths, [])

    assert not paths.points.exists()


def test_two_rankings_with_one_process_id_do_not_write_into_one_another(tmp_path: Path) -> None:
    file = tmp_path / "ranking.json"
    with whole_file(file) as one, whole_file(file) as other:
        one.write(b"one")
        other.write(b"other")

    assert file.read_bytes() == b"one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["ranking.json"]
