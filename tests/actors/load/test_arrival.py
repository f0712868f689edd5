"""When requests are due: the asked process, the asked count at the asked rate, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.load.arrival import RateCurve, due_times, slot_starts, trace_times
from orchestrator.errors import BadInput
from orchestrator.scenarios.arrival_check import check_arrival
from orchestrator.traffic import Arrival
from orchestrator.trial import LoadLevel

RATE = LoadLevel("rate", 5.0)


def gaps_s(due: list[int]) -> list[float]:
    return [(b - a) / 1e9 for a, b in pairwise(due)]


def mean_and_spread(values: list[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) / mean


def kolmogorov(values: list[float], distribution: Callable[[float], float]) -> float:
    """Largest distance between the values' and a distribution function, times the root of their number."""
    ordered, n = sorted(values), len(values)
    return math.sqrt(n) * max(
        max(distribution(v) - i / n, (i + 1) / n - distribution(v)) for i, v in enumerate(ordered)
    )


def test_two_hundred_requests_per_second_are_that_to_the_last_one() -> None:
    due = due_times(Arrival(), 200.0, 2000, "s")

    assert due == sorted(due) == due_times(Arrival(), 200.0, 2000, "s")
    assert (due[0], due[-1]) == (0, 9_995_000_000)  # 1999 gaps
    assert due != due_times(Arrival(), 200.0, 2000, "other")


def test_poisson_gaps_are_exponential() -> None:
    gaps = gaps_s(due_times(Arrival(), 10.0, 3000, "s"))

    assert kolmogorov(gaps, lambda t: 1 - math.exp(-10 * t)) < 1.63  # exceeded by one in a hundred seeds


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_spread_of_their_burstiness(burstiness: float) -> None:
    gaps = gaps_s(due_times(Arrival("gamma", burstiness), 10.0, 5000, "s"))

    mean, spread = mean_and_spread(gaps)
    assert mean == pytest.approx(0.1)  # exactly, whatever was drawn
    assert spread == pytest.approx(1 / math.sqrt(burstiness), rel=0.06)


def test_gamma_gaps_of_shape_two_have_that_distribution() -> None:
    gaps = gaps_s(due_times(Arrival("gamma", 2.0), 10.0, 3000, "s"))

    assert kolmogorov(gaps, lambda t: 1 - math.exp(-20 * t) * (1 + 20 * t)) < 1.63


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert due_times(Arrival("constant"), 4.0, 4, "s") == [0, 250_000_000, 500_000_000, 750_000_000]


def test_a_ramp_grows_from_nothing_to_the_rate() -> None:
    ramp = Arrival("constant", ramp_s=10.0)

    # 10 req/s at the end of 10 s make 50 requests in them: the n-th after the first comes at sqrt(2 n), then one
    # every 0.1 s.
    assert due_times(ramp, 10.0, 61, "s") == [
        *(round(math.sqrt(2 * n) * 1e9) for n in range(51)),
        *(round((10 + 0.1 * n) * 1e9) for n in range(1, 11)),
    ]
    assert RateCurve(10.0, ramp).requests_within(12.0) == pytest.approx(70.0)


def test_steps_follow_each_other_and_the_last_one_stays() -> None:
    steps = Arrival("constant", steps=((2.0, 1.0), (3.0, 2.0), (1.0, 0.5)))
    first, *due = [at / 1e9 for at in due_times(steps, 2.0, 21, "s")]

    assert first == 0.0
    assert due[:4] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert due[4:16] == pytest.approx([2 + 0.25 * n for n in range(1, 13)])
    assert due[16:] == pytest.approx([6.0, 7.0, 8.0, 9.0])


@st.composite
def arrivals(draw: Any) -> Arrival:
    positive = st.floats(0.05, 20)
    steps = draw(st.lists(st.tuples(positive, positive), max_size=4))
    kind = draw(st.sampled_from(["poisson", "constant", "gamma"]))
    burstiness = draw(positive) if kind == "gamma" else 1.0
    return Arrival(kind, burstiness, draw(st.sampled_from([0.0, 0.7, 30.0])), tuple(steps))


