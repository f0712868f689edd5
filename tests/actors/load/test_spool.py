"""Records -> batches -> spool and reader; and a spool that was cut anywhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from actors.load.record_batch import FLUSH_ROWS, RecordStream, batch_of, records_of
from actors.load.spool import SpoolWriter, read_spool
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.schemas import request_schema

IDENTITY = {"run_id": "r", "trial_id": "t", "point_id": "p", "config_id": "c", "engine": "emulator", "attempt": 2}


def record(index: int) -> RequestRecord:
    return RequestRecord(
        request_index=index,
        warmup=index == 0,
        scheduled_ns=index * 10,
        sent_ns=index * 10 + 1,
        first_token_ns=None if index % 2 else index * 10 + 2,
        end_ns=index * 10 + 9,
        chunk_ns=(index * 10 + 2, index * 10 + 9),
        chunk_tokens=(1, 3),
        in_flight=1,
        requested_output_tokens=4,
        prompt_tokens=9,
        cached_tokens=None,
        output_tokens=4,
        verify_ct=2,
        correct_drafts=1,
        proposed_drafts=6,
        retractions=0,
        finish_reason="length",
        status=RequestStatus.OK,
        http_status=200,
        error=None,
        prompt_hash="h",
    )


def test_a_batch_has_the_schema_and_gives_the_records_back() -> None:
    records = [record(i) for i in range(5)]
    batch = batch_of(records, IDENTITY)
    assert batch.schema.equals(request_schema(), check_metadata=True)
    assert batch.column("attempt").to_pylist() == [2] * 5
    assert records_of(batch) == records


def test_a_spool_cut_at_any_byte_gives_all_batches_before_the_cut(tmp_path: Path) -> None:
    whole = tmp_path / "whole.arrows"
    writer, ends = SpoolWriter(whole, request_schema()), []
    for i in range(2):
        writer.append(batch_of([record(i), record(i + 1)], IDENTITY))
        ends.append(whole.stat().st_size)
    writer.close()
    data, cut = whole.read_bytes(), tmp_path / "cut.arrows"
    for length in [0, 1, ends[0] // 2, *range(ends[0] - 2, len(data) + 1)]:
        cut.write_bytes(data[:length])
        found = [batch.column("request_index").to_pylist() for batch in read_spool(cut)]
        assert found == [[i, i + 1] for i in range(sum(end <= length for end in ends))], length


def test_a_spool_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert list(read_spool(tmp_path / "none.arrows")) == []


def collect(stream: RecordStream) -> list[Any]:
    async def go() -> list[Any]:
        return [batch async for batch in stream.batches()]

    return asyncio.run(go())


def test_a_thousand_rows_make_a_batch_with_its_own_small_buffers() -> None:
    stream = RecordStream(IDENTITY, None)
    for i in range(FLUSH_ROWS + 500):
        stream.add(record(i))
    stream.close()
    batches = collect(stream)
    assert [batch.num_rows for batch in batches] == [1000, 500]
    assert batches[1].get_total_buffer_size() < batches[0].get_total_buffer_size()
    assert pa.Table.from_batches(batches).column("request_index").to_pylist() == list(range(1500))


def test_rows_wait_half_a_second_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = [100.0]
    monkeypatch.setattr("actors.load.record_batch.time.monotonic", lambda: now[0])
    spool = tmp_path / "s.arrows"
    stream = RecordStream(IDENTITY, spool)
    stream.add(record(0))
    now[0] += 0.49
    stream.tick()
    assert list(read_spool(spool)) == []
    now[0] += 0.02
    stream.tick()
    assert [batch.num_rows for batch in read_spool(spool)] == [1]
    stream.close()


@pytest.mark.parametrize("batches", [1, 3, 10])
def test_a_slow_reader_gets_every_batch_once_and_in_order(tmp_path: Path, batches: int) -> None:
    stream = RecordStream(IDENTITY, tmp_path / "s.arrows", most_waiting=3)
    for i in range(batches * FLUSH_ROWS):
        stream.add(record(i))
    stream.close()
    seen = [batch.column("request_index")[0].as_py() for batch in collect(stream)]
    assert seen == [i * FLUSH_ROWS for i in range(batches)]


def test_a_spool_is_the_stream_that_arrow_itself_writes(tmp_path: Path) -> None:
    batches = [batch_of([record(i), record(i + 1)], IDENTITY) for i in (0, 2)]
    writer = SpoolWriter(tmp_path / "s.arrows", request_schema())
    for batch in batches:
        writer.append(batch)
    writer.close()
    plain = pa.BufferOutputStream()
    with pa.ipc.new_stream(plain, request_schema()) as stream:
        for batch in batches:
            stream.write_batch(batch)
    assert (tmp_path / "s.arrows").read_bytes() == plain.getvalue().to_pybytes()
