"""Percentiles have a value only where there are enough values for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.points.distribution import (
    FEWEST,
    Distribution,
    LowTail,
    distribution,
    interpolated,
    low_tail,
    supported,
)
from orchestrator.points.metric_names import METRICS, values_needed
from orchestrator.points.metrics import summarise
from tests.orchestrator.literal_records import C1, request


def test_so_many_values_are_needed_that_the_largest_reaches_the_percentile_19_times_of_20() -> None:
    """By trying every n: the chance that all of n values lie below the q-quantile is q^n."""
    for q, needed in ((0.90, 29), (0.95, 59), (0.99, 299)):
        assert next(n for n in range(1, 1000) if 1 - q**n >= 0.95) == needed
        assert FEWEST[f"p{round(q * 100)}"] == needed
    assert (FEWEST["p10"], FEWEST["p5"]) == (29, 59)


@pytest.mark.parametrize(("n", "known"), [(28, ""), (29, "p90"), (58, "p90"), (59, "p90 p95"), (299, "p90 p95 p99")])
def test_a_percentile_of_too_few_values_is_absent(n: int, known: str) -> None:
    found = distribution(np.arange(float(n)))
    assert found is not None
    assert [p for p in ("p90", "p95", "p99") if getattr(found, p) is not None] == known.split()
    assert (found.n, found.p50, found.max) == (n, (n - 1) / 2, n - 1)
    low = low_tail(np.arange(float(n)))
    assert low is not None
    assert ((low.p10 is not None), (low.p5 is not None), low.min) == (n >= 29, n >= 59, 0.0)


def test_unknown_values_do_not_count() -> None:
    values = np.array([np.nan, 1.0, 3.0])
    assert distribution(values) == Distribution(2, 2.0, 2.0, None, None, None, 3.0)
    assert low_tail(values) == LowTail(2, 2.0, 2.0, None, None, 1.0)
    assert distribution(values[:1]) is None
    assert low_tail(values[:1]) is None
    assert (supported(np.full(58, 0.5), 95), supported(np.full(59, 0.5), 95)) == (None, 0.5)


def test_what_a_metric_needs_goes_by_its_name() -> None:
    needed = {name: values_needed(name) for name in METRICS}
    assert needed["ttft_p95_ms"] == needed["tok_s_per_user_p5"] == needed["prompt_tokens_error_p95"] == 59
    assert (needed["e2e_p90_ms"], needed["queue_p99_ms"], needed["tok_s_per_user_p10"]) == (29, 299, 29)
    assert {name for name, n in needed.items() if n == 1} >= {"ttft_p50_ms", "ttft_mean_ms", "output_throughput_tok_s"}


def test_an_absent_percentile_says_how_many_requests_there_were() -> None:
    metrics = summarise([request(i * 100, [i * 100 + 50.0, i * 100 + 90.0]) for i in range(40)], level=C1)
    absent = metrics.absent()
    assert metrics.value("ttft_p90_ms") == 50.0
    assert metrics.value("ttft_p95_ms") is None
    assert absent["ttft_p95_ms"] == (
        "ttft_p95_ms needs 59 requests, 40 were there: give at least 59 requests (measure.requests) or a longer window"
    )
    assert "tok_s_per_user_p5" in absent
    assert not {"ttft_p90_ms", "queue_p99_ms", "accept_length"} & set(absent)


@given(
    st.lists(st.floats(min_value=-1e12, max_value=1e12, allow_nan=False), min_size=1, max_size=60),
    st.sampled_from([1, 5, 10, 25, 50, 90, 95, 99]),
)
def test_a_percentile_is_numpys_to_the_last_bit(values: list[float], percentile: int) -> None:
    assert interpolated(np.sort(values), percentile) == np.percentile(values, percentile)
