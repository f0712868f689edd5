"""The history on disk: what is written is read, by two writers at once, from other places, and with torn parts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.history.history_place import HistoryPlace
from orchestrator.history.history_store import HistoryStore
from orchestrator.history.night_history import AlarmRecord, History, Mark
from orchestrator.history.night_rows import night_rows, nights_of
from orchestrator.nights.night import (
    Build,
    End,
    Gap,
    Measured,
    Night,
    NightHost,
    Noise,
    Pair,
    SeriesKey,
    SeriesNight,
    StartPair,
    Verdict,
)

ROOT = Path(__file__).parent.parent.parent.parent
SPEED = SeriesKey("output_throughput_tok_s", "203c91c8d033", "chat", "C=16", "8x H100")
LIVES = SeriesKey("feasible", "203c91c8d033", "", "", "8x H100")
MEASURED = SeriesNight(
    Measured(SPEED, "depth 3", (Pair("a", True, 100.0, 92.0), Pair("b", False, 101.5, 93.0))),
    Verdict.REGRESSED, "worse beyond doubt", 0.02, -0.083, -0.1, -0.07, 1e-6, 5e-5, Noise(0.01, 42, "history"), 0.04,
    False, ("regressed in the night before too (-6.8%)",),
)  # fmt: skip
DEAD = SeriesNight(
    Measured(LIVES, "depth 10", starts=(StartPair("a", True, End.SERVED, End.DIED, "kv_budget", "RuntimeError"),)),
    Verdict.REGRESSED, "died",
)  # fmt: skip


def night(at: str = "2026-11-30T02:15:00.000+00:00", run: str = "runs/pinned-20261130", gap: str = "") -> Night:
    return Night(
        at, "pinned", run, Build("v0.5.8", (("sglang", "0.5.8"), ("torch", "2.9"))), Build("nightly"),
        (NightHost("a", "8x H100", (("driver", "570.1"),)),), () if gap else (MEASURED, DEAD),
        Gap(gap) if gap else None,
    )  # fmt: skip


MARK = Mark(night().night_id, "", "false", "a noisy neighbour", "ana", "2026-11-30T09:00:00+00:00")


def test_rows_are_json_and_come_back_as_the_same_night() -> None:
    for one in (night(), night(gap="no host was free")):
        assert nights_of(json.loads(json.dumps(night_rows(one)))) == [one]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_is_appended_is_read(tmp_path: Path, scheme: str) -> None:
    store = HistoryStore.at(f"{scheme}{tmp_path}/history")
    store.prepare()
    name = store.append(night())
    store.append(night(at="2026-11-29T02:15:00.000+00:00", run="", gap="the cluster was busy for 2 h"))
    store.mark(MARK)
    found = store.read()

    assert found.nights == (
        night(at="2026-11-29T02:15:00.000+00:00", run="", gap="the cluster was busy for 2 h"), night(),
    )  # fmt: skip
    assert (found.marks, found.skipped) == ((MARK,), ())
    assert name.startswith(f"nights/{night().night_id}-pinned-20261130-")
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_object_store_is_written_by_whole_objects() -> None:
    mock = pafs._MockFileSystem()
    store = HistoryStore(HistoryPlace(mock, "bucket/history"))
    store.append(night())
    store.mark(MARK)

    assert store.read().nights == (night(),)
    assert store.read().marks == (MARK,)


def test_an_empty_or_missing_history_has_no_nights(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path / "none"))

    assert (store.exists(), store.read().nights) == (False, ())


def test_parts_from_before_the_luck_of_nights_was_known_are_read(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    name = store.append(night())
    table = pq.read_table(tmp_path / name)
    pq.write_table(table.drop_columns([c for c in table.column_names if c.startswith("noise_night")]), tmp_path / name)
    found = store.read()

    assert found.skipped == ()
    assert found.nights[0].series[0].noise == Noise(0.01, 42, "history", 0.0, 0.0, None)


def test_the_luck_of_nights_is_kept_and_its_columns_stand_after_those_of_older_readers(tmp_path: Path) -> None:
    lucky = replace(MEASURED, noise=Noise(0.01, 42, "history", 0.004, 12.5, "metric"))
    store = HistoryStore.at(str(tmp_path))
    name = store.append(replace(night(), series=(lucky,)))

    assert store.read().nights[0].series == (lucky,)
    assert pq.read_schema(tmp_path / name).names[-5:] == [
        "expected", "cut", "noise_night_sd", "noise_night_df", "noise_night_source",
    ]  # fmt: skip


def test_torn_temporary_foreign_and_newer_parts_are_told_and_not_counted(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    name = store.append(night())
    whole = (tmp_path / name).read_bytes()
    (tmp_path / "nights" / "torn.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "nights" / "empty.parquet").write_bytes(b"")
    (tmp_path / "nights" / ".x.parquet.12.tmp").write_bytes(whole)
    (tmp_path / "nights" / "README").write_bytes(b"notes")
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / name)
    pq.write_table(table.replace_schema_metadata({"specsweep_history": "2"}), tmp_path / "nights" / "tomorrow.parquet")
    pq.write_table(table.select(["night_at"]), tmp_path / "nights" / "other.parquet")
    found = store.read()

    assert found.nights == (night(),)
    assert [line.split(":")[0] for line in found.skipped] == [
        "nights/.x.parquet.12.tmp", "nights/empty.parquet", "nights/other.parquet", "nights/tomorrow.parquet",
        "nights/torn.parquet",
    ]  # fmt: skip
    assert "was written by a newer release (schema 2)" in found.skipped[3]


WRITER = """
import dataclasses, json, sys
from orchestrator.history.history_place import HistoryPlace
from orchestrator.history.history_store import HistoryStore
from orchestrator.history.night_rows import nights_of
store = HistoryStore.at(sys.argv[1])
(night,) = nights_of(json.loads(sys.argv[3]))
for i in range(10):
    store.append(dataclasses.replace(night, run=f"runs/{sys.argv[2]}-{i}"))
