"""The end of a run: which trials are begun last."""

from __future__ import annotations

import threading
from dataclasses import replace

from orchestrator.planning.planner import Plan, point_specs
from orchestrator.recoveries.remedies import Kind
from orchestrator.sweeps.trial_queue import HandedBack, TrialQueue
from orchestrator.trial import EngineConfig, LoadLevel, Point, Trial
from tests.orchestrator.scenario_samples import small_scenario


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


def repeat_of(config: int, repeat: int, seconds: float = 10.0) -> Trial:
    return replace(trial(f"c{config}r{repeat}", seconds, config), repeat=repeat)


def open_queue(*hosts: str) -> TrialQueue:
    queue = TrialQueue(Plan((), ()), hosts)
    queue.open_class("")
    return queue


def test_repeats_of_a_config_come_to_different_hosts_and_lower_repeats_first() -> None:
    queue = open_queue("east", "west")
    queue.offer("", [repeat_of(config, repeat) for repeat in (0, 1) for config in range(5)])

    told = [(host, taken(queue, host)) for _ in range(5) for host in (0, 1)]
    by_config = {c: sorted(host for host, name in told if name.startswith(f"c{c}")) for c in range(5)}

    assert by_config == {c: [0, 1] for c in range(5)}
    assert {name[-2:] for _, name in told[:5]} == {"r0"}


def test_what_ran_on_a_host_before_a_resumption_goes_to_another_one() -> None:
    queue = open_queue("east", "west")
    queue.ran("", "east", repeat_of(1, 0).config.config_id)
    queue.offer("", [repeat_of(1, 1), repeat_of(2, 1)])

    assert taken(queue, 0) == "c2r1"
    assert taken(queue, 1) == "c1r1"


def test_no_slot_is_idle_while_anything_waits_wherever_it_ran_before() -> None:
    queue = open_queue("east")
    queue.ran("", "east", repeat_of(1, 0).config.config_id)
    queue.offer("", [repeat_of(1, 1)])

    assert taken(queue, 0) == "c1r1"


def test_what_is_to_run_elsewhere_waits_for_another_host_until_that_is_gone() -> None:
    queue = open_queue("east", "west")
    queue.ran("", "east", repeat_of(1, 0).config.config_id)
    queue.offer("", [repeat_of(1, 1), repeat_of(2, 1)], elsewhere={repeat_of(1, 1).trial_id})

    assert taken(queue, 0) == "c2r1"
    assert queue.left == 1
    queue.leave(1)
    assert taken(queue, 0) == "c1r1"


def test_what_is_to_run_elsewhere_is_taken_by_another_host_though_it_has_the_higher_number() -> None:
    queue = open_queue("east", "west")
    queue.ran("", "east", repeat_of(1, 0).config.config_id)
    queue.ran("", "east", repeat_of(2, 0).config.config_id)
    queue.offer(
        "", [repeat_of(1, 1), repeat_of(2, 1)], elsewhere={t.trial_id for t in (repeat_of(1, 1), repeat_of(2, 1))}
    )

    assert [taken(queue, 1), taken(queue, 1)] == ["c1r1", "c2r1"]


def test_the_longest_of_what_is_offered_are_begun_first_when_little_is_left() -> None:
    queue = open_queue("east", "west")
    queue.offer("", [repeat_of(1, 0, 10), repeat_of(2, 0, 11), repeat_of(3, 0, 90)])

    assert [taken(queue, slot) for slot in (0, 1, 0)] == ["c3r0", "c1r0", "c2r0"]


def test_a_slot_waits_for_what_may_be_offered_and_ends_when_nothing_comes_any_more() -> None:
    queue = open_queue("east")
    found: list[Trial | None] = []
    first = threading.Event()

    def work() -> None:
        found.append(queue.take(0))
        first.set()
        found.append(queue.take(0))

    worker = threading.Thread(target=work)
    worker.start()
    queue.offer("", [repeat_of(1, 0)])
    assert first.wait(60)
    assert worker.is_alive()
    queue.done(0)
    queue.close_class("")
    worker.join(60)

    assert [t and t.trial_id for t in found] == ["c1r0", None]
    assert not queue.is_open


