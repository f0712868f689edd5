"""Ranking as the field's operators decided, and its edges."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.rankings.ranking import rank
from orchestrator.rankings.ranking_row import Ranking
from orchestrator.trial import LoadLevel

SPEED = "output_throughput_tok_s"

# The field report's table: output tokens per second by depth and concurrency (None: the operators did not measure it).
REPORT_A: dict[int, dict[int, float | None]] = {
    1: {1: 123, 16: None, 32: None},
    3: {1: 234, 16: None, 32: 1979},
    4: {1: 277, 16: 1596, 32: None},
    5: {1: 282, 16: 1119, 32: None},
}


def depth_settings(depth: int) -> dict[str, Any]:
    return {
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": depth,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": depth + 1,
    }


def point(config: str, concurrency: int, repeat: int = 0, void: tuple[str, ...] = (), **metrics: float) -> PointValue:
    return PointValue(config, "chat", LoadLevel("concurrency", float(concurrency)), repeat, metrics, void)


def report_a_points() -> list[PointValue]:
    return [
        point(f"depth-{depth}", concurrency, output_throughput_tok_s=value)
        for depth, levels in REPORT_A.items()
        for concurrency, value in levels.items()
        if value is not None
    ]


def objective(**keys: Any) -> Objective:
    return Objective.model_validate({"name": "o", "maximize": SPEED, "at": {"concurrency": 1}, **keys})


def report_a(wanted: Objective) -> Ranking:
    configs = {f"depth-{depth}": depth_settings(depth) for depth in REPORT_A}
    return rank(wanted, configs, report_a_points(), workload="chat")


def test_agentic_picks_depth_4_since_the_near_tie_with_5_is_decided_at_16_requests() -> None:
    ranking = report_a(objective(near_tie=0.02, tie_breakers=[{"maximize": SPEED, "at": {"concurrency": 16}}]))

    assert [row.config_id for row in ranking.rows] == ["depth-4", "depth-5", "depth-3", "depth-1"]
    assert [row.tie for row in ranking.rows] == [True, True, False, False]
    assert ranking.rows[0].gap_to_best == pytest.approx(5 / 282)
    assert ranking.reason == (
        "speculative_num_steps=4: 277 tok/s at C=1; a near-tie (within 2.0% of the best) with "
        "speculative_num_steps=5 (282 tok/s, 1.8% better), decided by the tie-breaker output_throughput_tok_s "
        "at C=16: 1596 tok/s against 1119 tok/s"
    )


def test_without_a_tie_breaker_the_faster_of_a_near_tie_is_first() -> None:
    ranking = report_a(objective(near_tie=0.02))

    assert [row.config_id for row in ranking.rows][:2] == ["depth-5", "depth-4"]
    assert "which no tie-breaker decides" in ranking.reason


def test_balanced_picks_depth_3_and_says_who_was_not_measured_there() -> None:
    ranking = report_a(objective(at={"concurrency": 32}))

    assert ranking.winner is not None
    assert ranking.winner.config_id == "depth-3"
    assert [(r.config_id, r.value, r.gates_failed) for r in ranking.rows[1:]] == [
        ("depth-1", None, ("not measured at C=32",)),
        ("depth-4", None, ("not measured at C=32",)),
        ("depth-5", None, ("not measured at C=32",)),
    ]


def test_a_config_that_fails_a_limit_is_behind_all_that_pass_whatever_its_value() -> None:
    points = [
        point("fast", 1, output_throughput_tok_s=900, ttft_p95_ms=800),
        point("slow", 1, output_throughput_tok_s=100, ttft_p95_ms=100),
    ]
    ranking = rank(
        objective(limits=["ttft_p95_ms <= 500"]), {"fast": {}, "slow": {"page_size": 1}}, points, workload="chat"
    )

    assert [(r.config_id, r.gates_failed) for r in ranking.rows] == [
        ("slow", ()),
        ("fast", ("ttft_p95_ms <= 500 (is 800)",)),
    ]
    assert ranking.rows[1].gap_to_best == -8.0


def test_a_limit_can_look_at_another_level() -> None:
    points = [point("a", 1, output_throughput_tok_s=10), point("a", 16, tpot_p50_ms=30)]
    ranking = rank(objective(limits=["tpot_p50_ms < 20 @ C=16"]), {"a": {}}, points, workload="chat")

    assert ranking.rows[0].gates_failed == ("tpot_p50_ms < 20 @ C=16 (is 30)",)
    assert ranking.winner is None
    assert ranking.reason == "no winner: no config was measured at C=1 and passed every limit"


def test_repeats_are_averaged_on_the_log_scale_and_counted() -> None:
    points = [point("a", 1, repeat=r, output_throughput_tok_s=v) for r, v in enumerate([100.0, 400.0])]
    row = rank(objective(), {"a": {}}, points, workload="chat").rows[0]

    assert row.value == pytest.approx(200)
    assert row.trials == 2


def test_a_void_point_is_no_value_and_its_reason_is_told() -> None:
    points = [
        point("a", 1, void=("the client was the bottleneck",), output_throughput_tok_s=999),
        point("b", 1, output_throughput_tok_s=1),
    ]
    ranking = rank(objective(), {"a": {}, "b": {"page_size": 1}}, points, workload="chat")

    assert [(r.config_id, r.value) for r in ranking.rows] == [("b", 1), ("a", None)]
    assert ranking.rows[1].gates_failed == ("void at C=1: the client was the bottleneck",)


def test_minimising_ranks_the_lowest_first() -> None:
    points = [point("a", 1, tpot_p50_ms=12), point("b", 1, tpot_p50_ms=10)]
    wanted = Objective.model_validate({"name": "o", "minimize": "tpot_p50_ms", "at": {"concurrency": 1}})
    ranking = rank(wanted, {"a": {"page_size": 1}, "b": {"page_size": 16}}, points, workload="chat")

    assert [(r.config_id, r.gap_to_best) for r in ranking.rows] == [("b", 0.0), ("a", pytest.approx(0.2))]
    assert ranking.reason == "page_size=16: 10 ms at C=1, 20.0% ahead of the runner-up page_size=1 (12 ms)"


def test_tie_breakers_are_asked_in_turn_and_near_ties_of_one_go_to_the_next() -> None:
    points = []
    for name, at_1, at_16, ttft in [("a", 100, 500, 30), ("b", 99.5, 503, 20), ("c", 99, 300, 1)]:
        points += [point(name, 1, output_throughput_tok_s=at_1), point(name, 16, output_throughput_tok_s=at_16)]
        points.append(point(name, 4, ttft_p50_ms=ttft))
    breakers = [{"maximize": SPEED, "at": {"concurrency": 16}}, {"minimize": "ttft_p50_ms", "at": {"concurrency": 4}}]
    configs: dict[str, dict[str, Any]] = {name: {"page_size": i} for i, name in enumerate("abc")}
    ranking = rank(objective(near_tie=0.02, tie_breakers=breakers), configs, points, workload="chat")

    assert [row.config_id for row in ranking.rows] == ["b", "a", "c"]


def test_three_near_ties_are_each_told_with_what_put_them_behind() -> None:
    points = []
    for name, speed, ttft in [("a", 100, 10), ("b", 99.5, 10), ("c", 100.5, 20)]:
        points.append(point(name, 1, output_throughput_tok_s=speed, ttft_p95_ms=ttft))
    configs: dict[str, dict[str, Any]] = {name: {"page_size": i} for i, name in enumerate("abc")}
    breaker = {"minimize": "ttft_p95_ms", "at": {"concurrency": 1}}
    ranking = rank(objective(near_tie=0.02, tie_breakers=[breaker]), configs, points, workload="chat")

    assert [row.config_id for row in ranking.rows] == ["a", "b", "c"]
    assert ranking.reason == (
        "page_size=0: 100 tok/s at C=1; a near-tie (within 2.0% of the best) with page_size=1 (99.50 tok/s, "
        "0.5% worse), which no tie-breaker decides: the better value is first; with page_size=2 (100.5 tok/s, "
        "0.5% better), decided by the tie-breaker ttft_p95_ms at C=1: 10 ms against 20 ms"
    )


def test_of_many_near_ties_the_best_and_the_next_are_told_and_the_rest_counted() -> None:
    points = []
    for i in range(30):
        speed = 100 + i / 100  # the last is the fastest, and has the worst start of an answer
        ttft = 10 if i < 10 else 20
        points.append(point(f"c{i}", 1, output_throughput_tok_s=speed, ttft_p95_ms=ttft))
    configs: dict[str, dict[str, Any]] = {f"c{i}": {"page_size": i} for i in range(30)}
    breaker = {"minimize": "ttft_p95_ms", "at": {"concurrency": 1}}
    ranking = rank(objective(near_tie=0.02, tie_breakers=[breaker]), configs, points, workload="chat")

    assert ranking.reason == (
        "page_size=9: 100.1 tok/s at C=1; a near-tie (within 2.0% of the best) with page_size=8 (100.1 tok/s, "
        "0.0% worse) and page_size=7 (100.1 tok/s, 0.0% worse), which no tie-breaker decides: the better value is "
        "first; with page_size=29 (100.3 tok/s, 0.2% better), decided by the tie-breaker ttft_p95_ms at C=1: 10 ms "
        "against 20 ms; with 26 more: 19 decided by ttft_p95_ms at C=1, 7 by value alone"
    )


def test_a_best_value_of_zero_has_no_relative_gap_and_valid_json() -> None:
    wanted = Objective.model_validate({"name": "o", "minimize": "requests_failed", "at": {"concurrency": 1}})
    points = [point("a", 1, requests_failed=0), point("b", 1, requests_failed=3), point("c", 1, requests_failed=0)]
    configs: dict[str, dict[str, Any]] = {name: {"page_size": i} for i, name in enumerate("abc")}
    ranking = rank(wanted, configs, points, workload="chat")

    assert [(r.config_id, r.gap_to_best, r.tie) for r in ranking.rows] == [
        ("a", 0.0, True),
        ("c", 0.0, True),
        ("b", None, False),
    ]
    assert "(0, equal)" in ranking.reason
    without_c = rank(wanted, {"a": {}, "b": {"page_size": 1}}, points, workload="chat")
    assert without_c.reason == "page_size=-: 0 at C=1, ahead of the runner-up page_size=1 (3)"


def test_a_config_that_a_search_left_behind_is_no_winner_however_lucky_its_one_trial_was() -> None:
    points = [point("kept", 1, repeat, output_throughput_tok_s=value) for repeat, value in enumerate((100.0, 101.0))]
    points += [point("lucky", 1, output_throughput_tok_s=103.0), point("slow", 1, output_throughput_tok_s=70.0)]
    configs = {"kept": {"page_size": 1}, "lucky": {"page_size": 16}, "slow": {"page_size": 32}}
    out = {"lucky": "4.0% behind page_size=1: not among the faster", "slow": "30% behind"}

    ranking = rank(objective(near_tie=0.03), configs, points, workload="chat", out=out)

    assert [row.config_id for row in ranking.rows] == ["kept", "lucky", "slow"]
    assert [row.out for row in ranking.rows] == ["", *out.values()]
    assert ranking.rows[0].gap_to_best == 0.0
    assert ranking.rows[1].gap_to_best == pytest.approx(-0.0249, abs=1e-3)
    assert "left behind by the search (4.0% behind page_size=1: not among the faster)" in ranking.reason


def test_where_a_search_left_all_behind_that_pass_the_best_of_them_is_first() -> None:
    points = [point("a", 1, output_throughput_tok_s=100.0), point("b", 1, output_throughput_tok_s=90.0)]
    configs = {"a": {"page_size": 1}, "b": {"page_size": 16}}

    ranking = rank(objective(), configs, points, workload="chat", out={"a": "x", "b": "y"})

    assert [(row.config_id, row.out) for row in ranking.rows] == [("a", ""), ("b", "")]