"""


def test_two_writers_at_once_lose_nothing_and_a_reader_beside_them_sees_whole_nights(tmp_path: Path) -> None:
    rows = json.dumps(night_rows(night()))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name, rows], cwd=ROOT) for name in ("one", "two")
    ]
    store = HistoryStore.at(str(tmp_path))
    ended = [writers[0].wait()]
    assert all(len(n.series) == 2 for n in store.read().nights)  # the other may still write
    ended.append(writers[1].wait())
    found = store.read()

    assert ended == [0, 0]
    assert len({n.run for n in found.nights}) == 20
    assert found.skipped == ()


def test_a_gap_that_was_resumed_counts_as_what_was_measured(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    store.append(night())
    store.append(night(gap="interrupted"))

    assert store.read().nights == (night(),)


def test_a_place_that_cannot_be_written_is_told_before_the_night(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SpecsweepError, match=r"history .*/file/history: cannot be written"):
        HistoryStore.at(f"{tmp_path}/file/history").prepare()
    with pytest.raises(BadInput, match="no place that can be opened"):
        HistoryStore.at("nowhere://x/y")


def test_sql_reads_the_dataset_as_it_stands(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    store.append(night())
    store.append(night(at="2026-11-29T02:15:00.000+00:00", gap="the cluster was busy"))
    rows = duckdb.sql(
        "select night_at[:10], gap, metric, round(worse, 3), reference.facts['sglang'], pairs[1].host, "
        "starts[1].diagnosis "
        f"from '{tmp_path}/nights/*.parquet' order by night_at, metric"
    ).fetchall()

    assert rows == [
        ("2026-11-29", "the cluster was busy", None, None, "0.5.8", None, None),
        ("2026-11-30", None, "feasible", None, "0.5.8", None, "kv_budget"),
        ("2026-11-30", None, "output_throughput_tok_s", 0.08, "0.5.8", "a", None),
    ]


def test_marks_measure_the_false_alarms(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    store.append(night())
    store.mark(MARK)
    store.mark(Mark(night().night_id, LIVES.series_id, "true", "", "ana", "2026-11-30T10:00:00+00:00"))
    record = store.read().alarm_record()

    assert (record.alarms, record.true, record.false, record.looked_at) == (2, 1, 1, 2)
    assert record.false_share == 0.5
    assert record.false_in_90_nights == 45.0
    assert AlarmRecord(alarms=10, true=1, false=1, looked_at=1800).false_in_90_nights == 0.25  # 5 of 10, not 1
    assert AlarmRecord(alarms=10, true=0, false=0, looked_at=1800).false_in_90_nights is None
    assert AlarmRecord(alarms=0, true=0, false=0, looked_at=1800).false_in_90_nights == 0.0
    assert store.read().night("2026-11-30") == night()
    assert store.read().night("2026-12") is None


def test_a_night_that_was_kept_twice_counts_as_it_was_measured_most_whatever_its_parts_are_called() -> None:
    begun = replace(night(), series=(replace(MEASURED, measured=replace(MEASURED.measured, pairs=())), DEAD))

    for nights in ((begun, night()), (night(), begun), (night(), begun, night(gap="it was stopped"))):
        assert len(History.of(nights, ()).nights[0].series[0].measured.pairs) == 2


def test_parts_that_lack_names_or_times_are_told_and_the_others_are_read(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    store.append(night())
    store.mark(MARK)
    for folder, column in (("nights", "night_at"), ("marks", "marked_at")):
        table = pq.read_table(next((tmp_path / folder).glob("*.parquet")))
        place = table.column_names.index(column)
        odd = table.set_column(place, column, pa.nulls(len(table), pa.string()))
        pq.write_table(odd.replace_schema_metadata(table.schema.metadata), tmp_path / folder / "odd.parquet")

    found = store.read()

    assert (found.nights, found.marks) == ((night(),), (MARK,))
    assert found.skipped == (
        "nights/odd.parquet: cannot be read (night_at is missing); not counted",
        "marks/odd.parquet: cannot be read (marked_at is missing); not counted",
    )


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [("night_at", 7, "Invalid isoformat string: '7'"), ("night_at", "yesterday", "Invalid isoformat string"),
     ("difference", "x", "Failed to parse string: 'x'"), ("pairs", [{"host": "a"}], "float() argument must be"),
     ("label", None, "None is no text"), ("hosts", None, "'NoneType' object is not iterable")],
)  # fmt: skip
def test_a_part_with_columns_of_other_kinds_costs_itself_alone(
    tmp_path: Path, column: str, values: Any, told: str
) -> None:
    store = HistoryStore.at(str(tmp_path))
    store.append(night())
    table = pq.read_table(next((tmp_path / "nights").glob("*.parquet")))
    odd = table.set_column(table.column_names.index(column), column, pa.array([values] * len(table)))
    pq.write_table(odd.replace_schema_metadata(table.schema.metadata), tmp_path / "nights" / "odd.parquet")

    found = store.read()

    assert found.nights == (night(),)
    assert len(found.skipped) == 1
    assert told in found.skipped[0]


def test_the_key_of_an_object_store_is_in_no_message() -> None:
    store = HistoryStore(HistoryPlace(pafs.LocalFileSystem(), "/nowhere", "s3://AKIAKEY:c2VjcmV0@bucket/nights"))

    assert store.place == "s3://***@bucket/nights"
    with pytest.raises(BadInput, match=r"^history s4://\*\*\*@bucket/nights: is no place") as refused:
        HistoryStore.at("s4://AKIAKEY:c2VjcmV0@bucket/nights")
    assert "c2VjcmV0" not in str(refused.value)
