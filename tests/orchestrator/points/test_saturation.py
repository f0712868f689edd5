"""Open loops on a server whose capacity is known: a queue of one desk with a fixed time per request."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from orchestrator.points.metrics import summarise
from orchestrator.points.request_columns import Floats
from orchestrator.points.saturation import offered_evenly, theil_sen
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import request

RATE = LoadLevel("rate", 20)


def queue(due_s: Floats, service_s: Floats) -> dict[str, Any]:
    """One desk, first come first served; an answer's two tokens come 1 ms after its beginning and at its end."""
    free, ends = 0.0, []
    for due, takes in zip(due_s.tolist(), service_s.tolist(), strict=True):
        free = max(due, free) + takes
        ends.append(free)
    n, end = len(ends), np.array(ends) * 1e9
    first, zeros = end - service_s * 1e9 + 1e6, np.zeros(len(ends))
    chunk_ns = np.column_stack([first, end]).ravel()
    return {
        "warmup": zeros.astype(bool), "status": ["ok"] * n, "scheduled_ns": due_s * 1e9, "sent_ns": due_s * 1e9,
        "first_token_ns": first, "end_ns": end, "prompt_tokens": zeros + 10, "cached_tokens": zeros,
        "output_tokens": zeros + 2, "verify_ct": zeros * np.nan, "correct_drafts": zeros * np.nan,
        "proposed_drafts": zeros * np.nan, "retractions": zeros, "chunk_ns": (chunk_ns, np.arange(n + 1) * 2),
        "chunk_tokens": (np.ones(2 * n), np.arange(n + 1) * 2),
    }  # fmt: skip


def arrivals(n: int, rate: float, seed: int) -> Floats:
    """As the client draws them: exponential gaps, scaled so that the last request is due at n / rate."""
    sums = np.cumsum(np.random.default_rng(seed).exponential(size=n))
    return np.asarray(sums / sums[-1] * n / rate)


def state(load: float, seed: int, n: int = 600) -> str:
    takes = np.random.default_rng(seed + 1000).exponential(load / 20, size=n)
    return summarise(queue(arrivals(n, 20, seed), takes), level=RATE).state


def test_a_server_at_its_limit_is_not_accused() -> None:
    """Services as random as can be, loads up to exactly the capacity: 1 of 60 points at most."""
    said = [state(load, seed) for load in (0.5, 0.9, 1.0) for seed in range(20)]
    assert said.count("saturated") <= 1


def test_a_server_that_can_serve_two_thirds_is_saturated() -> None:
    assert [state(1.5, seed) for seed in range(10)] == ["saturated"] * 10


def test_a_saturated_point_has_a_throughput_but_no_latency_and_says_why() -> None:
    records = queue(np.arange(400) / 20, np.full(400, 0.1))
    metrics = summarise(records, level=RATE, request_limits={"ttft_ms": 500})
    assert metrics.request_throughput_rps == pytest.approx(10.0, rel=0.01)
    assert metrics.value("tpot_p50_ms") == pytest.approx(99.0)
    for name in ("ttft_p50_ms", "e2e_mean_ms", "goodput_rps", "attainment"):
        assert metrics.value(name) is None
        assert metrics.absent()[name] == metrics.state_reason
    assert metrics.state_reason.startswith("saturated at 20 req/s: within ")
    assert "the throughput is the server's capacity: offer a lower rate" in metrics.warnings[0]
    assert (metrics.valid, metrics.settle_cut_s) == (True, None)


def test_an_idle_server_that_fills_up_is_not_saturated() -> None:
    """Requests of 8 s: the requests in flight grow for 8 of 30 s, none waits."""
    records = [request(i * 50.0, [i * 50 + 100.0, i * 50 + 8000.0]) for i in range(600)]
    metrics = summarise(records, level=RATE)
    assert metrics.state != "saturated"
    assert metrics.value("ttft_p50_ms") == 100.0


def test_short_and_small_points_are_not_judged() -> None:
    short = queue(np.arange(180) / 20, np.full(180, 0.1))  # 9 s
    few = queue(np.arange(99) / 5, np.full(99, 0.4))
    assert summarise(short, level=RATE).state == summarise(few, level=LoadLevel("rate", 5)).state == "unknown"


def test_a_load_that_was_meant_to_rise_is_not_judged() -> None:
    ramp = np.sqrt(np.arange(1, 601) / 600) * 30
    metrics = summarise(queue(ramp, np.full(600, 0.06)), level=RATE)
    assert metrics.state == "unknown"
    assert metrics.value("ttft_p50_ms") is not None


def test_a_trace_is_not_judged() -> None:
    assert summarise(queue(np.arange(400) / 20, np.full(400, 0.1)), level=LoadLevel("trace", 1)).state == "unknown"


def test_arrivals_of_one_rate_are_even_and_bursts_are_not() -> None:
    assert all(offered_evenly(arrivals(n, 10, seed)) for n in (100, 1000) for seed in range(20))
    assert offered_evenly(np.arange(100.0))
    assert not offered_evenly(np.concatenate([np.arange(100.0), 200 + np.arange(300.0) / 10]))
    assert not offered_evenly(np.zeros(5))


def test_theil_sen_is_the_median_of_all_pairs() -> None:
    values = np.random.default_rng(3).normal(size=20) + 0.3 * np.arange(20)
    slopes = sorted((values[j] - values[i]) / (j - i) for i, j in combinations(range(20), 2))
    middle, low = theil_sen(values)
    assert middle == pytest.approx(float(np.median(slopes)))
    assert low == slopes[64]  # the 65th: (190 - 1.96 * sqrt(20 * 19 * 45 / 18)) / 2 = 64.8
    assert theil_sen(np.ones(20)) == (0.0, 0.0)
