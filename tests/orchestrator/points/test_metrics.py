"""Metrics of records with literal times: every expected number can be checked by hand."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from orchestrator.points.metric_names import METRICS
from orchestrator.points.metrics import summarise
from orchestrator.points.point_metrics import PointMetrics
from orchestrator.points.request_columns import RequestColumns
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import C1, CLIENT, client_of, failed, ms, request


def speculating(start: float, chunks: int, gap: float, per_chunk: int) -> RequestRecord:
    return request(start, [start + gap * (i + 1) for i in range(chunks)], [per_chunk] * chunks)


def test_time_per_token_is_not_the_gap_between_chunks() -> None:
    """40 chunks of 3 tokens every 9 ms: 117 tokens in 351 ms after the first chunk; 120 tokens in 360 ms."""
    metrics = summarise([speculating(0, 40, 9.0, 3)], level=C1)
    assert metrics.tpot_ms is not None
    assert metrics.chunk_gap_ms is not None
    assert metrics.tpot_ms.mean == pytest.approx(3.0)
    assert (metrics.chunk_gap_ms.p50, metrics.chunk_gap_ms.n) == (9.0, 39)
    assert metrics.output_throughput_tok_s == pytest.approx(120 / 0.360)


def test_speculation_and_its_control_are_equal_by_time_per_token() -> None:
    chunky = summarise([request(0, [9.0 * i for i in range(1, 41)], [1] + [3] * 39)], level=C1)
    plain = summarise([request(0, [9 + 3.0 * i for i in range(118)])], level=C1)
    assert chunky.value("tpot_p50_ms") == plain.value("tpot_p50_ms") == 3.0
    assert chunky.value("chunk_gap_p50_ms") == 9.0


def test_a_stream_interval_of_20_tokens_is_40_ms_a_token() -> None:
    metrics = summarise([request(0, [100 + 800.0 * i for i in range(6)], [1] + [20] * 5)], level=C1)
    assert metrics.value("tpot_p50_ms") == 40.0


def test_ttft_counts_from_the_send_in_a_closed_and_from_the_due_time_in_an_open_loop() -> None:
    record = replace(request(200, [250, 260]), scheduled_ns=ms(50)[0])
    later = replace(request(900, [950, 960]), scheduled_ns=ms(850)[0])
    assert summarise([record], level=C1).value("ttft_p50_ms") == 50.0
    opened = summarise([record, later], level=LoadLevel("rate", 2))
    assert opened.value("ttft_max_ms") == 200.0
    assert opened.value("e2e_max_ms") == 210.0
    assert opened.value("schedule_delay_max_ms") == 150.0
    assert opened.achieved_rate_rps == pytest.approx(1 / 0.7)
    assert opened.window_s == 0.8


def test_the_settled_window_is_the_time_in_which_all_slots_were_filled() -> None:
    """Two slots. Sends at 0 and 10, refilled at 100 and 130; the request that ends first after 130 ends it: 200."""
    records = [
        request(0, [50, 100]),
        request(10, [60, 130]),
        request(100, [150, 200]),
        request(130, [180, 260]),
    ]
    metrics = summarise(records, level=LoadLevel("concurrency", 2))
    assert metrics.window_s == pytest.approx(0.190)
    assert metrics.output_throughput_tok_s == pytest.approx(7 / 0.190)  # all chunks but the one at 260
    assert metrics.request_throughput_rps == pytest.approx(2 / 0.1125)  # two in flight, 112.5 ms each
    assert metrics.input_throughput_tok_s == pytest.approx(40 / 0.190)
    assert metrics.peak_concurrency == 2
    assert metrics.value("e2e_max_ms") == 130.0  # latencies look at every measured request


def test_at_one_in_flight_throughput_and_latency_agree() -> None:
    records = [request(i * 100.0, [i * 100 + 20.0, i * 100 + 100.0], [1, 9]) for i in range(5)]
    metrics = summarise(records, level=C1)
    assert metrics.output_throughput_tok_s == pytest.approx(100.0)
    assert metrics.request_throughput_rps == pytest.approx(10.0)


def test_warm_up_is_left_out() -> None:
    warm = replace(request(0, [1000], [500]), warmup=True)
    metrics = summarise([warm, request(2000, [2100], [5])], level=C1)
    assert (metrics.requests_total, metrics.output_tokens_total, metrics.value("e2e_max_ms")) == (1, 5, 100.0)


def test_tokens_without_a_count_per_chunk_are_spread_over_the_chunks() -> None:
    """12 tokens over 4 chunks, three of which lie in the window that ends at 300."""
    early = request(0, [100, 200, 300, 400], [0, 0, 0, 0], output=12)
    other = request(0, [300], [1])
    metrics = summarise([early, other], level=LoadLevel("concurrency", 2))
    assert metrics.output_throughput_tok_s == pytest.approx((9 + 1) / 0.3)


def test_without_any_count_there_is_no_token_metric_but_latency_is_there() -> None:
    metrics = summarise([request(0, [100, 200], [0, 0], output=None)], level=C1)
    assert metrics.output_throughput_tok_s is None
    assert metrics.output_tokens_total is None
    assert metrics.tpot_ms is None
    assert metrics.value("ttft_p50_ms") == 100.0
    assert any("no token count" in w for w in metrics.warnings)


def test_nothing_measured_gives_a_report_of_absent_values() -> None:
    for records in ([], [failed(0, 10, RequestStatus.EMPTY)]):
        metrics = summarise(records, level=C1, client=client_of(len(records)))
        assert not metrics.valid
        assert metrics.void_reasons == ("no request of 1 succeeded" if records else "no measured request was sent",)
        for name in ("ttft_p50_ms", "tpot_mean_ms", "output_throughput_tok_s", "accept_length", "goodput_rps"):
            assert metrics.value(name) is None


def test_empty_answers_have_no_latency() -> None:
    records = [request(i * 100, [i * 100 + 50.0]) for i in range(90)]
    records += [failed(9000 + i, 9001 + i, RequestStatus.EMPTY) for i in range(10)]
    metrics = summarise(records, level=C1)
    assert (metrics.requests_ok, metrics.requests_empty, metrics.requests_failed) == (90, 10, 0)
    assert metrics.ttft_ms is not None
    assert (metrics.ttft_ms.n, metrics.ttft_ms.p50) == (90, 50.0)
    assert any("10 requests ended well without a token" in w for w in metrics.warnings)


def test_failures_are_shown_and_neither_latency_nor_throughput() -> None:
    good = [request(i * 100.0, [i * 100 + 50.0, i * 100 + 100.0]) for i in range(70)]
    bad = [failed(i * 100 + 1.0, i * 100 + 2.0) for i in range(29)]
    cut = replace(request(0, [10, 20], [1, 1]), status=RequestStatus.TRUNCATED)
    metrics = summarise([*good, *bad, cut], level=C1)
    assert (metrics.requests_total, metrics.requests_ok, metrics.requests_failed) == (100, 70, 30)
    assert metrics.errors == {"http_error": 29, "truncated": 1}
    assert metrics.failed_share == 0.3
    assert metrics.output_throughput_tok_s == pytest.approx(20.0)
    assert metrics.value("e2e_p50_ms") == 100.0
    assert "30 of 100 requests failed" in metrics.void_reasons


def test_one_failure_in_a_hundred_does_not_void_a_point() -> None:
    records = [request(i * 100.0, [i * 100 + 100.0]) for i in range(99)]
    assert summarise([*records, failed(9900, 9950)], level=C1, client=client_of(100)).void_reasons == ()


def test_requests_cut_at_the_end_give_their_tokens_but_no_latency() -> None:
    cut = replace(request(100, [150, 200, 900], [1, 1, 1]), status=RequestStatus.CANCELLED)
    records = [request(0, [50, 100]), cut, request(0, [150, 250]), request(100, [200, 300])]
    metrics = summarise(records, level=LoadLevel("concurrency", 3))
    assert metrics.window_s == 0.150  # three slots from 100 on, one is free at 250
    assert metrics.output_throughput_tok_s == pytest.approx(6 / 0.150)
    assert (metrics.requests_cancelled, metrics.requests_failed) == (1, 0)
    assert metrics.value("e2e_max_ms") == 250.0


def test_accept_length_is_of_the_points_own_requests() -> None:
    records = [
        request(0, [10, 20], verify_ct=10, correct_drafts=15, proposed_drafts=30),
        request(20, [30, 40], verify_ct=30, correct_drafts=75, proposed_drafts=90),
    ]
    metrics = summarise(records, level=C1)
    assert metrics.accept_length == 1 + 90 / 40
    assert metrics.accept_rate == 90 / 120


def test_accept_length_of_requests_that_tell_of_verify_passes_only_leaves_out_their_first_tokens() -> None:
    records = [request(0, [10, 20], verify_ct=2, output_tokens=7), request(1, [10, 20], verify_ct=3, output_tokens=10)]
    metrics = summarise(records, level=C1, client=CLIENT)
    assert (metrics.accept_length, metrics.accept_rate) == ((6 + 9) / (2 + 3), None)
    assert summarise([request(0, [10, 20], verify_ct=0)], level=C1, client=CLIENT).accept_length is None


def test_accept_length_from_counters_leaves_out_the_first_token_of_each_request() -> None:
    client = replace(CLIENT, verify_calls_delta=100.0, generation_tokens_delta=310.0, requests_delta=10.0)
    assert summarise([request(0, [10, 20])], level=C1, client=client).accept_length == 3.0
    assert summarise([request(0, [10, 20])], level=C1, client=CLIENT).accept_length is None
    idle = replace(client, verify_calls_delta=0.0)
    assert summarise([request(0, [10, 20])], level=C1, client=idle).accept_length is None


def test_goodput_and_attainment_count_what_is_within_every_limit() -> None:
    records = [
        request(0, [50, 100]),
        request(100, [190, 200]),
        request(200, [210, 300]),
        failed(300, 400),
    ]
    limits = {"ttft_ms": 60, "tpot_ms": 60}
    metrics = summarise(records, level=C1, request_limits=limits)
    assert metrics.window_s == 0.4
    assert metrics.goodput_rps == pytest.approx(2.5)
    assert metrics.attainment == 0.25
    assert summarise(records, level=C1).goodput_rps is None


def test_the_cached_share_is_told() -> None:
    records = [request(0, [10], cached_tokens=0), request(10, [20], cached_tokens=8)]
    metrics = summarise(records, level=C1)
    assert metrics.cached_share == 8 / 20
    assert "40% of the prompt tokens came from the prefix cache" in metrics.warnings


def test_percentiles_are_interpolated() -> None:
    metrics = summarise([request(i * 1000, [i * 1000 + 10.0 * (i + 1)]) for i in range(61)], level=C1)
    assert metrics.ttft_ms is not None
    assert (metrics.ttft_ms.mean, metrics.ttft_ms.p50, metrics.ttft_ms.max) == (310.0, 310.0, 610.0)
    assert metrics.ttft_ms.p90 == pytest.approx(550.0)
    assert metrics.ttft_ms.p95 == pytest.approx(580.0)


def test_every_metric_has_a_name_a_unit_and_a_finite_or_absent_value() -> None:
    metrics = summarise([request(0, [10, 20]), request(20, [30, 40])], level=C1, client=CLIENT)
    assert {
        "output_throughput_tok_s",
        "request_throughput_rps",
        "ttft_p95_ms",
        "ttft_mean_ms",
        "tpot_p50_ms",
        "e2e_p99_ms",
        "accept_length",
        "goodput_rps",
    } <= set(METRICS)
    for name, value in metrics.values().items():
        assert value is None or math.isfinite(value), name
        assert METRICS[name].formula
    with pytest.raises(KeyError):
        metrics.value("itl_p50_ms")
    assert {m.direction for m in METRICS.values()} == {"max", "min", "none"}


def as_columns(records: list[RequestRecord]) -> dict[str, Any]:
    return {name: [getattr(r, name) for r in records] for name in RequestRecord.__slots__}


def test_records_columns_and_flat_columns_give_the_same_metrics() -> None:
    records = [
        replace(request(0, [1]), warmup=True),
        request(10, [50, 100], [1, 3]),
        failed(100, 110),
        request(110, [150], [2]),
    ]
    expected: PointMetrics = summarise(records, level=C1)
    columns = as_columns(records)
    assert summarise(columns, level=C1) == expected
    offsets = np.cumsum([0, *(len(c) for c in columns["chunk_ns"])])
    for name in ("chunk_ns", "chunk_tokens"):
        columns[name] = (np.array([x for c in columns[name] for x in c]), offsets)
    assert summarise(columns, level=C1) == expected
    assert len(RequestColumns.of(columns)) == 3


def test_a_million_requests_are_summarised_in_seconds() -> None:
    n, chunks = 1_000_000, 8
    sent = np.arange(n, dtype=np.int64) * 1_000_000
    chunk_ns = (sent[:, None] + np.arange(1, chunks + 1) * 10_000_000).ravel()
    zeros = np.zeros(n)
    columns = {
        "warmup": np.zeros(n, dtype=bool), "status": np.full(n, "ok"), "scheduled_ns": sent, "sent_ns": sent,
        "first_token_ns": sent + 10_000_000, "end_ns": sent + 80_000_000, "prompt_tokens": zeros + 10,
        "cached_tokens": zeros, "output_tokens": zeros + chunks, "verify_ct": zeros + 4, "correct_drafts": zeros + 4,
        "proposed_drafts": zeros + 8, "retractions": zeros,
        "chunk_ns": (chunk_ns, np.arange(n + 1) * chunks), "chunk_tokens": (np.ones(n * chunks), np.arange(n + 1) * 8),
    }  # fmt: skip
    began = time.process_time()
    metrics = summarise(columns, level=LoadLevel("rate", 1000))
    assert time.process_time() - began < 20
    assert metrics.value("tpot_p99_ms") == pytest.approx(10.0)
    assert metrics.accept_length == 2.0
    assert metrics.output_throughput_tok_s == pytest.approx(8000, rel=0.001)
