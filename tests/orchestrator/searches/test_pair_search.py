"""The search of a night: pairs, in which order, made anew when one breaks, more where a series is left open."""

from __future__ import annotations

import random
from collections.abc import Collection
from functools import partial

from orchestrator.scenarios.sweep_space import BuildPair
from orchestrator.searches.pair_search import MOST_BROKEN_PAIRS, PairRules, PairSearch, candidate_first
from orchestrator.searches.search import Ask, Broken, Dead, Scored, Told
from orchestrator.trial import EngineConfig

RULES = PairRules(pairs=3, most_pairs=6, seed="1")
GOOD = Scored("h")


def pair(number: int) -> BuildPair:
    own = (("page_size", number),)
    return BuildPair(EngineConfig(own), EngineConfig(own, (), "reference"), EngineConfig(own, (), "candidate"))


ONE = pair(1)


def told(search: PairSearch, asks: Collection[Ask], what: Told = GOOD) -> None:
    for ask in asks:
        search.tell(ask.config, ask.repeat, what)


def whole(search: PairSearch, slots: int = 1) -> int:
    """Tell that all went well until nothing is asked; how many pairs that were."""
    count = 0
    while asks := search.ask(slots):
        told(search, asks)
        count += len(asks) // 2
    assert search.done
    return count


def test_both_members_of_a_pair_are_asked_together_and_one_follows_the_other() -> None:
    first, second = PairSearch([ONE], RULES).ask(1)[:2]

    assert {first.config.build, second.config.build} == {"reference", "candidate"}
    assert (first.repeat, second.repeat) == (0, 0)
    assert (first.follows, second.follows) == (None, first.key)


def test_of_two_pairs_of_a_config_each_order_has_one() -> None:
    for seed in range(20):
        for block in range(4):
            orders = {candidate_first(str(seed), "c", 2 * block), candidate_first(str(seed), "c", 2 * block + 1)}
            assert orders == {False, True}
    assert len({candidate_first(str(seed), "c", 0) for seed in range(20)}) == 2


def test_without_doubts_each_config_gets_its_first_pairs_and_no_more() -> None:
    assert whole(PairSearch([pair(1), pair(2)], RULES)) == 6


def test_pairs_of_all_configs_are_asked_in_turns_and_no_more_than_the_slots_need() -> None:
    def configs(slots: int) -> list[object]:
        asks = PairSearch([pair(1), pair(2)], RULES).ask(slots)
        return [dict(ask.config.settings)["page_size"] for ask in asks]

    assert configs(1) == [1, 1]
    assert configs(2) == [1, 1, 2, 2, 1, 1, 2, 2]


def test_a_series_that_is_left_open_gets_all_further_pairs_at_once_and_is_asked_about_once_more_only() -> None:
    asked: list[int] = []

    def doubts() -> Collection[str]:
        asked.append(1)
        return {ONE.config_id}

    search = PairSearch([ONE, pair(2)], RULES, doubts)

    assert whole(search, slots=4) == 6 + 3
    assert [step.text for step in search.steps] == ["3 pairs leave a series open: 3 more of page_size=1"]


def test_a_pair_of_which_a_member_broke_is_made_anew() -> None:
    search = PairSearch([ONE], RULES)
    first, second, *_ = search.ask(1)
    search.tell(first.config, first.repeat, Broken("gpu_occupied"))
    search.tell(second.config, second.repeat, GOOD)

    assert whole_after(search) == 3


def whole_after(search: PairSearch) -> int:
    """Good pairs once all else went well; pairs that were asked before are told first."""
    open_ = [(c, n) for course in search._courses.values() for n, t in course.told.items()
             for c in course.pair.members if c.build not in t]  # fmt: skip
    for config, number in open_:
        search.tell(config, number, GOOD)
    whole(search)
    (course,) = search._courses.values()
    return course.good


def test_a_pair_whose_members_came_to_different_hosts_says_nothing() -> None:
    search = PairSearch([ONE], RULES)
    first, second, *_ = search.ask(1)
    search.tell(first.config, first.repeat, Scored("a"))
    search.tell(second.config, second.repeat, Scored("b"))

    assert [step.text for step in search.steps] == ["pair 1 says nothing: its members came to different hosts"]
    assert whole_after(search) == 3
    assert search._courses[ONE.config_id].void == {0}


