"""Slots come and go with their hosts while a run goes on."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.hosts.host_event import HostEvent
from orchestrator.scenarios.scenario import Slots
from orchestrator.slots.slot_port import SlotPort
from orchestrator.slots.slot_source import ClusterSlots
from tests.fakes.slot_cluster import FakeCluster, gpu_host


class Run:
    """Takes slots while `needs` says so."""

    def __init__(self) -> None:
        self.joined: list[SlotPort] = []
        self.told: list[tuple[str, str]] = []
        self.needs = True
        self.takes = True

    def join(self, slot: SlotPort) -> bool:
        if self.takes:
            self.joined.append(slot)
        return self.takes

    def tell(self, event: HostEvent) -> None:
        self.told.append((event.change.value, event.host))

    def needs_slots(self) -> bool:
        return self.needs


def at_once(task: Callable[[], None]) -> None:
    task()


def source_of(cluster: FakeCluster, **slots: object) -> tuple[ClusterSlots, Run, list[SlotPort]]:
    """A source that looks when it is told to, and what it gave at first."""
    wanted = Slots.model_validate({"gpus": 1, **slots})
    source = ClusterSlots(cluster, wanted, 0.1, may_join=True, spawn=at_once)
    run = Run()
    first, _, _ = source.first()
    source.begin(run)
    source.stop()  # the thread: tests look themselves
    source._closing.clear()
    return source, run, first


def names(slots: list[SlotPort]) -> list[str]:
    return [slot.facts.name for slot in slots]


def test_a_host_that_joins_is_used_up_to_the_count() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, first = source_of(cluster, count=1)
    assert names(first) == ["a/0"]
    cluster.hosts = [gpu_host("a"), gpu_host("bb", 4)]
    source.look()
    assert run.joined == []

    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    cluster.hosts = [gpu_host("a"), gpu_host("bb", 2)]
    source.look()
    source.look()

    assert names(run.joined) == ["bb/0", "bb/1"]
    assert run.told == [("host_joined", "bb")]


def test_a_host_that_is_gone_is_dropped_and_is_used_again_when_it_comes_back_under_another_node_id() -> None:
    cluster = FakeCluster(gpu_host("a"), gpu_host("bb"))
    source, run, _ = source_of(cluster)
    cluster.hosts = [gpu_host("a")]
    source.look()
    assert (cluster.held, cluster.released) == (["a/0"], ["bb/0"])

    cluster.hosts = [gpu_host("a"), gpu_host("bb", node="node-2")]
    source.look()

    assert names(run.joined) == ["bb/0"]
    assert run.told == [("host_lost", "bb"), ("host_joined", "bb")]


def test_a_host_lost_twice_is_quarantined_and_never_used_again() -> None:
    cluster = FakeCluster(gpu_host("a"), gpu_host("bb"))
    source, run, _ = source_of(cluster)
    for node in ("node-2", "node-3"):
        cluster.hosts = [gpu_host("a")]
        source.look()
        cluster.hosts = [gpu_host("a"), gpu_host("bb", node=node)]
        source.look()
    source.look()

    assert [change for change, _ in run.told] == ["host_lost", "host_joined", "host_lost", "host_quarantined"]
    assert len(run.joined) == 1
    assert cluster.held == ["a/0"]


def test_a_slot_whose_actor_died_is_made_anew_in_what_it_holds_but_not_for_ever() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, (slot,) = source_of(cluster)
    for _ in range(5):
        source.ended(slot, None)
        source.look()
        slot = run.joined[-1] if run.joined else slot

    assert cluster.made == ["a/0"] * 3
    assert run.told == [("slot_anew", "a")] * 2
    assert cluster.released == []


def test_a_slot_that_refuses_is_not_replaced_and_keeps_its_gpus_from_everybody() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, (slot,) = source_of(cluster)
    source.ended(slot, "GPU memory did not come back")
    source.look()

    assert (cluster.made, cluster.held, run.joined) == (["a/0"], ["a/0"], [])
    assert names(source.serving) == ["a/0"]  # it still gets heartbeats, and an orderly end


def test_what_others_hold_at_first_joins_when_it_becomes_free() -> None:
    cluster = FakeCluster(gpu_host("a", 2))
    cluster.busy = {"a/1"}
    source, run, first = source_of(cluster)
    source.look()
    assert (names(first), run.joined) == (["a/0"], [])

    cluster.busy = set()
    source.look()

    assert names(run.joined) == ["a/1"]


def test_a_host_that_makes_no_slot_is_tried_three_times_and_then_put_aside() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    cluster.hosts = [gpu_host("a"), gpu_host("bb")]
    cluster.silent = {"bb"}
    for _ in range(2):
        source.look()
    assert run.told == []
    for _ in range(3):
        source.look()

    assert run.told == [("host_unused", "bb")]
    assert cluster.held == ["a/0"]


def test_a_host_of_another_class_is_put_aside_at_once_and_said_so_once() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    cluster.hosts = [gpu_host("a"), gpu_host("bb", 2)]
    cluster.unfit = {"bb"}
    source.look()
    source.look()

    assert run.told == [("host_unused", "bb")]
    assert (cluster.made, cluster.held) == (["a/0"], ["a/0"])


def test_a_run_with_nothing_left_gets_no_slots_and_lets_go_of_what_it_waits_for() -> None:
    cluster = FakeCluster(gpu_host("a", 2))
    cluster.busy = {"a/1"}
    source, run, _ = source_of(cluster)
    run.needs = False
    cluster.hosts = [gpu_host("a", 2), gpu_host("bb")]
    source.look()

    assert (run.joined, cluster.held) == ([], ["a/0"])


def test_a_slot_that_the_run_has_nothing_for_is_kept_and_offered_again() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    cluster.hosts = [gpu_host("a"), gpu_host("bb")]
    run.takes = False
    source.look()
    source.look()
    run.takes = True
    source.look()

    assert names(run.joined) == ["bb/0"]
    assert cluster.made == ["a/0", "bb/0"]


def test_while_the_cluster_cannot_be_asked_nothing_is_taken_for_lost() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    cluster.hosts = None
    source.look()

    assert (run.told, cluster.held) == ([], ["a/0"])


def test_a_fault_while_a_slot_is_made_is_told_as_the_hosts_and_leaves_nothing_on_its_way() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    cluster.hosts = [gpu_host("a"), gpu_host("bb")]
    cluster.make = lambda grants: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    for _ in range(3):
        source.look()

    assert run.told == [("host_unused", "bb")]
    assert not source.is_making()


def test_when_hosts_cannot_be_looked_at_any_more_that_is_told_and_the_run_waits_for_none() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    source._closing.wait = lambda timeout=None: False  # type: ignore[method-assign]
    cluster.living = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    source._keep_looking()

    assert run.told == [("hosts_unseen", "")]
    assert not source.may_give()


def test_a_slot_may_come_while_one_is_lost_asked_for_or_hosts_can_join() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source = ClusterSlots(cluster, Slots.model_validate({"gpus": 1}), 0.1, may_join=False, spawn=at_once)
    (slot,), _, _ = source.first()
    assert not source.may_give()
    source.ended(slot, None)
    assert source.may_give()
    assert ClusterSlots(cluster, Slots.model_validate({"gpus": 1}), 0.1, may_join=True).may_give()


def test_the_hosts_that_are_left_of_a_server_over_two_serve_again_with_another_host() -> None:
    cluster = FakeCluster(gpu_host("a"), gpu_host("bb"))
    source, run, first = source_of(cluster, nnodes=2)
    assert names(first) == ["a+bb/0"]

    cluster.hosts = [gpu_host("a")]
    source.ended(first[0], None)
    source.look()
    assert (cluster.released, run.joined) == (["a+bb/0"], [])
    cluster.hosts = [gpu_host("a"), gpu_host("ccc")]
    source.look()
    assert names(run.joined) == ["a+ccc/0"]


def test_of_a_server_over_two_hosts_the_one_that_makes_no_slot_is_put_aside() -> None:
    cluster = FakeCluster(gpu_host("a"))
    cluster.hosts = [gpu_host("a"), gpu_host("bb")]
    source, run, first = source_of(cluster, nnodes=2)
    source.ended(first[0], None)
    cluster.silent = {"bb"}
    for _ in range(4):
        source.look()
    assert run.told == [("host_unused", "bb")]
