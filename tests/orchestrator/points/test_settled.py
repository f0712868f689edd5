"""MSER-5, and whether what it cuts is real: against brute force and against simulated points with a known truth."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from orchestrator.points.request_columns import Floats
from orchestrator.points.settled import mser5, settling

RUNS = 300


def by_brute_force(values: Floats) -> int:
    means = [float(np.mean(values[i : i + 5])) for i in range(0, len(values) // 5 * 5, 5)]
    best, cut = math.inf, 0
    for d in range(len(means)):
        if d >= len(means) / 2:
            break
        rest = means[d:]
        mean = math.fsum(rest) / len(rest)
        error = math.fsum((y - mean) ** 2 for y in rest) / len(rest) ** 2
        if error < best * (1 - 1e-12):
            best, cut = error, d * 5
    return cut


@pytest.mark.parametrize("n", [10, 11, 25, 52, 100, 203])
def test_the_cut_is_the_one_that_trying_all_cuts_finds(n: int) -> None:
    rng = np.random.default_rng(n)
    for warm in (0.0, 0.3, 3.0):
        values = 1e6 + 1e3 * (rng.normal(size=n) + warm * (np.arange(n) < n // 4))
        assert mser5(values) == by_brute_force(values)


def test_too_few_values_are_not_cut() -> None:
    assert (mser5(np.zeros(0)), mser5(np.arange(9.0))) == (0, 0)


def test_the_cut_is_below_half_of_the_values() -> None:
    """Noise-free growth: the more is left out the better, so the last cut that is allowed."""
    assert mser5(np.arange(100.0)) == 45


def points(n: int, alike: float, trend: Floats | float = 1.0, together: int = 1, noise: float = 0.1) -> Counter[str]:
    """What is said of 300 points; neighbours are correlated by `alike`."""
    values = np.random.default_rng(1).normal(size=(RUNS, n))
    for i in range(1, n):
        values[:, i] = alike * values[:, i - 1] + math.sqrt(1 - alike**2) * values[:, i]
    judged = [settling((1 + noise * row) * trend, together) for row in values]
    return Counter(j.kind for j in judged if j is not None)


@pytest.mark.parametrize(("alike", "together"), [(0.0, 1), (0.5, 1), (0.9, 16)])
@pytest.mark.parametrize("n", [200, 1000])
def test_of_even_points_less_than_two_in_a_hundred_are_said_not_to_be_settled(
    n: int, alike: float, together: int
) -> None:
    for noise in (0.1, 0.2):
        said = points(n, alike, together=together, noise=noise)
        assert (said.total(), said["settled"] > 0.98 * RUNS) == (RUNS, True)


@pytest.mark.parametrize("n", [200, 1000])
def test_a_latency_that_grows_to_the_end_is_found(n: int) -> None:
    growth = 1 + 0.5 * np.arange(n) / n
    assert points(n, 0.0, growth)["settled"] == 0
    assert points(n, 0.5, growth)["settled"] < 0.05 * RUNS
    assert points(n, 0.0, growth)["moving"] > 0.85 * RUNS


@pytest.mark.parametrize("n", [200, 1000])
def test_a_slow_beginning_is_told_apart_from_a_point_that_never_settled(n: int) -> None:
    slow = np.where(np.arange(n) < n // 5, 2.0, 1.0)
    said = points(n, 0.0, slow)
    assert said["beginning"] > 0.95 * RUNS
    step = np.where(np.arange(n) > 0.6 * n, 1.3, 1.0)
    assert points(n, 0.0, step)["moving"] > 0.95 * RUNS


def test_the_cut_of_a_slow_beginning_is_its_length() -> None:
    rng = np.random.default_rng(2)
    found = settling(np.where(np.arange(500) < 100, 2.0, 1.0) * (1 + 0.1 * rng.normal(size=500)))
    assert found is not None
    assert found.kind == "beginning"
    assert 95 <= found.cut <= 105
    assert found.shift == pytest.approx(0.2, abs=0.02)


def test_a_short_point_is_not_judged() -> None:
    assert settling(np.ones(199)) is None
    assert settling(np.ones(300), together=31) is None  # fewer than ten rounds of what is served together
    assert settling(np.ones(300), together=30) is not None
