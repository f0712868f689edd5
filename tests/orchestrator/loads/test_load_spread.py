"""How many load processes a point gets, and what happens to a point whose client was the bottleneck."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.loads.load_spread import LoadSpread, client_fault, process_bound
from orchestrator.paths import RunPaths
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.trial import ClientReport, LoadLevel, Point, PointSpec
from tests.actors.load_specs import spec
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import sweep_on

GOOD = ClientReport("p1", 10.0, 5.0, 1.0, 0.1, 64, 100, "duration")
BUSY = replace(GOOD, cpu_s=9.9)


def at(concurrency: float) -> PointSpec:
    return spec(level=LoadLevel("concurrency", concurrency))


def test_a_point_whose_client_was_the_bottleneck_is_measured_again_with_twice_as_many_processes() -> None:
    spread = LoadSpread(8)
    assert spread.processes_for(at(64)) == 1
    again = spread.again(at(64), BUSY)
    assert again is not None
    assert (again.processes, again.had) == (2, 1)
    assert again.text == (
        "the client was the bottleneck with 1 load process (CPU of each load process 99 %, at most 95 allowed): "
        "measured again with 2; "
        "the first measurement is in partial/"
    )


def test_later_points_of_at_least_that_load_begin_with_what_it_needed() -> None:
    spread = LoadSpread(8)
    spread.again(at(64), BUSY)
    spread.again(at(128), replace(BUSY, cpu_s=19.9, processes=2))
    assert [spread.processes_for(at(level)) for level in (32, 64, 100, 128, 1000)] == [1, 2, 2, 4, 4]
    assert spread.processes_for(spec(level=LoadLevel("rate", 1000.0))) == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"cpu_s": 9.9}, "CPU of each load process 99 %, at most 95 allowed"),
        ({"cpu_s": 9.9, "processes": 2}, None),  # half a CPU each
        ({"cpu_s": 0.99, "duration_s": 0.9}, None),  # too short to tell
        ({"duration_s": 0.0}, None),
        ({"loop_lag_p99_ms": 51.0}, "event-loop lag p99 51 ms, at most 50 allowed"),
        ({"schedule_delay_p99_ms": 101.0}, "requests sent late, p99 101.0 ms, at most 100 allowed"),
        ({"cpu_s": 9.9, "stopped_by": "hung"}, None),
        ({"cpu_s": 9.9, "stopped_by": "cancelled"}, None),
    ],
)
def test_what_makes_a_client_the_bottleneck(changes: dict[str, Any], told: str | None) -> None:
    fault = client_fault(replace(GOOD, **changes))
    assert (fault is None) == (told is None)
    assert (told or "") in (fault or "")


@pytest.mark.parametrize(
    ("late_ms", "ttft_ms", "told"),
    [
        (12.5, 10.6, "requests sent late, p99 12.5 ms, at most 5 allowed"),
        (4.9, 10.6, None),  # nobody is accused of less than 5 ms
        (101.0, 3000.0, None),  # 5 % of the median TTFT is 150 ms
        (151.0, 3000.0, "requests sent late, p99 151.0 ms, at most 150 allowed"),
    ],
)
def test_a_point_that_late_sends_make_void_is_measured_again(late_ms: float, ttft_ms: float, told: str | None) -> None:
    late = replace(GOOD, schedule_delay_p99_ms=late_ms)
    again = LoadSpread(8).again(spec(level=LoadLevel("rate", 32.0)), late, ttft_ms)
    assert (again.fault if again else None) == told


def test_processes_that_wait_for_the_host_although_their_cpus_have_time_are_not_doubled_for_ever() -> None:
    lagging = replace(GOOD, loop_lag_p99_ms=90.0)
    spread = LoadSpread(16)
    assert spread.again(at(64), lagging) is not None
    spread.repeated(replace(lagging, processes=2))
    assert spread.again(at(64), replace(lagging, processes=2)) is None
    assert spread.processes_for(at(64)) == 2


def test_a_slot_has_as_many_load_processes_as_cpus_but_two_at_least_and_sixteen_at_most() -> None:
    assert [process_bound(cpus) for cpus in (0.5, 1, 2, 7.9, 16, 200)] == [2, 2, 2, 7, 16, 16]


@given(
    st.integers(1, 16),
    st.lists(st.tuples(st.integers(1, 300), st.floats(0, 40), st.floats(0, 200), st.floats(0, 200)), max_size=40),
)
def test_a_slot_never_gets_more_than_its_hosts_hold_nor_more_than_the_load_can_use(
    most: int, points: list[tuple[int, float, float, float]]
) -> None:
    spread = LoadSpread(most)
    for concurrency, cpu_s, lag_ms, late_ms in points:
        processes = spread.processes_for(at(concurrency))
        report = replace(GOOD, cpu_s=cpu_s, loop_lag_p99_ms=lag_ms, schedule_delay_p99_ms=late_ms, processes=processes)
        again = spread.again(at(concurrency), report)
        for number in (processes, again.processes if again else 1):
            assert 1 <= number <= most
            assert number == 1 or number <= concurrency / 2
        if again:
            assert processes < again.processes <= processes * 2
            assert client_fault(report) is not None
            spread.repeated(replace(report, processes=again.processes))


class SlowClientSlot(FakeSlot):
    """Its load takes `cpus` CPUs; with fewer processes the client is the bottleneck."""

    def __init__(self, name: str, cpus: float) -> None:
        super().__init__(name)
        self.facts = SlotFacts(name, "fake-host", ("0",), load_processes=8)
        self._cpus = cpus
        self.asked: list[tuple[float, int, int]] = []

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        self.asked.append((point.spec.level.value, processes, point.repeat))
        for item in super().run_point(url, point, attempt):
            if isinstance(item, ClientReport):
                cpu_s = 10 * min(self._cpus * point.spec.level.value / 64, processes)
                yield replace(item, duration_s=10.0, cpu_s=cpu_s, processes=processes, cache_flushed=True)
            else:
                yield item


def test_a_sweep_measures_the_point_again_keeps_the_first_rows_aside_and_tells(tmp_path: Path) -> None:
    scenario = small_scenario(
        sweep={"configs": [{"speculative_num_steps": 2}]},
        workloads=[{"name": "chat", "input_tokens": 8, "output_tokens": 8, "concurrency": [1, 64, 65]}],
        objectives=[{"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 64}}],
    )
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = SlowClientSlot("a", cpus=1.5)
    _, result = sweep_on(run, scenario, [slot])
    run.close(complete=result.complete)

    assert result.complete
    assert sorted(slot.asked) in ([(1, 1, 0), (64, 1, 0), (64, 2, 0), (65, 2, 0)],
                                  [(1, 1, 0), (64, 1, 0), (64, 2, 0), (65, 1, 0), (65, 2, 0)])  # fmt: skip
    paths = RunPaths(tmp_path / "run")
    loads = {row["level"]: json.loads(row["client_json"])["processes"] for row in dataset.read_rows(paths, "loads")}
    assert loads == {1: 1, 64: 2, 65: 2}
    for point_id, attempt in dataset.measured_parts(paths):
        assert dataset.read_point(paths, point_id, attempt).num_rows == 10
    aside = sorted(file.name for file in paths.partial.glob("*"))
    assert len(aside) == len(slot.asked) - 3
    assert all(name.endswith("-1-client-too-slow.parquet") for name in aside)
    (trial,) = dataset.read_rows(paths, "trials")
    assert len(trial["notes"]) == len(aside)
    told = "the client was the bottleneck with 1 load process (CPU of each load process 100 %, at most 95 allowed)"
    assert f"chat C=64: {told}: measured again with 2" in str(trial["notes"])


def test_a_point_is_measured_again_only_once_and_with_other_prompts_where_the_cache_stays_warm(tmp_path: Path) -> None:
    class NeverFlushed(SlowClientSlot):
        def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
            for item in super().run_point(url, point, attempt, processes):
                yield replace(item, cache_flushed=None) if isinstance(item, ClientReport) else item

    scenario = small_scenario(
        sweep={"configs": [{"speculative_num_steps": 2}]},
        workloads=[{"name": "chat", "input_tokens": 8, "output_tokens": 8, "concurrency": [64]}],
        objectives=[{"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 64}}],
    )
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = NeverFlushed("a", cpus=100)
    _, result = sweep_on(run, scenario, [slot])
    run.close(complete=result.complete)

    assert slot.asked == [(64, 1, 0), (64, 2, 1_000_000)]
    (load,) = dataset.read_rows(RunPaths(tmp_path / "run"), "loads")
    assert (load["repeat"], json.loads(load["client_json"])["processes"]) == (0, 2)
