"""Draws, what cannot run, and the best once more."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import BadInput
from orchestrator.planning.search_plan import search_plan
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files.run_configs import asked_configs
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.sweep_space import expand
from orchestrator.searches.optuna_search import OptunaSearch
from orchestrator.searches.search import Ask, Broken, Dead, ObjectiveValue, Scored, Told
from orchestrator.searches.search_of import search_of
from orchestrator.sweeps.run_conductor import missing_work, run_conductor
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import conducted_on

AXES = {"speculative_num_steps": [0, 1, 2, 3, 4, 5, 10], "max_running_requests": [16, 64, 256]}


def made(**keys: Any) -> OptunaSearch:
    search = search_of(small_scenario(search={"method": "optuna", "budget_trials": 14, **keys}, sweep={"axes": AXES}))
    assert isinstance(search, OptunaSearch)
    return search


def fate(ask: Ask) -> Told:
    """Best at depth 4 with 64 requests; depth 10 dies."""
    depth, running = ask.config.speculation_depth, ask.config.as_dict()["max_running_requests"]
    if depth == 10:
        return Dead("oom_graph_target", "out of memory")
    noise = random.Random(str(ask.key)).gauss(0, 0.02)
    value = (100 - 8 * (depth - 4) ** 2) * (1.0 if running == 64 else 0.8)
    return Scored(f"host{len(str(ask.key)) % 2}", {"fast": ObjectiveValue(max(1.0, value) * math.exp(noise))})


def run(search: OptunaSearch, slots: int = 3) -> list[Ask]:
    asked: list[Ask] = []
    while not search.done:
        for ask in search.ask(slots):
            asked.append(ask)
            search.tell(ask.config, ask.repeat, fate(ask))
    return asked


def test_the_best_is_found_and_measured_again_within_the_budget() -> None:
    search = made(best=2, best_repeats=3)

    asked = run(search)

    winner = search.verdicts["fast"].winner
    (config,) = {a.config for a in asked if a.config.config_id == winner}
    assert config.speculation_depth in {3, 4, 5}
    assert sum(a.config.config_id == winner for a in asked) == 3
    assert len(asked) <= 14


def test_no_config_is_drawn_twice_and_a_small_space_ends_when_it_is_used_up() -> None:
    search = made(budget_trials=30, best=1, best_repeats=2)

    asked = run(search)

    first = [a.config for a in asked if a.repeat == 0]
    assert len(set(first)) == len(first) <= 21
    assert search.done


def test_two_searches_told_the_same_ask_for_the_same() -> None:
    one, other = made(), made()
    asked = [ask for _ in range(3) for ask in _told(one, 4)]
    for ask in asked:
        other.tell(ask.config, ask.repeat, fate(ask))

    assert one.ask(4) == other.ask(4)


def _told(search: OptunaSearch, slots: int) -> tuple[Ask, ...]:
    asks = search.ask(slots)
    for ask in asks:
        search.tell(ask.config, ask.repeat, fate(ask))
    return asks


def test_what_broke_says_nothing_of_the_config() -> None:
    search = made()
    (ask,) = search.ask(1)
    search.tell(ask.config, 0, Broken("host lost"))

    assert search.verdicts["fast"].winner is None
    assert search.ask(1)[0].config != ask.config


def test_combinations_that_sglang_refuses_are_drawn_again_and_told() -> None:
    search = search_of(
        small_scenario(
            search={"method": "optuna", "budget_trials": 12, "sampler": "random"},
            sweep={"axes": AXES, "exclude": [{"speculative_num_steps": ">= 3"}]},
        )
    )
    asked = search.ask(4)

    assert len(asked) == 4
    assert all(ask.config.speculation_depth < 3 for ask in asked)
    assert all(step.text.endswith("is excluded") for step in search.steps)


def test_ranges_make_whole_numbers_and_shares() -> None:
    search = search_of(
        small_scenario(
            search={
                "method": "optuna",
                "space": {
                    "mem_fraction_static": {"low": 0.5, "high": 0.9},
                    "max_running_requests": {"low": 8, "high": 512, "log": True},
                    "chunked_prefill_size": {"low": 1024, "high": 8192, "step": 1024},
                },
            }
        )
    )
    settings = [ask.config.as_dict() for ask in search.ask(5)]

    assert all(isinstance(s["max_running_requests"], int) and 8 <= s["max_running_requests"] <= 512 for s in settings)
    assert all(isinstance(s["mem_fraction_static"], float) and 0.5 <= s["mem_fraction_static"] <= 0.9 for s in settings)
    assert all(s["chunked_prefill_size"] % 1024 == 0 for s in settings)


def test_without_optuna_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)

    with pytest.raises(BadInput, match=r"pip install 'specsweep\[optuna\]'"):
        made()


@pytest.mark.parametrize(
    "given",
    [
        {"low": 1e-9, "high": 0.9, "log": True},
        {"low": 0.12345678, "high": 0.12345679},
        {"low": 0.1, "high": 0.9, "step": 0.1},
        {"low": 0.5, "high": 0.9, "step": 0.3},
    ],
)
@pytest.mark.filterwarnings("error")
def test_values_of_a_range_are_those_of_the_range_however_they_are_rounded(given: dict[str, Any]) -> None:
    space = {"mem_fraction_static": given}
    search = search_of(small_scenario(search={"method": "optuna", "space": space, "budget_trials": 14}))
    assert isinstance(search, OptunaSearch)

    drawn = [ask.config.as_dict()["mem_fraction_static"] for ask in run(search)]

    assert all(given["low"] <= value <= given["high"] for value in drawn)
    if "step" in given:
        assert all(round((v - given["low"]) / given["step"], 6) % 1 == 0 for v in drawn)


def test_a_small_space_is_drawn_to_its_end_and_a_resumed_search_knows_that_it_is() -> None:
    axes = {"speculative_num_steps": [0, 1, 2, 3], "max_running_requests": [16, 64]}

    def again() -> OptunaSearch:
        keys = {"method": "optuna", "budget_trials": 14, "best": 1, "best_repeats": 2}
        search = search_of(small_scenario(search=keys, sweep={"axes": axes}))
        assert isinstance(search, OptunaSearch)
        return search

    asked = run(again())
    resumed = again()
    for ask in asked:
        assert not resumed.done
        resumed.tell(ask.config, ask.repeat, fate(ask))

    assert (len(asked), len({ask.config for ask in asked})) == (9, 8)
    assert resumed.done


@pytest.mark.parametrize(
    "given",
    [
        {
            "sweep": {
                "axes": {
                    "speculative_num_steps": [0, 1, 2],
                    "speculative_eagle_topk": [1, 2],
                    "speculative_num_draft_tokens": [2, 3, 4],
                }
            }
        },
        {"sweep": {}, "space": {"speculative_num_steps": {"low": 0, "high": 4}}},
    ],
    ids=["combinations that SGLang refuses", "a base that is no config without a draw"],
)
def test_a_space_with_holes_is_planned_run_ranked_and_resumed(tmp_path: Path, given: dict[str, Any]) -> None:
    keys = {"method": "optuna", "budget_trials": 4, "best": 1, "best_repeats": 2, "space": given.get("space", {})}
    scenario = small_scenario(search=keys, sweep=given["sweep"], measure={"duration_s": 5, "reference": "auto"})
    run_dir = RunDirectory.create(tmp_path / "run", scenario)
    result = conducted_on(run_dir, scenario, [FakeSlot("a/0"), FakeSlot("b/0", host="other")])
    run_dir.close(complete=result.complete)

    assert result.complete
    again = RunDirectory.reopen(tmp_path / "run", scenario)
    assert not missing_work(scenario, again, run_conductor(scenario, again))
    (ranking,) = rank_run(tmp_path / "run").rankings
    assert ranking.winner is not None


def test_what_an_earlier_start_asked_and_did_not_end_is_asked_first_and_within_the_budget() -> None:
    first, resumed = made(budget_trials=14, best=1, best_repeats=2), made(budget_trials=14, best=1, best_repeats=2)
    told, open_ones = _told(first, 3), first.ask(3)
    for ask in told:
        resumed.tell(ask.config, ask.repeat, fate(ask))
    for ask in open_ones:
        resumed.recall(ask.config, ask.repeat)

    again = [*resumed.ask(2)]
    assert [ask.key for ask in again] == [ask.key for ask in open_ones]
    for ask in again:
        resumed.tell(ask.config, ask.repeat, fate(ask))
    asked = [*told, *again, *run(resumed)]

    assert {ask.key for ask in open_ones} <= {ask.key for ask in asked}
    assert len({ask.key for ask in asked}) == len(asked) <= 14


def test_of_a_range_only_draws_are_configs_and_the_plan_stays_within_the_budget() -> None:
    keys = {"method": "optuna", "budget_trials": 6, "best": 1, "best_repeats": 2}
    ranged = small_scenario(search={**keys, "space": {"mem_fraction_static": {"low": 0.6, "high": 0.9}}})
    listed = small_scenario(search=keys)
    plans = [search_plan(scenario, tuple(expand(scenario))) for scenario in (ranged, listed)]

    assert [(plan.least_starts, plan.most_starts) for plan in plans if plan is not None] == [(5, 6), (3, 4)]
    assert asked_configs(ranged) == {}
    assert len(asked_configs(listed)) == 3
