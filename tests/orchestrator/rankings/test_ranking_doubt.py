"""A ranking says how sure it is, and no more than the data do."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console

from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.points.batch_means import WithinRun
from orchestrator.rankings.ranking import rank
from orchestrator.rankings.ranking_json import row_json, spread_json
from orchestrator.rankings.ranking_row import Ranking
from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.trial import LoadLevel

SPEED = "output_throughput_tok_s"
C1 = LoadLevel("concurrency", 1.0)


def trial(config: str, value: float, host: str = "h1", repeat: int = 0, **more: Any) -> PointValue:
    metrics = {SPEED: value, **more.pop("metrics", {})}
    return PointValue(config, "chat", C1, repeat, metrics, trial_id=f"{config}-{host}-{repeat}", host=host, **more)


def repeated(config: str, *values: float, host: str = "h1") -> list[PointValue]:
    return [trial(config, value, host, repeat) for repeat, value in enumerate(values)]


def ranked(points: list[PointValue], **keys: Any) -> Ranking:
    objective = Objective.model_validate({"name": "o", "maximize": SPEED, "at": {"concurrency": 1}, **keys})
    configs = {name: {"page_size": name} for name in dict.fromkeys(p.config_id for p in points)}
    return rank(objective, configs, points, workload="chat")


def table(ranking: Ranking) -> str:
    console = Console(width=220, file=io.StringIO(), record=True)
    configs = {row.config_id: row.settings for row in ranking.rows}
    print_rankings(RunRanking("run", "sglang", configs, (ranking,), (), ()), console)
    return console.export_text()


CLEAR = [*repeated("a", 120, 121, 119), *repeated("b", 100, 101, 99), *repeated("c", 80, 81, 79)]
OPEN = [*repeated("a", 100, 106, 103), *repeated("b", 99, 105, 100), *repeated("c", 60, 63, 61)]


def test_a_clear_winner_has_a_gap_with_an_interval_and_a_probability() -> None:
    ranking = ranked(CLEAR)

    assert ranking.reason == (
        "page_size=a: 120.0 tok/s at C=1, 16.7% ahead of the runner-up page_size=b (100.0 tok/s) "
        "(95%: 14.9% to 18.4%; P(best) >0.99)"
    )
    assert [row.told_apart for row in ranking.rows] == [None, True, True]
    assert [(row.rank_low, row.rank_high) for row in ranking.rows] == [(1, 1), (2, 2), (3, 3)]
    assert ranking.notes == ()


def test_configs_that_the_data_do_not_tell_apart_are_named_and_keep_the_order_of_their_estimates() -> None:
    ranking = ranked(OPEN, near_tie=0.01)
    a, b, c = ranking.rows

    assert [row.config_id for row in ranking.rows] == ["a", "b", "c"]
    assert [row.tie_kind for row in ranking.rows] == ["not_told_apart", "not_told_apart", ""]
    assert [row.near for row in ranking.rows] == [False, False, False]
    assert (a.rank_low, a.rank_high, b.rank_low, b.rank_high, c.rank_low) == (1, 2, 1, 2, 3)
    assert a.p_best is not None
    assert b.p_best is not None
    assert a.p_best + b.p_best == pytest.approx(1)
    assert 0.6 < a.p_best < 0.9
    assert "6 trials do not tell it apart from page_size=b" in ranking.reason


def test_a_tie_breaker_decides_within_the_margin_only_not_within_the_noise() -> None:
    # d is 5 % behind and not told apart; by the tie-breaker it would be first.
    noisy = [*repeated("a", 100, 110, 90), *repeated("d", 95, 105, 85)]
    points = [
        PointValue(**{**{f: getattr(p, f) for f in p.__slots__}, "metrics": {**p.metrics, "ttft_p50_ms": t}})
        for p in noisy
        for t in [1.0 if p.config_id == "d" else 9.0]
    ]
    breaker = [{"minimize": "ttft_p50_ms", "at": {"concurrency": 1}}]
    within_noise = ranked(points, near_tie=0.02, tie_breakers=breaker)
    within_margin = ranked(points, near_tie=0.06, tie_breakers=breaker)

    assert [(r.config_id, r.tie_kind) for r in within_noise.rows] == [("a", "not_told_apart"), ("d", "not_told_apart")]
    assert [(r.config_id, r.tie_kind) for r in within_margin.rows] == [
        ("d", "near_tie_not_told_apart"),
        ("a", "near_tie_not_told_apart"),
    ]
    assert "decided by the tie-breaker ttft_p50_ms at C=1: 1 ms against 9 ms" in within_margin.reason


def test_a_host_that_is_faster_does_not_make_its_config_the_winner() -> None:
    truth = {"a": 100.0, "b": 104.0, "c": 90.0}
    fast = {"h1": 1.10, "h2": 0.95}
    noise = iter([1.001, 0.999, 1.002, 0.998, 1.0, 1.001])
    # a ran twice on the fast host and once on the slow one, b the other way round.
    cells = [("a", "h1", 0), ("a", "h1", 1), ("a", "h2", 0), ("b", "h1", 0), ("b", "h2", 0), ("b", "h2", 1)]
    points = [trial(c, truth[c] * fast[h] * next(noise), h, r) for c, h, r in cells]
    ranking = ranked(points)

    assert [row.config_id for row in ranking.rows] == ["b", "a"]
    assert ranking.rows[1].gap_to_best == pytest.approx(4 / 104, abs=0.003)
    assert dict(ranking.spread.hosts)["h1"] == pytest.approx(math.sqrt(1.10 / 0.95) - 1, abs=0.003)
    assert ranking.rows[0].hosts == 2


def test_configs_on_hosts_that_share_none_are_ordered_but_not_tested() -> None:
    points = [*repeated("a", 100, 101, host="h1"), *repeated("b", 80, 81, host="h1"), *repeated("c", 90, 91, host="h2")]
    ranking = ranked(points)

    assert [(row.config_id, row.comparable) for row in ranking.rows] == [("a", True), ("c", False), ("b", True)]
    assert ranking.rows[1].gap_low is None
    assert ranking.rows[1].p_best is None
    assert ranking.rows[2].gap_low is not None
    assert "10.0% ahead of the runner-up page_size=c" in ranking.reason
    assert "which ran on other hosts: how these differ is in the gap" in ranking.reason
    assert ranking.notes[0].startswith(
        "not all configs can be compared: page_size=a, page_size=b on h1; page_size=c on h2; no config ran on hosts of"
    )
    assert "ran on other hosts than the best: not comparable" in table(ranking)


def test_one_trial_each_is_said_to_be_so() -> None:
    ranking = ranked([trial("a", 100), trial("b", 80)])

    assert ranking.reason == "page_size=a: 100 tok/s at C=1, 20.0% ahead of the runner-up page_size=b (80 tok/s)"
    assert ranking.notes == (
        "one trial each: nothing is known of how far two starts of one server differ (measure.repeats)",
    )
    assert (ranking.rows[0].low, ranking.rows[0].p_best) == (None, None)
    assert "P(best)" not in table(ranking)


def test_one_trial_each_has_intervals_of_its_time_slices_that_are_labelled_everywhere() -> None:
    slices = {SPEED: WithinRun(0.01, 19)}
    ranking = ranked([trial("a", 100, within_run=slices), trial("b", 80, within_run=slices)])
    shown = table(ranking)

    assert (
        "20.0% ahead of the runner-up page_size=b (80.0 tok/s) (95% within the run: 17.6% to 22.3%;" in ranking.reason
    )
    assert ranking.notes == (
        "one trial each: intervals hold what changes within a run, not that starts differ (measure.repeats)",
    )
    assert spread_json(ranking.spread) == {"kind": "within_run", "noise": pytest.approx(0.01), "df": 19, "hosts": {}}
    assert "± 95% in run" in shown
    assert "P(best) in run" in shown
    assert "Note: one trial each" in shown


def test_a_limit_that_is_kept_within_noise_is_told() -> None:
    points = [trial("a", 100, repeat=r, metrics={"tpot_p50_ms": t}) for r, t in enumerate((9.6, 10.2, 9.9))]
    ranking = ranked(points, limits=["tpot_p50_ms <= 10"])

    assert ranking.rows[0].gates_failed == ()
    assert ranking.rows[0].doubtful == ("tpot_p50_ms <= 10 kept within noise (95%: 9.179 to 10.67)",)
    assert "kept within noise" in table(ranking)


def test_a_limit_on_another_metric_that_single_trials_keep_within_their_noise_is_told() -> None:
    points = [
        trial(
            c,
            v,
            metrics={"tpot_p50_ms": 9.9},
            within_run={SPEED: WithinRun(0.01, 19), "tpot_p50_ms": WithinRun(0.01, 19)},
        )
        for c, v in (("a", 100), ("b", 80))
    ]
    ranking = ranked(points, limits=["tpot_p50_ms <= 10"])

    assert ranking.rows[0].doubtful == ("tpot_p50_ms <= 10 kept within noise (95%: 9.695 to 10.11)",)


def test_an_outlier_counts_and_is_told_with_what_it_does() -> None:
    points = [
        p
        for c, base in (("a", 100.0), ("b", 90.0), ("c", 80.0))
        for p in repeated(c, base, base * 1.01, base * 0.99, base * 1.005)
    ]
    points[2] = trial("a", 70, repeat=2)
    ranking = ranked(points)

    assert len(ranking.notes) >= 1
    assert ranking.notes[0].startswith("outlier: trial a-h1-2 of page_size=a on h1 is ")
    assert ranking.notes[0].endswith(
        "below what the others say; it counts, and page_size=a has 91.81; weighing less (Huber) 99.95 tok/s"
    )
    assert ranking.rows[0].value == pytest.approx((100 * 101 * 70 * 100.5) ** 0.25)


def test_two_trials_that_lie_far_apart_are_told_together_since_nothing_says_which_is_odd() -> None:
    many = [p for i, c in enumerate("abcdef") for p in repeated(c, 100 - i, 100.4 - i)]
    ranking = ranked([*many, *repeated("z", 60, 90)])

    (note,) = [note for note in ranking.notes if note.startswith("outlier")]
    assert note == (
        "outlier: z-h1-0 on h1 and z-h1-1 on h1, the two trials of page_size=z, are further apart than the others say "
        "two are; which of them is odd only a third one tells (measure.repeats); both count"
    )


def test_the_winner_of_a_search_is_said_to_be_flattered_by_the_trials_that_chose_it() -> None:
    objective = Objective.model_validate({"name": "o", "maximize": SPEED, "at": {"concurrency": 1}})
    points = [*repeated("a", 100, 101, 99), *repeated("b", 90)]
    ranking = rank(objective, {c: {"page_size": c} for c in "ab"}, points, workload="chat", out={"b": "10% behind"})

    assert ranking.notes == (
        "the search chose the winner by the trials that its value is made of, so they flatter it (specsweep verify "
        "measures it anew)",
    )


def test_the_value_of_the_best_of_several_that_tie_is_said_to_be_lucky() -> None:
    many = [p for i, c in enumerate("abcdef") for p in repeated(c, 100 + 0.2 * i, 102 - 0.1 * i)]
    again = [*many, *(trial(c, 101, repeat=9 + k) for c in "abcdef" for k in range(3) if c in "ab")]

    assert ranked(many).notes == (
        "the best of 6 configs was picked by the values that it is shown with, so they flatter it; specsweep verify "
        "measures it anew, beside its runner-up",
    )
    assert ranked(again).notes == ()


def test_a_row_for_machines_has_nulls_where_nothing_is_known() -> None:
    told = row_json(ranked([trial("a", 100), trial("b", 99)]).rows[0])

    assert told["rank"] is None
    assert (told["low"], told["gap_low"], told["p_best"]) == (None, None, None)
    assert (told["tie"], told["tie_kind"], told["trials"], told["hosts"]) == (True, "near_tie", 1, 1)


def test_the_table_prints_open_places_as_ranges_and_no_more_digits_than_the_interval_supports() -> None:
    lines = table(ranked(OPEN, near_tie=0.01)).splitlines()
    head = next(line for line in lines if "P(best)" in line)
    first, second, third = (next(line for line in lines if f"page_size={name}" in line) for name in "abc")

    assert head.split()[:8] == ["#", "config", "tok/s", "±", "95%", "gap", "P(best)", "trials"]
    assert first.split()[:5] == ["1-2", "page_size=a", "103", "4.0%", "0.0%"]
    assert "not told apart from others" in first
    assert second.split()[0] == "1-2"
    assert "not told apart from the best" in second
    assert third.split()[0] == "3"
