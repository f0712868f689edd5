"""What a cluster does at the worst moment: names that clash, heads that hiccup, hosts that go while a slot is made."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray

from actors.load.load_ensemble import Order
from actors.load.load_member import Place, Release
from orchestrator.errors import ClusterRefusal
from orchestrator.hosts.host_match import HostFacts, SlotPlace, told_apart
from orchestrator.loads.load_clocks import clock_note, offset_ns
from orchestrator.paths import write_whole
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.run_files import run_manifest
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.scenarios.scenario import Slots
from orchestrator.slots.actor_watch import ActorWatch
from orchestrator.slots.cluster import Cluster
from orchestrator.slots.ray_ensemble import RayEnsemble, clock_offset_ns
from orchestrator.slots.slot_making import SlotMaker
from orchestrator.slots.slot_port import SlotLost, TrialBroken
from orchestrator.slots.slot_source import Grant, Made
from orchestrator.sweeps import run_sweep
from orchestrator.sweeps.sweep import Sweep
from tests.fakes.killable_sweep import Silent
from tests.fakes.slot import FakeSlot
from tests.fakes.slot_cluster import FakeCluster, gpu_host
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.slots.test_slot_making import Grant as SeatedGrant
from tests.orchestrator.slots.test_slot_source import names, source_of

SECOND = 1_000_000_000


def host(name: str, address: str) -> HostFacts:
    return HostFacts(f"node-{address}", address, name, 1, 64, 256, {})


def test_hosts_with_one_hostname_have_names_of_their_own_and_are_told_apart_by_them() -> None:
    hosts = [host("gpu", "10.0.0.1"), host("gpu", "10.0.0.2"), host("head", "10.0.0.3"), host("", "10.0.0.4")]
    assert [h.name for h in told_apart(hosts)] == ["gpu@10.0.0.1", "gpu@10.0.0.2", "head", "10.0.0.4"]
    assert [h.key for h in told_apart(hosts)] == [h.key for h in hosts]


def test_a_host_whose_raylet_was_started_anew_before_the_old_one_is_dead_is_no_namesake() -> None:
    old, new = gpu_host("a"), gpu_host("a", node="node-2")
    assert [h.name for h in told_apart([old, new])] == ["a", "a"]


def test_a_driver_that_dies_while_it_reopens_a_run_leaves_the_classes_of_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())
    run.keep_classes(("4x A", "8x B"))
    run.close(complete=False)
    written: list[tuple[str, ...]] = []

    def spy(file: Path, content: bytes) -> None:
        write_whole(file, content)
        written.append(tuple(read_manifest(tmp_path / "run").get("host_classes", ())))

    monkeypatch.setattr(run_manifest, "write_whole", spy)
    again = RunDirectory.reopen(tmp_path / "run", small_scenario())
    again.close(complete=False)
    assert written
    assert set(written) == {("4x A", "8x B")}  # at every moment


def test_no_slot_starts_another_server_once_nothing_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("s0")
    plan = make_plan(scenario, 1)
    assert len(plan.trials) > 1
    sweep = Sweep(plan, [slot], run, lambda t: launch_spec(scenario, "run", t), Silent())
    failed = threading.Event()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, "end_point", full)
    slot.on_point = lambda point: None if len(slot.measured) == 1 else cast(None, failed.wait(60))
    with pytest.raises(OSError, match="No space left"):
        sweep.run()
    failed.set()
    assert sweep.cancelled
    assert not sweep.needs_slots()
    assert not sweep.join(FakeSlot("s1"))
    run.close(complete=False)


def test_no_load_goes_to_a_host_that_was_lost_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, loader = gpu_host("a"), gpu_host("loader", 0)
    fake = FakeCluster(gpu, loader)
    source, _, _ = source_of(fake)
    cluster = Cluster("run", "10.0.0.1:6379")
    cluster.source = source
    monkeypatch.setattr(cluster, "living", lambda: fake.hosts)
    assert [h.name for h in cluster._unlost_hosts()] == ["a", "loader"]
    for node in ("second", "third"):
        fake.hosts = [gpu]
        source.look()
        fake.hosts = [gpu, gpu_host("loader", 0, node=node)]
        source.look()
    assert [h.name for h in cluster._unlost_hosts()] == ["a"]


def test_hosts_are_looked_at_again_after_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.slots.slot_source.LOOK_S", 0.001)
    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    answers: list[Exception | None] = [TimeoutError("the head is restarted")] * 3
    told = threading.Event()
    ask, tell = cluster.ask_for, run.tell

    def hiccup(place: SlotPlace) -> Grant:
        if answers:
            error = answers.pop()
            assert error is not None
            raise error
        return ask(place)

    def heard(*what: Any) -> None:
        tell(*what)
        told.set()

    cluster.ask_for = hiccup  # type: ignore[method-assign]
    run.tell = heard  # type: ignore[method-assign,assignment]
    cluster.hosts = [gpu_host("a"), gpu_host("bb")]
    source.begin(run)
    assert told.wait(60)
    source.stop()
    assert names(run.joined) == ["bb/0"]
    assert run.told == [("host_joined", "bb")]


def test_a_slot_whose_host_is_lost_while_it_is_made_does_not_take_part() -> None:
    cluster = FakeCluster(gpu_host("a"))
    source, run, _ = source_of(cluster)
    make = cluster.make

    def make_and_lose(grants: Sequence[Grant]) -> list[Made]:
        made = make(grants)
        cluster.hosts = [gpu_host("a")]
        source.look()
        return made

    cluster.make = make_and_lose  # type: ignore[method-assign]
    cluster.hosts = [gpu_host("a"), gpu_host("bb")]
    source.look()
    assert cluster.released == ["bb/0"]
    assert run.joined == []


def test_a_load_host_of_two_hosts_that_join_together_is_prepared_once() -> None:
    loader = gpu_host("loader", 0)
    hosts = [gpu_host("a"), gpu_host("bb"), loader]
    prepared: list[str] = []
    others: list[threading.Thread] = []

    def ask_each(
        task: Callable[..., Any], *_: Any, nodes: Collection[str] | None = None
    ) -> list[tuple[HostFacts, Any]]:
        if task.__name__ == "prepare_host":
            prepared.extend(sorted(nodes or ()))
            if not others:  # the other one comes while this one is at it
                others.append(threading.Thread(target=make, args=(hosts[1],)))
                others[0].start()
                others[0].join(0.05)
        return [(h, []) for h in hosts if nodes is None or h.node_id in nodes]

    maker = SlotMaker("run", Slots.model_validate({"gpus": 1}), "emulator", (), ask_each, lambda: hosts)
    maker._seat = lambda *_: None  # type: ignore[method-assign]

    def make(of: HostFacts) -> None:
        grant = SeatedGrant(of, 0, "0")
        grant.place = SlotPlace(of, 0, loader)
        grant.seats = []
        maker._unusable = lambda place, silent: Made(None, "")  # type: ignore[method-assign]
        maker.make([cast(Any, grant)])

    make(hosts[0])
    others[0].join(60)
    assert prepared == ["node-a", "node-loader", "node-bb"]


def test_being_stopped_again_while_servers_are_stopped_changes_nothing() -> None:
    ended = []

    def close() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        ended.append("all")

    before = signal.getsignal(signal.SIGTERM)
    run_sweep._quietly(close)
    assert ended == ["all"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([], "h1 does not answer: it is gone. See `specsweep hosts`."),
        ([(host("h1", "10.0.0.1"), ConnectionError("worker died\ntrace"))], "h1 does not answer: worker died. See"),
    ],
)
def test_a_host_that_leaves_while_it_is_asked_about_its_gpus_is_told_and_its_memory_is_unknown(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[HostFacts, Any]], told: str
) -> None:
    cluster, left = Cluster("run", "10.0.0.9:6379"), host("h1", "10.0.0.1")
    monkeypatch.setattr(cluster, "hosts", lambda: [left])
    monkeypatch.setattr(cluster, "ask_each", lambda *_, **__: answers)
    assert cluster.gpu_states(left) is None
    with pytest.raises(ClusterRefusal, match=re.escape(told)):
        cluster.host_places()[0].ask(print)


class Answers:
    """Stands for ray.get: one answer after the other, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def __call__(self, call: Any, timeout: float) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


