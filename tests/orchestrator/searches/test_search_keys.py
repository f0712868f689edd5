"""Keys of `search` that cannot work are refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.searches.ceiling_search import CeilingSearch
from orchestrator.searches.grid_search import GridSearch
from orchestrator.searches.halving_search import HalvingSearch
from orchestrator.searches.memory_order import needs_more
from orchestrator.searches.search import Dead
from orchestrator.searches.search_of import search_of
from orchestrator.trial import EngineConfig, freeze_settings
from tests.orchestrator.scenario_samples import small_scenario

TWO = {"axes": {"speculative_num_steps": [0, 1, 2], "mem_fraction_static": [0.7, 0.8]}}


@pytest.mark.parametrize(
    ("search", "more", "place", "said"),
    [
        ({"method": "halving", "knobs": ["speculative_num_steps"]}, {}, "search.knobs", "heeded by ceiling only"),
        ({"method": "grid", "eta": 3}, {}, "search.eta", "heeded by halving only, not by grid"),
        ("halving", {"measure": {"duration_s": 5, "repeats": 3}}, "measure.repeats", "is for a grid"),
        ("ceiling", {"sweep": TWO}, "search.knobs", "2 axes have one: speculative_num_steps, mem_fraction_static"),
        ({"method": "ceiling", "knobs": ["page_size"]}, {}, "search.knobs[0]", "is no axis of the sweep"),
        (
            {"method": "ceiling", "knobs": ["speculative_num_steps", "mem_fraction_static"]},
            {"sweep": TWO},
            "search.knobs",
            "an interval, which is searched alone",
        ),
        (
            {"method": "ceiling", "knobs": ["page_size"]},
            {"sweep": {"axes": {"page_size": [1, 16]}}},
            "search.directions",
            "must say how 'page_size' bears on memory",
        ),
        (
            {"method": "halving", "directions": {"page_sise": "up"}},
            {"sweep": {"axes": {"page_size": [1, 16]}}},
            "search.directions.page_sise",
            "did you mean 'page_size'?",
        ),
        (
            {"method": "optuna", "space": {"mem_fraction_static": {"low": 0.9, "high": 0.5}}},
            {},
            "search.space.mem_fraction_static",
            "low must be below high",
        ),
        (
            {"method": "optuna", "space": {"mem_fraction": {"low": 0.5, "high": 0.9}}},
            {},
            "search.space.mem_fraction",
            "did you mean",
        ),
        (
            {"method": "optuna", "space": {"mem_fraction_static": {"low": 0.5, "high": 0.9, "step": 1e-12}}},
            {},
            "search.space.mem_fraction_static",
            "more than 1,000,000 of them",
        ),
        (
            {"method": "optuna", "space": {"max_running_requests": {"low": 8, "high": 64, "step": 1.5}}},
            {},
            "search.space.max_running_requests",
            "takes a whole number, not 9.5",
        ),
        (
            {"method": "optuna", "space": {"max_running_requests": {"low": 8, "high": 2**70}}},
            {},
            "search.space.max_running_requests",
            "bounds end at",
        ),
        (
            "optuna",
            {"sweep": {"axes": {"speculative_num_steps": [1, 2]}, "exclude": [{"speculative_num_steps": ">= 1"}]}},
            "sweep",
            "leaves no config to try: speculative_num_steps=2 is excluded",
        ),
        ({"method": "optuna", "budget_trials": 8}, {}, "search.budget_trials", "leaves no start for draws"),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(search: Any, more: dict[str, Any], place: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        small_scenario(search=search, **more)

    assert refused.value.key == place
    assert said in refused.value.message


def test_each_method_makes_its_search_and_a_grid_is_the_default() -> None:
    kinds = [type(search_of(small_scenario(search=m))) for m in ("grid", "halving", "ceiling")]

    assert kinds == [GridSearch, HalvingSearch, CeilingSearch]
    assert isinstance(search_of(small_scenario()), GridSearch)


def test_a_grid_asks_for_all_at_once_and_not_again_for_what_is_known_to_be_dead() -> None:
    scenario = small_scenario(measure={"duration_s": 5, "repeats": 2})
    search = search_of(scenario)
    (dead, *_) = [ask for ask in search_of(scenario).ask(1) if ask.config.speculation_depth == 2]
    search.tell(dead.config, 0, Dead("oom_graph_target", "out of memory"))

    assert [(ask.config.speculation_depth, ask.repeat) for ask in search.ask(1)] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert search.ask(1) == ()


def of(**settings: Any) -> EngineConfig:
    return EngineConfig(freeze_settings(settings))


@pytest.mark.parametrize(
    ("config", "than", "more"),
    [
        (of(max_running_requests=64, a=1), of(max_running_requests=32, a=1), ("max_running_requests",)),
        (of(max_running_requests=32), of(max_running_requests=64), None),
        (of(max_running_requests=64, a=1), of(max_running_requests=32, a=2), None),
        (of(max_running_requests=64, context_length=8), of(max_running_requests=32, context_length=16), None),
        (of(mem_fraction_static=0.9), of(mem_fraction_static=0.8), None),
        (of(chunked_prefill_size=4096), of(chunked_prefill_size=-1), None),
        (of(max_running_requests=64), of(), None),
        (of(a=1), of(a=1), None),
    ],
)
def test_more_memory_is_inferred_only_where_it_is_sure(
    config: EngineConfig, than: EngineConfig, more: tuple[str, ...] | None
) -> None:
    assert needs_more(config, than) == more


def test_of_several_included_configs_the_one_that_cannot_be_served_is_named() -> None:
    sound = {"speculative_algorithm": "NEXTN", "speculative_num_steps": 1}
    with pytest.raises(ScenarioError) as refused:
        small_scenario(
            engine={"kind": "emulator", "settings": {}}, sweep={"include": [sound, {"speculative_num_steps": 2}]}
        )

    assert refused.value.key == "sweep.include[1].speculative_num_steps"
