"""What users of load generators were told wrongly, as records whose truth is known. Tolerance: 2 percent."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from orchestrator.points.metrics import summarise
from orchestrator.points.point_metrics import PointMetrics
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import C1, client_of, failed, ms, request


def about(value: float) -> object:
    return pytest.approx(value, rel=0.02)


def one(record: RequestRecord) -> PointMetrics:
    return summarise([record], level=C1)


def chunky(first: float, gap: float, chunks: int, per_chunk: int, first_chunk: int | None = None) -> RequestRecord:
    tokens = [per_chunk if first_chunk is None else first_chunk] + [per_chunk] * (chunks - 1)
    return request(0, [first + gap * i for i in range(chunks)], tokens)


def test_chunks_of_three_tokens_are_three_milliseconds_a_token_and_fit_the_throughput() -> None:
    """40 chunks every 9 ms, 120 tokens: 2.95 ms by (E2E - TTFT) / 119, within 2 percent; 333 tokens a second."""
    metrics = one(chunky(9, 9, 40, 3))
    assert metrics.value("tpot_p50_ms") == about((360 - 9) / 119)
    assert metrics.value("chunk_gap_p50_ms") == 9.0
    assert metrics.output_throughput_tok_s == about(1000 / 3)
    assert (metrics.output_throughput_tok_s or 0) * (metrics.value("tpot_p50_ms") or 0) == about(1000)
    assert metrics.value("tok_s_per_user_p50") == about(1000 / 3)


def test_a_run_that_speculates_and_one_that_does_not_are_equally_fast_if_their_tokens_are() -> None:
    speculating, plain = one(chunky(9, 9, 40, 3)), one(chunky(3, 3, 120, 1))
    assert speculating.value("tpot_p50_ms") == plain.value("tpot_p50_ms") == 3.0
    assert speculating.value("chunk_gap_p50_ms") == 3 * (plain.value("chunk_gap_p50_ms") or 0)


@pytest.mark.parametrize("first_chunk", [1, 20])
def test_chunks_of_20_tokens_every_800_ms_are_40_ms_a_token_whatever_the_first_one_has(first_chunk: int) -> None:
    metrics = one(chunky(100, 800, 6, 20, first_chunk))
    assert metrics.value("tpot_mean_ms") == about(40.0)


def test_tokens_that_a_parser_held_back_are_not_taken_as_decoded_in_no_time() -> None:
    """10 ms a token: 30 tokens come at once with the first text after 300 ms, 20 more one by one."""
    held = request(0, [300.0 + 10 * i for i in range(21)], [30] + [1] * 20)
    shown = request(0, [10.0 * (i + 1) for i in range(50)])
    assert one(held).value("tpot_p50_ms") == one(shown).value("tpot_p50_ms") == about(10.0)
    assert one(held).value("tok_s_per_user_p50") == about(100.0)


def test_the_first_token_is_the_first_growth_of_the_count_not_the_first_text() -> None:
    """The client's record has a chunk for each growth: reasoning that shows no text counts from its first token."""
    metrics = one(request(0, [50.0 + 10 * i for i in range(30)]))
    assert (metrics.value("ttft_p50_ms"), metrics.value("tpot_p50_ms")) == (50.0, 10.0)


def test_speed_is_of_all_tokens_not_of_those_after_the_reasoning() -> None:
    """490 tokens of reasoning in 4.9 s, then 200 of content in 0.2 s: no 900 tokens a second."""
    record = request(0, [10.0 * (i + 1) for i in range(490)] + [4900 + (i + 1.0) for i in range(200)])
    metrics = one(record)
    assert metrics.value("tok_s_per_user_p50") == about(690 / 5.1)
    assert metrics.value("ttft_p50_ms") == 10.0


def test_the_count_is_the_servers_whatever_the_text() -> None:
    metrics = one(request(0, [100.0, 200.0, 1090.0], [0, 0, 0], output=100))
    assert metrics.output_tokens_total == 100
    assert metrics.value("tpot_p50_ms") == about(10.0)


def test_requests_without_a_token_or_a_count_give_a_report_without_numbers() -> None:
    nothing = [failed(i, i + 10.0, RequestStatus.EMPTY) for i in range(40)]
    metrics = summarise(nothing, level=C1, client=client_of(40))
    assert not metrics.valid
    measured = {n for n, v in metrics.values().items() if v is not None and not n.startswith(("requests_", "failed"))}
    assert measured <= {"window_s", "achieved_rate_rps", "peak_concurrency"}
    assert (metrics.tpot_ms, metrics.tok_s_per_user, metrics.output_tokens_mean) == (None, None, None)


def test_a_request_that_ended_at_once_has_no_first_token_and_none_is_negative() -> None:
    records = [request(i * 10.0, [i * 10 + 5.0, i * 10 + 9.0]) for i in range(90)]
    records += [failed(i * 10.0, i * 10 + 1.0, RequestStatus.EMPTY) for i in range(10)]
    metrics = summarise(records, level=C1)
    assert (metrics.ttft_ms and metrics.ttft_ms.n, metrics.requests_empty) == (90, 10)
    assert min(v for v in metrics.values().values() if v is not None) >= 0


