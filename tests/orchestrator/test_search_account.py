"""What a ranking learns of the search behind it."""

from __future__ import annotations

from orchestrator.search_account import left_behind

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
