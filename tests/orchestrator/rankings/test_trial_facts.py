"""Facts of a trial: what its start told, how plain its config is, its highest rate under the SLO."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.objectives.aim import PointValue
from orchestrator.rankings.trial_facts import rate_goal, rates_seen, simplicity, start_facts, with_facts
from orchestrator.scenarios.scenario_engine import Engine
from orchestrator.searches.rate_search import RateSeen
from orchestrator.trial import LoadLevel
from tests.orchestrator.scenario_samples import small_scenario

ENGINE = Engine.model_validate({"kind": "emulator"})
SPECULATION = {"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}


def row(**changes: Any) -> dict[str, Any]:
    phases = [
        {"phase": "weights", "free_gib": 60.0},
        {"phase": "kv_pool", "free_gib": 12.0},
        {"phase": "graph_target", "free_gib": 9.5},
        {"phase": "graph_draft", "free_gib": 8.25},
        {"phase": "warmup", "free_gib": None},
    ]
    return {
        "trial_id": "t",
        "settings_json": json.dumps({"mem_fraction_static": 0.8}),
        "resolved_json": json.dumps({"max_total_num_tokens": 412000}),
        "phases": phases,
        **changes,
    }


def test_a_start_tells_what_memory_is_left_after_the_capture_and_how_large_the_cache_is() -> None:
    assert start_facts(row(), ENGINE) == {"free_gib_after_capture": 8.25, "kv_tokens": 412000.0, "simplicity": 0.5}


def test_what_a_server_did_not_tell_is_left_out() -> None:
    bare = row(resolved_json="", phases=[{"phase": "weights", "free_gib": 60.0}])

    assert start_facts(bare, ENGINE) == {"simplicity": 0.5}
    assert start_facts(row(resolved_json=None, phases=None), ENGINE) == {"simplicity": 0.5}


def test_without_speculation_is_simpler_than_any_depth_and_a_smaller_depth_simpler_than_a_larger() -> None:
    def at(depth: int) -> float:
        return simplicity(
            {**SPECULATION, "speculative_num_steps": depth, "speculative_num_draft_tokens": depth + 1}, ENGINE
        )

    plain = simplicity({}, ENGINE)

    assert [plain, at(1), at(4), at(5)] == [1.0, 1 / 7, 1 / 10, 1 / 11]


def test_a_setting_at_its_default_makes_nothing_less_simple() -> None:
    assert simplicity({"page_size": 64}, ENGINE) == 0.5
    assert simplicity({"tokenizer_mode": "auto"}, ENGINE) == 1.0
    assert simplicity({"env.SGLANG_X": "1"}, ENGINE) == 0.5


WORKLOAD = {
    "name": "chat",
    "slo": {"ttft_ms": 500},
    "max_rate": {"low": 1, "high": 8, "precision": 0.5, "attainment": 0.8},
}


def rate_point(trial: str, rate: float, share: float | None, n: float = 400.0, **changes: Any) -> PointValue:
    metrics = {"attainment": share, "attainment_n": None if share is None else n}
    return PointValue("c", "chat", LoadLevel("rate", rate), 0, metrics, trial_id=trial, **changes)


def test_the_probes_of_a_trial_are_its_points_at_rates() -> None:
    points = [
        rate_point("t", 1.0, 0.99),
        rate_point("t", 2.0, None, absent={"attainment": "the queue grew"}),
        rate_point("t", 1.5, 0.2, void_reasons=("the client was the bottleneck",)),
        PointValue("c", "chat", LoadLevel("concurrency", 4.0), 0, {"attainment": 1.0}, trial_id="t"),
        PointValue("c", "code", LoadLevel("rate", 1.0), 0, {"attainment": 1.0}, trial_id="t"),
    ]

    assert rates_seen("chat", points) == [
        RateSeen(1.0, 0.99, 400.0, False),
        RateSeen(2.0, None, None, True),
        RateSeen(1.5, None, None, False),
    ]


def test_a_trials_highest_rate_is_one_of_its_facts() -> None:
    scenario = small_scenario(workloads=[WORKLOAD], objectives=[{"name": "f", "maximize": "max_rate_rps"}])
    goal = rate_goal(scenario.workloads[0])
    assert goal is not None
    assert goal.rates() == (1.0, 1.414, 2.0, 2.828, 4.0, 5.657, 8.0)
    good = [rate_point("t", rate, share) for rate, share in ((1.0, 1.0), (2.0, 0.95), (4.0, 0.3), (2.828, 0.5))]
    bad = [rate_point("u", 1.0, 0.1)]

    values = with_facts(scenario, [row(), row(trial_id="u")], [*good, *bad])

    assert dict(values[0].facts) == {
        "free_gib_after_capture": 8.25,
        "kv_tokens": 412000.0,
        "simplicity": 0.5,
        "max_rate_low_rps of chat": 2.0,
        "max_rate_high_rps of chat": 2.828,
        "max_rate_rps of chat": 2.0,
    }
    assert values[0].facts == values[3].facts
    assert "max_rate_rps of chat" not in values[4].facts
    assert values[4].absent["max_rate_rps of chat"] == "not even 1 req/s keep 80% of requests within the slo (1 probe)"


@pytest.mark.parametrize("kind", ["sglang", "emulator"])
def test_draft_tokens_follow_from_steps_where_they_are_left_open(kind: str) -> None:
    engine = Engine.model_validate({"kind": kind})

    assert simplicity({"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}, engine) == 1 / 7
