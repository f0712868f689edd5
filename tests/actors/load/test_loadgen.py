"""Whole points against a scripted server: phases, load shape, faults, and what is reported."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from actors.load.load_watch import OwnSpeed
from actors.load.loadgen import LoadGenerator
from actors.load.point_load import PointLoad
from actors.load.record_batch import RecordStream
from actors.load.spool import SpoolWriter, read_spool
from actors.wire.client import StreamClient
from orchestrator.errors import BadInput
from orchestrator.points.metrics import summarise
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import ClientReport, LoadLevel, Point
from tests.actors.load_specs import point, run, spec
from tests.fakes.leaping_clock import LeapingClock
from tests.fakes.load import load_endpoint
from tests.fakes.scripted_endpoint import DONE, Script, ScriptedEndpoint, native, native_answer

Loaded = tuple[list[RequestRecord], ClientReport, ScriptedEndpoint]


S = 1_000_000_000


def load(server: ScriptedEndpoint, generator: LoadGenerator | None = None, **changes: Any) -> Loaded:
    async def go() -> Loaded:
        async with server:
            records, report = await load_endpoint(server.url, spec(**changes), generator=generator)
            return records, report, server

    loaded: Loaded = run(go())
    return loaded


def closed(concurrency: int, requests: int, **more: Any) -> dict[str, Any]:
    return {"level": LoadLevel("concurrency", concurrency), "requests": requests, **more}


def measured(records: list[RequestRecord]) -> list[RequestRecord]:
    return [r for r in records if not r.warmup]


def statuses(records: list[RequestRecord]) -> Counter[RequestStatus]:
    return Counter(r.status for r in records)


def test_a_closed_loop_keeps_its_slots_filled_and_never_more() -> None:
    server = ScriptedEndpoint(lambda n, body: native_answer(2, pause_s=0.02), together=range(10))
    records, report, server = load(server, **closed(10, 100))
    assert statuses(records) == {RequestStatus.OK: 100}
    assert (server.peak_open, report.peak_concurrency, report.requests) == (10, 10, 100)
    assert report.stopped_by == "requests"
    assert sorted(r.request_index for r in records) == list(range(100))
    assert max(r.in_flight for r in records) == 10
    late = sorted(records, key=lambda r: r.sent_ns)[10:]
    assert all(r.in_flight == 10 for r in late)  # whoever left was replaced before the next was counted


def test_250_streams_are_open_at_once() -> None:
    server = ScriptedEndpoint(lambda n, body: native_answer(1), together=range(250))
    _, report, server = load(server, **closed(250, 250))
    assert (server.peak_open, report.peak_concurrency) == (250, 250)


def test_phases_come_in_order_and_only_the_measured_one_counts() -> None:
    server = ScriptedEndpoint(
        lambda n, body: native_answer(2, per_chunk=body["sampling_params"]["max_new_tokens"]),
        metrics=lambda: "",
        flush_statuses=(400, 200),
    )
    records, report, server = load(server, **closed(2, 4, warmup_requests=3, shared_prefix_tokens=8))
    # probe, three of warm-up, two tries to flush, prime, then the four that count
    assert server.calls == ["/generate"] * 4 + ["/flush_cache"] * 2 + ["/generate", "/metrics"] + ["/generate"] * 4 + [
        "/metrics"
    ]
    assert [r.requested_output_tokens for r in records if r.warmup] == [1, 3, 3, 3, 1]
    assert len(measured(records)) == 4
    assert report.cache_flushed is True
    assert report.requests == 4
    texts = [body["text"] for body in server.bodies]
    assert len(set(texts)) == len(texts)


def test_the_probe_corrects_the_length_of_prompts() -> None:
    server = ScriptedEndpoint(
        lambda n, body: Script([(0, native("x", 3, {"type": "length"}, prompt_tokens=len(body["text"])))])
    )
    *_, server = load(server, **closed(1, 1, warmup_requests=1, input_tokens=100))
    probe, _, prompt = (len(body["text"]) for body in server.bodies)
    assert probe > 400
    assert 90 <= prompt <= 100  # this tokenizer makes a token of every character


def test_warm_up_lasts_its_seconds(clock: LeapingClock) -> None:
    server = ScriptedEndpoint(lambda n, body: native_answer(1, first_s=600.0 if n == 8 else 0.0), clock=clock)
    records, _, _ = load(server, **closed(2, 1, warmup_s=600.0, request_timeout_s=3600.0))
    warm = [r for r in records if r.warmup]
    assert len(warm) >= 9  # the probe, and what its slots asked for until the time was over
    began_ns = sorted(r.sent_ns for r in warm)[1]  # after the probe
    assert max(r.sent_ns for r in warm) < began_ns + 600 * S
    first = measured(records)[0]
    assert first.sent_ns >= max(r.end_ns for r in warm) >= began_ns + 600 * S


def test_a_server_that_cannot_flush_is_still_measured() -> None:
    for flush, known in ((404, None), (500, False)):
        server = ScriptedEndpoint(lambda n, body: native_answer(1), flush_statuses=(flush,))
        records, report, _ = load(server, **closed(1, 2))
        assert (len(records), report.cache_flushed) == (2, known)


def test_counters_of_the_server_are_differences_over_the_point() -> None:
    tokens = iter([(100.0, 10.0, None), (160.0, 14.0, 20.0)])

    def exposition() -> str:
        made, requests, verified = next(tokens)
        lines = [
            f'sglang:generation_tokens_total{{is_streaming="true"}} {made}',
            'sglang:generation_tokens_total{is_streaming="false"} 1.0',
            f"sglang:num_requests_total{{}} {requests}",
            *([f"sglang:spec_verify_calls_total{{}} {verified}"] if verified else []),
        ]
        return "\n".join(lines)

    server = ScriptedEndpoint(lambda n, body: native_answer(3), metrics=exposition)
    _, report, _ = load(server, **closed(1, 4))
    assert (report.generation_tokens_delta, report.requests_delta, report.verify_calls_delta) == (60, 4, 20)
    without = ScriptedEndpoint(lambda n, body: native_answer(3))
    _, report, _ = load(without, **closed(1, 1))
    assert (report.generation_tokens_delta, report.requests_delta, report.verify_calls_delta) == (None, None, None)


def test_a_duration_stops_sending_and_lets_those_in_flight_finish(
    monkeypatch: pytest.MonkeyPatch, clock: LeapingClock
) -> None:
    over = asyncio.Event()

    class Watched(OwnSpeed):
        def end(self) -> None:
            super().end()
            over.set()

    monkeypatch.setattr("actors.load.point_load.OwnSpeed", Watched)
    finish = {"type": "length", "length": 2}

    def script(n: int, body: dict[str, Any]) -> Script:
        if n < 3:
            return native_answer(2)
        one_leaps = 600.0 if n == 3 else 0.0
        return Script([(0.0, native("x", 1)), (one_leaps, b""), (over, native("xx", 2, finish)), (0.0, DONE)])

    server = ScriptedEndpoint(script, together=range(3, 6), clock=clock)
    began = time.time()
    limits: dict[str, Any] = {"duration_s": 600.0, "request_timeout_s": 3600.0}
    records, report, _ = load(server, level=LoadLevel("concurrency", 3), requests=None, **limits)
    assert statuses(records) == {RequestStatus.OK: 6}  # nothing followed what was held when the time was over
    start = min(r.sent_ns for r in records)
    assert max(r.sent_ns for r in records) - start < 600 * S
    assert min(r.end_ns for r in records[-3:]) - start >= 600 * S
    assert report.stopped_by == "duration"
    assert 600.0 <= report.duration_s < 1200.0
    assert report.began_unix_s is not None
    assert began <= report.began_unix_s <= time.time()


def test_what_does_not_finish_after_the_end_is_cancelled_and_recorded(clock: LeapingClock) -> None:
    endless = Script([(0.0, native("x", 1)), (400.0, native("xx", 2))], end="hang", before_end=400.0)
    server = ScriptedEndpoint(lambda n, body: native_answer(1) if n < 2 else endless, together=range(2, 4), clock=clock)
    generator = LoadGenerator(drain_timeout_s=600.0)
    records, report, _ = load(server, generator, **closed(2, 4, request_timeout_s=3600.0))
    assert statuses(records) == {RequestStatus.OK: 2, RequestStatus.CANCELLED: 2}
    cut = [r for r in records if r.status is RequestStatus.CANCELLED]
    assert all(r.chunk_ns and r.error == "still running 600 s after the last request was sent" for r in cut)
    assert min(r.end_ns for r in cut) - max(r.sent_ns for r in cut) >= 600 * S
    assert report.stopped_by == "requests"


def test_stop_ends_the_point_and_keeps_its_records(tmp_path: Path) -> None:
    async def go() -> list[Any]:
        server = ScriptedEndpoint(lambda n, body: native_answer(1 if n < 4 else 1000, pause_s=0.02))
        generator = LoadGenerator(run_id="r", engine="emulator", attempt=3, spool_path=tmp_path / "s.arrows")
        items: list[Any] = []
        async with server, aclosing(generator.run(server.url, point(**closed(2, 1000)))) as stream:
            async for item in stream:
                items.append(item)
                if sum(batch.num_rows for batch in items if not isinstance(batch, ClientReport)) >= 4:
                    generator.stop()
        return items

    *batches, report = run(go())
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert report.stopped_by == "cancelled"
    assert Counter(row["status"] for row in rows) == {"ok": 4, "cancelled": 2}
    assert {(r["run_id"], r["trial_id"], r["point_id"], r["engine"], r["attempt"]) for r in rows} == {
        ("r", "t1", "p1", "emulator", 3)
    }
    spooled = [row for batch in read_spool(tmp_path / "s.arrows") for row in batch.to_pylist()]
    assert spooled == rows


def test_a_run_that_is_dropped_leaves_its_spool_whole(tmp_path: Path) -> None:
    async def came() -> int:
        rows = 0
        server = ScriptedEndpoint(lambda n, body: native_answer(1, first_s=0.01))
        generator = LoadGenerator(spool_path=tmp_path / "s.arrows")
        async with server, aclosing(generator.run(server.url, point(**closed(2, 100_000)))) as stream:
            async for item in stream:
                rows += getattr(item, "num_rows", 0)  # between batches it tells that it lives
                if rows > 10:
                    break
        return rows

    rows = run(came())
    assert sum(batch.num_rows for batch in read_spool(tmp_path / "s.arrows")) >= rows > 10


def test_a_spool_that_cannot_be_written_costs_the_spool_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: SpoolWriter, batch: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SpoolWriter, "append", full)
    server = ScriptedEndpoint(lambda n, body: native_answer(1))
    records, _, _ = load(server, LoadGenerator(spool_path=tmp_path / "s.arrows"), **closed(1, 50))
    assert len([r for r in records if not r.warmup]) == 50


def test_half_of_all_connections_reset_is_told_and_voids_the_point() -> None:
    """A kept-alive connection that is reset cannot be told from an idle one that was closed, but their number can."""
    server = ScriptedEndpoint(lambda n, body: Script(end="reset") if n % 2 else native_answer(1))
    records, report, _ = load(server, **closed(1, 20))
    lost = statuses(records)[RequestStatus.CONNECTION]
    assert lost + report.reconnects >= 9
    metrics = summarise(records, level=LoadLevel("concurrency", 1), client=report)
    assert not metrics.valid
    assert metrics.ttft_ms is not None
    assert metrics.ttft_ms.n == 20 - lost


SILENT = Script(end="hang", before_end=601.0)


def test_a_server_that_goes_silent_is_hung_not_slow(clock: LeapingClock) -> None:
    server = ScriptedEndpoint(
        lambda n, body: native_answer(1) if n < 10 else SILENT, together=range(10, 12), clock=clock
    )
    records, report, _ = load(server, LoadGenerator(hang_timeout_s=600.0), **closed(2, 100, request_timeout_s=3600.0))
    assert report.stopped_by == "hung"
    assert statuses(records) == {RequestStatus.OK: 10, RequestStatus.TIMEOUT: 2}
    assert {r.error for r in records if r.error} == {"hung: no event of any answer for 600 s"}
    metrics = summarise(records, level=LoadLevel("concurrency", 2), client=report)
    assert "the server hung: no request made progress" in metrics.void_reasons


def test_a_server_that_hangs_in_warm_up_is_reported_too(clock: LeapingClock) -> None:
    server = ScriptedEndpoint(lambda n, body: SILENT, clock=clock)
    asked = closed(2, 100, warmup_requests=1, request_timeout_s=3600.0)
    records, report, _ = load(server, LoadGenerator(hang_timeout_s=600.0), **asked)
    assert (report.stopped_by, report.requests) == ("hung", 0)
    assert all(r.warmup for r in records)


def test_a_point_whose_warm_up_hung_says_so(clock: LeapingClock) -> None:
    server = ScriptedEndpoint(lambda n, body: SILENT, clock=clock)
    asked = closed(2, 100, warmup_requests=1, request_timeout_s=3600.0)
    records, report, _ = load(server, LoadGenerator(hang_timeout_s=600.0), **asked)
    metrics = summarise(records, level=LoadLevel("concurrency", 2), client=report)
    assert metrics.void_reasons == (
        "no measured request was sent: warm-up ended with timeout: hung: no event of any answer for 600 s",
        "the server hung: no request made progress",
    )


def test_without_limits_of_its_own_a_load_counted_in_requests_waits_for_all_that_progress_and_a_timed_one_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = []

    class Seen(PointLoad):
        def __init__(
            self, point: Point, client: StreamClient, stream: RecordStream, hang_s: float, drain_s: float, *more: Any
        ) -> None:
            limits.append((hang_s, drain_s))
            super().__init__(point, client, stream, hang_s, drain_s, *more)

    monkeypatch.setattr("actors.load.loadgen.PointLoad", Seen)
    timed: dict[str, Any] = {"duration_s": 0.01, "requests": None}
    for generator, more in (
        (LoadGenerator(), {"request_timeout_s": 900.0}),
        (LoadGenerator(), {"request_timeout_s": 30.0, **timed}),
        (LoadGenerator(), {"request_timeout_s": 900.0, **timed}),
        (LoadGenerator(hang_timeout_s=7, drain_timeout_s=8), timed),
    ):
        load(ScriptedEndpoint(lambda n, body: native_answer(1)), generator, **(closed(1, 1) | more))
    assert limits == [(900.0, math.inf), (30.0, 600.0), (900.0, 900.0), (7, 8)]


def test_a_silent_server_is_hung_by_the_first_requests_that_time_out(clock: LeapingClock) -> None:
    """The request timeout is the hang limit: slots that it frees at once are not taken for an idle server."""
    server = ScriptedEndpoint(lambda n, body: SILENT, together=range(3), clock=clock)
    records, report, _ = load(server, **closed(3, 100, request_timeout_s=600.0))
    assert report.stopped_by == "hung"
    assert statuses(records) == {RequestStatus.TIMEOUT: 3}


def test_a_request_that_times_out_beside_others_that_go_on_hangs_nothing(clock: LeapingClock) -> None:
    def script(n: int, body: dict[str, Any]) -> Script:
        return Script(end="hang") if n == 0 else native_answer(3, pause_s=100.0)

    records, report, _ = load(ScriptedEndpoint(script, clock=clock), **closed(2, 20, request_timeout_s=600.0))
    assert report.stopped_by == "requests"
    assert statuses(records) == {RequestStatus.OK: 19, RequestStatus.TIMEOUT: 1}


def test_failures_are_counted_by_kind_and_slots_go_on() -> None:
    def script(n: int, body: dict[str, Any]) -> Script:
        return Script([(0, b"broken")], status=500) if n % 10 < 3 else native_answer(2)

    records, report, _ = load(ScriptedEndpoint(script), **closed(4, 100))
    assert statuses(records) == {RequestStatus.OK: 70, RequestStatus.HTTP_ERROR: 30}
    metrics = summarise(records, level=LoadLevel("concurrency", 4), client=report)
    assert (metrics.requests_failed, metrics.errors) == (30, {"http_error": 30})
    assert "30 of 100 requests failed" in metrics.void_reasons


def test_an_open_loop_sends_on_schedule_without_drift() -> None:
    server = ScriptedEndpoint(lambda n, body: native_answer(1))
    records, report, _ = load(server, level=LoadLevel("rate", 200), requests=None, duration_s=1.0)
    assert len(records) == 200
    assert all(r.sent_ns >= r.scheduled_ns for r in records)
    due = sorted(r.scheduled_ns for r in records)
    assert (due[-1] - due[0]) / 1e9 == pytest.approx(1.0, abs=0.1)  # however late one was sent
    sent = sorted(r.sent_ns for r in records)
    metrics = summarise(records, level=LoadLevel("rate", 200), client=report)
    assert metrics.achieved_rate_rps == pytest.approx(199 / (sent[-1] - sent[0]) * 1e9)
    assert report.gated_requests == 0


def test_a_gate_is_reported_and_its_wait_is_in_the_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[int] = []
    monkeypatch.setattr(OwnSpeed, "saw_send", lambda self, late_ns: late.append(late_ns))
    server = ScriptedEndpoint(lambda n, body: native_answer(1, first_s=0.2), together=range(4))
    records, report, server = load(server, level=LoadLevel("rate", 50), requests=20, max_concurrency=4)
    assert (server.peak_open, report.peak_concurrency) == (4, 4)
    assert report.gated_requests >= 10
    metrics = summarise(records, level=LoadLevel("rate", 50), client=report)
    assert any("waited in the client for max_concurrency" in w for w in metrics.warnings)
    assert metrics.achieved_rate_rps is not None
    assert metrics.achieved_rate_rps < 40
    assert metrics.ttft_ms is not None
    assert metrics.ttft_ms.max > 400
    assert len(late) == 20 - report.gated_requests  # whoever waited at the gate was not sent late by us


def test_an_impossible_rate_is_refused_before_anything_is_sent() -> None:
    server = ScriptedEndpoint(lambda n, body: native_answer(1))
    with pytest.raises(BadInput, match="rate is -1"):
        load(server, level=LoadLevel("rate", -1.0), requests=5)
    assert server.bodies == []


def test_two_points_on_one_server_share_no_prompt() -> None:
    async def go() -> list[str]:
        server = ScriptedEndpoint(lambda n, body: native_answer(1))
        async with server:
            for level in (1, 2, 4):
                await load_endpoint(server.url, spec(**closed(level, 4, warmup_requests=2)))
        return [body["text"][:8] for body in server.bodies]

    starts = run(go())
    assert len(set(starts)) == len(starts) == 3 * (1 + 2 + 4)


def test_nobody_listening_gives_failures_not_a_crash() -> None:
    async def go() -> tuple[list[RequestRecord], ClientReport]:
        return await load_endpoint("http://127.0.0.1:9", spec(**closed(2, 6, warmup_requests=1)))

    records, report = asyncio.run(go())
    assert statuses(records) == {RequestStatus.CONNECTION: 8}
    assert (report.requests, report.cache_flushed) == (6, None)
