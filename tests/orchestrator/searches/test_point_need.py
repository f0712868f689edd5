"""Which further points of a trial can matter."""

from __future__ import annotations

from orchestrator.objectives.aim import PointValue, TrialPoints
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.searches.config_places import places_of
from orchestrator.searches.doubt import Doubt
from orchestrator.searches.point_need import Goal, Place, PointNeed, goal_of, point_need
from orchestrator.trial import EngineConfig, LoadLevel, freeze_settings

CONFIGS = [EngineConfig(freeze_settings({"speculative_num_steps": d})) for d in range(1, 7)]
IDS = [config.config_id for config in CONFIGS]
SPEED = "output_throughput_tok_s"
LEVELS = (1, 4, 16, 32)
PLANNED: list[Place] = [("chat", LoadLevel("concurrency", float(level))) for level in LEVELS]


def goal(level: int, ties: tuple[int, ...] = (), limits: tuple[str, ...] = (), near_tie: float = 0.03) -> Goal:
    tree = {
        "name": f"at {level}",
        "maximize": SPEED,
        "at": {"concurrency": level},
        "near_tie": near_tie,
        "limits": list(limits),
        "tie_breakers": [{"maximize": SPEED, "at": {"concurrency": tie}} for tie in ties],
    }
    return goal_of(Objective.model_validate({**tree, "name": f"c{level}"}), "chat")


def trial(which: int, speeds: dict[int, float], host: str = "a", **metrics: float) -> TrialPoints:
    points = {
        ("chat", LoadLevel("concurrency", float(level))): PointValue(
            IDS[which], "chat", LoadLevel("concurrency", float(level)), 0, {SPEED: speed, **metrics}, host=host
        )
        for level, speed in speeds.items()
    }
    return TrialPoints(IDS[which], f"{which}", host, points)


def need(goals: list[Goal], done: list[TrialPoints], now: TrialPoints) -> PointNeed:
    return point_need(goals, done, now, PLANNED, Doubt(places_of(CONFIGS)))


def levels(found: PointNeed) -> list[int]:
    return [int(level.value) for _, level in found.wanted]


DONE = [trial(3, {1: 277.0, 16: 1596.0}), trial(4, {1: 282.0, 16: 1119.0}), trial(2, {1: 234.0})]


def test_what_decides_comes_first_then_tie_breakers_then_what_nobody_asked_for() -> None:
    assert levels(need([goal(32, ties=(16,))], [], trial(0, {}))) == [32, 16, 1, 4]


def test_a_config_that_lost_beyond_doubt_is_loaded_no_further_and_told_why() -> None:
    found = need([goal(1, ties=(16,))], DONE, trial(0, {1: 123.0}))

    assert found.wanted == ()
    assert set(found.spared) == set(PLANNED[1:])
    assert found.spared[PLANNED[2]].startswith(f"had lost {SPEED} at C=1 by 5")


def test_a_near_tie_is_asked_for_its_tie_breaker() -> None:
    assert levels(need([goal(1, ties=(16,))], DONE, trial(5, {1: 279.0})))[0] == 16


def test_what_lost_one_objective_is_measured_for_the_other() -> None:
    found = need([goal(1, ties=(16,)), goal(32)], DONE, trial(0, {1: 123.0}))

    assert levels(found) == [32, 4, 16]
    assert found.spared == {}


def test_a_limit_that_is_failed_by_a_third_ends_the_trial_and_one_that_is_failed_narrowly_does_not() -> None:
    limited = goal(16, limits=("ttft_p95_ms <= 500 @ C=1",))

    assert need([limited], [], trial(0, {1: 100.0}, ttft_p95_ms=900.0)).wanted == ()
    assert levels(need([limited], [], trial(0, {1: 100.0}, ttft_p95_ms=520.0))) == [16, 4, 32]


def test_nothing_is_lost_against_a_config_that_fails_the_limit() -> None:
    limited = goal(1, ties=(16,), limits=("ttft_p95_ms <= 500",))
    fast_but_late = [trial(3, {1: 277.0}, ttft_p95_ms=900.0)]

    assert 16 in levels(need([limited], fast_but_late, trial(0, {1: 123.0}, ttft_p95_ms=100.0)))


def test_the_first_trial_of_a_run_has_lost_nothing() -> None:
    assert levels(need([goal(1)], [], trial(0, {1: 10.0}))) == [4, 16, 32]


def test_a_gap_that_a_slow_host_may_explain_is_not_beyond_doubt() -> None:
    done = [trial(3, {1: 280.0}, host="a"), trial(4, {1: 282.0}, host="a")]

    assert need([goal(1)], done, trial(2, {1: 235.0}, host="b")).wanted != ()
