"""What a run measured, written for other programs: nothing is lost or rounded on the way, and no cell is a formula."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import main
from orchestrator.exchange.export_format import write_csv, write_jsonl, write_parquet
from orchestrator.exchange.export_rows import point_rows
from orchestrator.exchange.peer_file import read_peer_file
from orchestrator.exchange.stored_run import StoredRun, read_run
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import finished_run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 configs x 2 levels, never ranked."""
    return finished_run(tmp_path_factory.mktemp("runs") / "small", small_scenario(), FakeSlot("a"))


@pytest.fixture(scope="module")
def run(root: Path) -> StoredRun:
    return read_run(root)


def exported(root: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["export", str(root), *words])


def files(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(root.rglob("*")) if f.is_file()}


def test_csv_and_json_lines_have_every_metric_and_setting_exactly(root: Path, run: StoredRun) -> None:
    as_csv = list(csv.DictReader(io.StringIO(exported(root).output)))
    as_json = [json.loads(line) for line in exported(root, "--as", "jsonl").output.splitlines()]

    assert len(as_csv) == len(as_json) == 6
    for point, cells, told in zip(run.points, as_csv, as_json, strict=True):
        for name, value in point.metrics.values().items():
            assert told[name] == value
            assert cells[name] == ("" if value is None else repr(value))
        assert cells["config_id"] == point.load["config_id"]
        steps = told["setting.speculative_num_steps"]
        assert cells["setting.speculative_num_steps"] == ("" if steps is None else str(steps))
        assert cells["valid"] == "true"


def test_nothing_of_the_run_is_changed_by_reading_it(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "run")
    before = files(tmp_path / "run")

    assert exported(tmp_path / "run").exit_code == 0

    assert files(tmp_path / "run") == before


@pytest.mark.parametrize(("what", "rows"), [("points", 6), ("trials", 3), ("requests", 60)])
def test_parquet_is_read_by_duckdb_and_has_the_rows_of_the_other_forms(
    root: Path, tmp_path: Path, what: str, rows: int
) -> None:
    file = tmp_path / "out.parquet"

    assert exported(root, "--as", "parquet", "--what", what, "--out", str(file)).output == f"Written: {file}\n"

    as_json = [json.loads(line) for line in exported(root, "--as", "jsonl", "--what", what).output.splitlines()]
    told = duckdb.sql(f"select * from '{file}'").fetchall()
    assert len(told) == len(as_json) == rows
    assert pq.read_table(file).to_pylist() == as_json


def test_lines_of_bench_serving_come_back_with_the_numbers_of_the_points(
    root: Path, run: StoredRun, tmp_path: Path
) -> None:
    file = tmp_path / "bench.jsonl"
    exported(root, "--as", "bench-serving", "--out", str(file))

    points = read_peer_file(file)

    # In a closed loop these are defined alike; throughput is over another time, TPOT counts the first chunk otherwise.
    alike = ("requests_ok", "ttft_mean_ms", "ttft_p50_ms", "e2e_mean_ms", "e2e_p50_ms", "prompt_tokens_total",
             "output_tokens_total", "prompt_tokens_mean")  # fmt: skip
    assert len(points) == len(run.points) == 6
    for ours, point in zip(run.points, points, strict=True):
        values = ours.metrics.values()
        assert (point.load, point.name) == (ours.level, run.labels[ours.load["config_id"]])
        assert {n: point.metrics[n] for n in alike} == pytest.approx({n: values[n] for n in alike})


HOSTILE = ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "\tx", "\r=1", "plain", 'say "hi"', "a,b\nc", "\x00=1"]


def test_no_text_of_a_csv_is_a_formula_and_numbers_stay_numbers() -> None:
    rows = [{"=name": text, "n": -1.5} for text in HOSTILE]
    file = io.BytesIO()

    write_csv(("=name", "n"), rows, file)

    head, *told = csv.reader(io.StringIO(file.getvalue().decode(), newline=""))
    assert head == ["'=name", "n"]
    assert [cells[0] for cells in told] == [
        "'=cmd|' /C calc'!A0", "'+1", "'-2", "'@SUM(A1)", "'\tx", "'\r=1", "plain", 'say "hi"', "a,b\nc", "'=1",
    ]  # fmt: skip
    assert {cells[1] for cells in told} == {"-1.5"}


def test_what_is_no_number_is_empty_or_null() -> None:
    rows = [{"a": float("nan"), "b": float("inf"), "c": None, "d": True, "e": [1, 2]}]
    as_csv, as_json, packed = io.BytesIO(), io.BytesIO(), io.BytesIO()

    write_csv("abcde", rows, as_csv)
    write_jsonl("abcde", rows, as_json)
    write_parquet("abcde", rows, packed)

    assert as_csv.getvalue() == b'a,b,c,d,e\r\n,inf,,true,"[1, 2]"\r\n'
    assert json.loads(as_json.getvalue()) == {"a": None, "b": None, "c": None, "d": True, "e": [1, 2]}
    assert pq.read_table(packed).to_pylist()[0] == {"a": None, "b": float("inf"), "c": None, "d": True, "e": [1, 2]}


def test_settings_of_several_types_are_one_column_of_texts() -> None:
    def row(config_id: str) -> dict[str, Any]:
        return {"config_id": config_id, "trial_id": config_id, "void_reasons": ["a", "b"], "warnings": []}

    settings: dict[str, dict[str, Any]] = {
        "a": {"steps": 4, "mix": "auto"},
        "b": {"steps": 0.5, "mix": 3, "sizes": [1, 2]},
        "c": {"mix": True},
    }
    told = point_rows([row(c) for c in settings], {"a": {"kv_tokens": 9.0}}, {"a": "first"}, settings)

    assert told.columns[-3:] == ("setting.mix", "setting.sizes", "setting.steps")
    assert [r["setting.mix"] for r in told.rows] == ["auto", "3", "true"]
    assert [r["setting.steps"] for r in told.rows] == [4, 0.5, None]
    assert told.rows[1]["setting.sizes"] == "[1, 2]"
    assert (told.rows[0]["config"], told.rows[0]["kv_tokens"], told.rows[0]["void_reasons"]) == ("first", 9.0, "a; b")


def test_what_cannot_be_written_is_refused(root: Path, tmp_path: Path) -> None:
    assert "is not for a terminal" in exported(root, "--as", "parquet").output
    assert "has a line for each point" in exported(root, "--as", "bench-serving", "--what", "trials").output
    (tmp_path / "file").write_text("")
    said = exported(root, "--out", str(tmp_path / "file" / "x.csv"))
    assert (said.exit_code, "cannot be written" in said.output) == (2, True)
    assert exported(tmp_path).exit_code == 2


def test_points_whose_files_are_damaged_are_left_out_and_told(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "run")
    next((tmp_path / "run/dataset/requests").glob("*.parquet")).write_bytes(b"torn")

    said = exported(tmp_path / "run", "--as", "jsonl")

    assert "specsweep: 1 measured points are left out" in said.stderr
    assert len(said.stdout.splitlines()) == 5
