"""Sequential halving, told what becomes of each start on hosts of different speed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.scenarios.config_label import config_labels
from orchestrator.searches.config_places import places_of
from orchestrator.searches.halving_decision import HalvingRules
from orchestrator.searches.halving_search import HalvingSearch
from orchestrator.searches.pooled_fit import Spread
from orchestrator.searches.race import RaceGoal, RaceRules, heat, overlooked
from orchestrator.searches.search import Ask, Broken, Dead, ObjectiveValue, Scored, Step, Told
from orchestrator.trial import EngineConfig, freeze_settings

OOM = Dead("oom_graph_target", "CUDA out of memory")
SPEED = {1: 123.0, 2: 180.0, 3: 234.0, 4: 277.0, 5: 282.0, 10: 279.0}
AT_16 = {1: 1220.0, 2: 1477.0, 3: 1632.0, 4: 1596.0, 5: 1119.0, 10: 694.0}
Fate = Callable[[Ask, int], Told]


def config(depth: int, running: int = 64, fraction: float = 0.8) -> EngineConfig:
    return EngineConfig(
        freeze_settings(
            {"speculative_num_steps": depth, "max_running_requests": running, "mem_fraction_static": fraction}
        )
    )


def space(running: tuple[int, ...] = (64,), fractions: tuple[float, ...] = (0.8,)) -> list[EngineConfig]:
    return [config(depth, r, fraction) for depth in SPEED for r in running for fraction in fractions]


WIDE = space((16, 64, 512), (0.75, 0.85))


def made(configs: list[EngineConfig], *goals: RaceGoal, **rules: Any) -> HalvingSearch:
    labels = config_labels({c.config_id: c.as_dict() for c in configs})
    races = RaceRules(places_of(configs), Spread())
    return HalvingSearch(configs, goals or (RaceGoal("agentic", True),), races, HalvingRules(**rules), labels)


def measured(seed: int = 0, noise: float = 0.02) -> Fate:
    """Depth decides; 512 requests with depth 10 die; hosts differ by some percent."""

    def fate(ask: Ask, host: int) -> Told:
        settings = ask.config.as_dict()
        if settings["max_running_requests"] == 512 and ask.config.speculation_depth >= 5:
            return OOM
        factor = math.exp((-0.06, 0.02, 0.05, 0.0)[host] + random.Random(f"{seed} {ask.key}").gauss(0, noise))
        depth = ask.config.speculation_depth
        one = ObjectiveValue(SPEED[depth] * factor, True, (AT_16[depth] * factor,))
        return Scored(f"host{host}", {"agentic": one, "batch": ObjectiveValue(AT_16[depth] * factor)})

    return fate


def run(search: HalvingSearch, fate: Fate, slots: int = 4) -> list[Ask]:
    """All that was asked; results come in the order in which they were asked for, some at a time."""
    asked: list[Ask] = []
    while not search.done:
        batch = search.ask(slots)
        assert batch
        for ask in batch:
            search.tell(ask.config, ask.repeat, fate(ask, len(asked) % 4))
            asked.append(ask)
    return asked


def depth_of(search: HalvingSearch, objective: str = "agentic") -> int:
    winner = search.verdicts[objective].winner
    return next(c.speculation_depth for c in WIDE + space() if c.config_id == winner)


def test_the_best_depth_is_found_with_a_fraction_of_the_starts() -> None:
    search = made(WIDE)

    asked = run(search, measured())

    assert depth_of(search) in {4, 5, 10}
    assert len({ask.key for ask in asked}) == len(asked) <= 38  # a grid with three repeats: 108


def islands(seed: int, sd: float) -> Fate:
    """No config resembles another: each differs by a value of its own; starts differ by 2 %."""

    def fate(ask: Ask, host: int) -> Told:
        own = random.Random(f"{seed} {ask.config.config_id}").gauss(0, sd)
        noise = random.Random(f"{seed} {ask.key}").gauss(0, 0.02)
        return Scored(f"host{host}", {"agentic": ObjectiveValue(100 * math.exp(own + noise))})

    return fate


def risk_overlooked(configs: list[EngineConfig], fate: Fate, starts: int) -> float:
    """After so many starts of each of these, about all of WIDE."""
    results = {c.config_id: [fate(Ask(c, i), i % 4) for i in range(starts)] for c in configs}
    scored = {c: [told for told in of if isinstance(told, Scored)] for c, of in results.items()}
    goal, races = RaceGoal("agentic", True), RaceRules(places_of(WIDE), Spread())
    now = heat(goal, races, scored, ())
    assert now is not None
    risk = overlooked(goal, races, scored, [now.leader], [c.config_id for c in WIDE])
    assert risk is not None
    return risk


def test_more_may_have_been_overlooked_where_configs_resemble_their_neighbours_in_nothing() -> None:
    few = WIDE[::2]

    assert risk_overlooked(few, islands(3, 0.04), 1) > 0.3
    assert risk_overlooked(WIDE, measured(), 2) < 0.1


def test_the_last_verdict_tells_what_may_have_been_overlooked() -> None:
    search = made(space())
    assert search.verdicts["agentic"].overlooked is None
    run(search, measured())

    verdict = search.verdicts["agentic"]
    assert verdict.overlooked is not None
    assert verdict.text.endswith(" that any config is, started or not, if none need be like its neighbours")


def test_nothing_is_overlooked_where_every_config_was_started_often() -> None:
    search = made(space(), screen=False)
    for config in space():
        for repeat in range(8):
            search.tell(config, repeat, islands(1, 0.1)(Ask(config, repeat), repeat % 4))

    assert search.done
    assert (search.verdicts["agentic"].overlooked or 0.0) < 0.02


def test_what_is_not_started_is_told_with_the_reason() -> None:
    search = made(WIDE)
    run(search, measured())

    (screen,) = [step for step in search.steps if step.name == "screen"]
    assert all(why.startswith("not started, predicted by its neighbours: agentic: ") for why in screen.dropped.values())


def test_of_all_that_was_measured_a_settled_race_leaves_only_its_leader() -> None:
    # Whoever is not told to be left behind may win the ranking by the luck of one start.
    search = made(WIDE)
    asked = run(search, measured())

    told = {c: why for step in search.steps if step.objective == "agentic" for c, why in step.dropped.items()}
    started = {ask.config.config_id for ask in asked if measured()(ask, 0) is not OOM}
    verdict = search.verdicts["agentic"]
    assert verdict.settled
    assert started - told.keys() == {verdict.winner}
    assert any(why.endswith("beyond doubt") for why in told.values())
    assert [step.text for step in search.steps][-1].startswith("agentic: ")


def test_without_a_screen_all_are_started_but_what_needs_more_than_what_died() -> None:
    search = made(WIDE, screen=False)
    search.tell(config(5, 512, 0.85), 0, OOM)

    asked = run(search, measured())

    assert set(WIDE) - {ask.config for ask in asked} == {config(5, 512, 0.85), config(10, 512, 0.85)}
    assert next(step.text for step in search.steps if step.name == "inferred").endswith(
        "so what needs more is left out (1)"
    )


def test_with_infer_off_they_are_started_too() -> None:
    search = made(WIDE, screen=False, infer=False)

    search.tell(config(5, 512, 0.85), 0, OOM)

    asked = run(search, measured(), slots=1)

    assert config(10, 512, 0.85) in {ask.config for ask in asked}
    assert [step for step in search.steps if step.name == "inferred"] == []


def test_a_death_that_is_not_for_want_of_memory_says_nothing_of_others() -> None:
    search = made(WIDE)
    search.tell(config(1, 64, 0.75), 0, Dead("flag_invalid", "no such flag"))

    assert search.steps == ()


def test_a_winner_has_two_starts_at_least_and_finalists_are_told() -> None:
    search = made(space())

    asked = run(search, measured())

    verdict = search.verdicts["agentic"]
    assert verdict.finalists[0] == verdict.winner
    assert sum(ask.config.config_id == verdict.winner for ask in asked) >= 2


def test_one_bad_start_does_not_cost_the_best_its_place() -> None:
    """The best starts 6 % too slow: behind three others, but not beyond doubt."""
    good = measured(noise=0.005)

    def fate(ask: Ask, host: int) -> Told:
        told = good(ask, host)
        if ask.config.speculation_depth == 3 and ask.repeat == 0:
            assert isinstance(told, Scored)
            return Scored(told.host, {"batch": ObjectiveValue((told.values["batch"].value or 0) * 0.94)})
        return told

    search = made(space(), RaceGoal("batch", True, 0.01), finalists=2)
    run(search, fate)

    assert depth_of(search, "batch") == 3


def test_two_objectives_have_a_race_each_and_the_union_is_started() -> None:
    search = made(space(), RaceGoal("agentic", True), RaceGoal("batch", True))

    run(search, measured())

    assert depth_of(search, "agentic") in {4, 5, 10}
    assert depth_of(search, "batch") in {3, 4}


def test_near_ties_race_for_the_tie_breaker() -> None:
    """Depths 4, 5 and 10 are within 3 % at one request; at 16 depth 4 is far ahead."""
    search = made(space(), RaceGoal("agentic", True, 0.03, ties=(True,)))

    run(search, measured())

    assert depth_of(search) == 4


def test_configs_that_fail_a_limit_cannot_win() -> None:
    def fate(ask: Ask, host: int) -> Told:
        depth = ask.config.speculation_depth
        return Scored(f"host{host}", {"agentic": ObjectiveValue(SPEED[depth], passes=depth < 4)})

    search = made(space())
    run(search, fate)

    assert depth_of(search) == 3


def test_where_nothing_passes_there_is_no_winner_and_an_end() -> None:
    search = made(space())

    asked = run(search, lambda ask, host: Scored("a", {"agentic": ObjectiveValue(1.0, passes=False)}))

    assert len(asked) == 6
    assert search.verdicts["agentic"].winner is None


def test_where_everything_dies_there_is_an_end() -> None:
    search = made(space(), infer=False)

    assert len(run(search, lambda ask, host: OOM)) == 6
    assert search.done


def test_a_start_that_broke_is_made_again_and_a_config_that_breaks_twice_is_set_aside() -> None:
    good = measured()

    def fate(ask: Ask, host: int) -> Told:
        depth = ask.config.speculation_depth
        broken = depth == 5 or (depth == 4 and ask.repeat == 0)
        return Broken("host lost") if broken else good(ask, host)

    search = made(space())
    asked = run(search, fate)

    assert [ask.repeat for ask in asked if ask.config.speculation_depth == 5] == [0, 1]
    assert any(ask.repeat == 1 for ask in asked if ask.config.speculation_depth == 4)
    assert depth_of(search) in {4, 10}


def test_a_budget_is_never_exceeded() -> None:
    search = made(WIDE, budget_trials=17)

    assert len(run(search, measured())) == 17
    assert search.done


@pytest.mark.parametrize("cut", [9, 20])
def test_a_run_that_is_resumed_asks_for_what_is_missing_only(cut: int) -> None:
    """Told everything again, in another order and with another number of slots, it goes on to the same end."""
    fate = measured(3)
    first = made(WIDE)
    told = [(ask, fate(ask, i % 4)) for i, ask in enumerate(run(first, fate))]
    again = made(WIDE)
    for ask, result in reversed(told[:cut]):
        again.tell(ask.config, ask.repeat, result)
    rest = run(again, fate, slots=2)

    assert not {ask.key for ask in rest} & {ask.key for ask, _ in told[:cut]}
    assert depth_of(again) in {4, 5, 10}


def test_a_search_that_was_told_all_wants_nothing_and_has_the_same_verdict() -> None:
    fate = measured(4)
    first, again = made(WIDE), made(WIDE)
    for i, ask in enumerate(run(first, fate)):
        again.tell(ask.config, ask.repeat, fate(ask, i % 4))

    assert again.done
    assert again.ask(8) == ()
    assert again.verdicts == first.verdicts


def test_steps_are_only_ever_added_to() -> None:
    search, fate, i = made(WIDE), measured(5), 0
    seen: tuple[Step, ...] = ()
    while not search.done:
        for ask in search.ask(4):
            search.tell(ask.config, ask.repeat, fate(ask, i % 4))
            i += 1
            assert search.steps[: len(seen)] == seen
            seen = search.steps


def test_the_pick_is_within_the_near_tie_of_the_best() -> None:
    for seed in range(3):
        search = made(WIDE)
        run(search, measured(seed))
        assert SPEED[depth_of(search)] >= 0.98 * 282
