"""Ceilings against a memory that is known, by a search that is told what becomes of each start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.searches.ceiling_lines import ceiling_lines
from orchestrator.searches.ceiling_search import CeilingSearch
from orchestrator.searches.memory_order import DIRECTIONS
from orchestrator.searches.search import Ask, Broken, Dead, Scored, Told
from orchestrator.trial import EngineConfig, freeze_settings

OOM = Dead("oom_graph_target", "CUDA out of memory", "host1")
Fate = Callable[[Ask, str], Told]


def configs(**axes: list[Any]) -> list[EngineConfig]:
    found: list[dict[str, Any]] = [{}]
    for name, values in axes.items():
        found = [{**settings, name: value} for settings in found for value in values]
    return [EngineConfig(freeze_settings(settings)) for settings in found]


def search(configs: list[EngineConfig], knobs: list[str], **more: Any) -> CeilingSearch:
    return CeilingSearch(ceiling_lines(configs, knobs, DIRECTIONS), **more)


def run(found: CeilingSearch, fate: Fate, slots: int = 1) -> list[Ask]:
    """All that was asked; hosts take turns."""
    asked: list[Ask] = []
    while not found.done:
        for ask in found.ask(slots):
            found.tell(ask.config, ask.repeat, fate(ask, f"host{len(asked) % 2}"))
            asked.append(ask)
    return asked


def setting(ask: Ask, name: str) -> Any:
    return ask.config.as_dict()[name]


DEPTHS = configs(speculative_num_steps=list(range(1, 11)))


def up_to(depth: int) -> Fate:
    return lambda ask, host: Scored(host) if setting(ask, "speculative_num_steps") <= depth else OOM


@pytest.mark.parametrize("depth", range(11))
def test_the_ceiling_of_ten_depths_takes_four_starts(depth: int) -> None:
    found = search(DEPTHS, ["speculative_num_steps"], verify=0)

    asked = run(found, up_to(depth))

    assert len(asked) <= 4
    assert found.ceilings[0].value == (depth or None)


def test_both_sides_of_the_edge_are_started_once_more_and_told() -> None:
    found = search(DEPTHS, ["speculative_num_steps"])

    asked = run(found, up_to(6))

    assert [(setting(ask, "speculative_num_steps"), ask.repeat) for ask in asked[-2:]] == [(6, 1), (7, 1)]
    (ceiling,) = found.ceilings
    assert (ceiling.value, ceiling.production, ceiling.first_that_dies) == (6, 5, 7)
    assert [(ask.elsewhere, ask.why) for ask in asked[-2:]] == [
        (True, "verify speculative_num_steps=6"),
        (True, "verify speculative_num_steps=7"),
    ]
    (step,) = found.steps
    assert step.text == (
        "ceiling of speculative_num_steps is 6, served 2 of 2 on 1 host; at 7: died 2 of 2 on 1 host "
        "(oom_graph_target: CUDA out of memory); for production: 5"
    )
    assert step.facts["served"] == {"starts": 2, "served_on": ["host0", "host0"], "died_on": [], "label": None}
    assert step.facts["beyond"] == {
        "starts": 2, "served_on": [], "died_on": ["host1", "host1"], "label": "oom_graph_target"
    }  # fmt: skip


def test_of_an_edge_that_serves_once_and_dies_once_the_lower_is_the_ceiling() -> None:
    def fate(ask: Ask, host: str) -> Told:
        depth = setting(ask, "speculative_num_steps")
        return Scored(host) if depth <= 5 or (depth == 6 and ask.repeat == 0) else OOM

    found = search(DEPTHS, ["speculative_num_steps"])
    run(found, fate)

    (ceiling,) = found.ceilings
    assert ceiling.value == 5
    assert "at 6: served 1 of 2 on 1 host, died 1 of 2 on 1 host (oom_graph_target: CUDA" in ceiling.text


def test_what_died_and_serves_when_it_is_started_again_is_told_with_its_hosts_and_counts_as_dead() -> None:
    def fate(ask: Ask, host: str) -> Told:
        depth = setting(ask, "speculative_num_steps")
        return Scored("host2") if depth == 7 and ask.repeat else up_to(6)(ask, host)

    found = search(DEPTHS, ["speculative_num_steps"])
    run(found, fate)

    disagreement, ceiling = found.steps
    assert disagreement.name == "disagreement"
    assert disagreement.text == (
        "starts of speculative_num_steps=7 disagree: it served on host2 and died on host1 (oom_graph_target: CUDA out "
        "of memory), so it counts as dead; what to do: docs/search.md, `When starts disagree`"
    )
    assert "ceiling of speculative_num_steps is 6, served 2 of 2 on 1 host; at 7: served 1 of 2" in ceiling.text


def test_a_death_that_was_only_foreseen_is_no_start_and_is_seen_when_the_ceiling_is_verified() -> None:
    def fate(ask: Ask, host: str) -> Told:
        died = up_to(6)(ask, host)
        return Dead("kv_budget", "predicted: short by 3 GiB") if died is OOM and not ask.repeat else died

    alone, verified = (search(DEPTHS, ["speculative_num_steps"], verify=verify) for verify in (0, 1))
    run(alone, fate)
    run(verified, fate)

    assert "at 7: would die of kv_budget: predicted: short by 3 GiB; for" in alone.ceilings[0].text
    assert "at 7: died 1 of 1 on 1 host (oom_graph_target: CUDA out of memory); for" in verified.ceilings[0].text


def test_both_ends_of_an_interval_are_seen_twice() -> None:
    def fate(ask: Ask, host: str) -> Told:
        fraction = setting(ask, "mem_fraction_static")
        return Dead("kv_budget", "no KV cache", host) if fraction < 0.7 else Scored(host) if fraction < 0.85 else OOM

    found = search(configs(mem_fraction_static=[0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9]), ["mem_fraction_static"])
    asked = run(found, fate)

    assert {setting(ask, "mem_fraction_static") for ask in asked if ask.repeat} == {0.65, 0.7, 0.8, 0.85}
    (text,) = [ceiling.text for ceiling in found.ceilings]
    assert text.startswith("ceiling of mem_fraction_static is 0.8, served 2 of 2 on")
    assert "; lowest is 0.7; at 0.65: died 2 of 2 on" in text


def test_a_start_that_broke_moves_nothing_and_is_made_again() -> None:
    def fate(ask: Ask, host: str) -> Told:
        return Broken("host lost") if ask.repeat == 0 else up_to(6)(ask, host)

    found = search(DEPTHS, ["speculative_num_steps"], verify=0)
    run(found, fate)

    assert found.ceilings[0].value == 6


def test_a_line_whose_probe_breaks_again_and_again_is_given_up_and_told() -> None:
    found = search(DEPTHS, ["speculative_num_steps"])

    asked = run(found, lambda ask, host: Broken("host lost"))

    assert len(asked) == 2
    assert found.ceilings == ()
    assert [step.name for step in found.steps] == ["stuck"]


def test_what_holds_above_what_does_not_stops_the_line_with_both() -> None:
    found = search(DEPTHS, ["speculative_num_steps"])
    by_depth = {config.speculation_depth: config for config in DEPTHS}
    found.tell(by_depth[3], 0, OOM)
    found.tell(by_depth[7], 0, Scored("a"))

    assert found.done
    assert found.ceilings == ()
    assert [step.text for step in found.steps] == [
        "stopped: speculative_num_steps=7 served 1 of 1 on 1 host, but speculative_num_steps=3, which needs no more, "
        "died 1 of 1 on 1 host (oom_graph_target: CUDA out of memory); what to do: docs/search.md, `When starts "
        "disagree`"
    ]


@pytest.mark.parametrize(("low", "high"), [(0.6, 0.8), (0.7, 0.7), (0.5, 0.95), (0.5, 0.5), (0.95, 0.95)])
def test_a_memory_fraction_has_a_lowest_and_a_largest_value(low: float, high: float) -> None:
    fractions = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]

    def fate(ask: Ask, host: str) -> Told:
        fraction = setting(ask, "mem_fraction_static")
        if fraction < low:
            return Dead("kv_budget", "no KV cache")
        return Scored(host) if fraction <= high else OOM

    found = search(configs(mem_fraction_static=fractions), ["mem_fraction_static"], verify=0)
    asked = run(found, fate)

    assert (found.ceilings[0].lowest, found.ceilings[0].value) == (low, high)
    assert len(asked) <= 8


def test_no_fraction_serves_where_too_little_and_too_much_meet() -> None:
    found = search(configs(mem_fraction_static=[0.6, 0.7, 0.8]), ["mem_fraction_static"])

    run(found, lambda ask, _: Dead("kv_budget", "none") if setting(ask, "mem_fraction_static") < 0.75 else OOM)

    assert found.ceilings[0].value is None


def test_two_knobs_have_a_ceiling_for_each_value_of_the_shorter() -> None:
    grid = configs(max_running_requests=[16, 32, 64, 128, 256], speculative_num_steps=[1, 2, 3])
    found = search(grid, ["max_running_requests", "speculative_num_steps"])

    run(
        found,
        lambda ask, host: (
            Scored(host) if setting(ask, "max_running_requests") * setting(ask, "speculative_num_steps") <= 128 else OOM
        ),
        slots=3,
    )

    assert [(c.others, c.value) for c in found.ceilings] == [
        ("speculative_num_steps=1", 128),
        ("speculative_num_steps=2", 64),
        ("speculative_num_steps=3", 32),
    ]


def test_other_axes_have_a_ceiling_each_and_are_searched_side_by_side() -> None:
    found = search(
        configs(attention_backend=["fa3", "triton"], max_running_requests=[8, 16, 32, 64]), ["max_running_requests"]
    )

    first = found.ask(2)

    assert {setting(ask, "attention_backend") for ask in first} == {"fa3", "triton"}


def test_a_run_that_is_resumed_asks_for_nothing_that_was_told() -> None:
    first, again = search(DEPTHS, ["speculative_num_steps"]), search(DEPTHS, ["speculative_num_steps"])
    asked = run(first, up_to(6), slots=3)
    for ask in reversed(asked):
        again.tell(ask.config, ask.repeat, up_to(6)(ask, "a"))

    assert again.done
    assert again.ask(4) == ()
    assert again.ceilings[0].value == 6


def test_a_guess_is_probed_first() -> None:
    found = search(DEPTHS, ["speculative_num_steps"], verify=0, guess=lambda of: 6)

    assert len(run(found, up_to(7))) == 2
