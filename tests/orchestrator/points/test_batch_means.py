"""How sure a number is within one run: against simulated series, whose mean is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import signal, stats

from orchestrator.points.batch_means import WithinRun, lag_1, of_mean, of_median, of_rate
from orchestrator.points.metrics import summarise
from orchestrator.points.request_columns import Floats, Integers
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import C1, request

Judge = Callable[[Integers, Floats], WithinRun | None]


def covered(judge: Judge, alike: float, count: int, truth: float, seed: int) -> float:
    """How often a 95 % interval holds the truth, for latencies of 100 ms +- 10 % of which neighbours are alike."""
    rng = np.random.default_rng(seed)
    slices = np.arange(count) * 20 // count
    held = 0
    for _ in range(300):
        noise = signal.lfilter([math.sqrt(1 - alike**2)], [1, -alike], rng.normal(0, 0.1, count + 200))[200:]
        values = 100 * np.exp(noise)
        found = judge(slices, values)
        assert found is not None
        value = float(values.mean() if judge is of_mean else np.median(values))
        held += abs(value / truth - 1) <= stats.t.ppf(0.975, found.df) * found.relative_error
    return held / 300


def assert_is(found: WithinRun | None, relative_error: float, df: int) -> None:
    assert found is not None
    assert found.relative_error == pytest.approx(relative_error)
    assert found.df == df


MEAN, MEDIAN = 100 * math.exp(0.005), 100.0


@pytest.mark.parametrize(("judge", "truth"), [(of_mean, MEAN), (of_median, MEDIAN)])
def test_slices_hold_the_truth_of_independent_requests_95_times_in_100(judge: Judge, truth: float) -> None:
    assert 0.92 <= covered(judge, 0.0, 400, truth, 1) <= 0.98


@pytest.mark.parametrize(("judge", "truth"), [(of_mean, MEAN), (of_median, MEDIAN)])
def test_slices_hold_it_nearly_as_often_where_neighbours_are_alike(judge: Judge, truth: float) -> None:
    # An interval from 1,000 requests as if they were independent would hold it 34 times in 100.
    assert covered(judge, 0.9, 1000, truth, 2) >= 0.89


def test_alike_slices_are_joined_until_they_are_not() -> None:
    even, steps = np.array([1.0, 2.0] * 10), np.repeat([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], 2)

    assert lag_1(even) == pytest.approx(-0.95)
    assert lag_1(steps) == pytest.approx(0.05)
    slow = np.repeat([1.0, 2.0, 2.0, 1.0, 1.0], 4)
    by_requests = of_mean(np.repeat(np.arange(20), 3), np.repeat(slow, 3))
    by_medians = of_median(np.repeat(np.arange(20), 3), np.repeat(slow, 3))
    assert_is(by_requests, math.sqrt(0.3 / 5) / 1.4, 4)
    assert_is(by_medians, math.sqrt(0.3 / 5) / 1.4, 4)
    found = of_rate(slow)
    assert_is(found, math.sqrt(0.3 / 5) / 1.4, 4)


def test_the_rate_of_even_slices_is_their_spread_over_the_root_of_twenty() -> None:
    amounts = np.array([9.0, 11.0] * 10)

    assert_is(of_rate(amounts), amounts.std(ddof=1) / math.sqrt(20) / 10, 19)


def test_slices_of_unequal_numbers_have_the_error_of_a_ratio() -> None:
    slices, values = np.repeat(np.arange(20), [1, 3] * 10), np.tile([10.0, 12.0, 12.0, 12.0], 10)
    found = of_mean(slices, values)
    excess = np.array([10 - 11.5, 36 - 34.5] * 10)

    assert_is(found, math.sqrt((excess**2).sum() * 20 / 19) / 40 / 11.5, 19)


def test_too_few_requests_say_nothing() -> None:
    few = np.array([0, 5, 10, 19])

    assert of_mean(few, np.array([1.0, 2.0, 3.0, 4.0])) is None
    assert of_median(few, np.array([1.0, 2.0, 3.0, 4.0])) is None
    assert of_rate(np.zeros(20)) is None
    # 15 are 3 in each of 5 slices.
    found = of_median(np.arange(15) * 20 // 15, np.arange(15.0))
    assert found is not None
    assert found.df == 4


def test_a_point_tells_how_sure_its_metrics_are_within_the_run() -> None:
    rng = np.random.default_rng(3)
    records, at = [], 0.0
    for took in rng.normal(100, 10, 200):
        records.append(request(at, [at + took * 0.2, at + took * 0.6, at + took]))
        at += took
    closed = summarise(records, level=C1).within_run

    assert set(closed) == {
        *(f"{name}_{kind}_ms" for name in ("ttft", "tpot", "e2e") for kind in ("mean", "p50")),
        "output_throughput_tok_s",
        "output_throughput_tok_s_per_gpu",
        "cost_per_million_output_tokens",
        "request_throughput_rps",
    }
    assert closed["ttft_mean_ms"].relative_error == pytest.approx(0.1 / math.sqrt(200), rel=0.4)
    assert closed["request_throughput_rps"] == closed["e2e_mean_ms"]
    assert closed["output_throughput_tok_s"].relative_error == pytest.approx(0.1 / math.sqrt(200), rel=0.6)


def test_an_open_loop_has_the_spread_of_its_arrivals_in_its_throughput() -> None:
    rng = np.random.default_rng(4)
    due = np.cumsum(rng.exponential(100, 400))
    found = summarise([request(t, [t + 20, t + 30]) for t in due], level=LoadLevel("rate", 10.0)).within_run

    assert found["request_throughput_rps"].relative_error == pytest.approx(1 / math.sqrt(400), rel=0.4)
    assert found["ttft_mean_ms"].relative_error < 1e-6


def test_a_point_of_nothing_tells_nothing() -> None:
    assert summarise([], level=C1).within_run == {}
