"""Series over nights: segments, expected changes, change points with what changed, and false discoveries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.errors import ScenarioError
from orchestrator.history.change_alarms import change_alarms
from orchestrator.history.history_changes import changes
from orchestrator.history.history_lines import SeriesLine, by_urgency, history_lines, needs_attention
from orchestrator.history.history_text import history_news, short_remark
from orchestrator.history.night_history import History, Mark
from orchestrator.nights.expected_changes import expected_changes, expected_shift
from orchestrator.nights.night import (
    Build,
    End,
    Gap,
    Measured,
    Night,
    NightHost,
    SeriesKey,
    SeriesNight,
    StartPair,
    Verdict,
)
from orchestrator.nights.night_segments import between, segments
from orchestrator.nights.night_verdict import judge_night
from tests.orchestrator.nights.test_night_verdict import QUIET, measured, twenty_quiet_nights

SPEED = SeriesKey("output_throughput_tok_s", "c1", "chat", "C=16", "8x H100")
LIVES = SeriesKey("feasible", "c1", "", "", "8x H100")
STEADY = list(np.random.default_rng(1).normal(0, 0.008, 40))


def night(
    i: int, value: float = 0.0, *, sglang: str = "0.5.8", driver: str = "570", host: str = "a", commit: str = "aaa",
    **known: str,
) -> Night:  # fmt: skip
    one = SeriesNight(Measured(SPEED, "depth 3"), Verdict.SAME, "", difference=value)
    return Night(
        f"2026-{9 + i // 30:02d}-{1 + i % 30:02d}T02:00:00+00:00", "pinned", f"runs/{i}",
        Build("ref", (("sglang", sglang), *known.items())), Build("cand", (("commit", commit),)),
        (NightHost(host, "8x H100", (("driver", driver),)), NightHost("z", "1x L4", (("driver", "535"),))), (one,),
    )  # fmt: skip


def line_of(nights: Sequence[Night], changes_file: str = "", marks: Sequence[Mark] = ()) -> SeriesLine:
    expected = expected_changes(changes_file.encode(), "CHANGES.yaml") if changes_file else ()
    (line,) = history_lines(History.of(nights, marks), expected)
    return line


def test_a_step_is_told_with_its_night_and_what_changed_between() -> None:
    nights = [night(i, v - 0.08 * (i >= 30), commit="bbb" if i >= 30 else "aaa") for i, v in enumerate(STEADY)]
    mark = Mark(nights[30].night_id, "", "true", "kernel fallback", "ana", "2026-11-01T00:00:00+00:00")
    line = line_of(nights, marks=[mark])
    (change,) = line.changes

    assert (change.at, change.between, change.mark) == (30, ("candidate: commit aaa -> bbb",), mark)
    assert change.change.sure
    assert change.change.point.difference == pytest.approx(-0.08, abs=0.01)
    assert line.is_worse(change)
    assert line.news() == ()
    assert line.news(10) == (change,)


def test_lines_are_ordered_by_what_a_reader_must_see_first() -> None:
    """What died, what got worse of late, what the newest night says, what nothing happened to, what is gone."""

    def nights(config: str, values: Sequence[float], newest: Verdict = Verdict.SAME) -> list[SeriesNight]:
        told = [
            SeriesNight(Measured(replace(SPEED, config=config), config), Verdict.SAME, "", difference=v) for v in values
        ]
        return [*told[:-1], replace(told[-1], verdict=newest)]

    quiet = STEADY[:20]
    steps = {size: [v + size * (i >= 15) for i, v in enumerate(quiet)] for size in (-0.05, -0.09, 0.08)}
    lives = [
        SeriesNight(Measured(LIVES, "c1", starts=(StartPair("a", True, End.SERVED, end),)), Verdict.SAME, "")
        for end in (*[End.SERVED] * 19, End.DIED)
    ]
    columns = (
        nights("same", quiet), nights("better", steps[0.08]), nights("improved", quiet, Verdict.IMPROVED),
        nights("open", quiet, Verdict.INCONCLUSIVE), nights("worse by 5", steps[-0.05]),
        nights("worse by 9", steps[-0.09]), nights("regressed", quiet, Verdict.REGRESSED), lives,
        nights("gone", quiet[:10], Verdict.REGRESSED),
    )  # fmt: skip
    history = History.of([replace(night(i), series=tuple(c[i] for c in columns if i < len(c))) for i in range(20)], ())

    ordered = by_urgency(history_lines(history))

    assert [line.key.config for line in ordered] == [
        "c1", "worse by 9", "worse by 5", "regressed", "open", "improved", "better", "same", "gone"
    ]  # fmt: skip
    assert [needs_attention(line) for line in ordered] == [True] * 5 + [False] * 4
    assert [short_remark(line) for line in ordered] == [
        "not served since 2026-09-20", "worse since 2026-09-16", "worse since 2026-09-16", "", "", "",
        "better since 2026-09-16", "", "last measured 2026-09-10",
    ]  # fmt: skip


def test_a_series_that_got_worse_says_so_also_where_the_newest_night_lacks_it() -> None:
    nights = [night(i, v - 0.08 * (i >= 34)) for i, v in enumerate(STEADY[:39])]
    (line,) = history_lines(History.of([*nights, replace(nights[-1], at=night(39, 0.0).at, series=())], ()))

    assert short_remark(line) == "worse since 2026-10-05, last measured 2026-10-09"
    assert needs_attention(line)


def test_the_news_of_a_history_is_what_got_worse_in_its_last_nights() -> None:
    nights = [night(i, v - 0.08 * (i >= 36)) for i, v in enumerate(STEADY)]
    before, after = History.of(nights[:-1], ()), History.of(nights, ())

    (told,) = history_news(history_lines(after))

    assert before.with_night(nights[-1]) == after
    assert told.startswith(
        "over the nights: output_throughput_tok_s at chat C=16, depth 3 on 8x H100: 2026-10-07 worse: "
    )
    assert history_news(history_lines(History.of(nights[:36], ()))) == ()


def test_a_mark_of_the_series_holds_where_the_step_is_seen_a_night_or_two_beside_it() -> None:
    """As nights are added its place moves a little; what somebody has looked at must not come back for that."""
    nights = [night(i, v - 0.08 * (i >= 36)) for i, v in enumerate(STEADY)]

    def alarms(mark: Mark | None) -> int:
        history = History.of(nights, [mark] if mark else [])
        return len(change_alarms(history_lines(history), history))

    def mark(at: int, series_id: str) -> Mark:
        return Mark(nights[at].night_id, series_id, "true", "", "ana", "2026-11-01T00:00:00+00:00")

    own = SPEED.series_id
    assert alarms(None) == 1
    assert [alarms(mark(at, own)) for at in (33, 34, 35, 36, 37, 38, 39)] == [1, 0, 0, 0, 0, 0, 1]
    assert [alarms(mark(at, "")) for at in (35, 36, 37)] == [1, 0, 1]  # of a whole night: about that night only
    assert alarms(mark(36, "another")) == 1


def test_a_death_in_which_the_reference_died_too_is_no_change_of_the_candidate() -> None:
    def dead(i: int, verdict: Verdict, end: End) -> Night:
        starts = (StartPair("a", True, End.SERVED, end, "kv_budget"),)
        return replace(night(i), series=(SeriesNight(Measured(LIVES, "depth 3", starts=starts), verdict, ""),))

    for verdict, count in ((Verdict.REGRESSED, 1), (Verdict.INCONCLUSIVE, 0)):
        history = History.of([dead(0, Verdict.SAME, End.SERVED), dead(1, verdict, End.DIED)], ())
        assert len(change_alarms(history_lines(history), history)) == count


def test_what_is_not_measured_any_more_is_no_news() -> None:
    """A config that got worse and was taken out of the scenario would be told every morning, for good."""
    other = SeriesNight(Measured(replace(SPEED, config="c2"), "depth 4"), Verdict.SAME, "", difference=0.0)
    nights = [night(i, v - 0.08 * (i >= 36)) for i, v in enumerate(STEADY)]
    without = [replace(night(40 + i), series=(other,)) for i in range(7)]

    assert len(history_news(history_lines(History.of([*nights, *without[:6]], ())))) == 1
    assert history_news(history_lines(History.of([*nights, *without], ()))) == ()


def test_a_floor_of_the_nights_holds_for_change_points_too() -> None:
    """High percentiles have one of 5 %, and a scenario may ask for more."""
    nights = [night(i, v - 0.045 * (i >= 30)) for i, v in enumerate(STEADY)]
    coarse = [replace(n, series=tuple(replace(one, floor=0.06) for one in n.series)) for n in nights]

    assert len(line_of(nights).changes) == 1
    assert line_of(coarse).changes == ()


def test_stretches_too_short_for_a_change_point_are_no_tests() -> None:
    """After many changes of hosts there are more of them than of others; they would hide every step."""
    rng = np.random.default_rng(4)
    step = [*rng.normal(0, 0.008, 10), *rng.normal(-0.08, 0.008, 6)]
    short = {f"short {i}": [0.0, 0.01, 0.0, 0.01] for i in range(3000)}

    alone, among = changes({"step": step})["step"], changes({"step": step} | short)["step"]

    assert among == alone
    assert among[0].sure


def test_gaps_are_no_values_and_do_not_shift_the_night_of_a_step() -> None:
    nights = [night(i, v - 0.08 * (i >= 30)) for i, v in enumerate(STEADY)]
    gap = replace(nights[10], series=(), gap=Gap("the cluster was busy"))
    line = line_of([*nights[:10], gap, *nights[11:]])

    assert len(line.nights) == 39
    assert line.nights[line.changes[0].at] == nights[30]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sglang": "0.5.9"}, "reference: sglang 0.5.8 -> 0.5.9"),
        ({"torch": "2.10.0", "cuda": "13.0"}, "reference: cuda 12.8 -> 13.0, reference: torch 2.9.1 -> 2.10.0"),
        ({"driver": "575"}, "a: driver 570 -> 575"),
        ({"driver": "575", "host": "b"}, "other hosts: driver 570 -> 575"),
    ],
)
def test_a_change_of_reference_or_hosts_begins_a_segment_and_is_no_change_point(
    changed: dict[str, str], why: str
) -> None:
    before = {"torch": "2.9.1", "cuda": "12.8"} if "torch" in changed else {}
    nights = [night(i, v - 0.2 * (i >= 20), **(changed if i >= 20 else before)) for i, v in enumerate(STEADY)]
    line = line_of(nights)

    assert [(s.begin, s.end, s.why) for s in line.segments] == [(0, 20, ""), (20, 40, why)]
    assert line.changes == ()


def test_another_host_with_the_same_driver_or_the_candidate_goes_on_in_the_segment() -> None:
    nights = [night(i, host="ab"[i % 2], commit=str(i)) for i in range(10)]

    assert len(segments(nights, SPEED, "depth 3")) == 1


def test_a_torch_that_was_not_known_before_or_is_not_known_tonight_begins_nothing() -> None:
    nights = [night(0), night(1, torch="2.9.1"), night(2), night(3, torch="2.9.1"), night(4, torch="2.10.0")]

    assert [s.begin for s in segments(nights, SPEED, "depth 3")] == [0, 4]


def test_another_torch_of_the_candidate_is_news_and_no_segment() -> None:
    nights = [
        replace(night(i), candidate=Build("cand", (("torch", "2.9.1" if i < 5 else "2.10.0"),))) for i in range(9)
    ]

    assert len(segments(nights, SPEED, "depth 3")) == 1
    assert between(nights[4], nights[5], SPEED.host_class) == ("candidate: torch 2.9.1 -> 2.10.0",)


def test_two_hosts_with_drivers_of_their_own_that_take_turns_are_one_segment() -> None:
    """Every night would else begin a segment, and no change point could ever be found."""
    nights = [night(i, host="ab"[i % 2], driver=("570", "575")[i % 2]) for i in range(20)]
    upgraded = [*nights, night(20, host="a", driver="580"), night(21, host="b", driver="575")]

    assert [(s.begin, s.end) for s in segments(nights, SPEED, "depth 3")] == [(0, 1), (1, 20)]
    whys = [s.why for s in segments(upgraded, SPEED, "depth 3")][2:]
    assert whys == ["a: driver 570 -> 580", "other hosts: driver 580 -> 575"]


def test_hosts_of_another_class_do_not_matter() -> None:
    other = replace(night(1), hosts=(*night(1).hosts[:1], NightHost("z", "1x L4", (("driver", "999"),))))

    assert len(segments([night(0), other], SPEED, "depth 3")) == 1


FILE = """changes:
  - date: 2026-09-21
    metric: output_throughput*
    workload: chat
    shift: -20%
    why: sampling on the CPU
  - date: 2026-09-25
    until: 2026-09-26
    config: [depth 9, c9]
    why: not this one
