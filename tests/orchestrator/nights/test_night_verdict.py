"""Verdicts of a night: what is a regression, what is not, and what is left open with its reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.estimation.student import share_t
from orchestrator.nights.night import (
    Build,
    End,
    Gap,
    Measured,
    Night,
    Noise,
    Pair,
    SeriesKey,
    SeriesNight,
    StartPair,
    Verdict,
)
from orchestrator.nights.night_evidence import share_text
from orchestrator.nights.night_noise import NoiseBook, clipped_mean, squares
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_verdict import NightTest, judge_night, undecided

SPEED = SeriesKey("output_throughput_tok_s", "c1", "chat", "C=16", "8x H100")
TTFT = SeriesKey("ttft_p50_ms", "c1", "chat", "C=16", "8x H100")
KV = SeriesKey("kv_tokens", "c1", "", "", "8x H100")
LIVES = SeriesKey("feasible", "c1", "", "", "8x H100")
# Residuals of three pairs: sd 1.5 % of a pair.
QUIET = (-0.015, 0.0, 0.015)


def measured(key: SeriesKey, ratios: Sequence[float], *, mean: float = 0.0) -> Measured:
    pairs = (Pair("a", i % 2 == 0, 100.0, 100.0 * math.exp(mean + r)) for i, r in enumerate(ratios))
    return Measured(key, "depth 3", tuple(pairs))


def night_of(*series: SeriesNight | Measured, at: int = 1, gap: Gap | None = None) -> Night:
    judged = tuple(s if isinstance(s, SeriesNight) else SeriesNight(s, Verdict.SAME, "") for s in series)
    return Night(f"2026-11-{at:02d}T02:00:00+00:00", "s", "", Build("ref"), Build("cand"), series=judged, gap=gap)


def twenty_quiet_nights(key: SeriesKey = SPEED) -> list[Night]:
    return [night_of(measured(key, QUIET), at=day) for day in range(1, 21)]


def judge(one: Measured, earlier: Sequence[Night] = (), rules: NightRules | None = None) -> SeriesNight:
    (found,) = judge_night([one], earlier, rules)
    return found


def test_the_alarm_level_is_half_the_budget_over_ninety_nights_and_four_looks() -> None:
    assert NightRules().alarm_p == pytest.approx(0.05 / 2 / 90 / 4)


def test_eight_percent_slower_with_a_known_noise_is_a_regression() -> None:
    found = judge(measured(SPEED, QUIET, mean=math.log(0.92)), twenty_quiet_nights())

    assert found.verdict is Verdict.REGRESSED
    assert found.difference == pytest.approx(math.log(0.92))
    # t(42 degrees of freedom, 99.5 %) = 2.698 times 1.5 % / sqrt(3)
    assert found.high == pytest.approx(math.log(0.92) + 2.698 * 0.015 / math.sqrt(3), abs=1e-5)
    assert found.noise is not None
    assert (found.noise.source, found.noise.df) == ("history", 42)
    assert found.worse == pytest.approx(0.08)


def test_eight_percent_later_is_a_regression_and_eight_percent_sooner_an_improvement() -> None:
    history = twenty_quiet_nights(TTFT)

    assert judge(measured(TTFT, QUIET, mean=math.log(1.08)), history).verdict is Verdict.REGRESSED
    assert judge(measured(TTFT, QUIET, mean=math.log(0.92)), history).verdict is Verdict.IMPROVED


def test_no_change_is_same_and_says_within_what() -> None:
    found = judge(measured(SPEED, QUIET), twenty_quiet_nights())

    assert found.verdict is Verdict.SAME
    assert found.reason == "99% interval within 5.0%"


def test_what_three_pairs_cannot_tell_is_inconclusive_and_wants_more() -> None:
    found = judge(measured(SPEED, QUIET, mean=-0.03), twenty_quiet_nights())

    assert found.verdict is Verdict.INCONCLUSIVE
    assert undecided([found]) == (found,)
    assert undecided([found], NightRules(most_pairs=3)) == ()


def with_last(*ratios: float, expected: float = 0.0) -> list[Night]:
    """Twenty quiet nights, and one with these pairs around them."""
    (last,) = judge_night([measured(SPEED, ratios)])
    return [*twenty_quiet_nights(), night_of(replace(last, expected=expected), at=21)]


def test_what_one_night_leaves_open_is_a_regression_if_the_night_before_was_as_bad() -> None:
    slower, faster = ([m + r for r in QUIET] for m in (-0.03, 0.03))
    found = judge(measured(SPEED, slower), with_last(*slower))

    assert found.verdict is Verdict.REGRESSED
    assert found.difference == pytest.approx(-0.03)
    assert found.reason == "worse in two nights in a row, which together are beyond doubt, by more than 2%"
    # Six pairs of two nights: -3 % is 4.9 errors of 1.5 % / sqrt(6).
    assert found.p == pytest.approx(share_t(42, -0.03 / (0.015 / math.sqrt(6))), rel=1e-6)
    assert judge(measured(SPEED, faster), with_last(*faster)).verdict is Verdict.IMPROVED


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param((0.0, 0.0, 0.0), 0.0, id="nothing"),
        pytest.param((0.03, 0.03, 0.03), 0.0, id="as much better"),
        pytest.param((-0.019, -0.019, -0.019), 0.0, id="below the floor"),
        pytest.param((-0.03,), 0.0, id="one pair"),
        pytest.param((-0.05, -0.05, -0.05), -0.04, id="expected"),
        pytest.param((-0.20, -0.20, -0.20), 0.0, id="so much worse that it is something else"),
    ],
)
def test_no_other_night_before_makes_tonight_a_regression(before: tuple[float, ...], expected: float) -> None:
    tonight = measured(SPEED, QUIET, mean=-0.03)

    assert judge(tonight, with_last(*before, expected=expected)).verdict is Verdict.INCONCLUSIVE


def test_one_very_odd_night_is_no_alarm_in_the_next() -> None:
    odd = [-0.10 + r for r in QUIET]

    assert judge(measured(SPEED, QUIET, mean=-0.015), with_last(*odd)).verdict is not Verdict.REGRESSED


def test_a_night_before_of_another_segment_is_not_taken_together_with_tonight() -> None:
    tonight, before = measured(SPEED, QUIET, mean=-0.03), with_last(*(-0.03 + r for r in QUIET))

    assert judge_night([tonight], before)[0].verdict is Verdict.REGRESSED
    assert judge_night([tonight], before, alone={SPEED})[0].verdict is Verdict.INCONCLUSIVE
    assert judge_night([tonight], before, alone={TTFT})[0].verdict is Verdict.REGRESSED


def test_two_nights_halve_the_variance_of_luck_and_of_their_pairs() -> None:
    noise = Noise(0.02, 40, "history", 0.01, 20.0, "history")
    both = NightTest(-0.03, 3, noise).with_before(NightTest(-0.05, 6, noise))

    assert both.mean == pytest.approx(-0.04)
    assert both.noise.error(both.pairs) == pytest.approx(
        math.sqrt((0.02**2 / 3 + 0.01**2) + (0.02**2 / 6 + 0.01**2)) / 2
    )


def test_two_pairs_tell_no_speed_while_their_noise_is_not_known() -> None:
    """Two that are alike by chance, on a machine where pairs differ by more."""
    alike = measured(SPEED, (-0.091, -0.090))
    first = judge(alike)

    assert (first.verdict, first.too_noisy) == (Verdict.INCONCLUSIVE, False)
    assert first.reason == (
        "2 pairs, and too little is known yet of how much pairs differ: three pairs or more nights decide"
    )
    assert undecided([first]) == (first,)
    assert judge(alike, twenty_quiet_nights()).verdict is Verdict.REGRESSED
    assert judge(measured(KV, (-0.15, -0.15))).verdict is Verdict.REGRESSED


def test_a_clear_change_below_the_floor_is_no_regression() -> None:
    tight = (-0.001, 0.0, 0.001)
    history = [night_of(measured(SPEED, tight), at=day) for day in range(1, 21)]

    assert judge(measured(SPEED, tight, mean=-0.015), history).verdict is Verdict.SAME
    assert judge(measured(SPEED, tight, mean=-0.025), history).verdict is Verdict.REGRESSED
    assert judge(measured(SPEED, tight, mean=-0.025), history, NightRules(floors={"speed": 0.03})).verdict is (
        Verdict.SAME
    )


def test_the_floor_of_a_metric_comes_before_that_of_its_kind() -> None:
    rules = NightRules(floors={"speed": 0.03, "ttft_p50_ms": 0.08})

    assert [rules.floor(m) for m in ("ttft_p50_ms", "tpot_mean_ms", "ttft_p99_ms", "start_s")] == [
        0.08, 0.03, 0.03, 0.10,
    ]  # fmt: skip
    assert NightRules().floor("ttft_p99_ms") == 0.05


def test_one_wild_pair_decides_nothing() -> None:
    found = judge(measured(SPEED, (0.0, 0.005, -0.20)), twenty_quiet_nights())

    assert found.verdict is Verdict.INCONCLUSIVE
    assert clipped_mean([0.0, 0.005, -0.20], 0.015) == pytest.approx((0.0 + 0.005 - 0.045) / 3)


def test_a_night_much_noisier_than_the_history_uses_its_own_noise() -> None:
    found = judge(measured(SPEED, (-0.2, 0.05, -0.15)), twenty_quiet_nights())

    assert found.noise is not None
    assert (found.noise.source, found.noise.df) == ("series", 2)
    assert found.verdict is Verdict.INCONCLUSIVE


def test_the_first_night_pools_the_noise_of_all_series_of_the_metric_but_not_below_its_own() -> None:
    levels = [
        measured(SeriesKey(SPEED.metric, "c1", "chat", f"C={2**i}", ""), [r * (1 + i) for r in QUIET]) for i in range(8)
    ]
    found = judge_night(levels)

    assert found[0].noise is not None
    assert found[7].noise is not None
    assert found[0].noise.source == "metric"
    assert found[0].noise.sd == pytest.approx(0.015 * math.sqrt(sum((1 + i) ** 2 for i in range(8)) / 8))
    assert found[7].noise.sd == pytest.approx(0.015 * 8)


def test_load_levels_share_their_starts_so_only_more_configs_make_noise_better_known() -> None:
    def df(configs: int, levels: int) -> int:
        keys = [SeriesKey(SPEED.metric, f"c{c}", "chat", f"C={i}", "") for c in range(configs) for i in range(levels)]
        found = judge_night([measured(key, QUIET) for key in keys])[0].noise
        assert found is not None
        return found.df

    assert [df(1, 1), df(1, 10), df(4, 10)] == [2, 2, 8]


def test_gaps_and_nights_beyond_the_last_twenty_are_no_noise() -> None:
    wild = [night_of(measured(SPEED, (-0.5, 0.5)), at=1), night_of(measured(SPEED, (-0.5, 0.5)), at=2, gap=Gap("x"))]
    book = NoiseBook.of([], [*wild, *twenty_quiet_nights()], 20)

    assert book.history[SPEED].sd == pytest.approx(0.015)
    assert book.history[SPEED].df == 40


def test_one_pair_is_never_a_regression() -> None:
    assert judge(measured(SPEED, (-0.5,)), twenty_quiet_nights()).verdict is Verdict.INCONCLUSIVE
    assert judge(measured(SPEED, (-0.5,))).reason == "one pair, and nothing is known of the noise"


def test_a_series_too_noisy_to_be_same_says_from_where_it_tells() -> None:
    loud = [night_of(measured(TTFT, (-0.1, 0.0, 0.1)), at=day) for day in range(1, 21)]
    found = judge(measured(TTFT, (-0.1, 0.0, 0.1)), loud)

    assert (found.verdict, found.too_noisy) == (Verdict.INCONCLUSIVE, True)
    assert found.reason == "so noisy that 6 pairs tell a worsening only from 19%"
    assert undecided([found]) == ()


def test_of_times_a_worsening_is_what_they_grow_by_and_of_speeds_what_they_lose() -> None:
    wild = (-0.6, 0.0, 0.6)
    times, speeds = judge(measured(TTFT, wild)), judge(measured(SPEED, wild))

    assert (times.reason, speeds.reason) == (
        "so noisy that 6 pairs tell a worsening only from tenfold on",
        "so noisy that 6 pairs tell a worsening only from 100%",
    )
    assert times.finds is not None
    assert times.finds > 10


def test_a_lost_cache_is_a_regression_in_the_first_night() -> None:
    found = judge(measured(KV, (0.0, 0.001, 0.0), mean=math.log(0.85)))

    assert found.verdict is Verdict.REGRESSED
    assert found.worse == pytest.approx(0.15, abs=1e-3)
    assert judge(measured(KV, (0.0, 0.001, 0.0))).verdict is Verdict.SAME
    assert judge(measured(KV, (0.0, -0.2, 0.0))).verdict is Verdict.INCONCLUSIVE
    assert judge(measured(KV, (0.05, 0.05))).verdict is Verdict.IMPROVED


def test_of_many_caches_one_may_differ_and_one_pair_decides_nothing() -> None:
    """Once two of three pairs differ, more pairs must be able to decide; the order of one pair may be its reason."""
    odd = judge(measured(KV, (0.0, -0.2, 0.0, 0.0, 0.001, 0.0)))
    assert (odd.verdict, odd.reason) == (Verdict.SAME, "within the floor in 5 of 6 pairs")
    assert judge(measured(KV, (0.0,) * 6)).reason == "within the floor in every pair"
    assert judge(measured(KV, (-0.2, -0.2, -0.2, -0.2, 0.0, -0.2))).verdict is Verdict.REGRESSED
    assert judge(measured(KV, (-0.2, -0.2, -0.2, -0.2, 0.0, 0.0))).verdict is Verdict.INCONCLUSIVE
    assert judge(measured(KV, (-0.2,))).verdict is Verdict.INCONCLUSIVE


def test_throughput_that_falls_to_nothing_is_a_regression() -> None:
    one = Measured(SPEED, "", (Pair("a", True, 100.0, 0.0), Pair("a", False, 100.0, 0.0), Pair("a", True, 99.0, 98.0)))

    assert judge(one).reason == "fell to nothing in 2 of 3 pairs"
    assert judge(one).verdict is Verdict.REGRESSED


def test_a_series_without_pairs_says_why() -> None:
    assert judge(Measured(SPEED, "", missing="the candidate's points are void: no speculation")).reason == (
        "the candidate's points are void: no speculation"
    )


def test_evidence_names_the_night_before_and_series_that_agree() -> None:
    earlier = twenty_quiet_nights() + twenty_quiet_nights(TTFT)
    before = SeriesNight(measured(SPEED, QUIET, mean=-0.07), Verdict.REGRESSED, "", difference=-0.07)
    found = judge_night(
        [measured(SPEED, QUIET, mean=-0.08), measured(TTFT, QUIET, mean=0.04)], [*earlier, night_of(before, at=21)]
    )

    assert found[0].evidence == (
        "regressed in the night before too (-6.8%)",
        "1 of 1 other series of this config lean that way: ttft_p50_ms at chat C=16 +4.1%",
    )


def test_a_lonely_regression_is_still_one() -> None:
    history = [night_of(measured(SPEED, QUIET), measured(TTFT, QUIET), at=day) for day in range(1, 21)]
    found = judge_night([measured(SPEED, QUIET, mean=-0.08), measured(TTFT, QUIET)], history)

    assert found[0].verdict is Verdict.REGRESSED
    assert found[0].evidence[-1] == "none of the other 1 series of this config leans that way"


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


def test_many_series_raise_the_bar_of_each() -> None:
    history = [
        night_of(*(measured(SeriesKey(SPEED.metric, f"c{i}", "", "", ""), QUIET) for i in range(3)), at=day)
        for day in range(1, 21)
    ]
    tonight = [measured(SeriesKey(SPEED.metric, f"c{i}", "", "", ""), QUIET, mean=-0.08 * (i == 0)) for i in range(3)]
    found = judge_night(tonight, history, NightRules(discoveries=1e-12))

    assert found[0].verdict is Verdict.INCONCLUSIVE
    assert found[0].q == pytest.approx(3 * (found[0].p or 0))
    assert "may be chance" in found[0].reason


@given(st.lists(st.floats(-0.3, 0.3), min_size=1, max_size=8))
def test_the_clipped_mean_lies_among_the_pairs_and_squares_are_those_of_numpy(ratios: list[float]) -> None:
    assert min(ratios) - 1e-12 <= clipped_mean(ratios, 0.01) <= max(ratios) + 1e-12
    assert squares(ratios).total == pytest.approx(float(np.var(ratios)) * len(ratios), abs=1e-12)


@given(st.floats(-0.4, 0.4))
def test_worse_and_better_are_mirror_images(mean: float) -> None:
    mirror = {Verdict.REGRESSED: Verdict.IMPROVED, Verdict.IMPROVED: Verdict.REGRESSED}
    throughput = judge(measured(SPEED, QUIET, mean=mean), twenty_quiet_nights()).verdict
    latency = judge(measured(TTFT, QUIET, mean=mean), twenty_quiet_nights(TTFT)).verdict

    assert latency is mirror.get(throughput, throughput)


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


def test_a_floor_of_half_of_a_value_can_be_judged() -> None:
    rules = NightRules(floors={SPEED.metric: 0.5})

    assert judge(measured(SPEED, QUIET), rules=rules).verdict is Verdict.SAME


def test_a_floor_is_told_with_the_digits_that_it_has() -> None:
    rules = NightRules(floors={SPEED.metric: 0.015}, assumed_luck=0.0)

    found = judge(measured(SPEED, [0.0, 1e-4, -1e-4], mean=math.log(0.983)), rules=rules)

    assert found.reason == "worse beyond doubt, by more than 1.5%"


def test_a_night_far_quieter_than_its_history_is_not_lost_for_want_of_degrees_of_freedom() -> None:
    noise = Noise(sd=1e-4, df=46, source="history", night_sd=6.8e-4, night_df=0.05, night_source="history")

    assert noise.error_df(3) == 4
    # tau^4 / df is what is not known: 4 of it, of which the fourth root is the error
    assert noise.error(3) == pytest.approx((4 * 6.8e-4**4 / 0.05) ** 0.25, rel=1e-3)


def test_a_loss_too_small_to_be_shown_has_no_sign() -> None:
    assert [share_text(d) for d in (-1e-5, 1e-5, -0.0834)] == ["+0.0%", "+0.0%", "-8.0%"]
