"""Luck of whole nights: how it is told from the noise of pairs, from steps, and what it does to verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.estimation.student import quantile_t
from orchestrator.nights.expected_changes import ExpectedChange
from orchestrator.nights.night import Build, Gap, Measured, Night, Noise, Pair, SeriesKey, SeriesNight, Verdict
from orchestrator.nights.night_luck import Excess, LuckBook, NightMean, excess
from orchestrator.nights.night_noise import Squares
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_text import luck_text, noise_text, sizes_text
from orchestrator.nights.night_verdict import judge_night, undecided

SPEED = SeriesKey("output_throughput_tok_s", "c1", "chat", "C=16", "8x H100")
RULES = NightRules()
# 3/8 of the floor of 2 %.
ASSUMED = -math.log(1 - 0.0075)
# Three pairs with an sd of 1.5 %, around nothing.
QUIET = (-0.015, 0.0, 0.015)


def measured(mean: float, residuals: Sequence[float] = QUIET, key: SeriesKey = SPEED) -> Measured:
    pairs = (Pair("a", i % 2 == 0, 100.0, 100.0 * math.exp(mean + r)) for i, r in enumerate(residuals))
    return Measured(key, "depth 3", tuple(pairs))


def night_of(*series: Measured, at: int = 0, reference: Build | None = None, **more: object) -> Night:
    day = f"2026-{9 + at // 30:02d}-{1 + at % 30:02d}T02:00:00+00:00"
    judged = tuple(replace(SeriesNight(one, Verdict.SAME, ""), **more) for one in series)  # type: ignore[arg-type]
    return Night(day, "s", "", reference or Build("ref"), Build("cand"), series=judged)


def nights(means: Sequence[float], key: SeriesKey = SPEED) -> list[Night]:
    return [night_of(measured(mean, key=key), at=i) for i, mean in enumerate(means)]


def luck_of(earlier: Sequence[Night], key: SeriesKey = SPEED, changes: Sequence[ExpectedChange] = ()) -> float:
    return LuckBook.of(earlier, RULES, changes).luck(key).sd


def lucky(sd: float, count: int, seed: int = 3) -> list[float]:
    return [float(v) for v in np.random.default_rng(seed).normal(0, sd, count)]


def means(values: Sequence[float], pairs: int = 4, sd: float = 0.02) -> list[NightMean]:
    return [NightMean(value, pairs, Squares(sd**2 * (pairs - 1), pairs - 1)) for value in values]


def test_what_is_between_nights_beyond_their_pairs_is_as_by_hand() -> None:
    """Differences 0.02, -0.03, 0.03: half their mean square is 3.667e-4; pairs explain 0.02^2 / 4 = 1e-4."""
    found = excess(means([0.0, 0.02, -0.01, 0.02]), 0.02)

    assert found is not None
    assert found.differences == 3
    assert found.explained == pytest.approx(1e-4)
    # None is beyond 2 sd (0.02^2 + 1e-4 is the scale), and normal values lose 0.9205 by that.
    assert found.variance == pytest.approx(3.6667e-4 / 0.9205 - 1e-4, rel=1e-4)


def test_it_agrees_with_a_balanced_analysis_of_variance() -> None:
    """tau^2 = (mean square between nights - mean square within) / pairs, of many nights without steps."""
    rng = np.random.default_rng(7)
    count, pairs, tau, sd = 4000, 3, 0.010, 0.021
    data = rng.normal(0, tau, (count, 1)) + rng.normal(0, sd, (count, pairs))
    within = ((data - data.mean(1, keepdims=True)) ** 2).sum(1)
    between = pairs * data.mean(1).var(ddof=1)
    anova = (between - within.sum() / (count * (pairs - 1))) / pairs
    found = excess(
        [NightMean(float(m), pairs, Squares(float(w), pairs - 1)) for m, w in zip(data.mean(1), within, strict=True)],
        0.0075,
    )

    assert found is not None
    assert math.sqrt(anova) == pytest.approx(0.010, abs=0.0005)
    assert math.sqrt(found.variance) == pytest.approx(math.sqrt(anova), abs=0.0006)


def test_without_a_history_a_part_of_the_floor_is_assumed() -> None:
    luck = LuckBook.of((), RULES).luck(SPEED)

    assert luck.sd == pytest.approx(ASSUMED)
    assert luck.df == pytest.approx(8.0)
    assert luck.source == "assumed"
    assert LuckBook.of((), RULES).luck(replace(SPEED, metric="start_s")).sd == pytest.approx(-math.log(1 - 0.0375))


def test_what_was_assumed_fades_sooner_where_nights_show_far_more() -> None:
    """By hand: 4 differences are worth 8/3 values, beside 8 assumed; of those, 2 and not 8 count if nights show 8 times
    the assumed variance.
    """

    def luck(times: float) -> float:
        found = Excess(times * ASSUMED**2, differences=4.0, explained=0.0, within=Squares())
        return LuckBook({}, {SPEED.metric: found}, RULES).luck(SPEED).sd ** 2 / ASSUMED**2

    share = (8 / 3) / (8 / 3 + 8)
    assert luck(2.0) == pytest.approx(1 + share * (2.0 - 1))
    doubted = (8 / 3) / (8 / 3 + 2)
    assert luck(8.0) == pytest.approx(1 + doubted * (8.0 - 1))


def test_nights_that_are_alike_leave_no_luck_and_the_verdict_as_precise_as_its_pairs() -> None:
    history = nights([0.0] * 20)
    (found,) = judge_night([measured(math.log(0.92))], history)

    assert found.noise is not None
    assert replace(found.noise, sd=0.015) == Noise(0.015, 42, "history", 0.0, 0.0, "metric")
    assert found.low is not None
    assert found.low == pytest.approx(math.log(0.92) - quantile_t(42, 0.995) * 0.015 / math.sqrt(3))


def test_nights_that_differ_widen_the_interval_of_tonight() -> None:
    history = nights(lucky(0.02, 60))
    (found,) = judge_night([measured(-0.06)], history)
    (blind,) = judge_night([measured(-0.06)], history, NightRules(luck_nights=0, assumed_luck=0.0))

    assert blind.verdict is Verdict.REGRESSED
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.noise is not None
    assert found.noise.night_sd == pytest.approx(0.018, abs=0.003)
    assert found.noise.night_source == "history"
    error = math.sqrt(0.015**2 / 3 + found.noise.night_sd**2)
    assert found.noise.error(3) == pytest.approx(error)
    assert found.finds == pytest.approx(-math.expm1(-quantile_t(found.noise.error_df(3), 1 - RULES.alarm_p) * error))


def test_degrees_of_freedom_of_a_sum_are_those_of_satterthwaite() -> None:
    noise = Noise(0.02, 42, "history", 0.01, 12.0, "history")

    # Of two equal parts.
    assert noise.error_df(4) == pytest.approx(4 / (1 / 42 + 1 / 12))
    assert noise.error(4) == pytest.approx(math.sqrt(2e-4))
    assert Noise(0.02, 42, "history").error_df(4) == 42


def test_no_pairs_are_asked_for_where_luck_is_what_is_not_known() -> None:
    quiet = (-0.002, 0.0, 0.002)
    history = [night_of(measured(m, quiet), at=i) for i, m in enumerate(lucky(0.008, 60))]
    (found,) = judge_night([measured(-0.031, quiet)], history)

    assert (found.verdict, found.too_noisy) == (Verdict.INCONCLUSIVE, False)
    assert found.reason == (
        "99% interval is not within 5.0%; more nights decide, not more pairs: whole nights differ by 0.8% (sd) by luck"
    )
    assert undecided([found]) == ()


def test_a_series_too_noisy_by_luck_says_that_it_is_luck() -> None:
    (found,) = judge_night([measured(-0.02)], nights(lucky(0.03, 60)))

    assert found.too_noisy
    assert found.reason == (
        "so noisy that 6 pairs tell a worsening only from 12%; whole nights differ by 2.9% (sd) by luck"
    )


@pytest.mark.parametrize(
    "stepped",
    [
        pytest.param(lambda v, i: v - 0.05 * (i >= 30), id="a regression that stays"),
        pytest.param(lambda v, i: v - 0.05 * (25 <= i < 35), id="a regression that is repaired"),
        pytest.param(lambda v, i: v - 0.30 * (i == 30), id="a single night far off"),
        pytest.param(lambda v, i: v - 0.05 * (i >= 39), id="a regression of last night"),
    ],
)
def test_a_real_step_hardly_looks_like_luck(stepped: Callable[[float, int], float]) -> None:
    """Or the next step would be hidden by the first."""
    noise = lucky(0.015 / math.sqrt(3), 40, seed=3)
    before = luck_of(nights(noise))
    after = luck_of(nights([stepped(v, i) for i, v in enumerate(noise)]))

    assert after < before + 0.003
    plain = np.diff([stepped(v, i) for i, v in enumerate(noise)])
    assert np.mean(plain**2) / 2 > 1.3 * np.mean(np.diff(noise) ** 2) / 2  # what would be told without care


def test_nights_of_another_reference_or_before_an_expected_change_are_not_compared() -> None:
    def history(reference: Build) -> list[Night]:
        return [night_of(measured(0.0), at=i) for i in range(4)] + [
            night_of(measured(0.04), at=i, reference=reference) for i in range(4, 7)
        ]

    facts = (Build("ref", (("sglang", "0.5.8"),)), Build("ref", (("sglang", "0.5.9"),)))
    pinned = [replace(night, reference=facts[i >= 4]) for i, night in enumerate(history(facts[1]))]
    same = history(Build("ref"))
    change = ExpectedChange(date="2026-09-05", why="known")  # type: ignore[arg-type]

    known = luck_of([night_of(measured(0.0), at=i) for i in range(4)])
    assert luck_of(pinned) < known
    assert luck_of(same, changes=[change]) < known


def test_an_expected_shift_is_no_luck() -> None:
    history = nights([0.0] * 12)
    shifted = [*history, *(night_of(measured(-0.04), at=12 + i, expected=-0.04) for i in range(2))]

    assert luck_of(shifted) == luck_of(nights([0.0] * 14))


def test_load_levels_of_one_config_do_not_make_its_luck_better_known() -> None:
    values = lucky(0.02, 30)
    keys = [replace(SPEED, level=f"C={2**i}") for i in range(10)]
    many = [night_of(*(measured(v, key=key) for key in keys), at=i) for i, v in enumerate(values)]
    one, ten = LuckBook.of(nights(values), RULES).luck(SPEED), LuckBook.of(many, RULES).luck(SPEED)

    assert ten.sd == pytest.approx(one.sd)
    assert ten.df == pytest.approx(one.df)
    assert one.df < 2 / 3 * 29 + 10


def test_other_configs_make_noise_better_known_but_not_luck() -> None:
    one = Excess(variance=1e-4, differences=30.0, explained=1e-4, within=Squares(), configs=1)

    # (1e-4 + 1e-4)^2 less 1e-8 of luck; 30 differences are worth 20 values
    assert one.noise_spread(1e-4) == pytest.approx(3e-8 / 20)
    assert replace(one, configs=4).noise_spread(1e-4) == pytest.approx(3e-8 / 4 / 20)
    assert replace(one, explained=0.0).noise_spread(1e-4) == 0


def test_a_short_history_leans_on_other_series_of_the_metric() -> None:
    new = replace(SPEED, level="C=512")
    history = nights(lucky(0.02, 60))
    book = LuckBook.of(history, RULES)

    assert book.luck(new).sd == pytest.approx(0.018, abs=0.003)
    assert (book.luck(new).source, book.luck(replace(SPEED, metric="ttft_p50_ms")).source) == ("metric", "assumed")


def test_nights_that_asked_for_more_pairs_count_as_many_as_the_others() -> None:
    """Those that looked odd have more: by all their pairs they would look less odd than they were."""
    back = (0.03, 0.015, 0.045)  # three further pairs of an odd night, which take all of it back
    odd = [i % 2 == 1 for i in range(40)]
    more = [measured(-0.03, (*QUIET, *back)) if is_odd else measured(0.0) for is_odd in odd]
    asked = [night_of(one, at=i) for i, one in enumerate(more)]
    first = nights([-0.03 * is_odd for is_odd in odd])
    found, plain = (LuckBook.of(earlier, RULES).series[SPEED] for earlier in (asked, first))

    # Of both what is between nights is that of their first three pairs.
    assert found.variance + found.explained == pytest.approx(plain.variance + plain.explained, rel=0.35)
    whole = np.diff([np.mean(one.log_ratios) for one in more])
    assert np.mean(whole**2) / 2 < 0.3 * (plain.variance + plain.explained)  # of all their pairs


def test_gaps_single_nights_and_nights_of_one_pair_tell_nothing() -> None:
    alone = [night_of(measured(m, (0.0,)), at=i) for i, m in enumerate((0.0, 0.1, 0.0))]
    gaps = [replace(night, gap=Gap("no host"), series=night.series) for night in nights([0.0, 0.1, 0.0, 0.1])]

    for earlier in (alone, gaps, nights([0.1])):
        assert LuckBook.of(earlier, RULES).luck(SPEED).source == "assumed"


def test_the_part_of_luck_is_told_in_words() -> None:
    def night(*earlier: Night) -> Night:
        series = judge_night([measured(-0.01)], earlier)
        return Night("2026-11-30", "s", "", Build("ref"), Build("cand"), series=series)

    first, later, alike = night(), night(*nights(lucky(0.02, 60))), night(*nights([0.0] * 20))

    assert luck_text(first) == (
        "Whole nights differ by luck, which more pairs do not take away (sd): "
        "assumed, no history yet: 0.8% of output_throughput_tok_s"
    )
    assert sizes_text(first, RULES).endswith(luck_text(first))
    assert noise_text(later.series[0]) == "1.5% a pair, 1.8% a night"
    assert (luck_text(alike), noise_text(alike.series[0])) == ("", "1.5% a pair")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-0.2, 0.2), min_size=0, max_size=25), st.floats(-0.3, 0.3))
def test_luck_is_never_negative_and_does_not_depend_on_the_level(values: list[float], level: float) -> None:
    here = LuckBook.of(nights(values), RULES).luck(SPEED)
    there = LuckBook.of(nights([v + level for v in values]), RULES).luck(SPEED)

    assert here.sd >= 0
    assert here.sd == pytest.approx(there.sd, abs=1e-6)


@given(st.floats(0.0, 0.05), st.integers(2, 8), st.floats(0.001, 0.05))
def test_no_number_of_pairs_beats_luck(luck: float, pairs: int, sd: float) -> None:
    noise = Noise(sd, 40, "history", luck, 20.0, "history")

    assert noise.error(pairs + 1) < noise.error(pairs) or sd == 0
    assert noise.error(10**9) >= luck
    assert min(20, 40) - 1e-9 <= noise.error_df(pairs) <= 60 + 1e-9