def test_a_usage_frame_after_the_last_text_does_not_lengthen_the_decoding() -> None:
    """The record ends with its last chunk; the frame with the count came 50 ms later."""
    metrics = one(request(0, [100, 110, 120], [0, 0, 0], output=3))
    assert (metrics.value("tpot_p50_ms"), metrics.value("e2e_p50_ms")) == (10.0, 120.0)


def test_refused_connections_neither_shorten_latency_nor_lift_throughput() -> None:
    good = [request(i * 100.0, [i * 100 + 50.0, i * 100 + 100.0]) for i in range(50)]
    resets = [failed(i * 100.0, i * 100 + 0.1, RequestStatus.CONNECTION) for i in range(50)]
    clean = summarise(good, level=C1)
    dirty = summarise([*good, *resets], level=LoadLevel("concurrency", 2), request_limits={"e2e_ms": 200})
    assert dirty.value("e2e_mean_ms") == clean.value("e2e_mean_ms") == 100.0
    assert (dirty.output_throughput_tok_s or 0) <= (clean.output_throughput_tok_s or 0) * 1.02
    assert (dirty.attainment, dirty.errors, dirty.valid) == (0.5, {"connection": 50}, False)


def test_the_peak_is_neither_above_the_limit_nor_below_the_mean() -> None:
    """Ten slots without a pause, 100 requests of 100 ms whose end is the next one's start."""
    records = [request(w * 100.0, [w * 100 + 20.0, w * 100 + 100.0]) for w in range(10) for _ in range(10)]
    metrics = summarise(records, level=LoadLevel("concurrency", 10))
    assert metrics.peak_concurrency == 10
    mean = (metrics.request_throughput_rps or 0) * (metrics.value("e2e_mean_ms") or 0) / 1000
    assert mean == pytest.approx(10.0)


def test_prompt_tokens_are_counted_once_and_warm_up_not_at_all() -> None:
    """100 + 10 tokens a request of 100 ms, the first 20 percent of the time are warm-up."""
    records = [
        request(i * 100.0, [i * 100 + 10.0 * (k + 1) for k in range(10)], prompt_tokens=100, warmup=i < 4)
        for i in range(20)
    ]
    metrics = summarise(records, level=C1)
    assert (metrics.requests_total, metrics.prompt_tokens_total, metrics.output_tokens_total) == (16, 1600, 160)
    assert metrics.window_s == 1.6
    assert (metrics.input_throughput_tok_s, metrics.output_throughput_tok_s) == (1000.0, 100.0)


def test_the_failed_count_is_there_and_the_rates_are_of_the_others() -> None:
    good = [request(i * 100.0, [i * 100 + 100.0]) for i in range(70)]
    metrics = summarise([*good, *(failed(i * 100.0, i * 100 + 1.0) for i in range(30))], level=C1)
    assert (metrics.requests_failed, metrics.errors) == (30, {"http_error": 30})
    assert "30 of 100 requests failed" in metrics.void_reasons
    assert metrics.request_throughput_rps == about(10.0)


def test_a_rate_that_was_not_offered_is_printed_and_void_if_it_is_far_off() -> None:
    """150 requests due within 15 s; sleeping without subtracting what passed stretches that by 2, then by 9 percent."""

    def late(stretch: float) -> PointMetrics:
        due = [100.0 * i for i in range(150)]
        records = [replace(request(t * stretch, [t * stretch + 10]), scheduled_ns=ms(t)[0]) for t in due]
        return summarise(records, level=LoadLevel("rate", 10), client=client_of(150))

    assert (late(1.0).warnings, late(1.005).warnings, late(1.0).requested_rate_rps) == ((), (), 10.0)
    assert late(1.02).void_reasons == ()
    assert late(1.02).warnings[-1] == "the rate of 10 req/s was not quite offered: sends came 2.0% short of it"
    assert late(1.09).achieved_rate_rps == pytest.approx(10 / 1.09)
    (reason,) = late(1.09).void_reasons
    assert reason.startswith(
        "the client did not offer 10 req/s: its sends came 8.3% short of the rate that was due, at most 5%"
    )


def test_a_rate_that_was_gated_is_explained_not_void() -> None:
    due = [100.0 * i for i in range(50)]
    records = [replace(request(t * 2, [t * 2 + 10]), scheduled_ns=ms(t)[0]) for t in due]
    metrics = summarise(records, level=LoadLevel("rate", 10), client=client_of(50, gated_requests=40))
    assert metrics.void_reasons == ()
    assert "TTFT includes that wait" in metrics.warnings[-1]


def test_shards_of_a_load_are_one_point_in_any_order() -> None:
    """Two processes with 10 slots each, out of step: 20 in flight, not the sum of what each saw at its worst."""
    shards = [
        [request(w * 100.0 + s * 50, [w * 100 + s * 50 + 20.0, w * 100 + s * 50 + 100.0]) for w in range(10)]
        for s in (0, 1)
    ]
    together = [summarise([*a, *b], level=LoadLevel("concurrency", 2)) for a, b in itertools.permutations(shards)]
    assert together[0] == together[1]
    assert together[0].peak_concurrency == 2
