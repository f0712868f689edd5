"""Objectives and presets of a scenario: what they come to."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.rankings.objective_text import objective_texts
from orchestrator.scenarios.objective_presets import PRESETS
from orchestrator.scenarios.scenario import Scenario
from tests.orchestrator.scenario_samples import small_scenario

SPEED = "output_throughput_tok_s"
CHAT: dict[str, Any] = {"name": "chat", "concurrency": [16, 1, 32]}
OPEN: dict[str, Any] = {"name": "chat", "rates": [2.0, 8.0], "slo": {"ttft_ms": 500}}
MAX_RATE: dict[str, Any] = {"name": "chat", "slo": {"ttft_ms": 500}, "max_rate": {"low": 1, "high": 64}}
LAST = [{"maximize": "free_gib_after_capture"}, {"maximize": "simplicity"}]


def scenario(objective: dict[str, Any], *workloads: dict[str, Any], **changes: Any) -> Scenario:
    return small_scenario(workloads=list(workloads or [CHAT]), objectives=[{"name": "o", **objective}], **changes)


def keys(objective: dict[str, Any], *workloads: dict[str, Any]) -> dict[str, Any]:
    """What an objective comes to."""
    found = scenario(objective, *workloads).objectives[0].model_dump(exclude_none=True)
    return {key: value for key, value in found.items() if key not in {"name", "preset", "near_tie"}}


def test_agentic_is_speed_at_the_lowest_level_and_then_at_the_next() -> None:
    assert keys({"preset": "agentic"}) == {
        "maximize": SPEED,
        "at": {"concurrency": 1},
        "limits": [],
        "tie_breakers": [{"maximize": SPEED, "at": {"concurrency": 16}}, *LAST],
    }


def test_chat_is_throughput_at_the_middle_level_under_latency_gates() -> None:
    assert keys({"preset": "chat"}) == {
        "maximize": SPEED,
        "at": {"concurrency": 16},
        "limits": ["ttft_p95_ms <= 1000", "tpot_p95_ms <= 50"],
        "tie_breakers": [
            {"maximize": "tok_s_per_user_p50", "at": {"concurrency": 16}},
            {"maximize": SPEED, "at": {"concurrency": 32}},
            *LAST,
        ],
    }


def test_chat_with_an_slo_is_goodput_and_with_a_rate_search_the_highest_rate() -> None:
    with_slo = keys({"preset": "chat"}, OPEN)

    assert (with_slo["maximize"], with_slo["at"]) == ("goodput_rps", {"rate": 8.0})
    assert with_slo["limits"] == ["attainment >= 0.9"]
    assert keys({"preset": "chat"}, MAX_RATE) == {"maximize": "max_rate_rps", "limits": [], "tie_breakers": LAST}


def test_batch_is_throughput_at_the_highest_level_and_balanced_the_geometric_mean_of_all() -> None:
    batch, balanced = keys({"preset": "batch"}), keys({"preset": "balanced"})

    assert (batch["maximize"], batch["at"]) == (SPEED, {"concurrency": 32})
    assert batch["tie_breakers"] == [{"maximize": SPEED, "at": {"concurrency": 16}}, *LAST]
    assert balanced["maximize"] == f"geomean({SPEED} @ C=1, {SPEED} @ C=16, {SPEED} @ C=32)"
    assert balanced["tie_breakers"] == [{"maximize": SPEED, "at": {"concurrency": 32}}, *LAST]


def test_in_an_open_loop_what_a_user_sees_counts_where_throughput_is_that_of_the_arrivals() -> None:
    agentic = keys({"preset": "agentic"}, OPEN)

    assert (agentic["maximize"], agentic["at"]) == ("tok_s_per_user_p50", {"rate": 2.0})
    assert keys({"preset": "balanced"}, OPEN)["maximize"] == (
        "geomean(tok_s_per_user_p50 @ 2 req/s, tok_s_per_user_p50 @ 8 req/s)"
    )


def test_a_level_of_many_digits_is_named_with_all_of_them() -> None:
    found = keys({"preset": "balanced"}, {**OPEN, "rates": [12.3456789]})

    assert found["maximize"] == "geomean(tok_s_per_user_p50 @ 12.3456789 req/s)"


def test_what_is_given_beside_a_preset_counts_instead_of_what_it_says() -> None:
    found = keys({"preset": "chat", "limits": ["tpot_p50_ms < 20"], "at": {"concurrency": 32}})

    assert (found["limits"], found["at"], found["maximize"]) == (["tpot_p50_ms < 20"], {"concurrency": 32}, SPEED)
    other = keys({"preset": "batch", "minimize": "ttft_p50_ms", "at": {"concurrency": 1}})
    assert "maximize" not in other
    assert other["tie_breakers"][-2:] == LAST


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("workload", [CHAT, OPEN, {"name": "chat", "concurrency": [4]}], ids=["C", "rate", "one level"])
def test_every_preset_holds_at_every_workload_and_when_a_run_is_read_again(
    preset: str, workload: dict[str, Any]
) -> None:
    first = scenario({"preset": preset}, workload)

    again = Scenario.model_validate(first.model_dump(mode="json"))

    assert again.objectives == first.objectives
    assert first.objectives[0].maximize is not None


def test_plan_says_what_a_preset_came_to_and_what_is_searched() -> None:
    wanted = scenario(
        {"preset": "agentic"},
        {**CHAT, "slo": {"ttft_ms": 500}, "max_rate": {"low": 1, "high": 64}},
        pareto=[{"name": "f", "axes": [{"maximize": SPEED}, {"minimize": "ttft_p50_ms"}], "at": {"concurrency": 1}}],
    )

    assert objective_texts(wanted) == [
        f"Objective o: (preset agentic) highest {SPEED} at C=1; near-ties within 2.0% by: highest {SPEED} at C=16; "
        "highest free_gib_after_capture; highest simplicity",
        f"Front f: highest {SPEED} at C=1 against lowest ttft_p50_ms at C=1",
        "Workload chat: the highest of 87 rates from 1 to 64 req/s at which 90% of requests keep the slo is searched "
        "in each trial, with at most 3 points a rate",
    ]


@pytest.mark.parametrize(
    "objective",
    [
        {"maximize": f"mean({SPEED} @ C=1, {SPEED} @ C=16)", "limits": ["free_gib_after_capture >= 4"]},
        {"maximize": f"{SPEED} @ C=1", "limits": ["ttft_p50_ms < 100"]},
        {"maximize": f"{SPEED} / {SPEED} @ C=1", "at": {"concurrency": 16}},
        {"maximize": "kv_tokens"},
    ],
)
def test_a_good_objective_is_taken(objective: dict[str, Any]) -> None:
    assert scenario(objective).objectives[0].maximize == objective["maximize"]


def test_an_expression_may_look_at_two_workloads() -> None:
    code = {"name": "code", "concurrency": [4]}

    found = scenario({"maximize": f"geomean({SPEED} @ C=1 of chat, {SPEED} @ C=4 of code)"}, CHAT, code)

    assert found.objectives[0].at is None
