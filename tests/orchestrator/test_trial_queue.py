"""The end of a run: which trials are begun last."""

from __future__ import annotations

from orchestrator.planner import Plan, point_specs
from orchestrator.remedies import Kind
from orchestrator.trial import EngineConfig, LoadLevel, Point, Trial
from orchestrator.trial_queue import HandedBack, TrialQueue
from tests.orchestrator.scenarios import small_scenario


def trial(name: str, seconds: float, config: int = 0, points: int = 1) -> Trial:
    spec = point_specs(small_scenario())[0]
    assert spec.level == LoadLevel("concurrency", 1)
    measured = tuple(Point(f"{name}-{i}", name, f"c{config}", 0, spec) for i in range(points))
    return Trial(name, EngineConfig((("page_size", config),)), 0, measured, seconds)


def queue_of(*slots: tuple[Trial, ...]) -> TrialQueue:
    return TrialQueue(Plan((), slots), [f"host{i}" for i in range(len(slots))])


def taken(queue: TrialQueue, slot: int) -> str:
    found = queue.take(slot)
    assert found is not None
    queue.done(slot)
    return found.trial_id


def test_near_the_end_every_slot_takes_the_longest_trial_of_all() -> None:
    queue = queue_of((trial("a", 10, 1), trial("b", 50, 2)), (trial("c", 20, 3), trial("d", 40, 4)))

    assert [taken(queue, slot) for slot in (0, 0, 1, 1)] == ["b", "d", "c", "a"]
    assert queue.take(0) is None


def test_before_the_end_each_slot_keeps_the_random_order_of_the_plan() -> None:
    slots = [tuple(trial(f"{slot}{i}", 10 + i, slot * 10 + i) for i in range(9)) for slot in (0, 1)]
    queue = queue_of(*slots)

    assert [taken(queue, 0), taken(queue, 1), taken(queue, 0)] == ["00", "10", "01"]


def test_one_slot_alone_keeps_its_order_to_the_end() -> None:
    queue = queue_of((trial("a", 10, 1), trial("b", 50, 2), trial("c", 20, 3)))

    assert [taken(queue, 0) for _ in range(3)] == ["a", "b", "c"]


def test_what_a_repeat_took_counts_for_those_that_wait_and_not_what_was_estimated() -> None:
    queue = queue_of((trial("a0", 10, 1), trial("b0", 20, 2)), (trial("a1", 10, 1), trial("a2", 10, 1, points=3)))
    queue.learn(trial("a-earlier", 10, 1), 99.0)

    assert [taken(queue, 0) for _ in range(4)] == ["a0", "a1", "b0", "a2"]


def test_what_broke_on_one_host_is_begun_on_another_before_anything_new() -> None:
    queue = queue_of((trial("a", 10, 1), trial("b", 50, 2)), (trial("c", 20, 3), trial("d", 40, 4)))
    broken = queue.take(0)
    assert broken is not None
    queue.done(0, HandedBack(broken, Kind.ELSEWHERE))

    assert taken(queue, 0) == "d"  # the host it broke on goes on with others
    assert taken(queue, 1) == broken.trial_id == "b"


def test_what_has_to_be_alone_waits_until_all_else_is_done() -> None:
    queue = queue_of((trial("a", 10, 1),), (trial("c", 20, 3),))
    broken = queue.take(0)
    assert broken is not None
    queue.done(0, HandedBack(broken, Kind.ALONE))

    assert [taken(queue, slot) for slot in (1, 0)] == ["a", "c"]
