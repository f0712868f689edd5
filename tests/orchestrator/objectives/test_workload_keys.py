"""Keys of workloads: what points they make."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.objectives.aim import level_of
from orchestrator.objectives.limits import parse_limit
from orchestrator.objectives.scenario_objective import At
from orchestrator.planning.planner import make_plan, point_specs
from orchestrator.planning.trial_estimate import DRAIN_S, start_estimate_s
from orchestrator.scenarios.workload_traffic import longest_request
from orchestrator.traffic import POISSON, Arrival, Draw, Session, Traffic
from orchestrator.trial import LoadLevel, PointSpec
from tests.orchestrator.scenario_samples import small_scenario


def specs(*, measure: dict[str, Any] | None = None, **keys: Any) -> list[PointSpec]:
    if not {"concurrency", "rates", "trace"} & set(keys):
        keys["concurrency"] = [1]
    at = {"concurrency": 1} if "concurrency" in keys else {"rate": 2} if "rates" in keys else {"trace": 1.0}
    objectives = [{"name": "fast", "maximize": "output_throughput_tok_s", "at": at}]
    measure = measure or {"duration_s": 5}
    scenario = small_scenario(workloads=[{"name": "w", **keys}], objectives=objectives, measure=measure)
    return list(point_specs(scenario))


def test_a_workload_with_two_lengths_makes_the_same_points_as_ever() -> None:
    (spec,) = specs(input_tokens=100, output_tokens=20)

    assert (spec.input_tokens, spec.output_tokens, spec.traffic, spec.arrival) == (100, 20, (), POISSON)
    # The id is what runs of earlier releases are resumed by.
    plan = make_plan(small_scenario(), 1)
    assert sorted({p.point_id for t in plan.trials for p in t.points})[:2] == ["290010807d6f", "b0d98e4273cf"]


def test_drawn_lengths_a_session_and_prefix_groups_become_one_kind_of_traffic() -> None:
    (spec,) = specs(
        input_tokens={"normal": {"mean": 512, "std": 100, "high": 2048}},
        output_tokens={"histogram": [[128, 3], [1024, 1]]},
        shared_prefix_tokens=64,
        prefix_groups=5,
        session={
            "kind": "agentic",
            "turns": 4,
            "gap_s": {"exponential": {"mean": 2}},
            "turn_tokens": {"uniform": {"low": 8, "high": 16}},
        },
        tokenizer="/models/x",
    )

    assert spec.traffic == (
        Traffic(
            "w",
            1.0,
            "random_text",
            Draw("normal", 512, 100, 1, 2048),
            Draw("histogram", low=1, bins=((128, 3), (1024, 1))),
            64,
            5,
            Session("agentic", Draw(mean=4), Draw("exponential", 2), Draw("uniform", low=8, high=16)),
        ),
    )
    assert (spec.input_tokens, spec.output_tokens, spec.tokenizer) == (512, 352, "/models/x")


def test_kinds_of_a_mix_take_from_the_workload_what_they_leave_out() -> None:
    (spec,) = specs(
        dataset="code",
        input_tokens=100,
        mix=[
            {"name": "a", "weight": 3, "output_tokens": {"lognormal": {"mean": 9, "std": 3}}},
            {"name": "b", "dataset": "random_text", "input_tokens": 500},
        ],
    )

    assert [(t.name, t.weight, t.dataset, t.input_tokens.mean) for t in spec.traffic] == [
        ("a", 3.0, "code", 100.0),
        ("b", 1.0, "random_text", 500.0),
    ]
    assert spec.traffic[0].output_tokens == Draw("lognormal", 9, 3, 1)
    assert (spec.input_tokens, spec.output_tokens) == (200, 71)


def test_an_arrival_concerns_each_kind_of_level_as_far_as_it_can() -> None:
    keys = {"kind": "gamma", "burstiness": 0.5, "ramp_s": 4, "steps": [[60, 1], [30, 2.5]]}
    closed, opened = specs(concurrency=[1], rates=[2], arrival=keys)

    assert closed.arrival == Arrival(ramp_s=4.0)
    assert opened.arrival == Arrival("gamma", 0.5, 4.0, ((60.0, 1.0), (30.0, 2.5)))
    assert specs(rates=[2], arrival="constant")[0].arrival == Arrival("constant")


def test_a_trace_has_levels_by_its_speed() -> None:
    slow, fast = specs(dataset="file:t.jsonl", trace=[2.0, 1])

    assert (str(slow.level), str(fast.level)) == ("trace x1", "trace x2")
    assert slow.arrival == Arrival("trace")
    assert level_of(At.model_validate({"trace": 2.0})) == LoadLevel("trace", 2.0)
    assert parse_limit("ttft_p95_ms <= 5 @ trace x0.5").level == LoadLevel("trace", 0.5)


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [
        ({}, 512),
        ({"input_tokens": {"normal": {"mean": 100, "std": 10}}}, 130 + 256),
        ({"input_tokens": {"uniform": {"low": 1, "high": 90}}, "output_tokens": 10}, 100),
        ({"input_tokens": 100, "output_tokens": 20, "session": {"turns": 3, "turn_tokens": 5}}, 120 + 2 * 25),
        ({"mix": [{"name": "a"}, {"name": "b", "output_tokens": 1000}]}, 1256),
    ],
)
def test_the_longest_request_is_what_memory_is_asked_for(keys: dict[str, Any], tokens: int) -> None:
    scenario = small_scenario(workloads=[{"name": "w", "concurrency": [1], **keys}])

    assert longest_request(scenario.workloads[0]) == tokens


def test_the_estimate_of_time_knows_users_who_think_ramps_steps_and_traces() -> None:
    def seconds(**keys: Any) -> float:
        workload = {"name": "w", **keys}
        at = {"concurrency": 1} if "concurrency" in keys else {"rate": 2} if "rates" in keys else {"trace": 2}
        scenario = small_scenario(
            workloads=[workload],
            objectives=[{"name": "f", "maximize": "output_throughput_tok_s", "at": at}],
            measure={"requests": 120, "warmup_s": 0},
            sweep={"axes": {"speculative_num_steps": [0]}},
        )
        trial = make_plan(scenario, 1).trials[0]
        return round(trial.estimated_s - start_estimate_s(scenario, trial.config) - DRAIN_S, 3)

    assert seconds(concurrency=[1]) == 600
    assert seconds(concurrency=[1], session={"turns": 4, "gap_s": 8}) == 600 + 120 * 8 * 3 / 4
    assert seconds(rates=[2]) == 60
    assert seconds(rates=[2], arrival={"ramp_s": 10}) == 65
    assert seconds(rates=[2], arrival={"steps": [[10, 1], [5, 2], [9, 0.5]]}) == 10 + 5 + (60 - 20) * 2
    assert seconds(rates=[2], session={"turns": 4, "gap_s": 8}) == 60 + 15 + 24
    assert seconds(dataset="file:t", trace=[2]) == 60