def test_a_config_whose_pairs_always_break_is_given_up() -> None:
    search = PairSearch([ONE], RULES)
    count = 0
    while asks := search.ask(1):
        told(search, asks, Broken("port_in_use"))
        count += len(asks) // 2

    assert search.done
    assert count <= MOST_BROKEN_PAIRS + 1
    assert search.steps[-1].text == "no more pairs: 3 pairs in a row broke"


def test_after_a_death_no_further_pair_of_the_config_begins_whatever_is_in_doubt() -> None:
    search = PairSearch([ONE], RULES, lambda: {ONE.config_id})
    first, second, *others = search.ask(1)
    search.tell(first.config, first.repeat, GOOD)
    search.tell(second.config, second.repeat, Dead("kv_budget", "no memory"))
    told(search, others)

    assert search.ask(1) == ()
    assert search.done
    assert search.steps[-1].text == "no more pairs: members of half of its pairs died"


def test_one_death_after_two_good_pairs_may_be_chance_and_further_pairs_decide() -> None:
    """A night would else stay open for want of pairs that nobody makes."""
    search = PairSearch([ONE], RULES, lambda: {ONE.config_id})
    for what in (GOOD, GOOD, Dead("oom_weights", "E")):
        told(search, search.ask(1), what)

    told(search, search.ask(1), Dead("oom_weights", "E"))

    assert search.ask(1) == ()
    assert search.done
    assert [step.name for step in search.steps] == ["out"]


def test_when_time_is_over_no_pair_begins_and_what_runs_is_waited_for() -> None:
    late = False
    search = PairSearch([ONE, pair(2)], RULES, lambda: {ONE.config_id}, lambda: late)
    asks = search.ask(1)
    late = True

    assert search.ask(1) == ()
    assert not search.done
    told(search, asks)
    assert search.ask(1) == ()
    assert search.done
    assert [step.name for step in search.steps] == ["time"]


def test_a_resumed_search_makes_a_half_pair_anew_and_goes_on() -> None:
    before = PairSearch([ONE], RULES)
    first, second, third, fourth, *_ = before.ask(2)
    again = PairSearch([ONE], RULES)
    again.tell(first.config, first.repeat, GOOD)
    again.tell(second.config, second.repeat, GOOD)
    again.tell(third.config, third.repeat, GOOD)
    again.recall(third.config, third.repeat)
    again.recall(fourth.config, fourth.repeat)

    assert [(step.name, step.text) for step in again.steps] == [
        ("void", "pair 2 says nothing: the run ended in the middle of it")
    ]
    numbers = {ask.repeat for ask in again.ask(2)}
    assert numbers == {2, 3}
    assert whole_after(again) == 3


def test_a_resumed_search_that_was_through_asks_nothing() -> None:
    before, again = PairSearch([ONE], RULES), PairSearch([ONE], RULES)
    while asks := before.ask(1):
        told(before, asks)
        told(again, asks)

    assert again.done
    assert again.ask(1) == ()


OUTCOMES: list[Told] = [GOOD, GOOD, GOOD, Scored("other"), Broken("x"), Dead("y", "z")]


def half_of(rng: random.Random, pairs: list[BuildPair]) -> Collection[str]:
    return {one.config_id for one in pairs if rng.random() < 0.5}


def test_whatever_happens_the_search_ends_and_never_makes_more_good_pairs_than_it_may() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        known = [pair(i) for i in range(rng.randint(1, 3))]
        pairs = rng.randint(1, 4)
        rules = PairRules(pairs, pairs + rng.randint(0, 3), str(seed))
        search = PairSearch(known, rules, partial(half_of, rng, known))
        waiting: list[Ask] = []
        keys: set[tuple[str, int]] = set()
        slots = rng.randint(1, 6)
        while (asks := search.ask(slots)) or waiting:
            assert not keys & {ask.key for ask in asks}
            keys |= {ask.key for ask in asks}
            waiting += asks
            ask = waiting.pop(rng.randrange(len(waiting)))
            search.tell(ask.config, ask.repeat, rng.choice(OUTCOMES))

        assert search.done
        for course in search._courses.values():
            assert course.good <= rules.most_pairs
            assert course.good >= rules.pairs or course.is_over
