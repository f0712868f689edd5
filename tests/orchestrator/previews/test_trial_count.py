"""How many trials buy which precision: against the textbook and against what estimates then come out with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.estimation.estimates import estimate
from orchestrator.objectives.aim import Observation
from orchestrator.previews.trial_count import half_width, precision


def test_on_one_host_it_is_the_interval_of_a_difference_of_two_means() -> None:
    half = stats.t.ppf(0.975, 12 * 2) * 0.02 * math.sqrt(2 / 3)

    assert half_width(12, 1, 3, 0.02) == pytest.approx(math.expm1(half))


def test_complete_blocks_on_several_hosts_cost_a_degree_of_freedom_each() -> None:
    half = stats.t.ppf(0.975, 6 * 4 - 6 - 4 + 1) * 0.02 * math.sqrt(2 / 4)

    assert half_width(6, 4, 4, 0.02) == pytest.approx(math.expm1(half))


def test_it_is_what_the_estimates_of_such_a_run_come_out_with() -> None:
    rng = np.random.default_rng(1)
    widths = []
    for _ in range(120):
        seen = [
            Observation(f"c{c}", f"{c}{host}", f"h{host}", math.exp(rng.normal(0, 0.02)))
            for c in range(12)
            for host in rng.permutation(4)[:2]
        ]
        found = estimate(seen, maximize=False)
        pairs = [found.gap(f"c{a}", f"c{b}") for a in range(12) for b in range(a)]
        widths.append(np.mean([(g.high - g.low) / 2 for g in pairs if g.high is not None and g.low is not None]))

    expected = half_width(12, 4, 2, 0.02)
    assert expected == pytest.approx(np.mean(widths), rel=0.08)


def test_the_repeats_that_a_target_needs_are_the_fewest_that_meet_it() -> None:
    found = precision(12, 1, 1, 0.02)

    assert found.half_width is None
    for target, repeats in found.needed:
        assert repeats is not None
        assert (half_width(12, 1, repeats, 0.02) or 1) <= target
        assert (half_width(12, 1, repeats - 1, 0.02) or 1) > target
    assert dict(precision(12, 1, 1, 0.10).needed)[0.01] is None


def test_one_trial_each_buys_no_interval_and_references_on_every_host_a_wide_one() -> None:
    assert half_width(12, 4, 1, 0.02) is None
    assert (half_width(12, 4, 1, 0.02, references=2) or 0) > (half_width(12, 4, 2, 0.02) or 0)


def test_the_line_of_a_plan_says_what_is_bought_and_what_more_would_cost() -> None:
    assert precision(12, 4, 3, 0.02).lines() == [
        "Precision: 3 trials of each config on 4 hosts bound a difference of two to ±3.5% (95%); "
        "measure.repeats for ±1% 32, ±2% 9, ±3% 4, ±5% 3; assumed: starts differ by 2.0% (sd)"
    ]
    assert (
        precision(12, 1, 1, 0.02)
        .lines()[0]
        .startswith(
            "Precision: 1 trial of each config on 1 host gives no interval: nothing is known of how starts differ; "
        )
    )
    assert precision(1, 1, 1, 0.02).lines() == []


def test_ten_thousand_configs_are_planned_at_once() -> None:
    assert dict(precision(10_000, 8, 3, 0.02).needed)[0.02] == 8