@settings(max_examples=25, deadline=None)
@given(arrivals(), st.floats(0.1, 500), st.integers(1, 60))
def test_times_rise_and_their_count_is_that_of_the_rate_summed_over_time(
    arrival: Arrival, rate: float, count: int
) -> None:
    due = due_times(arrival, rate, count, "s")
    assert due == sorted(due)
    assert due[0] >= 0
    end = due[-1] / 1e9
    slices = 4000  # an integral by brute force
    width = end / slices
    total = sum(rate_at(arrival, rate, (i + 0.5) * width) * width for i in range(slices))
    assert total == pytest.approx(count - 1, rel=0.02)  # the first is due at once


def rate_at(arrival: Arrival, rate: float, at: float) -> float:
    ends = [sum(seconds for seconds, _ in arrival.steps[: i + 1]) for i in range(len(arrival.steps))]
    passed = min(sum(end <= at for end in ends), len(ends) - 1)
    share = arrival.steps[passed][1] if arrival.steps else 1.0
    return rate * share * (min(1.0, at / arrival.ramp_s) if arrival.ramp_s else 1.0)


def test_slots_of_a_closed_loop_begin_evenly_over_the_ramp() -> None:
    assert slot_starts(2.0, 4) == [0, 500_000_000, 1_000_000_000, 1_500_000_000]
    assert slot_starts(0.0, 3) == [0, 0, 0]


def test_a_trace_is_replayed_faster_or_slower_from_its_first_request_on() -> None:
    assert trace_times([5.0, 6.0, 9.0], 2.0) == [0, 500_000_000, 2_000_000_000]


INF, NAN = math.inf, math.nan
BAD: list[tuple[Arrival, LoadLevel, str]] = [
    *((Arrival("gamma", b), RATE, f"burstiness is {b:g}; allowed: a finite number above 0") for b in (0, -1, INF, NAN)),
    *((Arrival(), LoadLevel("rate", r), f"rate is {r:g}; an open loop needs a finite") for r in (0, -1, INF, NAN)),
    (Arrival("trace"), LoadLevel("trace", 0), "trace is 0; an open loop needs a finite number of times the speed"),
    (Arrival(), LoadLevel("concurrency", 0), "concurrency is 0; a closed loop needs a whole number"),
    (Arrival(), LoadLevel("concurrency", 1.5), "concurrency is 1.5"),
    (Arrival(), LoadLevel("concurrency", NAN), "concurrency is nan"),
    (Arrival("poisson", 0.5), RATE, "burstiness is for arrival gamma, but arrival is poisson"),
    (Arrival("constant", 2.0), RATE, "burstiness is for arrival gamma, but arrival is constant"),
    *((Arrival(ramp_s=r), RATE, f"ramp_s is {r:g}; allowed: a finite number of seconds") for r in (-1, INF, NAN)),
    (Arrival(steps=((0, 1),)), RATE, "steps have one of 0 seconds; allowed"),
    (Arrival(steps=((1, 1), (1, 0))), RATE, "steps have one of 0 times the rate; allowed"),
    (Arrival(steps=((1, INF),)), RATE, "steps have one of inf times the rate"),
    (Arrival("constant"), LoadLevel("concurrency", 2), "arrival constant is for an open loop"),
    (Arrival(steps=((1, 1),)), LoadLevel("concurrency", 2), "steps are for an open loop"),
    (Arrival("trace"), RATE, "arrival trace needs a level of kind trace"),
    (Arrival("gamma"), LoadLevel("trace", 1), "arrival gamma is for a rate; a trace has its own times"),
    (Arrival("trace", ramp_s=2), LoadLevel("trace", 1), "steps and ramp_s are for a rate or a concurrency"),
]


@pytest.mark.parametrize(("arrival", "level", "told"), BAD)
def test_what_makes_no_arrivals_is_refused_by_name(arrival: Arrival, level: LoadLevel, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_arrival(arrival, level)
    assert str(caught.value).startswith(told)


def test_the_default_fits_every_level() -> None:
    for kind in ("concurrency", "rate", "trace"):
        check_arrival(Arrival(), LoadLevel(kind, 3.0))
    check_arrival(Arrival(ramp_s=3.0), LoadLevel("concurrency", 3.0))
    check_arrival(Arrival("trace"), LoadLevel("trace", 0.5))
