"""The records of 200 load actors at one driver: what its loop can store, what it needs at a usual rate, a slow disk.

One process: a thread per load actor hands over real batches as `RaySlot` would (without Ray: `stream_producers` has
that), from there on everything is the product's: the slots' threads, the one queue (256), `RunDirectory`. On the slow
disk every batch takes so long to be written that the queue fills: the threads must wait, nothing may be lost, and
nobody may hang.

    python -m benchmarks.driver_stream [--quick]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from benchmarks.simulated_slot import point_batch
from benchmarks.simulated_sweep import cpu_seconds, rss_mib, slots_on_hosts, swept_scenario
from orchestrator.happening import BatchArrived, Happening
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, ServerReady, StartEvent
from orchestrator.slots.slot_port import SlotFacts, StopFacts
from orchestrator.sweeps.sweep import Sweep
from orchestrator.telemetry import Sample
from orchestrator.trial import ClientReport, Point


@dataclass(frozen=True, slots=True)
class Offer:
    """What each of the slots' loads brings: so many batches of so many rows, `every_s` (0: at once)."""

    batches: int
    rows: int
    every_s: float = 0.0


class BatchSlot:
    """A SlotPort whose load hands over batches at a pace, in real time."""

    def __init__(self, facts: SlotFacts, offer: Offer, phase_s: float) -> None:
        self.facts = facts
        self._offer, self._phase_s = offer, phase_s
        self.longest_wait_s = 0.0

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        yield ServerReady(spec.trial_id, "http://127.0.0.1:1", 1, 0.0, ())

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        del url, processes
        offer, began = self._offer, time.monotonic() + self._phase_s
        for i in range(offer.batches):
            time.sleep(max(0.0, began + i * offer.every_s - time.monotonic()) if offer.every_s else 0.0)
            batch = point_batch(point, attempt, i * offer.rows, offer.rows)
            handed = time.monotonic()
            yield batch
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - handed)
        yield ClientReport(point.point_id, 1.0, 0.1, 0.1, 0.1, 1, offer.batches * offer.rows, "requests")

    def died(self, load: LoadSeen) -> ServerDied | None:
        return None

    def interrupt(self) -> None:
        """Ends by itself."""

    def stop(self) -> StopFacts:
        return StopFacts(0, 0.0, None)

    def telemetry(self) -> tuple[Sample, ...]:
        return ()

    def server_log(self) -> bytes:
        return zstandard.compress(b"")


class SlowDisk(RunDirectory):
    """A run directory whose every batch takes `batch_s` more to be written."""

    batch_s = 0.0

    def append(self, point: Point, attempt: int, batch: Any) -> None:
        time.sleep(self.batch_s)
        super().append(point, attempt, batch)


class BatchMeter:
    """A Watcher: CPU of the loop's thread, and when the first and the last batch was stored."""

    def __init__(self) -> None:
        self.rows, self.batches, self.first_s, self.last_s = 0, 0, 0.0, 0.0
        self.loop_cpu_s, self._before_s = 0.0, time.thread_time()

    def saw(self, slot: str, happening: Happening) -> None:
        now_s = time.thread_time()
        if isinstance(happening, BatchArrived):
            self.last_s = time.perf_counter()
            self.first_s = self.first_s or self.last_s
            self.rows += happening.batch.num_rows
            self.batches += 1
            self.loop_cpu_s += now_s - self._before_s
        self._before_s = now_s


def measure(name: str, slots: int, offer: Offer, folder: Path, batch_s: float = 0.0) -> None:
    """Run one point on each slot, print, and check that every row is on disk."""
    scenario: Scenario = swept_scenario({"speculative_num_steps": [1]}, slots, [1])
    plan = make_plan(scenario, slots)
    facts = slots_on_hosts(slots, -(-slots // 4))
    ports = [BatchSlot(f, offer, offer.every_s * i / slots) for i, f in enumerate(facts)]
    run = SlowDisk.create(folder, scenario)
    assert isinstance(run, SlowDisk)
    run.batch_s = batch_s
    meter, before_mib = BatchMeter(), rss_mib()
    began_cpu_s = cpu_seconds()
    result = Sweep(plan, list(ports), run, lambda t: launch_spec(scenario, "run", t), meter).run()
    used_s = cpu_seconds() - began_cpu_s
    run.close(complete=result.complete)
    wall_s = meter.last_s - meter.first_s
    stored = rows_on_disk(run.paths)
    whole = result.complete and stored == slots * offer.batches * offer.rows
    print(  # noqa: T201
        f"{name}: {meter.rows / wall_s / 1e3:.1f} krec/s, {meter.batches / wall_s:.0f} batches/s, {wall_s:.1f} s; loop "
        f"{meter.loop_cpu_s / meter.batches * 1e6:.0f} us CPU a batch, {meter.loop_cpu_s / wall_s:.2f} cores; process "
        f"{used_s / wall_s:.2f} cores; RSS {before_mib:.0f} -> {rss_mib():.0f} MiB; a batch waited at most "
        f"{max(port.longest_wait_s for port in ports):.2f} s; {stored} rows on disk, {'all' if whole else 'NOT ALL'}",
        flush=True,
    )
    if not whole:
        raise SystemExit(1)


def rows_on_disk(paths: RunPaths) -> int:
    """Of all points that count."""
    parts = dataset.measured_parts(paths)
    return sum(dataset.read_point(paths, point_id, attempt, ["warmup"]).num_rows for point_id, attempt in parts)


def main() -> None:
    """Measure, print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="fewer batches")
    asked = arguments.parse_args()
    many, seconds = (10, 5) if asked.quick else (50, 30)
    print(f"load of the machine {os.getloadavg()[0]:.1f}; 200 load actors")  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        measure("flat out, 100 rows a batch", 200, Offer(many, 100), root / "small")
        measure("flat out, 1000 rows a batch", 200, Offer(many // 5, 1000), root / "large")
        measure("2 batches/s of 100 rows each", 200, Offer(2 * seconds, 100, 0.5), root / "paced")
        measure("slow disk, 5 ms a batch", 200, Offer(many // 2, 100), root / "slow", batch_s=0.005)


if __name__ == "__main__":
    main()
