"""Every key of `search` changes something in each search that is said to heed it, and is refused by all others."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.exchange.compare_command import doubt_of
from orchestrator.pages.reference_pages import heeded_table
from orchestrator.previews.trial_count import plan_precision
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_search import HEEDED_BY, METHODS, SearchKeys
from orchestrator.searches.search import Ask, Dead, ObjectiveValue, Scored, Told
from orchestrator.searches.search_of import search_of
from tests.orchestrator.scenario_samples import small_scenario

AXES = {"speculative_num_steps": [1, 2, 3, 4, 5, 10], "max_running_requests": [16, 32, 64, 128, 256]}
# What each search is given besides the key in question.
GIVEN: dict[str, dict[str, Any]] = {
    "grid": {},
    "halving": {},
    "ceiling": {"knobs": ["max_running_requests"]},
    "optuna": {"budget_trials": 24},
    "pairs": {},
}
# Another value than the default, or than the one above.
OTHER: dict[str, Any] = {
    "directions": {"max_running_requests": "down"},
    "noise": 0.2,
    "host_spread": 0.005,
    "eta": 2,
    "screen": False,
    "infer": False,
    "finalists": 6,
    "confidence": 0.6,
    "max_repeats": 2,
    "budget_trials": 14,
    "knobs": ["speculative_num_steps"],
    "verify": 3,
    "space": {"mem_fraction_static": {"low": 0.6, "high": 0.9}},
    "sampler": "random",
    "best": 2,
    "best_repeats": 2,
}


def fate(ask: Ask, host: int) -> Told:
    """Depths 3 to 5 and 64 requests are best and near each other; hosts differ by 10 %, starts by 3 %. Much dies."""
    settings = ask.config.as_dict()
    depth, running = settings["speculative_num_steps"], settings["max_running_requests"]
    if depth * running >= 640:
        return Dead("oom_graph_target", "out of memory")
    noise = random.Random(f"{depth} {running} {ask.repeat}").gauss(0, 0.03) + (0.0, 0.1)[host]
    value = 100 * math.exp(noise - 0.01 * abs(depth - 4) - 0.02 * abs(math.log2(running) - 6))
    return Scored(f"host{host}", {"fast": ObjectiveValue(value)})


def scenario(method: str, **keys: Any) -> Scenario:
    return small_scenario(search={"method": method, **GIVEN[method], **keys}, sweep={"axes": AXES})


def asked(of: Scenario) -> list[tuple[str, int]]:
    """All that a search asks for on two hosts in turns."""
    search, found = search_of(of), list[tuple[str, int]]()
    while not search.done:
        for ask in search.ask(2):
            search.tell(ask.config, ask.repeat, fate(ask, len(found) % 2))
            found.append(ask.key)
    return found


@cache
def usual(method: str) -> list[Any]:
    """With nothing but what is needed."""
    return what_comes_of_it(scenario(method))


def what_comes_of_it(of: Scenario) -> list[Any]:
    """Starts that are asked for, in order; of a grid what is planned, and of two runs what their comparison assumes."""
    if of.search.method == "grid":
        return [plan_precision(of, 10, 2), doubt_of([of])]
    if of.search.method == "ceiling":
        return [asked(of), doubt_of([of])]
    return asked(of)


def test_the_table_has_every_key_and_every_method_once() -> None:
    assert set(HEEDED_BY) == set(SearchKeys.model_fields) - {"method"}
    assert set(OTHER) == set(HEEDED_BY)
    assert {method for methods in HEEDED_BY.values() for method in methods} == set(METHODS) - {"pairs"}
    assert "| `noise` | yes | yes | yes | yes |  |" in heeded_table()


@pytest.mark.parametrize(("key", "method"), [(key, method) for key, methods in HEEDED_BY.items() for method in methods])
def test_a_key_changes_what_comes_of_each_search_that_heeds_it(key: str, method: str) -> None:
    assert what_comes_of_it(scenario(method, **{key: OTHER[key]})) != usual(method)


@pytest.mark.parametrize(
    ("key", "method"), [(key, m) for key, methods in HEEDED_BY.items() for m in METHODS if m not in methods]
)
def test_a_key_is_refused_by_every_other_search(key: str, method: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        small_scenario(search={"method": method, key: OTHER[key]}, sweep={"axes": AXES})

    assert refused.value.key == f"search.{key}"
    assert refused.value.message == f"is heeded by {' and '.join(HEEDED_BY[key])} only, not by {method}"


@pytest.mark.parametrize(
    ("search", "place", "said"),
    [
        ({"method": "halving", "infer": False, "directions": {"max_running_requests": "none"}}, "directions", "off"),
        ({"method": "halving", "max_repeats": 1, "eta": 2}, "eta", "with max_repeats 1 none is"),
        ({"method": "halving", "max_repeats": 1, "finalists": 2}, "finalists", "with max_repeats 1 none is"),
        ({"method": "optuna", "best": 2, "best_repeats": 1}, "best", "with best_repeats 1 none is"),
        (
            {"method": "ceiling", "knobs": ["max_running_requests"], "directions": {"speculative_num_steps": "none"}},
            "directions.speculative_num_steps",
            "has no say: `knobs` names what is searched",
        ),
        (
            {"method": "halving", "directions": {"attention_backend": "up"}},
            "directions.attention_backend",
            "is `up`, but its values are no numbers",
        ),
    ],
)
def test_a_key_that_another_key_leaves_nothing_to_say_is_refused(search: Any, place: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        small_scenario(search=search, sweep={"axes": {**AXES, "attention_backend": ["fa3", "triton"]}})

    assert refused.value.key == f"search.{place}"
    assert said in refused.value.message
