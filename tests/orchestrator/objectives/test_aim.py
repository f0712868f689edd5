"""Aims: one value per trial, from one metric or several, and why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.objectives.aim import Aim, PointValue, aim_of, observations, trials_of
from orchestrator.objectives.scenario_objective import Criterion, Objective
from orchestrator.rankings.ranking import rank
from orchestrator.trial import LoadLevel

SPEED = "output_throughput_tok_s"
ONE, FOUR = LoadLevel("concurrency", 1.0), LoadLevel("concurrency", 4.0)


def point(trial: str, level: LoadLevel, workload: str = "chat", **changes: Any) -> PointValue:
    others = {key: changes.pop(key) for key in ("void_reasons", "absent", "facts") if key in changes}
    return PointValue(trial[0], workload, level, 0, changes, trial_id=trial, host="h", **others)


def aim(metric: str, level: LoadLevel | None = ONE) -> Aim:
    return Aim(metric, True, "chat", level)


def test_an_expression_has_one_value_for_each_trial_of_a_config() -> None:
    trials = trials_of(
        [
            point("a-0", ONE, output_throughput_tok_s=100.0),
            point("a-0", FOUR, output_throughput_tok_s=400.0),
            point("a-1", ONE, output_throughput_tok_s=121.0),
            point("a-1", FOUR, output_throughput_tok_s=400.0),
            point("b-0", ONE, output_throughput_tok_s=50.0),
        ]
    )

    found = observations(aim(f"geomean({SPEED}, {SPEED} @ C=4)"), trials)

    assert [(o.trial_id, round(o.value, 9)) for o in found] == [("a-0", 200.0), ("a-1", 220.0)]


def test_a_reading_may_look_at_another_workload() -> None:
    trials = trials_of([point("a-0", ONE, output_throughput_tok_s=9.0), point("a-0", FOUR, "code", goodput_rps=3.0)])

    assert aim(f"{SPEED} / goodput_rps @ C=4 of code").of_trial(trials[0]) == 3.0


def test_facts_of_a_trial_need_no_level_and_hold_at_void_points() -> None:
    (trial,) = trials_of(
        [point("a-0", ONE, void_reasons=("why",), facts={"kv_tokens": 5e5, "max_rate_rps of chat": 7.0})]
    )

    assert aim("kv_tokens", None).of_trial(trial) == 5e5
    assert aim("max_rate_rps", None).of_trial(trial) == 7.0
    assert replace(aim("max_rate_rps"), workload="code").of_trial(trial) is None


def test_why_there_is_no_value_names_the_metric_that_lacks() -> None:
    half = trials_of([point("a-0", ONE, output_throughput_tok_s=9.0)])
    void = trials_of(
        [
            point("a-0", ONE, output_throughput_tok_s=9.0),
            point("a-0", FOUR, void_reasons=("warm cache",), output_throughput_tok_s=8.0),
        ]
    )
    never = trials_of([point("a-0", ONE, absent={"max_rate_rps of chat": "not even 1 req/s keep it"})])
    zero = trials_of([point("a-0", ONE, output_throughput_tok_s=9.0, failed_share=0.0)])

    assert aim(f"min({SPEED}, {SPEED} @ C=4)").why_absent(half) == "not measured at C=4"
    assert aim(f"min({SPEED}, {SPEED} @ C=4)").of_trial(void[0]) is None
    assert aim(f"min({SPEED}, {SPEED} @ C=4)").why_absent(void) == "void at C=4: warm cache"
    assert aim("free_gib_after_capture").why_absent(half) == (
        "free_gib_after_capture is not known: the server did not tell it"
    )
    assert aim("max_rate_rps", None).why_absent(never) == "max_rate_rps of chat is not known: not even 1 req/s keep it"
    assert "divides by 0" in aim(f"{SPEED} / failed_share").why_absent(zero)


def test_no_trial_with_all_of_it_is_told_by_what_one_lacks() -> None:
    trials = trials_of([point("a-0", ONE, goodput_rps=1.0), point("a-1", FOUR, goodput_rps=2.0)])

    assert aim("min(goodput_rps, goodput_rps @ C=4)").why_absent(trials) == (
        "no trial has all of it; one lacks: not measured at C=4"
    )


def test_an_aim_says_where_it_looks() -> None:
    assert str(aim(SPEED)) == f"{SPEED} at C=1"
    assert aim(SPEED).where == "at C=1"
    assert str(aim(f"{SPEED} @ C=4")) == f"{SPEED} @ C=4"
    assert aim(f"{SPEED} @ C=4").where == "at C=4"
    assert str(aim("simplicity")) == "simplicity"
    assert aim("simplicity").where == "of simplicity"
    assert aim(f"min({SPEED}, {SPEED} @ C=4)").where == f"of min({SPEED}, {SPEED} @ C=4) at C=1"


def test_an_expression_without_a_level_of_its_own_looks_where_its_first_metric_does() -> None:
    found = aim_of(Criterion.model_validate({"maximize": f"min({SPEED} @ C=4, {SPEED} @ C=1)"}), "chat")

    assert found.level == FOUR
    assert aim_of(Criterion.model_validate({"maximize": "kv_tokens"}), "chat").level is None


SETTINGS = {f"depth-{d}": {"speculative_num_steps": d} for d in (3, 4, 5)}
REPORT_A = {3: (234.0, 1979.0), 4: (277.0, 1596.0), 5: (282.0, 1119.0)}
SIXTEEN = LoadLevel("concurrency", 16.0)


def report_a(objective: dict[str, Any], **facts: dict[str, float]) -> list[str]:
    points = []
    for depth, (single, many) in REPORT_A.items():
        for level, value in ((ONE, single), (SIXTEEN, many)):
            name = f"depth-{depth}"
            metrics = {SPEED: value}
            points.append(PointValue(name, "chat", level, 0, metrics, trial_id=name, facts=facts.get(f"d{depth}", {})))
    ranking = rank(Objective.model_validate({"name": "o", **objective}), SETTINGS, points, workload="chat")
    return [row.config_id for row in ranking.rows]


@pytest.mark.parametrize(
    "breaker",
    [{"maximize": SPEED, "at": {"concurrency": 16}}, {"maximize": f"{SPEED} @ C=16"}],
    ids=["at", "expression"],
)
def test_depth_4_beats_5_by_the_next_load_level(breaker: dict[str, Any]) -> None:
    keys = {"maximize": SPEED, "at": {"concurrency": 1}, "tie_breakers": [breaker]}

    assert report_a(keys)[:2] == ["depth-4", "depth-5"]


def test_depth_4_beats_5_by_memory_that_is_left_or_by_simplicity() -> None:
    keys = {"maximize": SPEED, "at": {"concurrency": 1}}
    memory = {"d4": {"free_gib_after_capture": 9.5}, "d5": {"free_gib_after_capture": 7.0}}
    plain = {"d4": {"simplicity": 1 / 8}, "d5": {"simplicity": 1 / 9}}

    assert report_a(keys)[:2] == ["depth-5", "depth-4"]
    assert report_a({**keys, "tie_breakers": [{"maximize": "free_gib_after_capture"}]}, **memory)[0] == "depth-4"
    assert report_a({**keys, "tie_breakers": [{"maximize": "simplicity"}]}, **plain)[0] == "depth-4"


def test_balanced_by_the_geometric_mean_picks_depth_3() -> None:
    assert report_a({"maximize": f"geomean({SPEED} @ C=1, {SPEED} @ C=16)"})[0] == "depth-3"
    assert report_a({"maximize": f"geomean({SPEED} @ C=1 weight 4, {SPEED} @ C=16)"})[0] == "depth-4"
