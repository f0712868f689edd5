"""What is counted per second: of batches, of an open loop that begins on an idle server, of points that were cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.points.metric_names import METRICS
from orchestrator.points.metrics import summarise
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import C1, ms, request

C4 = LoadLevel("concurrency", 4)
RATE10 = LoadLevel("rate", 10)


def waves(*sizes: int, take: float = 1000.0) -> list[RequestRecord]:
    """Requests of 10 tokens in lock-step: ends of a wave are 0.01 ms apart, the next sends come after the last."""
    records = []
    for wave, size in enumerate(sizes):
        for i in range(size):
            sent = wave * take + 0.05 + i * 0.01
            records.append(request(sent, [sent + take / 2, (wave + 1) * take + i * 0.01], [5, 5]))
    return records


def due(at: float, first: float, end: float, tokens: int = 10) -> RequestRecord:
    """A request of an open loop with its latencies from its due time."""
    return request(at, [at + first, at + end], [1, tokens - 1])


def test_a_last_wave_that_fills_only_some_slots_is_outside_the_window() -> None:
    """4 slots, waves of 4, 4 and 2: end 7 of 10 leaves a slot empty, 75 tokens came until then in 2 s."""
    metrics = summarise(waves(4, 4, 2), level=C4)
    assert metrics.window_s == pytest.approx(2.0, rel=1e-3)
    assert metrics.output_throughput_tok_s == pytest.approx(37.5, rel=1e-3)


def test_requests_that_end_together_all_count() -> None:
    """4 slots, 1 s a request: 4 a second; counted by whole ends it would be 17 of 20 in 5 s."""
    metrics = summarise(waves(4, 4, 4, 4, 4), level=C4, request_limits={"e2e_ms": 1001})
    assert metrics.window_s == pytest.approx(5.0, rel=1e-3)
    assert metrics.request_throughput_rps == pytest.approx(4.0, rel=1e-3)
    assert metrics.goodput_rps == pytest.approx(4.0, rel=1e-3)


def test_a_last_wave_that_fills_only_some_slots_is_not_in_the_window_of_requests() -> None:
    metrics = summarise(waves(4, 4, 4, 4, 1), level=C4)
    assert metrics.request_throughput_rps == pytest.approx(4.0, rel=1e-3)


def test_slow_and_fast_requests_count_by_their_mean_latency() -> None:
    """Two slots are filled from 0 to 600; the eight requests take 175 ms on average, half of them 100."""
    records = [request(t, [t + 100.0]) for t in (0, 100, 200, 300)]
    records += [request(0, [200]), request(200, [400]), request(400, [800]), request(400, [600])]
    metrics = summarise(records, level=LoadLevel("concurrency", 2), request_limits={"e2e_ms": 150})
    assert metrics.window_s == 0.6
    assert metrics.request_throughput_rps == pytest.approx(2 / 0.175)
    assert metrics.goodput_rps == pytest.approx(1 / 0.175)


def test_slots_that_stand_idle_between_requests_do_not_count() -> None:
    """100 ms a request and 25 ms until the next: window 0 to 850, in which 700 ms are filled."""
    metrics = summarise([request(i * 125.0, [i * 125.0 + 100]) for i in range(7)], level=C1)
    assert metrics.window_s == 0.85
    assert metrics.request_throughput_rps == pytest.approx(7 / 0.85)


def test_a_closed_loop_that_was_stopped_is_as_fast_as_one_that_was_not() -> None:
    """Stopped at 4.5 s, in the middle of the fifth wave."""
    whole = waves(4, 4, 4, 4)
    cut = [
        replace(request(4000.05 + i * 0.01, [4400.0]), status=RequestStatus.CANCELLED, end_ns=ms(4500)[0])
        for i in range(4)
    ]
    metrics = summarise([*whole, *cut], level=C4, request_limits={"e2e_ms": 1001})
    assert metrics.window_s == pytest.approx(4.5, rel=1e-3)
    assert metrics.request_throughput_rps == pytest.approx(4.0, rel=1e-3)
    assert metrics.goodput_rps == pytest.approx(4.0, rel=1e-3)


def test_a_request_that_was_cut_after_long_counts_with_the_time_it_took() -> None:
    """Window 0 to 1000: one slot makes ten requests of 100 ms, the other is still at one that is cut after 4.5 s."""
    cut = replace(request(0, [50]), status=RequestStatus.CANCELLED, end_ns=ms(4500)[0])
    others = [request(t * 100, [t * 100 + 100.0]) for t in range(10)]
    metrics = summarise([cut, *others], level=LoadLevel("concurrency", 2))
    assert metrics.window_s == 1.0
    assert metrics.request_throughput_rps == pytest.approx(2 / 0.5)  # 5.5 s for eleven requests


def test_an_open_loop_that_keeps_up_shows_the_arrival_rate() -> None:
    """10 a second for 6 s, 1.1 s each, 200 tokens, 10 of prompt: inside the due times only 8.3 a second end."""
    records = [due(i * 100, 300, 1100, tokens=200) for i in range(61)]
    metrics = summarise(records, level=RATE10, request_limits={"e2e_ms": 1200})
    assert metrics.window_s == 6.0
    assert metrics.achieved_rate_rps == pytest.approx(10.0)
    assert metrics.request_throughput_rps == pytest.approx(10.0)
    assert metrics.goodput_rps == pytest.approx(10.0)
    assert metrics.output_throughput_tok_s == pytest.approx(2000.0)
    assert metrics.input_throughput_tok_s == pytest.approx(100.0)


def test_requests_longer_than_the_open_loop_itself_are_counted_too() -> None:
    metrics = summarise([due(i * 100, 500, 9000) for i in range(21)], level=RATE10)
    assert metrics.request_throughput_rps == pytest.approx(10.0)
    assert metrics.output_throughput_tok_s == pytest.approx(100.0)


def test_an_open_loop_that_does_not_keep_up_shows_the_service_rate() -> None:
    """10 a second are due, one ends every 200 ms: 5 a second."""
    records = [due(i * 100, i * 100 + 100, i * 100 + 200) for i in range(101)]
    metrics = summarise(records, level=RATE10)
    assert metrics.request_throughput_rps == pytest.approx(5.0)
    assert metrics.output_throughput_tok_s == pytest.approx(50.0)
    assert metrics.input_throughput_tok_s == pytest.approx(50.0)


def test_an_open_loop_that_was_stopped_ends_one_latency_before() -> None:
    """Due every 100 ms up to 6 s, 1 s each, stopped at 6.05 s: what was due after 5.05 s could not end."""
    records = [due(i * 100, 300, 1000) for i in range(51)]
    records += [
        replace(request(i * 100, [i * 100 + 1.0]), status=RequestStatus.CANCELLED, end_ns=ms(6050)[0])
        for i in range(51, 61)
    ]
    metrics = summarise(records, level=RATE10)
    assert metrics.window_s == pytest.approx(5.05)
    assert metrics.request_throughput_rps == pytest.approx(50 / 5.05)
    assert metrics.output_throughput_tok_s == pytest.approx(500 / 5.05)
    assert metrics.input_throughput_tok_s == pytest.approx(500 / 5.05)


@pytest.mark.parametrize("chunks", [[100.0], [100.0, 100.0]])
def test_an_answer_that_came_at_once_has_no_time_per_token_and_keeps_no_limit_of_it(chunks: list[float]) -> None:
    tokens = [8 // len(chunks)] * len(chunks)
    metrics = summarise([request(0, chunks, tokens)], level=C1, request_limits={"tpot_ms": 50})
    assert metrics.tpot_ms is None
    assert (metrics.value("tpot_p50_ms"), metrics.attainment) == (None, 0.0)


def test_only_answers_whose_decoding_was_seen_count_in_the_time_per_token() -> None:
    records = [request(0, [100], [8]), request(100, [110, 130]), request(200, [300], [1])]
    metrics = summarise(records, level=C1, request_limits={"tpot_ms": 50})
    assert metrics.tpot_ms is not None
    assert (metrics.tpot_ms.n, metrics.tpot_ms.mean) == (1, 20.0)
    assert metrics.attainment == pytest.approx(2 / 3)  # the answer of one token has no limit to break


def test_an_answer_without_a_token_count_does_not_keep_a_limit_of_time_per_token() -> None:
    record = request(0, [50, 100], [0, 0], output=None)
    assert summarise([record], level=C1, request_limits={"tpot_ms": 50}).attainment == 0.0
    assert summarise([record], level=C1, request_limits={"ttft_ms": 50}).attainment == 1.0


def test_formulas_tell_closed_from_open_loops() -> None:
    for name in ("output_throughput_tok_s", "input_throughput_tok_s", "request_throughput_rps"):
        assert "open loop" in METRICS[name].formula