def test_a_queue_that_was_cleared_takes_no_offers() -> None:
    queue = open_queue("east")
    queue.clear()
    queue.offer("", [repeat_of(1, 0)])

    assert queue.take(0) is None


def pair_queue(*hosts: str) -> TrialQueue:
    queue = TrialQueue(Plan((), ()), list(hosts))
    queue.open_class("")
    return queue


def offer_pair(queue: TrialQueue, number: int, config: int = 0) -> None:
    """`a<number>` and its follower `b<number>`, which are two builds of one config."""
    first, second = trial(f"a{number}", 10, 2 * config), trial(f"b{number}", 10, 2 * config + 1)
    queue.offer("", [first], {first.trial_id: second})


def taken_by(queue: TrialQueue, slot: int) -> str:
    """Taken, and not yet done."""
    found = queue.take(slot)
    assert found is not None
    return found.trial_id


def test_a_follower_is_what_the_slot_of_its_leader_takes_next_whatever_else_waits() -> None:
    queue = pair_queue("h", "h")
    for number in range(3):
        offer_pair(queue, number)

    assert [taken_by(queue, 0), taken_by(queue, 1)] == ["a0", "a1"]
    queue.done(1)
    queue.done(0)
    assert [taken(queue, 0), taken(queue, 1)] == ["b0", "b1"]
    assert [taken(queue, 1), taken(queue, 1)] == ["a2", "b2"]


def test_pairs_of_one_config_go_to_every_host_before_any_host_gets_a_second() -> None:
    queue = pair_queue("x", "y")
    for number in range(4):
        offer_pair(queue, number)
    hosts: dict[str, list[str]] = {"x": [], "y": []}
    for slot, host in ((0, "x"), (1, "y"), (0, "x"), (1, "y")):
        hosts[host] += [taken(queue, slot), taken(queue, slot)]

    assert hosts == {"x": ["a0", "b0", "a2", "b2"], "y": ["a1", "b1", "a3", "b3"]}


def test_a_further_pair_waits_for_the_host_that_has_had_fewer() -> None:
    queue = pair_queue("x", "y")
    offer_pair(queue, 0)
    assert [taken(queue, 0), taken(queue, 0)] == ["a0", "b0"]
    offer_pair(queue, 1)
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(getattr(queue.take(0), "trial_id", "none")))
    waiting.start()

    assert [taken(queue, 1), taken(queue, 1)] == ["a1", "b1"]
    assert found == []
    queue.close()
    waiting.join(timeout=60)
    assert found == ["none"]


def test_when_the_other_host_is_lost_its_pairs_go_to_the_one_that_is_left() -> None:
    queue = pair_queue("x", "y")
    offer_pair(queue, 0)
    assert [taken(queue, 0), taken(queue, 0)] == ["a0", "b0"]
    offer_pair(queue, 1)
    queue.leave(1)

    assert [taken(queue, 0), taken(queue, 0)] == ["a1", "b1"]


def test_the_follower_of_a_trial_that_is_tried_again_elsewhere_goes_with_it() -> None:
    queue = pair_queue("x", "y")
    offer_pair(queue, 0)
    leader = queue.take(0)
    assert leader is not None
    queue.done(0, HandedBack(leader, Kind.ELSEWHERE))

    assert [taken(queue, 1), taken(queue, 1)] == ["a0", "b0"]


def test_the_follower_of_a_slot_that_is_gone_comes_to_an_end_on_another() -> None:
    queue = pair_queue("x", "y")
    offer_pair(queue, 0)
    assert taken(queue, 0) == "a0"
    queue.leave(0)

    assert taken(queue, 1) == "b0"
    queue.close()
    assert queue.take(1) is None
