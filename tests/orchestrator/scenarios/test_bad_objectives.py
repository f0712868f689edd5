"""Objectives, fronts and searches over rates that are refused, and with what words."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import ScenarioError
from tests.orchestrator.scenario_samples import small_scenario

SPEED = "output_throughput_tok_s"
CHAT: dict[str, Any] = {"name": "chat", "concurrency": [16, 1, 32]}
MAX_RATE: dict[str, Any] = {"name": "chat", "slo": {"ttft_ms": 500}, "max_rate": {"low": 1, "high": 64}}


def refused(objective: dict[str, Any], *workloads: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        small_scenario(workloads=list(workloads or [CHAT]), objectives=[{"name": "o", **objective}], **changes)
    return f"{caught.value.key}: {caught.value}"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"preset": "agentik"}, "preset: is 'agentik', allowed: agentic, chat, batch, balanced; did you mean 'agentic'?"),
    ({}, "objectives[0]: wants one of maximize and minimize"),
    ({"maximize": SPEED}, f"does not say at which load level it looks: give `at`, or write {SPEED} @ C=1"),
    ({"maximize": f"{SPEED} @ C=2"}, f"maximize: looks at {SPEED} @ C=2, but workload 'chat' is measured at: C=1, C=16"),
    ({"maximize": f"{SPEED} @ C=1 of code"}, "maximize: looks at output_throughput_tok_s @ C=1 of code, but the workloads"),
    ({"maximize": "output_throughput_tok @ C=1"}, f"is 'output_throughput_tok', which is not a metric; did you mean '{SPEED}'?"),
    ({"maximize": "geomean(a @ C=1, b"}, "maximize: expected ')', at character 19 of 'geomean(a @ C=1, b'"),
    ({"maximize": "ttft_p50_ms @ C=1"}, "maximize: is better when smaller; write minimize"),
    ({"minimize": f"{SPEED} @ C=1"}, "minimize: is better when larger; write maximize"),
    ({"maximize": f"geomean({SPEED} @ C=1, ttft_p50_ms @ C=1)"}, "turn one round, e.g. 1 / ttft_p50_ms"),
    ({"maximize": f"{SPEED} @ C=1 + goodput_rps @ C=1"}, "which needs limits per request: give workload 'chat' an slo"),
    ({"maximize": f"{SPEED} @ C=1 + request_throughput_rps @ C=1"}, "has tok/s and req/s in one adding; use geomean"),
    ({"maximize": "1 + 1"}, "looks at no metric"),
    ({"maximize": "kv_tokens @ C=1"}, "but kv_tokens is a fact of a server's start: write it without @ and of"),
    ({"maximize": "max_rate_rps"}, "is searched for: give workload 'chat' max_rate, e.g. {low: 1, high: 64}"),
    ({"minimize": "cost_per_million_output_tokens @ C=1"}, "needs the price of a GPU for an hour: give slots.gpu_hour_cost"),
    ({"maximize": "kv_tokens", "limits": ["ttft_p50_ms < 9"]}, "limits[0]: does not say at which load level it holds: write"),
    ({"maximize": f"{SPEED} @ C=1", "limits": ["kv_tokens > 9 @ C=1"]}, "limits[0]: looks at kv_tokens @ C=1, which has no"),
    ({"maximize": f"{SPEED} @ C=1", "tie_breakers": [{"maximize": "simplicit"}]}, "tie_breakers[0].maximize: is 'simplicit'"),
]  # fmt: skip


@pytest.mark.parametrize(("objective", "told"), BAD, ids=[str(o) for o, _ in BAD])
def test_a_bad_objective_is_refused_with_what_to_do(objective: dict[str, Any], told: str) -> None:
    assert told in refused(objective)


def test_per_gpu_metrics_are_refused_for_servers_on_cpu() -> None:
    objective = {"maximize": f"{SPEED}_per_gpu @ C=1"}

    assert "is per GPU, but slots.gpus is 0" in refused(objective, slots={"gpus": 0})


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {"max_rate": {"low": 1, "high": 9}},
            "workloads[0].max_rate: needs limits per request: give the workload an slo",
        ),
        ({**MAX_RATE, "max_rate": {"low": 2, "high": 2}}, "max_rate.high: is 2, which is not above low, 2"),
        ({**MAX_RATE, "max_rate": {"low": 0.001, "high": 64}}, "allowed: up to 10000 times low, 10"),
        ({**MAX_RATE, "max_rate": {"low": 1, "high": 9, "attainment": 1.0}}, "attainment: input should be less than 1"),
    ],
)
def test_a_bad_search_over_rates_is_refused(keys: dict[str, Any], told: str) -> None:
    assert told in refused({"maximize": "kv_tokens"}, {"name": "chat", **keys})


@pytest.mark.parametrize(
    ("front", "told"),
    [
        ({"axes": [{"maximize": SPEED}]}, "pareto[0].axes: List should have at least 2 items"),
        ({"axes": [{"maximize": SPEED}, {"minimize": "ttft_p50_ms"}]}, "pareto[0].axes[0]: does not say at which load level"),
        ({"axes": [{"maximize": SPEED}, {"maximize": "ttft_p50_ms"}], "at": {"concurrency": 1}}, "axes[1].maximize: is better"),
        ({"axes": [{"maximize": SPEED}, {}], "at": {"concurrency": 1}}, "pareto[0].axes[1]: wants one of maximize and minimize"),
        ({"axes": [{"maximize": SPEED}, {"maximize": SPEED}], "at": {"concurrency": 1}, "limits": ["x < 1"]}, "limits[0]: is 'x'"),
        ({"name": "o", "axes": [{"maximize": SPEED}, {"maximize": SPEED}], "at": {"concurrency": 1}}, "is used twice, among"),
    ],
)  # fmt: skip
def test_a_bad_front_is_refused(front: dict[str, Any], told: str) -> None:
    assert told in refused({"maximize": "kv_tokens"}, pareto=[{"name": "f", **front}])


def test_with_several_workloads_one_must_be_named() -> None:
    code = {"name": "code", "concurrency": [4]}

    assert "must say which workload it looks at: chat, code" in refused({"maximize": f"{SPEED} @ C=1"}, CHAT, code)
    assert "must say which workload it looks at: chat, code" in refused({"preset": "chat"}, CHAT, code)
