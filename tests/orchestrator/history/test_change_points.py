"""Change points: the score against its definition, the places against apache-otava, and how often noise is one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.history.change_points import ChangeRules, change_points, split_scores

GOLDEN = json.loads((Path(__file__).parent.parent.parent / "data" / "change-points" / "otava.json").read_text())
FEW = ChangeRules(orders=99, alpha=0.05, floor=0.0)


def naive_score(left: list[float], right: list[float]) -> float:
    """By the definition, pair by pair."""

    def mean(one: list[float], other: list[float]) -> float:
        return sum(abs(a - b) for a in one for b in other) / (len(one) * len(other))

    k, m = len(left), len(right)
    return k * m / (k + m) * (2 * mean(left, right) - mean(left, left) - mean(right, right))


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=25), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_scores_of_all_splits_are_those_of_the_definition(values: list[float], least: int) -> None:
    expected = [naive_score(values[:k], values[k:]) for k in range(least, len(values) - least + 1)]

    assert split_scores(np.array(values), least) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_changes_are_where_apache_otava_finds_them(case: dict[str, object]) -> None:
    found = change_points(case["values"], "golden", ChangeRules(floor=0.0))  # type: ignore[arg-type]

    assert [point.index for point in found] == [point["index"] for point in case["points"]]  # type: ignore[attr-defined]


def test_of_noise_no_more_is_significant_than_the_level_says() -> None:
    rng = np.random.default_rng(7)
    series = np.concatenate([rng.normal(0, 1, (150, 20)), rng.standard_t(2, (150, 20))])
    found = sum(bool(change_points(list(row), f"s{i}", FEW)) for i, row in enumerate(series))

    # 15 of 300 are expected at 5 %; 25 has a probability of 0.5 %.
    assert 4 <= found <= 25


def test_a_step_has_its_size_its_interval_and_the_first_night_of_the_new_level() -> None:
    values = [0.01, -0.01] * 10 + [-0.04, -0.06] * 4
    (point,) = change_points(values, "x")

    assert point.index == 20
    assert point.difference == pytest.approx(-0.05)
    assert point.p == pytest.approx(1 / 500)
    # t(26, 99.5 %) = 2.779; pooled sd of 20 and 8 values, each 0.01 from its mean
    assert point.high - point.difference == pytest.approx(
        2.779 * (28 * 0.01**2 / 26 * (1 / 20 + 1 / 8)) ** 0.5, abs=1e-5
    )


def test_a_change_below_the_floor_is_none_and_the_levels_beside_it_become_one() -> None:
    values = [0.001, -0.001] * 10 + [0.021, 0.019] * 10 + [0.121, 0.119] * 10

    assert [p.index for p in change_points(values, "x", ChangeRules(floor=0.0))] == [20, 40]
    (point,) = change_points(values, "x")
    assert point.index == 40
    assert point.before == pytest.approx(0.01)


def test_fewer_than_three_values_are_no_level() -> None:
    assert change_points([0.0] * 20 + [-0.3] * 2, "x") == ()
    assert [p.index for p in change_points([0.0, 0.001] * 10 + [-0.3, -0.301, -0.3], "x")] == [20]


def test_nothing_is_found_where_nothing_varies_or_nothing_is_there() -> None:
    assert change_points([0.25] * 40, "x") == ()
    assert change_points([], "x") == ()
    assert change_points([0.1, 5.0, 0.3, 9.0, 2.0], "x") == ()


def test_a_long_series_keeps_changes_older_than_a_window() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(0, 0.01, 200)
    values[40:] -= 0.08
    values[150:] += 0.08

    assert [p.index for p in change_points(list(values), "x")] == [40, 150]


def test_the_same_series_has_the_same_points_every_time() -> None:
    values = list(np.random.default_rng(5).normal(0, 0.01, 40) - 0.03 * (np.arange(40) > 25))

    assert change_points(values, "x") == change_points(values, "x")
