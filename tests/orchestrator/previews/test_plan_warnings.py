"""What `plan` says of keys that have no say and of windows that are too short; the percentiles have their own tests."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.previews.plan_warnings import plan_warnings
from orchestrator.scenarios.scenario import Scenario
from tests.orchestrator.scenario_samples import small_scenario


def scenario(workload: dict[str, Any], **measure: Any) -> Scenario:
    given = small_scenario().model_dump(exclude_unset=True)
    given["workloads"] = [{"name": "chat", **workload}]
    given["measure"] = {"warmup_s": 1, **(measure or {"duration_s": 10})}
    given["objectives"] = [{"name": "o", "maximize": "output_throughput_tok_s", "at": {"rate": 2}}]
    return Scenario.model_validate(given)


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        ({}, None),
        ({"arrival": {"ramp_s": 9}}, None),
        ({"arrival": {"ramp_s": 10}}, "workloads[0].arrival.ramp_s is 10: the load never gets to its level"),
        ({"arrival": {"steps": [[4, 1], [6, 2]]}}, None),
        ({"arrival": {"steps": [[4, 1], [6, 2], [1, 3]]}}, "workloads[0].arrival.steps[2] begins after 10 s and is"),
        ({"session": {"turns": 3, "gap_s": 4}}, None),
        ({"session": {"turns": 3, "gap_s": 5}}, "workloads[0]: a session thinks for 10 s"),
        ({"dataset": "file:a"}, None),
        ({"dataset": "file:a", "input_tokens": 9}, "workloads[0].input_tokens has no say: prompts of a file are sent"),
        ({"dataset": "file:a", "session": {"turns": 3, "turn_tokens": 5}}, "workloads[0].session.turn_tokens has no"),
        ({"input_tokens": 9, "mix": [{"name": "a"}, {"name": "b", "dataset": "file:b"}]}, None),
        ({"mix": [{"name": "a"}, {"name": "b", "dataset": "file:b", "input_tokens": 9}]},
         "workloads[0].mix[1].input_tokens has no say"),
    ],
)  # fmt: skip
def test_what_will_not_come_about_is_told(workload: dict[str, Any], told: str | None) -> None:
    warnings = plan_warnings(scenario({"rates": [2], **workload}))

    assert len(warnings) == (told is not None)
    assert all(str(told) in warning for warning in warnings)


def test_a_point_that_is_bounded_by_requests_may_have_any_ramp() -> None:
    assert plan_warnings(scenario({"rates": [2], "arrival": {"ramp_s": 60}}, requests=40)) == []
