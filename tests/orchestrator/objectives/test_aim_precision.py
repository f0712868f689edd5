"""Errors within a run, carried through what an objective looks at."""

from __future__ import annotations

import math

import pytest

from orchestrator.objectives.aim import Aim, PointValue, TrialPoints, trials_of
from orchestrator.objectives.aim_precision import precision, precisions
from orchestrator.points.batch_means import WithinRun
from orchestrator.supported_digits import percent, plain, shown
from orchestrator.trial import LoadLevel

SPEED = "output_throughput_tok_s"


def trial(errors: dict[float, WithinRun | None]) -> TrialPoints:
    points = [
        PointValue("a", "w", LoadLevel("concurrency", c), 0, {SPEED: 100.0 * c}, within_run={SPEED: e} if e else {})
        for c, e in errors.items()
    ]
    return trials_of(points)[0]


def aim(expression: str) -> Aim:
    return Aim(expression, True, "w", LoadLevel("concurrency", 1.0))


BOTH = trial({1.0: WithinRun(0.01, 19), 4.0: WithinRun(0.02, 9)})


def test_a_metric_has_its_own_error() -> None:
    found = precision(aim(SPEED), BOTH)

    assert found is not None
    assert found.relative_error == pytest.approx(0.01)
    assert found.df == 19


def test_errors_of_an_expression_add_as_squares_by_what_each_metric_moves() -> None:
    mean = precision(aim(f"geomean({SPEED} @ C=1, {SPEED} @ C=4)"), BOTH)
    total = precision(aim(f"{SPEED} @ C=1 + {SPEED} @ C=4"), BOTH)

    assert mean is not None
    assert total is not None
    assert mean.relative_error == pytest.approx(math.hypot(0.005, 0.01), rel=0.01)
    assert mean.df == 9
    assert total.relative_error == pytest.approx(math.hypot(0.01 * 0.2, 0.02 * 0.8), rel=0.01)


def test_where_one_metric_has_no_error_nothing_is_known() -> None:
    half = trial({1.0: WithinRun(0.01, 19), 4.0: None})

    assert precision(aim(f"{SPEED} @ C=1 + {SPEED} @ C=4"), half) is None
    assert precision(aim(f"{SPEED} @ C=8"), half) is None
    assert precisions(aim(SPEED), [half]) == {("a", "r0"): WithinRun(pytest.approx(0.01), 19)}  # type: ignore[arg-type]


def test_the_highest_rate_of_a_trial_has_no_error_of_slices() -> None:
    assert precision(aim("max_rate_rps"), BOTH) is None


@pytest.mark.parametrize(
    ("value", "low", "high", "told"),
    [
        (277.3, None, None, "277.3"),
        (12345.6, None, None, "12350"),
        (448510.0, None, None, "448510"),
        (448510.4, None, None, "448500"),
        (-12345.6, None, None, "-12350"),
        (0.00001234, None, None, "1.234e-05"),
        (277.3, 273.0, 281.5, "277"),
        (1596.2, 1560.0, 1630.0, "1600"),
        (3.5712, 3.55, 3.59, "3.57"),
        (282.4, 270.0, 294.0, "282"),
        (0.00123, 0.001, 0.0014, "0.0012"),
        (12.0, 2.0, 90.0, "10"),
        (100.0, 100.0, 100.0, "100"),
        (0.0, -1.0, 1.0, "0"),
    ],
)
def test_numbers_have_the_digits_that_their_intervals_support(
    value: float, low: float | None, high: float | None, told: str
) -> None:
    assert shown(value, low, high) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(12345.6, "12350"), (-123456.7, "-123500"), (1e6, "1000000"), (13.9999, "14.00"), (187.96, "188.0"),
     (512.0, "512"), (12345.0, "12345"), (0.0, "0"), (0.00123456, "0.001235"), (3e-9, "3e-09"), (math.nan, "nan")],
)  # fmt: skip
def test_a_number_without_an_interval_has_four_digits_and_no_exponent(value: float, told: str) -> None:
    assert plain(value) == told


def test_percents_have_a_decimal_unless_they_are_vague() -> None:
    assert percent(0.0123, 0.001, 0.02) == "1.2%"
    assert percent(0.0123, -0.05, 0.08) == "1%"


def test_a_value_that_is_rounded_up_to_the_next_power_of_ten_has_four_digits_as_well() -> None:
    assert [plain(value) for value in (99.997, 9999.7, 0.99996, 99.99)] == ["100.0", "10000", "1.000", "99.99"]
    assert shown(99.997, 99.996, 99.998) == "100.0"