"""


def test_an_expected_change_begins_a_segment_and_says_how_large_it_came() -> None:
    nights = [night(i, v - 0.08 * (i >= 20)) for i, v in enumerate(STEADY)]
    line = line_of(nights, FILE)

    assert [(s.begin, s.why) for s in line.segments] == [(0, ""), (20, "expected: sampling on the CPU")]
    assert line.shifts == ("2026-09-21: expected -20.0%, came -7.7%",)
    assert line.changes == ()


def test_an_expected_loss_is_no_regression_but_a_larger_one_is() -> None:
    expected = expected_changes(FILE.encode(), "f")
    shift = expected_shift(expected, SPEED, "depth 3", "pinned", "2026-10-05T02:00:00+00:00")
    history = twenty_quiet_nights()

    def verdict(mean: float, taken_off: float) -> SeriesNight:
        return judge_night([measured(SPEED, QUIET, mean=mean)], history, expected={SPEED: taken_off})[0]

    assert shift == pytest.approx(math.log(0.8))
    assert expected_shift(expected, SPEED, "", "", "2026-09-20T23:59:59+00:00") == 0.0
    assert verdict(shift, 0.0).verdict is Verdict.REGRESSED
    found = verdict(shift, shift)
    assert found.verdict is Verdict.SAME
    assert found.difference == pytest.approx(shift)
    assert found.reason == "99% interval within 5.0%, besides the expected -20.0%"
    assert verdict(shift - 0.08, shift).verdict is Verdict.REGRESSED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("changes:\n- date: 2026-09-21\n", "f:2: changes[0].why: is missing"),
        ("changes:\n- date: soon\n  why: x\n", "f:2: changes[0].date: "),
        ("changes:\n- date: 2026-09-21\n  why: x\n  metrics: y\n", "f:4: changes[0].metrics: is not a key here"),
        ("changes:\n- date: 2026-09-21\n  why: x\n  metric: ttft\n", "f:4: changes[0].metric: ttft is no metric"),
        ("changes:\n- date: 2026-09-21\n  why: x\n  shift: lots\n", "f:4: changes[0].shift: is 'lots'"),
        ("changes:\n- date: 2026-09-21\n  why: x\n  shift: -150%\n", "f:4: changes[0].shift: "),
        ("changes:\n- date: 2026-09-21\n  why: x\n  until: 2026-09-21\n", "f:2: changes[0]: until 2026-09-21"),
        ("- date: 2026-09-21\n", "f:1: must be a mapping"),
    ],
)
def test_a_fault_in_the_file_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as told:
        expected_changes(text.encode(), "f")

    assert str(told.value).startswith(message)


def test_a_single_step_among_a_hundred_series_is_sure_and_noise_is_not() -> None:
    rng = np.random.default_rng(11)
    series = {f"s{i}": list(rng.normal(0, 0.01, 12)) for i in range(100)}
    series["stepped"] = list(rng.normal(0, 0.01, 60) - 0.08 * (np.arange(60) >= 40))
    found = changes(series)

    (step,) = found["stepped"]
    assert step.sure
    assert step.point.p == pytest.approx(1 / 4041)  # 2 x 101 / 5 % orders, so that q can be half of 5 %
    assert step.q == pytest.approx(101 / 4041)
    assert not any(c.sure for name, own in found.items() if name != "stepped" for c in own)


def test_a_config_that_dies_and_comes_back_is_told_by_night() -> None:
    def lives(i: int, end: End) -> Night:
        start = StartPair("a", True, End.SERVED, end, "kv_budget" if end is not End.SERVED else "")
        return replace(night(i), series=(SeriesNight(Measured(LIVES, "", starts=(start,)), Verdict.SAME, ""),))

    ends = [End.SERVED, End.FAILED, End.DIED, End.DIED, End.SERVED]
    line = line_of([lives(i, end) for i, end in enumerate(ends)])

    assert [(t.at, t.text, t.worse) for t in line.turns] == [(2, "dies (kv_budget)", True), (4, "serves again", False)]


def test_scenarios_never_share_a_line() -> None:
    nights = [night(0), replace(night(1), scenario="other")]

    assert [line.scenario for line in history_lines(History.of(nights, ()))] == ["other", "pinned"]


def of_engine(number: int, kind: str) -> Night:
    one = night(number)
    return replace(one, reference=replace(one.reference, facts=(*one.reference.facts, ("engine", kind))))


def test_nights_of_modelled_servers_are_told_and_are_never_in_a_segment_with_real_ones() -> None:
    real, modelled = [of_engine(i, "sglang") for i in range(5)], [of_engine(i, "emulator") for i in range(5, 8)]

    told = "engine=emulator: {} nights are of modelled servers; no GPU was measured in them"
    assert History.of(real, ()).emulated == ""
    assert History.of([*real, *modelled], ()).emulated == told.format("3 of 8")
    assert History.of(modelled, ()).emulated == told.format("all")
    assert [segment.begin for segment in line_of([*real, *modelled]).segments] == [0, 5]
