"""The stated probability of being best is how often it is true; 200 campaigns in benchmarks/calibration.py."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calibration import Statement, brier, calibration_error, campaigns, reliability
from orchestrator.estimation.config_spread import posterior_draws


def test_what_rankings_state_is_true_as_often_as_they_say() -> None:
    statements = campaigns(32, 3)
    bins = reliability(statements)
    first = [s for s in statements if s.first]

    assert calibration_error(bins) < 0.05
    assert np.mean([s.stated for s in first]) == pytest.approx(np.mean([s.best for s in first]), abs=0.15)
    assert np.mean([s.in_group for s in statements if s.best]) >= 0.9


def test_the_table_finds_an_overconfident_ranking() -> None:
    stated = [Statement(0.9, best=i % 2 == 0, first=True, in_group=True, loss=0.0) for i in range(10)]
    (only,) = reliability(stated)

    assert (only.low, only.high, only.count, only.true) == (0.8, 0.95, 10, 0.5)
    assert calibration_error([only]) == pytest.approx(0.4)
    assert brier(stated) == pytest.approx((0.01 + 0.81) / 2)


def draws(means: list[float], error: float) -> np.ndarray:
    own, none = np.full(len(means), error**2), np.zeros((len(means), 0))
    return posterior_draws(np.random.default_rng(1), np.array(means), own, none, np.ones(4000))


def test_configs_that_differ_less_than_trials_do_are_drawn_together() -> None:
    means = [0.01, -0.01, 0.0, 0.005, -0.005, 0.0, 0.002, -0.002]

    assert draws(means, 0.02).mean(axis=0).max() < 0.003
    assert np.bincount(draws(means, 0.02).argmax(axis=1), minlength=8)[0] / 4000 < 0.22


def test_configs_far_apart_are_drawn_as_they_were_measured() -> None:
    means = [0.3, -0.2, 0.0, 0.5, -0.4, 0.1]
    found = draws(means, 0.02)

    assert found.mean(axis=0) == pytest.approx(means, abs=0.005)
    assert found.std(axis=0) == pytest.approx([0.02] * 6, rel=0.1)


def test_draws_of_known_spread_are_the_normal_posterior() -> None:
    # 400 configs tell their spread well: 0.03, measured with an error of 0.04.
    rng = np.random.default_rng(2)
    truth = rng.normal(5, 0.03, 400)
    means = truth + rng.normal(0, 0.04, 400)
    found = draws(means.tolist(), 0.04)
    kept = 0.03**2 / (0.03**2 + 0.04**2)

    assert found.mean(axis=0) == pytest.approx(means.mean() + kept * (means - means.mean()), abs=0.012)
    assert float(found.std(axis=0).mean()) == pytest.approx(0.04 * kept**0.5, rel=0.1)
