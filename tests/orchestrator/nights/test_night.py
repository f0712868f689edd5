"""Values of a night: ids that last, and which verdict a whole night has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.nights.night import (
    Build,
    Gap,
    Measured,
    Night,
    Pair,
    SeriesKey,
    SeriesNight,
    Verdict,
    better_sign,
    kind_of,
    night_verdict,
)

KEY = SeriesKey("output_throughput_tok_s", "203c91c8d033", "chat", "C=16", "8x H100")


def judged(verdict: Verdict, *, too_noisy: bool = False) -> SeriesNight:
    return SeriesNight(Measured(KEY, "depth 3"), verdict, "because", too_noisy=too_noisy)


def test_a_series_has_the_same_id_in_every_night() -> None:
    assert KEY.series_id == "0c336e1380a3"
    assert KEY.place == "chat C=16"


def test_names_that_join_to_the_same_text_are_different_series() -> None:
    assert SeriesKey("a", "b", "c d", "", "").series_id != SeriesKey("a", "b", "c", "d", "").series_id


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Verdict.SAME, Verdict.IMPROVED], Verdict.IMPROVED),
        ([Verdict.SAME, Verdict.IMPROVED, Verdict.INCONCLUSIVE], Verdict.INCONCLUSIVE),
        ([Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.REGRESSED], Verdict.REGRESSED),
        ([Verdict.SAME], Verdict.SAME),
        ([], Verdict.INCONCLUSIVE),
    ],
)
def test_the_worst_series_decides_a_night(verdicts: list[Verdict], expected: Verdict) -> None:
    assert night_verdict(tuple(judged(v) for v in verdicts)) is expected


def test_a_series_that_noise_always_leaves_open_does_not_decide_but_its_regression_does() -> None:
    noisy = judged(Verdict.INCONCLUSIVE, too_noisy=True)

    assert night_verdict((judged(Verdict.SAME), noisy)) is Verdict.SAME
    assert night_verdict((noisy,)) is Verdict.INCONCLUSIVE
    assert night_verdict((judged(Verdict.SAME), judged(Verdict.REGRESSED, too_noisy=True))) is Verdict.REGRESSED


def test_a_night_of_which_no_speed_could_be_told_is_no_pass_whatever_else_is_the_same() -> None:
    start = replace(judged(Verdict.SAME), measured=Measured(replace(KEY, metric="feasible"), "depth 3"))

    assert night_verdict((start, judged(Verdict.INCONCLUSIVE, too_noisy=True))) is Verdict.INCONCLUSIVE
    assert night_verdict((start,)) is Verdict.SAME


def test_a_gap_has_no_verdict_even_with_series_that_are_the_same() -> None:
    night = Night("2026-11-30T02:15:00.123+00:00", "s", "runs/a", Build("0.5.8"), Build("tonight"),
                  series=(judged(Verdict.SAME),), gap=Gap("the host was lost"))  # fmt: skip

    assert night.verdict is None
    assert night.night_id == "20261130T021500Z-fefee5"


def test_worse_has_the_sense_of_the_metric() -> None:
    slower = SeriesNight(Measured(KEY, ""), Verdict.REGRESSED, "", difference=-0.0834)
    later = SeriesNight(
        Measured(SeriesKey("ttft_p50_ms", "c", "chat", "C=1", ""), ""), Verdict.REGRESSED, "", difference=0.077
    )

    assert slower.worse == pytest.approx(0.08, abs=1e-3)
    assert later.worse == pytest.approx(0.08, abs=1e-3)


def test_a_value_of_zero_has_no_ratio() -> None:
    assert Pair("a", False, 2.0, 0.0).log_ratio is None
    assert Measured(KEY, "", (Pair("a", False, 2.0, 0.0), Pair("a", True, 2.0, 2.0))).log_ratios == [0.0]


def test_kinds_and_directions_follow_from_the_metric() -> None:
    assert [kind_of(m).value for m in ("feasible", "kv_tokens", "start_s", "accept_length", "tpot_mean_ms")] == [
        "feasible", "kv_tokens", "start_s", "accept_length", "speed",
    ]  # fmt: skip
    assert [better_sign(m) for m in ("feasible", "kv_tokens", "start_s", "tpot_mean_ms")] == [1.0, 1.0, -1.0, -1.0]
    with pytest.raises(KeyError):
        better_sign("requests_total")
