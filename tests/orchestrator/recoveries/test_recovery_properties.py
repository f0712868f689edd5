"""The policy against a whole memory model: where it goes, that it ends, and how often it gets a server up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.outcome import Label
from orchestrator.recoveries.recovery import Repair
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_recovery import KNOBS
from orchestrator.sglang.sglang_rules import broken_rule
from tests.orchestrator.modelled_starts import lineage
from tests.orchestrator.scenario_samples import small_scenario

QWEN, DEEPSEEK = "Qwen/Qwen3.5-122B-A10B", "deepseek-ai/DeepSeek-V4-Flash"


def asked(model: str, levels: list[int], tries: int = 3, **given_settings: Any) -> Scenario:
    return small_scenario(
        model={"path": model, "bundled_draft": True},
        engine={"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN", **_given(given_settings)}},
        sweep={},
        slots={"gpus": 4, "emulated_gpus": 4},
        workloads=[{"name": "chat", "concurrency": levels}],
        objectives=[{"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": levels[0]}}],
        recovery={"tries": tries},
    )


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


scenarios = st.builds(
    asked,
    st.sampled_from([QWEN, DEEPSEEK]),
    st.sampled_from([[1], [1, 16], [32], [1, 64, 256]]),
    st.integers(1, 10),
    speculative_num_steps=st.sampled_from([1, 3, 5, 10]),
    mem_fraction_static=st.integers(10, 97).map(lambda n: n / 100),
    max_running_requests=st.sampled_from([1, 8, 32, 128, 512]),
    cuda_graph_max_bs_decode=st.sampled_from([None, 1, 16, 256]),
)


def judge_move(old: dict[str, Any], died_of: Label, new: dict[str, Any]) -> None:
    """Every change goes the way that the death asks for."""
    if died_of in {Label.OOM_GRAPH_TARGET, Label.OOM_GRAPH_DRAFT}:
        assert new["mem_fraction_static"] <= old["mem_fraction_static"]
    if died_of is Label.KV_BUDGET:
        assert new["mem_fraction_static"] >= old["mem_fraction_static"]
    assert new["max_running_requests"] <= old["max_running_requests"]
    assert new.get("cuda_graph_max_bs_decode", 512) <= old.get("cuda_graph_max_bs_decode", 512)


def judge_settings(asked_for: dict[str, Any], now: dict[str, Any]) -> None:
    """Within every bound, and what was asked in all that is no matter of memory."""
    differing = {name for name in {*asked_for, *now} if asked_for.get(name) != now.get(name)}
    assert differing <= set(KNOBS)
    assert "mem_fraction_static" not in differing or 0.1 <= now["mem_fraction_static"] <= 0.97
    assert now["max_running_requests"] >= 1
    assert now.get("cuda_graph_max_bs_decode", 1) >= 1
    assert now.get("context_length", 2048) >= 2048  # 256 tokens in and out, with all reserves 1024
    assert broken_rule(now) is None


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(scenarios, st.booleans())
def test_a_lineage_ends_never_repeats_goes_the_right_way_and_stays_within_bounds(
    scenario: Scenario, numbers: bool
) -> None:
    trials, decided, plan = lineage(scenario, numbers=numbers)
    asked_for = trials[0].config.as_dict()

    assert len({t.config.config_id for t in trials}) == len(trials) <= scenario.recovery.tries + 1
    assert plan.death is None or not isinstance(decided[-1].decision, Repair)
    for old, recovery, new in zip(trials, decided, trials[1:], strict=False):
        judge_move(old.config.as_dict(), recovery.failed.label, new.config.as_dict())
        judge_settings(asked_for, new.config.as_dict())
        assert new.repaired is not None
        assert (new.repaired.asked_id, new.repaired.from_id) == (trials[0].config.config_id, old.config.config_id)


@pytest.mark.parametrize(
    ("model", "levels", "given_settings", "served"),
    [
        (QWEN, [1, 16, 32], {"speculative_num_steps": 10, "mem_fraction_static": 0.85, "max_running_requests": 512},
         {"max_running_requests": 256}),
        (DEEPSEEK, [1, 16], {"speculative_num_steps": 1, "mem_fraction_static": 0.7, "max_running_requests": 256},
         {"mem_fraction_static": 0.62, "cuda_graph_max_bs_decode": 16}),
        # The weights alone need 0.40.
        (DEEPSEEK, [1, 16], {"speculative_num_steps": 1, "mem_fraction_static": 0.3, "max_running_requests": 16},
         {"mem_fraction_static": 0.43}),
    ],
)  # fmt: skip
def test_both_field_campaigns_start_after_one_repair(
    model: str, levels: list[int], given_settings: dict[str, Any], served: dict[str, Any]
) -> None:
    trials, _, plan = lineage(asked(model, levels, **given_settings))
    assert trials[-1].repaired is not None

    assert plan.death is None
    assert len(trials) == 2
    assert {name: now for name, _, now in trials[-1].repaired.changes} == served
