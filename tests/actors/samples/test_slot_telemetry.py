"""Sampling of a server from its launch to its end: what is kept, what is a gap, what is asked of whom."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from actors.gpus.gpu_sample import SlotGpuLook
from actors.samples.server_gauges import LOADS, METRICS
from actors.samples.slot_telemetry import SlotTelemetry, Watched, throttle_notes
from orchestrator.telemetry import GpuSample, Sample, ServerSample

BUSY = json.dumps({"loads": [{"num_running_reqs": 4, "gen_throughput": 99.5}]})


class Pages:
    """A server whose pages are scripted; `asked` has those that were asked for."""

    def __init__(self, answer: Callable[[str], tuple[int, str]]) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.thrice = asyncio.Event()

    async def page(self, path: str, timeout_s: float) -> tuple[int, str]:
        self.asked.append(path)
        if len(self.asked) == 3:
            self.thrice.set()
        return self._answer(path)


class Gpus(SlotGpuLook):
    """GPUs that are scripted, a look after the other."""

    def __init__(self, *looks: tuple[GpuSample, ...]) -> None:
        super().__init__(())
        self._looks = list(looks)

    def samples(self) -> tuple[GpuSample, ...]:
        return self._looks.pop(0) if self._looks else ()


def telemetry(pages: Pages, gpus: SlotGpuLook | None = None, **watched: Any) -> SlotTelemetry:
    now = Watched(**{"pid": None, "lived_s": 5.0, "is_ready": True, "endpoint": pages, **watched})
    return SlotTelemetry(gpus or SlotGpuLook(()), lambda: now, 0.01, time.monotonic())


def samples_of(slot: SlotTelemetry, count: int) -> tuple[Sample, ...]:
    async def look() -> None:
        for _ in range(count):
            await slot.sample()

    asyncio.run(look())
    return slot.after(0).samples


def test_a_sample_has_the_server_and_the_time_on_three_clocks() -> None:
    (sample,) = samples_of(telemetry(Pages(lambda path: (200, BUSY))), 1)

    assert sample.server == ServerSample(running_requests=4, generation_tok_s=99.5)
    assert (sample.lived_s, sample.rank) == (5.0, 0)
    assert 0 <= sample.at_s < 60
    assert abs(sample.unix_s - time.time()) < 60


def test_a_server_that_is_not_ready_is_not_asked() -> None:
    pages = Pages(lambda path: (200, BUSY))
    (sample,) = samples_of(telemetry(pages, is_ready=False), 1)

    assert sample.server == ServerSample()
    assert pages.asked == []


@pytest.mark.parametrize("status", [0, -1, 503])
def test_a_server_that_does_not_answer_leaves_a_gap_and_is_asked_again(status: int) -> None:
    answers = [(200, BUSY), (status, "nothing within 1 s"), (200, BUSY)]
    pages = Pages(lambda path: answers.pop(0))
    running = [s.server.running_requests for s in samples_of(telemetry(pages), 3)]

    assert running == [4, None, 4]
    assert set(pages.asked) == {LOADS}


def test_a_server_without_loads_is_asked_for_its_metrics_every_fifth_time() -> None:
    pages = Pages(lambda path: (200, "llamacpp:requests_processing 2\n") if path == METRICS else (404, "{}"))
    running = [s.server.running_requests for s in samples_of(telemetry(pages), 11)]

    assert running == [None, None, None, None, 2, None, None, None, None, 2, None]
    assert pages.asked == [LOADS, METRICS, METRICS]


def test_a_server_that_has_neither_is_not_asked_any_more() -> None:
    pages = Pages(lambda path: (404, "") if path == METRICS else (200, "<html>"))
    samples_of(telemetry(pages), 20)

    assert pages.asked == [LOADS, METRICS]


def test_a_counter_of_tokens_becomes_a_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.samples.slot_telemetry._METRICS_EVERY", 1)
    clock = iter(range(0, 1000, 10))
    ticking = SimpleNamespace(monotonic=lambda: float(next(clock)), time=time.time)
    monkeypatch.setattr("actors.samples.slot_telemetry.time", ticking)
    counts = [100, 350, 5, 205]  # it was restarted in between
    pages = Pages(
        lambda path: (200, f"vllm:generation_tokens_total {counts.pop(0)}\n") if path == METRICS else (404, "")
    )
    speeds = [s.server.generation_tok_s for s in samples_of(telemetry(pages), 5)]

    assert speeds == [None, None, 12.5, None, 10.0]


def test_the_processes_of_the_server_are_counted_with_memory_and_cpu_time() -> None:
    first, second = samples_of(telemetry(Pages(lambda path: (200, BUSY)), pid=os.getpid()), 2)

    assert first.server.processes is not None
    assert first.server.processes >= 1
    assert first.server.rss_gib is not None
    assert 0.005 < first.server.rss_gib < 50
    assert first.server.cpu_cores is None
    assert second.server.cpu_cores is not None
    assert second.server.running_requests == 4


def test_who_asks_again_gets_what_it_has_not_and_nothing_twice() -> None:
    slot = telemetry(Pages(lambda path: (200, BUSY)))
    five = samples_of(slot, 5)
    again, told = slot.after(0), slot.after(3)

    assert again.samples == five  # the first answer was lost
    assert (told.samples, told.told) == (five[3:], 5)
    assert slot.after(5).samples == ()


def test_what_nobody_fetches_is_dropped_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.samples.slot_telemetry._MOST_WAITING", 3)
    slot = telemetry(Pages(lambda path: (200, BUSY)))
    at = [sample.at_s for sample in samples_of(slot, 5)]

    assert len(at) == 3
    assert slot.after(3).samples[0].at_s == at[1]  # numbers count those that were dropped
    assert slot.after(5) == slot.after(99)


def test_sampling_goes_on_by_itself_and_ends_with_one_more() -> None:
    pages = Pages(lambda path: (200, BUSY))
    slot = telemetry(pages)

    async def run() -> tuple[int, int]:
        slot.begin()
        await pages.thrice.wait()
        before = slot.after(0).told
        await slot.end()
        return before, slot.after(0).told

    before, after = asyncio.run(run())
    assert (before, after) == (2, 3)  # the one under way is given up for the last
    asyncio.run(slot.end())
    assert slot.after(0).told == 3


def test_gpus_that_were_held_back_in_a_point_are_named_with_the_reason() -> None:
    def moment(*reasons: str) -> tuple[GpuSample, ...]:
        return (GpuSample("3", throttle=reasons), GpuSample("4", throttle=("idle",)))

    looks = [moment("power_cap"), moment("power_cap", "sw_thermal"), moment(), moment("power_cap")]
    slot = telemetry(Pages(lambda path: (200, BUSY)), Gpus(*looks))
    taken = samples_of(slot, 4)

    assert slot.throttled(taken[0].unix_s - 1, taken[-1].unix_s + 1) == (
        "gpu_throttled: GPU 3 was held back (power_cap) in 75 % of the time",
        "gpu_throttled: GPU 3 was held back (sw_thermal) in 25 % of the time",
    )
    assert slot.throttled(taken[-1].unix_s + 1, taken[-1].unix_s + 2) == ()


def test_a_gpu_that_was_held_back_for_a_moment_is_no_note() -> None:
    quiet: tuple[tuple[str, tuple[str, ...]], ...] = (("0", ()),)
    once: tuple[tuple[str, tuple[str, ...]], ...] = (("0", ("power_cap",)),)

    assert throttle_notes([once, *[quiet] * 10]) == ()
    assert throttle_notes([once, *[quiet] * 9]) == (
        "gpu_throttled: GPU 0 was held back (power_cap) in 10 % of the time",
    )
    assert throttle_notes([]) == ()


def test_a_sample_tells_the_memory_of_its_fullest_gpu() -> None:
    late = Sample(2.0, 0.0, None, ServerSample())
    full = Sample(2.0, 0.0, None, ServerSample(), (GpuSample("0", 70.0, 80.0), GpuSample("1", 75.5, 80.0)))

    assert full.gpu_free_gib == 4.5
    assert late.gpu_free_gib is None


def test_a_look_that_breaks_leaves_a_gap_and_ends_neither_the_sampling_nor_the_stop_of_a_server() -> None:
    class Broken(SlotGpuLook):
        def samples(self) -> tuple[GpuSample, ...]:
            raise ZeroDivisionError("a driver's bug")

    def broken(_: str) -> tuple[int, str]:
        raise ValueError("no text")

    first, second = samples_of(telemetry(Pages(broken), Broken(())), 2)

    assert (first.gpus, first.server, second.server) == ((), ServerSample(), ServerSample())
