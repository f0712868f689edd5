"""What a ranking learns of the search behind it."""

from __future__ import annotations

from typing import Any

from orchestrator.searches.search_account import left_behind, search_notes

STEPS = [
    {"name": "screen", "objective": "", "host_class": "", "dropped": {"d": "not started"}},
    {"name": "rung", "objective": "fast", "host_class": "", "dropped": {"a": "9% behind", "b": "8% behind"}},
    {"name": "rung", "objective": "cheap", "host_class": "", "dropped": {"c": "5% behind"}},
    {"name": "rung", "objective": "fast", "host_class": "B200", "dropped": {"c": "5% behind"}},
]


def test_a_config_is_left_behind_for_the_objective_and_on_the_hosts_whose_race_it_lost() -> None:
    served = {"a": ["a"], "b": ["b"], "c": ["c"], "d": ["d"]}

    assert left_behind(STEPS, "fast", "", served) == {"a": "9% behind", "b": "8% behind"}
    assert left_behind(STEPS, "cheap", "", served) == {"c": "5% behind"}
    assert left_behind(STEPS, "fast", "B200", served) == {"c": "5% behind"}


def test_a_server_that_stands_for_several_configs_is_left_behind_with_the_last_of_them() -> None:
    assert left_behind(STEPS, "fast", "", {"repaired": ["a", "b"], "both": ["a", "c"]}) == {"repaired": "9% behind"}


def test_what_the_last_end_of_a_race_says_holds_and_rungs_stay_lost() -> None:
    end = {"name": "race", "objective": "fast", "host_class": ""}
    ended = [*STEPS, {**end, "dropped": {"c": "2% behind"}}, {**end, "dropped": {"d": "2% behind"}}]

    assert left_behind(ended, "fast", "", {c: [c] for c in "abcd"}) == {
        "a": "9% behind",
        "b": "8% behind",
        "d": "2% behind",
    }


def test_what_a_search_does_a_hundred_times_is_told_three_times_and_counted() -> None:
    steps: list[dict[str, Any]] = [
        {"name": "inferred", "text": f"{n} died", "host_class": "", "dropped": {f"c{n}": "more"}} for n in range(100)
    ]
    steps += [{"name": "rung", "text": "3 of 9 go on", "host_class": "", "objective": "o", "dropped": {"x": "slow"}}]

    assert search_notes("halving", steps, 200, 100) == (
        "search: 0 died",
        "search: 1 died",
        "search: 2 died",
        "search: 3 of 9 go on",
        "search: 97 more configs died like this",
        "search: 100 of 200 configs were not started; ranking.json has why (`search`)",
    )


def test_a_search_that_was_stopped_claims_no_reason_for_what_it_had_not_started_yet() -> None:
    steps = [{"name": "inferred", "text": "a died", "host_class": "", "dropped": {"b": "needs more than a"}}]

    assert search_notes("halving", steps, 10, 3, done=False) == (
        "search: a died",
        "search: it is not done: starts that are missing may still change the order (specsweep run --resume)",
        "search: 3 of 10 configs were started so far; 1 of the others will not be; ranking.json has why (`search`)",
    )
    assert search_notes("ceiling", [], 10, 3, done=False)[-1] == "search: 3 of 10 configs were started so far"


def test_a_space_without_a_list_has_no_configs_that_were_not_started() -> None:
    assert search_notes("optuna", [], 15, 7) == ()


def test_a_ceiling_points_to_no_reasons_that_are_not_there() -> None:
    steps = [{"name": "ceiling", "text": "ceiling is 6", "host_class": "", "objective": "", "dropped": {}}]

    assert search_notes("ceiling", steps, 10, 5) == (
        "search: ceiling is 6",
        "search: 5 of 10 configs were not started",
    )