STILL = ray.exceptions.GetTimeoutError("not yet")
CUT = ray.exceptions.ActorUnavailableError("cut", None)


def test_a_cut_that_was_over_before_a_point_does_not_void_it_and_one_in_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actor = SimpleNamespace(stay=SimpleNamespace(remote=object))
    watch = ActorWatch("h1/0", actor)
    monkeypatch.setattr(ray, "get", Answers(CUT, STILL))
    watch.renew()
    assert watch.fault() is None

    monkeypatch.setattr(ray, "get", Answers(CUT))
    assert isinstance(watch.fault(), TrialBroken)

    monkeypatch.setattr(ray, "get", Answers(ray.exceptions.ActorDiedError()))
    watch.renew()
    assert isinstance(watch.fault(), SlotLost)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([(0, 300 * SECOND, 2_000_000)], 300 * SECOND - 1_000_000),  # a clock five minutes ahead
        ([(SECOND, 0, SECOND)], -SECOND),
        ([(0, 5_000_000, 2_000_000)], 0),  # less than a question can tell
        ([(0, 400_000_000, 900_000_000)], 0),  # a slow way there or back
        ([(0, 5 * SECOND, 3 * SECOND), (0, 2 * SECOND, 2_000_000)], 2 * SECOND - 1_000_000),  # the quickest counts
    ],
)
def test_clocks_that_differ_by_more_than_the_way_takes_are_corrected(
    readings: list[tuple[int, int, int]], expected: int
) -> None:
    assert offset_ns(readings) == expected


def test_a_wrong_clock_is_told() -> None:
    assert clock_note("2", -90 * SECOND) == (
        "the clock of load process 2 is 90.000 s behind the driver's; times of its requests were corrected by that "
        "(set the hosts' clocks by NTP)"
    )


def test_each_member_is_told_by_its_own_clock_when_all_begin() -> None:
    released: list[tuple[int, Any]] = []

    def actor(member: int) -> Any:
        def release(place: Place, value: Any) -> None:
            released.append((member, value))

        return SimpleNamespace(release=SimpleNamespace(remote=release))

    ensemble = RayEnsemble([actor(0), actor(1)], [], cast(Any, None), [0, 300 * SECOND])
    ensemble._carry_out([Order((0, 1), Release(Place.START, 1000)), Order((0, 1), Release(Place.START, None))])
    ensemble._carry_out([Order((1,), Release(Place.PROBED, 7))])
    assert released == [(0, 1000), (1, 300 * SECOND + 1000), (0, None), (1, None), (1, 7)]


def test_a_load_actor_that_does_not_answer_has_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = SimpleNamespace(clock=SimpleNamespace(remote=object))
    monkeypatch.setattr(ray, "get", Answers(STILL))
    assert clock_offset_ns(actor) == 0
    monkeypatch.setattr(ray, "get", Answers(0))
    assert clock_offset_ns(actor) < -1_000_000_000 * SECOND
