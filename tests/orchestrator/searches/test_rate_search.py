"""The search for the highest rate under an SLO: against scripted truth, with noise, with crashes, and resumed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.searches.rate_search import MaxRate, RateGoal, RateProbe, RateSeen, next_probe, result

GOAL = RateGoal(1.0, 64.0)


def search(goal: RateGoal, answer: Callable[[RateProbe], RateSeen], most: int = 200) -> list[RateSeen]:
    """Probe until nothing more is asked."""
    seen: list[RateSeen] = []
    while (probe := next_probe(goal, seen)) is not None:
        assert len(seen) < most
        seen.append(answer(probe))
    return seen


def certain(truth_rps: float) -> Callable[[RateProbe], RateSeen]:
    """All requests are good up to that rate, none above."""
    return lambda probe: RateSeen(probe.rate_rps, 1.0 if probe.rate_rps <= truth_rps else 0.0, 1000.0)


def noisy(truth_rps: float, n: int, seed: int) -> Callable[[RateProbe], RateSeen]:
    """90 % are good at that rate, more below and fewer above, of `n` requests."""
    drawn = random.Random(seed)

    def answer(probe: RateProbe) -> RateSeen:
        share = 1 / (1 + math.exp(12 * math.log(probe.rate_rps / truth_rps) - math.log(9)))
        return RateSeen(probe.rate_rps, sum(drawn.random() < share for _ in range(n)) / n, float(n))

    return answer


def test_rates_are_the_same_in_every_trial_and_no_further_apart_than_asked() -> None:
    rates = GOAL.rates()

    assert (rates[0], rates[1], rates[-1], len(rates)) == (1.0, 1.05, 64.0, 87)
    assert max(b / a for a, b in itertools.pairwise(rates)) < 1.052
    assert RateGoal(2.0, 2.01).rates() == (2.0, 2.01)


def test_it_doubles_until_a_rate_fails_and_then_halves_the_distance() -> None:
    seen = search(GOAL, certain(11.0))

    assert [one.rate_rps for one in seen] == [1.0, 1.968, 3.873, 7.622, 15.0, 10.69, 12.36, 11.22]
    assert result(GOAL, seen) == MaxRate(
        10.69,
        10.69,
        11.22,
        True,
        "10.69 req/s keep 90% of requests within the slo: from 10.69 below 11.22 req/s (8 probes)",
    )


@given(st.floats(0.5, 100.0))
def test_without_noise_the_found_rate_is_the_last_of_all_that_meet(truth_rps: float) -> None:
    """Oracle: every rate asked for in turn."""
    found = result(GOAL, search(GOAL, certain(truth_rps)))
    meeting = [rate for rate in GOAL.rates() if rate <= truth_rps]

    assert found.rate_rps == (meeting[-1] if meeting else None)
    assert found.verified is (bool(meeting))


def test_it_takes_few_probes() -> None:
    probes = [len(search(GOAL, certain(1.03**i))) for i in range(140)]

    assert max(probes) <= 11


def test_not_even_the_lowest_rate_may_meet() -> None:
    seen = search(GOAL, certain(0.2))

    assert seen == [RateSeen(1.0, 0.0, 1000.0)]
    assert result(GOAL, seen).text == "not even 1 req/s keep 90% of requests within the slo (1 probe)"


def test_the_highest_rate_may_meet_and_then_there_is_no_upper_bound() -> None:
    found = result(GOAL, search(GOAL, certain(1000.0)))

    assert (found.rate_rps, found.high_rps, found.verified) == (64.0, None, True)
    assert "from 64 up, no rate surely fails; 64 req/s is the highest that is tried" in found.text


def test_a_rate_near_the_flip_is_probed_three_times_before_it_is_taken_for_what_was_seen() -> None:
    goal = RateGoal(1.0, 1.04)

    seen = search(goal, lambda probe: RateSeen(probe.rate_rps, 0.91, 100.0))

    assert [next_probe(goal, seen[:i]) for i in range(3)] == [RateProbe(1.0, 0), RateProbe(1.0, 1), RateProbe(1.0, 2)]
    assert [one.rate_rps for one in seen] == [1.0] * 3 + [1.04] * 3
    found = result(goal, seen)
    assert (found.rate_rps, found.low_rps, found.high_rps, found.verified) == (1.04, 0.0, None, False)
    assert found.text.endswith("(6 probes, not decided beyond noise)")


def test_probes_of_a_rate_count_together() -> None:
    thin = [RateSeen(1.0, 0.95, 80.0)]

    assert next_probe(GOAL, thin) == RateProbe(1.0, 1)
    assert next_probe(GOAL, [*thin, RateSeen(1.0, 0.95, 120.0)]) == RateProbe(1.968, 0)


def test_a_saturated_point_fails_whatever_else_was_seen_there() -> None:
    assert next_probe(GOAL, [RateSeen(1.0, None, saturated=True)]) is None
    assert result(GOAL, [RateSeen(1.0, 1.0, 500.0), RateSeen(1.968, None, saturated=True)]).high_rps == 1.968


def test_a_rate_that_meets_above_one_that_fails_is_not_trusted() -> None:
    seen = [RateSeen(1.0, 1.0, 500.0), RateSeen(3.873, 1.0, 500.0), RateSeen(1.968, 0.5, 500.0)]

    found = result(GOAL, seen)

    assert (found.rate_rps, found.low_rps, found.high_rps) == (1.0, 1.0, 1.968)
    assert next_probe(GOAL, seen) == RateProbe(GOAL.rates()[7], 0)


def test_a_void_point_is_no_answer_and_is_not_asked_for_ever() -> None:
    void = RateSeen(1.0, None)

    assert next_probe(GOAL, [void]) == RateProbe(1.0, 1)
    assert next_probe(GOAL, [void] * 3) is None
    found = result(GOAL, [void] * 3)
    assert (found.rate_rps, found.verified, found.text) == (None, False, "no valid answer from 3 probes")


def test_a_resumed_search_goes_on_where_it_was() -> None:
    answer = noisy(20.0, 100, 1)
    seen = search(GOAL, answer)

    for cut in range(len(seen)):
        asked = next_probe(GOAL, seen[:cut])
        assert asked is not None
        assert asked.rate_rps == seen[cut].rate_rps


@pytest.mark.parametrize("n", [60, 300])
def test_the_true_rate_lies_between_the_bounds_as_often_as_they_say(n: int) -> None:
    """Two bounds of 97.5 % each, over some rates near the flip: at least 90 % of the searches."""
    found = [result(GOAL, search(GOAL, noisy(17.3, n, seed))) for seed in range(200)]

    held = [f.low_rps <= 17.3 and (f.high_rps is None or f.high_rps >= 17.3) for f in found]
    assert sum(held) >= 180
    rates = sorted(f.rate_rps or 0.0 for f in found)
    assert 17.3 * 0.93 < rates[100] < 17.3 * 1.03


@settings(max_examples=40)
@given(st.floats(0.3, 100.0), st.integers(5, 400), st.integers(0, 1000), st.floats(0.02, 0.5))
def test_every_search_ends_and_its_parts_fit_together(truth: float, n: int, seed: int, precision: float) -> None:
    goal = RateGoal(1.0, 64.0, precision)

    seen = search(goal, noisy(truth, n, seed), most=60)

    found = result(goal, seen)
    assert {one.rate_rps for one in seen} <= set(goal.rates())
    assert found.low_rps <= (found.rate_rps or 0.0) or found.rate_rps is None
    assert found.high_rps is None or found.high_rps > found.low_rps
    assert found.high_rps is None or found.rate_rps is None or found.high_rps > found.rate_rps
