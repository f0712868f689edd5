"""Verdicts of a night where numbers end: starts that die, values of nothing, and one pair alone."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.nights.night import (
    End,
    Measured,
    Pair,
    SeriesKey,
    StartPair,
    Verdict,
)
from orchestrator.nights.night_verdict import undecided
from tests.orchestrator.nights.verdict_samples import SPEED, judge, measured, night_of, twenty_quiet_nights

LIVES = SeriesKey("feasible", "c1", "", "", "8x H100")


def test_one_pair_is_never_a_regression() -> None:
    assert judge(measured(SPEED, (-0.5,)), twenty_quiet_nights()).verdict is Verdict.INCONCLUSIVE
    assert judge(measured(SPEED, (-0.5,))).reason == "one pair, and nothing is known of the noise"


def test_throughput_that_falls_to_nothing_is_a_regression() -> None:
    one = Measured(SPEED, "", (Pair("a", True, 100.0, 0.0), Pair("a", False, 100.0, 0.0), Pair("a", True, 99.0, 98.0)))

    assert judge(one).reason == "fell to nothing in 2 of 3 pairs"
    assert judge(one).verdict is Verdict.REGRESSED


def test_a_series_without_pairs_says_why() -> None:
    assert judge(Measured(SPEED, "", missing="the candidate's points are void: no speculation")).reason == (
        "the candidate's points are void: no speculation"
    )


def starts(*ends: tuple[End, End], diagnosis: str = "kv_budget") -> Measured:
    return Measured(
        LIVES, "depth 10", starts=tuple(
            StartPair("a", False, r, c, "" if r is c is End.SERVED else diagnosis, "RuntimeError: x") for r, c in ends
        ),
    )  # fmt: skip


def test_a_start_that_dies_beside_a_reference_that_serves_is_a_regression_by_name() -> None:
    found = judge(starts(*[(End.SERVED, End.DIED)] * 3))

    assert found.verdict is Verdict.REGRESSED
    assert found.reason == "died (kv_budget) in 3 of 3 starts; the reference served"
    assert found.evidence == ("RuntimeError: x",)


def test_a_build_that_crashes_at_every_start_regressed_but_a_lost_host_says_nothing() -> None:
    crash = [(End.SERVED, End.FAILED)] * 3

    assert judge(starts(*crash, diagnosis="segfault_abort")).verdict is Verdict.REGRESSED
    assert judge(starts(*crash[:1], diagnosis="segfault_abort")).verdict is Verdict.INCONCLUSIVE
    assert judge(starts((End.SERVED, End.SERVED), *crash, diagnosis="segfault_abort")).verdict is Verdict.INCONCLUSIVE
    assert judge(starts(*crash, diagnosis="host_lost")).verdict is Verdict.INCONCLUSIVE


def test_one_death_of_three_wants_more_pairs() -> None:
    found = judge(starts((End.SERVED, End.DIED), (End.SERVED, End.SERVED), (End.SERVED, End.SERVED)))

    assert found.verdict is Verdict.INCONCLUSIVE
    assert undecided([found]) == (found,)


def test_what_neither_build_can_serve_is_the_same_unless_the_reference_could_before() -> None:
    both = starts((End.DIED, End.DIED), (End.DIED, End.DIED))

    assert judge(both).verdict is Verdict.SAME
    found = judge(both, [night_of(starts((End.SERVED, End.SERVED)))])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason.endswith("something changed on the hosts")


def test_a_candidate_that_served_last_night_and_dies_tonight_regressed_even_if_the_reference_never_served() -> None:
    found = judge(starts((End.DIED, End.DIED)), [night_of(starts((End.DIED, End.SERVED)))])

    assert found.verdict is Verdict.REGRESSED


def test_a_candidate_that_serves_what_the_reference_cannot_is_an_improvement() -> None:
    assert judge(starts(*[(End.DIED, End.SERVED)] * 3)).verdict is Verdict.IMPROVED
    assert judge(starts(*[(End.FAILED, End.SERVED)] * 3)).verdict is Verdict.INCONCLUSIVE
    assert judge(Measured(LIVES, "")).verdict is Verdict.INCONCLUSIVE


def with_zeros(key: SeriesKey, values: Sequence[tuple[float, float]]) -> Measured:
    return Measured(key, "depth 3", tuple(Pair("a", i % 2 == 0, a, b) for i, (a, b) in enumerate(values)))


GOODPUT = SeriesKey("goodput_rps", "c1", "chat", "C=16", "8x H100")
RETRACTIONS = SeriesKey("retractions", "c1", "chat", "C=16", "8x H100")
FINE = [(10.0, 10.0), (10.0, 10.01), (10.0, 9.99)]


def test_half_of_the_pairs_without_any_goodput_are_never_the_same() -> None:
    found = judge(with_zeros(GOODPUT, [(10.0, 0.0)] * 3 + FINE))

    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason == "fell to nothing in 3 of 6 pairs; the others: 99% interval within 5.0%"
    assert (found.difference, found.low, found.high) == (None, None, None)
    assert judge(with_zeros(GOODPUT, [(10.0, 0.0), *FINE[:2]])).verdict is Verdict.INCONCLUSIVE


def test_one_start_of_six_without_any_goodput_decides_nothing() -> None:
    assert judge(with_zeros(GOODPUT, [(10.0, 0.0), *FINE, *FINE[:2]])).verdict is Verdict.SAME


def test_what_is_nothing_in_both_builds_is_the_same() -> None:
    found = judge(with_zeros(RETRACTIONS, [(0.0, 0.0)] * 3))

    assert (found.verdict, found.reason) == (Verdict.SAME, "0 in both, in 3 of 3 pairs")


def test_what_only_the_candidate_has_is_left_open_and_told() -> None:
    found = judge(with_zeros(RETRACTIONS, [(0.0, 4.0), (0.0, 2.0), (0.0, 0.0)]))

    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason == "0 in the reference only, in 2 of 3 pairs, which is no ratio"


def test_a_count_that_is_often_nothing_leaves_the_night_to_other_series() -> None:
    assert judge(with_zeros(RETRACTIONS, [(0.0, 1.0), (3.0, 1.0), (1.0, 2.0)])).too_noisy
    assert not judge(with_zeros(GOODPUT, [(1.0, 0.0), (3.0, 1.0), (1.0, 2.0)])).too_noisy
