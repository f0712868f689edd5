"""The dataset is read as it stands by pyarrow, DuckDB and Polars."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.sweeps.sweep import Sweep
from tests.fakes.killable_sweep import Silent, script
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario


@pytest.fixture(scope="module")
def run_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 3 configs x 2 levels with 10 requests a point, and one infeasible config."""
    root = tmp_path_factory.mktemp("runs") / "small"
    scenario = small_scenario(sweep={"axes": {"speculative_num_steps": [0, 1, 2, 9]}}, recovery={"mode": "off"})
    run = RunDirectory.create(root, scenario)
    plan = make_plan(scenario, 1, finished_work(run.state))
    Sweep(plan, [FakeSlot("a", script)], run, lambda t: launch_spec(scenario, "run", t), Silent()).run()
    run.close(complete=True)
    rank_run(root)
    return root


def test_pyarrow_reads_every_table_with_its_schema_version(run_root: Path) -> None:
    import pyarrow.dataset as ds

    counts = {name: ds.dataset(run_root / "dataset" / name) for name in ("requests", "loads", "trials", "points")}

    assert {name: table.count_rows() for name, table in counts.items()} == {
        "requests": 60,
        "loads": 6,
        "trials": 4,
        "points": 6,
    }
    assert {"valid", "void_reasons", "warnings"} <= set(counts["points"].schema.names)
    assert counts["requests"].schema.metadata[b"specsweep_schema"] == b"1"
    assert ds.dataset(run_root / "dataset/requests").to_table(filter=ds.field("output_tokens") == 4).num_rows == 60


def test_duckdb_reads_it_with_a_glob(run_root: Path) -> None:
    import duckdb

    ttft = duckdb.sql(
        f"SELECT count(*), avg((first_token_ns - sent_ns) / 1e6) FROM '{run_root}/dataset/requests/*.parquet' "
        "WHERE status = 'ok' AND NOT warmup"
    ).fetchall()
    died = duckdb.sql(
        f"SELECT label FROM '{run_root}/dataset/trials/*.parquet' WHERE outcome = 'infeasible'"
    ).fetchall()

    assert ttft == [(60, 20.0)]
    assert died == [("kv_budget",)]


def test_polars_reads_it_with_a_glob(run_root: Path) -> None:
    import polars

    requests = polars.read_parquet(run_root / "dataset/requests/*.parquet")
    chunks = requests.select(polars.col("chunk_tokens").list.sum()).to_series()

    assert requests.height == 60
    assert chunks.to_list() == [4] * 60
    assert polars.read_parquet(run_root / "dataset/points/*.parquet")["engine"].unique().to_list() == ["emulator"]


def test_rank_computes_the_same_from_the_raw_tables_whatever_became_of_the_derived_one(run_root: Path) -> None:
    before = (run_root / "ranking.json").read_bytes()
    for file in (run_root / "dataset/points").glob("*"):
        file.unlink()

    rank_run(run_root)

    assert (run_root / "ranking.json").read_bytes() == before
    assert list((run_root / "dataset/points").glob("*.parquet"))


def test_a_run_of_an_earlier_release_without_the_columns_of_repairs_is_ranked_as_before(run_root: Path) -> None:
    before = (run_root / "ranking.json").read_bytes()
    for file in (run_root / "dataset/trials").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["repaired_from", "repair_json"]), file)

    rank_run(run_root)

    assert (run_root / "ranking.json").read_bytes() == before
