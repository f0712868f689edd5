"""How many independent requests a share of good ones stands on, and its interval."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.stats import binomtest

from orchestrator.points.attainment import independent_count, wilson
from orchestrator.points.metrics import summarise
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import request


def test_the_interval_is_wilsons() -> None:
    oracle = binomtest(171, 190).proportion_ci(0.95, method="wilson")

    assert wilson(171 / 190, 190) == pytest.approx((oracle.low, oracle.high), rel=1e-9)
    assert wilson(1.0, 20)[1] == 1.0
    assert wilson(0.0, 20)[0] == 0.0


def test_requests_that_all_fared_alike_count_one_by_one() -> None:
    assert independent_count(np.ones(50, dtype=bool)) == 50.0
    assert independent_count(np.zeros(0, dtype=bool)) is None


def test_independent_requests_count_one_by_one() -> None:
    drawn = np.random.default_rng(1).random((20, 400)) < 0.9

    assert np.mean([independent_count(row) for row in drawn]) == pytest.approx(370, abs=40)


def test_of_requests_in_runs_of_ten_about_one_in_ten_counts() -> None:
    """n / (1 + 2 sum (1 - k/10)) = n / 10."""
    drawn = np.repeat(np.random.default_rng(2).random((20, 100)) < 0.7, 10, axis=1)

    assert np.mean([independent_count(row) for row in drawn]) == pytest.approx(110, abs=20)


def test_the_autocorrelations_are_those_of_the_plain_sum() -> None:
    """Oracle: the definition, written out."""
    good = np.random.default_rng(3).random(200) < np.repeat(np.random.default_rng(4).random(20), 10)
    x = good - good.mean()
    rho = [float(x[: len(x) - k] @ x[k:]) / float(x @ x) for k in range(len(x))]
    total, k = 0.0, 1
    while k + 1 < len(x) and rho[k] + rho[k + 1] > 0:
        total += rho[k] + rho[k + 1]
        k += 2

    assert independent_count(good) == pytest.approx(200 / (1 + 2 * total))


def test_a_point_tells_it_beside_its_attainment_and_not_when_it_is_saturated() -> None:
    waits = [50.0 if random.Random(i).random() < 0.9 else 900.0 for i in range(100)]
    records = [request(100.0 * i, [100.0 * i + wait, 100.0 * i + wait + 10.0]) for i, wait in enumerate(waits)]

    metrics = summarise(records, level=LoadLevel("concurrency", 1.0), request_limits={"ttft_ms": 500.0})

    assert metrics.attainment == waits.count(50.0) / 100
    assert metrics.attainment_n == independent_count([wait == 50.0 for wait in waits])
    assert summarise(records, level=LoadLevel("concurrency", 1.0)).attainment_n is None
