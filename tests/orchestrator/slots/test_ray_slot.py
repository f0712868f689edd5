"""What Ray tells of a slot's actors, and what the sweep is told of that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from orchestrator.server_start import LaunchSpec, LoadSeen
from orchestrator.slots import ray_slot
from orchestrator.slots.ray_ensemble import RayEnsemble
from orchestrator.slots.ray_slot import RaySlot
from orchestrator.slots.slot_port import SlotFacts, SlotLost, TrialBroken
from orchestrator.telemetry import Sample, Sampled, ServerSample
from orchestrator.trial import LoadLevel, Point
from tests.actors.load_specs import spec
from tests.orchestrator.literal_records import CLIENT

POINT = Point("p", "t", "c", 0, spec(level=LoadLevel("concurrency", 6), requests=60))
FACTS = SlotFacts("h1/0", "h1", ("0",), 2)
LAUNCH = LaunchSpec("run", "t", "emulator", (), "m", (), ())
STILL = ray.exceptions.GetTimeoutError("not yet")


class Call:
    """Takes every call of an actor's method; what it was called with is in `calls`."""

    def __init__(self, answer: Any = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._answer = answer

    def options(self, **_: Any) -> Call:
        return self

    def remote(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self._answer


class Stream:
    """A streaming call that has one more item."""

    def __next__(self) -> str:
        return "ref"


class Made:
    """Makes load actors; `members` tells for whom."""

    def __init__(self) -> None:
        self.members: list[int] = []
        self.run_point = Call(Stream())

    def __call__(self, member: int) -> tuple[Any, str]:
        self.members.append(member)
        return SimpleNamespace(run_point=self.run_point, forget=Call(), interrupt=Call()), "node-load"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(ray, "kill", lambda _: None)
    monkeypatch.setattr(ray, "wait", lambda calls, **_: (calls[:1], calls[1:]))
    return Made()


def slot(made: Made) -> RaySlot:
    return RaySlot(FACTS, SimpleNamespace(stay=Call("stay"), died=Call("died")), made, "run", exposed=False)


def answers(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Items of streams and answers of calls fail like this; the slot lives."""

    def get(call: Any, timeout: float) -> Any:
        raise STILL if call == "stay" else error

    monkeypatch.setattr(ray, "get", get)


@pytest.mark.parametrize(
    "error",
    [
        ray.exceptions.ObjectLostError("ref", None, "call"),  # a large batch dies with the host that has it
        ray.exceptions.OutOfDiskError("no room to spill"),
        ray.exceptions.ActorDiedError(),
        ray.exceptions.ActorPlacementGroupRemoved(),
        ray.exceptions.GetTimeoutError("slow"),
    ],
)
def test_whatever_ray_loses_of_a_load_ends_the_trial_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, made: Made, error: Exception
) -> None:
    answers(monkeypatch, error)
    with pytest.raises(TrialBroken, match="the load actor was lost: h1/0: "):
        list(slot(made).run_point("http://x", POINT, 1))
    assert made.members == [0, 0]  # another one

    with pytest.raises(SlotLost, match="h1/0: "):
        slot(made).died(LoadSeen())

    ensemble = RayEnsemble([None], [Stream()], None, [0])  # type: ignore[arg-type]
    assert ensemble._take(0) is None
    assert list(ensemble.lost) == [0]


class Ensemble:
    """An ensemble whose second member was lost while the slot was cut off."""

    def __init__(self, *_: Any) -> None:
        self.fault = TrialBroken("h1/0 was cut off for a while")
        self.lost = {1: "gone"}
        self.taken = {0: 0, 1: 0}

    def items(self, _: Any) -> Iterator[Any]:
        yield "batch"


def test_a_member_that_was_lost_in_a_cut_is_replaced_and_each_counts_from_one_moment_by_its_own_clock(
    monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    answers(monkeypatch, STILL)
    monkeypatch.setattr(ray_slot, "RayEnsemble", Ensemble)
    offsets = iter([0, 300_000_000_000])
    monkeypatch.setattr(ray_slot, "clock_offset_ns", lambda _: next(offsets))
    with pytest.raises(TrialBroken, match="was cut off for a while"):
        list(slot(made).run_point("http://x", POINT, 1, 2))
    assert made.members == [0, 1, 1]
    first, second = (call[4].origin_unix_ns for call in made.run_point.calls)
    assert second - first == 300_000_000_000


@pytest.mark.parametrize(
    ("asked", "told"), [(812.5, 812.5), (ray.exceptions.ActorDiedError(), None)], ids=["known", "slot gone"]
)
def test_a_report_comes_with_what_the_gpus_drew_while_the_load_was_sent(
    made: Made, monkeypatch: pytest.MonkeyPatch, asked: Any, told: float | None
) -> None:
    report = replace(CLIENT, began_unix_s=100.0, duration_s=20.0)
    items = iter([report])
    power = Call("power")

    def get(call: Any, timeout: float) -> Any:
        if call == "stay":
            raise STILL
        if call == "power":
            if isinstance(asked, Exception):
                raise asked
            return asked
        return next(items)

    class Once:
        """A streaming call with one item."""

        done = False

        def __next__(self) -> str:
            if self.done:
                raise StopIteration
            self.done = True
            return "ref"

    monkeypatch.setattr(ray, "get", get)
    made.run_point = Call(Once())
    actor = SimpleNamespace(stay=Call("stay"), died=Call("died"), gpu_power_w=power)

    (found,) = RaySlot(FACTS, actor, made, "run", exposed=False).run_point("http://h1:1", POINT, 1)

    assert found == replace(report, gpu_power_w=told)
    assert power.calls == [(100.0, 120.0)]


def test_samples_are_asked_for_from_where_the_last_answer_ended_and_an_answer_that_was_lost_again(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Sample(at_s, 0.0, None, ServerSample()) for at_s in (1.0, 2.0))
    answered: Iterator[Any] = iter([Sampled((first,), 1), ray.exceptions.RayActorError(), Sampled((second,), 2)])
    telemetry = Call()

    def get(call: Any, timeout: float) -> Any:
        answer = next(answered)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray, "get", get)
    sampled = RaySlot(FACTS, SimpleNamespace(stay=Call("stay"), telemetry=telemetry), made, "run", exposed=False)

    assert sampled.telemetry() == (first,)
    with pytest.raises(SlotLost):
        sampled.telemetry()
    assert sampled.telemetry() == (second,)
    assert telemetry.calls == [(0,), (1,), (1,)]


def test_gpus_that_were_held_back_are_a_note_on_the_point_where_telemetry_is_on(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = replace(CLIENT, began_unix_s=100.0, duration_s=20.0)
    monkeypatch.setattr(ray, "get", lambda call, timeout: call)
    throttled = Call(("gpu_throttled: GPU 0 was held back (power_cap) in 75 % of the time",))
    actor = SimpleNamespace(stay=Call("stay"), launch=Call(iter(())), gpu_power_w=Call(650.0), throttled=throttled)
    port = RaySlot(FACTS, actor, made, "run", exposed=False)

    assert port._with_power(report).notes == ()
    monkeypatch.setattr(port, "_items", lambda stream, limit_s: iter(()))
    list(port.launch(replace(LAUNCH, telemetry_s=1.0)))
    assert port._with_power(report).notes == throttled.remote(100.0, 120.0)
    assert throttled.calls[0] == (100.0, 120.0)
