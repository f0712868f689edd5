"""Load actors streaming records to the driver: what arrives, what it costs, how late it is; beside a bare Ray actor.

Ours is the whole path: records -> batches and spool in the load actor -> Ray -> `RaySlot` -> the slot's thread -> the
sweep's queue -> `RunDirectory.append` -> a Parquet file per point. Bare: an async actor that yields one ready batch
again and again, a thread per producer that takes it with `ray.get` and drops it. Latency: from the last record of a
batch until it is on disk (bare: until it is there). Flat out the records are made beforehand, but for the last one of a
batch: making them is the client's work and not the way's. Figures are from the first batch that came to the last; what
the trials cost besides (start, Parquet at the end) is told apart.

    python -m benchmarks.stream_producers [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from actors.load.record_batch import FLUSH_ROWS, FLUSH_S, RecordStream, batch_of
from actors.load_host import spool_file
from benchmarks.simulated_sweep import cpu_seconds, swept_scenario
from orchestrator.happening import BatchArrived, Happening
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, ServerReady, StartEvent
from orchestrator.slots.ray_connection import Connection, connect
from orchestrator.slots.ray_slot import RaySlot
from orchestrator.slots.slot_port import SlotFacts, StopFacts
from orchestrator.sweeps.sweep import Sweep
from orchestrator.telemetry import Sample
from orchestrator.trial import ClientReport, Point, Shard

CHUNKS = 8
# Flat out: so many batches may wait in the actor, so that the figure is of the way and not of a growing heap.
_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """Records of one producer: so many in all, at a rate (None: as fast as they are taken)."""

    records: int
    rate: float | None

    @property
    def name(self) -> str:
        return "flat out" if self.rate is None else f"{self.rate:.0f} records/s each"


def record(index: int) -> RequestRecord:
    """A request of 8 chunks; `end_ns` is when it was made, by the clock that all processes of this machine share."""
    start = index * 1_000_000
    marks = tuple(start + 10_000_000 * (i + 1) for i in range(CHUNKS))
    return RequestRecord(
        index, False, start, start, marks[0], time.time_ns(), marks, (4,) * CHUNKS, 8, 32, 256, 0, 32, 8, 24, 32, 0,
        "length", RequestStatus.OK, 200, None, "0123456789abcdef",
    )  # fmt: skip


def identity_of(run_id: str, trial_id: str, point_id: str, config_id: str, attempt: int) -> dict[str, Any]:
    """What a batch has besides its records."""
    names = {"run_id": run_id, "trial_id": trial_id, "point_id": point_id, "config_id": config_id}
    return names | {"engine": "emulator", "attempt": attempt}


_SOMEBODY = identity_of("run", "trial-of-somebody-r0", "0123456789ab", "0123456789ab", 1)


class Producer:
    """A load actor without a server: makes records at a pace, and does with them what a LoadHost does."""

    def __init__(self, run_id: str, pace: Pace) -> None:
        self._run_id, self._pace = run_id, pace
        self._ready_made = [record(i) for i in range(FLUSH_ROWS)]

    async def run_point(
        self, url: str, point: Point, attempt: int, api_key: str | None = None, shard: Shard | None = None
    ) -> AsyncIterator[Any]:
        """Batches, then a ClientReport with the CPU seconds of this process."""
        del url, api_key, shard
        began = resource.getrusage(resource.RUSAGE_SELF)
        spool = spool_file(self._run_id, point.point_id, attempt)
        identity = identity_of(self._run_id, point.trial_id, point.point_id, point.config_id, attempt)
        stream = RecordStream(identity, spool)
        making = asyncio.create_task(self._make(stream))
        async for batch in stream.batches():
            yield batch
        await making
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime
        yield ClientReport(point.point_id, 1.0, cpu_s, 0.1, 0.1, 8, self._pace.records, "requests")

    async def _make(self, stream: RecordStream) -> None:
        began, made, pace = time.monotonic(), 0, self._pace
        while made < pace.records:
            due = int((time.monotonic() - began) * pace.rate) if pace.rate is not None else pace.records
            if pace.rate is None and stream.waiting > _AHEAD:
                due = made
            for i in range(made, min(due, made + FLUSH_ROWS, pace.records)):
                place = i % FLUSH_ROWS
                paced = pace.rate is not None or place == FLUSH_ROWS - 1
                stream.add(record(i) if paced else self._ready_made[place])
                made += 1
            stream.tick()
            await asyncio.sleep(0.01 if pace.rate is not None else 0.002 if stream.waiting > _AHEAD else 0)
        stream.close()

    async def forget(self, point_id: str, attempt: int, member: int = 0) -> None:
        spool_file(self._run_id, point_id, attempt, member).unlink(missing_ok=True)

    async def stay(self) -> None:
        """As a slot's actor, whose end is waited for beside the stream."""
        await asyncio.Event().wait()

    async def ready(self) -> None:
        """The process is up, and has made its first batch, which takes longest."""
        batch_of([record(0)], _SOMEBODY)


class BareProducer:
    """Yields one ready batch of so many rows, and when it did."""

    async def run(self, rows: int, batches: int, pause_s: float) -> AsyncIterator[Any]:
        batch = batch_of([record(i) for i in range(rows)], _SOMEBODY)
        began = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(batches):
            yield time.time_ns(), batch
            if pause_s:
                await asyncio.sleep(pause_s)
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime


class StreamingSlot(RaySlot):
    """A RaySlot whose server is only said to be there."""

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        yield ServerReady(spec.trial_id, "http://127.0.0.1:1", 1, 0.0, ())

    def died(self, load: LoadSeen) -> ServerDied | None:
        return None

    def stop(self) -> StopFacts:
        return StopFacts(0, 0.0, None)

    def telemetry(self) -> tuple[Sample, ...]:
        return ()

    def server_log(self) -> bytes:
        return zstandard.compress(b"")


@dataclass
class Seen:
    """What came to the driver: a Watcher, called when it has been stored."""

    latencies_ms: list[float] = field(default_factory=list)
    rows: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    first_rows: int = 0
    first_cpu_s: float = 0.0
    last_cpu_s: float = 0.0

    def saw(self, slot: str, happening: Happening) -> None:
        if isinstance(happening, BatchArrived):
            self.take(happening.batch.num_rows, happening.batch.column("end_ns")[-1].as_py())

    def take(self, rows: int, made_ns: int) -> None:
        self.latencies_ms.append((time.time_ns() - made_ns) / 1e6)
        self.last_s, self.last_cpu_s = time.perf_counter(), cpu_seconds()
        if not self.rows:
            self.first_s, self.first_cpu_s, self.first_rows = self.last_s, self.last_cpu_s, rows
        self.rows += rows


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run. CPU in seconds."""

    batches: int
    rows: int
    wall_s: float
    driver_cpu_s: float
    producers_cpu_s: float
    p50_ms: float
    p99_ms: float

    def line(self) -> str:
        per_batch = (self.driver_cpu_s / self.batches * 1e6, self.producers_cpu_s / self.batches * 1e6)
        return (
            f"{self.rows / self.wall_s / 1e3:7.1f} krec/s {self.batches / self.wall_s:6.0f} batches/s; "
            f"CPU us/batch driver {per_batch[0]:6.0f} producers {per_batch[1]:6.0f}; cores driver "
            f"{self.driver_cpu_s / self.wall_s:.2f} producers {self.producers_cpu_s / self.wall_s:.2f}; "
            f"latency p50 {self.p50_ms:.0f} p99 {self.p99_ms:.0f} ms"
        )

    @property
    def cpu_us_per_batch(self) -> float:
        return (self.driver_cpu_s + self.producers_cpu_s) / self.batches * 1e6


def figures(seen: Seen, producers_cpu_s: float) -> Figures:
    """From the first batch on; the producers' CPU, which is of all batches, by share."""
    p50, p99 = np.percentile(seen.latencies_ms, (50, 99))
    wall_s = max(seen.last_s - seen.first_s, 1e-9)
    batches = len(seen.latencies_ms) - 1
    driver_cpu_s, producers_cpu_s = seen.last_cpu_s - seen.first_cpu_s, producers_cpu_s * batches / (batches + 1)
    rows = seen.rows - seen.first_rows
    return Figures(batches, rows, wall_s, driver_cpu_s, producers_cpu_s, float(p50), float(p99))


def ours(producers: int, pace: Pace, run_id: str, folder: Path) -> Figures:
    """Through the product."""
    import ray

    scenario = swept_scenario({"speculative_num_steps": [0]}, producers, [1])
    plan = make_plan(scenario, producers)
    actor = ray.remote(Producer).options(num_cpus=0, max_concurrency=32)
    loads = [actor.remote(run_id, pace) for _ in range(producers)]
    ray.get([load.ready.remote() for load in loads], timeout=300)
    facts = [SlotFacts(f"h/{i}", "h", ()) for i in range(producers)]

    def slot(i: int) -> StreamingSlot:
        return StreamingSlot(facts[i], loads[i], lambda member: (loads[i], ""), run_id, exposed=False)

    run = RunDirectory.create(folder, scenario)
    seen = Seen()
    sweep = Sweep(plan, [slot(i) for i in range(producers)], run, lambda t: launch_spec(scenario, run_id, t), seen)
    before_s = cpu_seconds()
    result = sweep.run()
    aside_s = cpu_seconds() - before_s - (seen.last_cpu_s - seen.first_cpu_s)
    run.close(complete=result.complete)
    if not result.complete or seen.rows != producers * pace.records:
        raise SystemExit(f"{seen.rows} of {producers * pace.records} records came: {result}")
    cpu_s = sum(json.loads(row["client_json"])["cpu_s"] for row in dataset.read_rows(run.paths, "loads"))
    for load in loads:
        ray.kill(load)
    print(f"  (ours, besides the stream: {aside_s / producers * 1e3:.0f} ms of the driver's CPU a trial)")  # noqa: T201
    return figures(seen, cpu_s)


def bare(producers: int, rows: int, batches: int, pause_s: float) -> Figures:
    """The fastest plain way: a thread per producer, which drops what it gets."""
    import ray

    actor = ray.remote(BareProducer).options(num_cpus=0)
    actors = [actor.remote() for _ in range(producers)]
    ray.get([a.__ray_ready__.remote() for a in actors], timeout=300)
    seen, lock, cpu = Seen(), threading.Lock(), []

    def read(one: Any) -> None:
        for ref in one.run.options(num_returns="streaming").remote(rows, batches, pause_s):
            item = ray.get(ref, timeout=60)
            if isinstance(item, float):
                cpu.append(item)
                continue
            with lock:
                seen.take(item[1].num_rows, item[0])

    threads = [threading.Thread(target=read, args=(one,)) for one in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in actors:
        ray.kill(one)
    return figures(seen, sum(cpu))


def compare(producers: int, pace: Pace, run_id: str, folder: Path) -> None:
    """One row of ours, one of the bare actor with batches of the same size at the same pace, and the ratio."""
    mine = ours(producers, pace, run_id, folder)
    rows = max(1, round(mine.rows / mine.batches))
    pause_s = 0.0 if pace.rate is None else rows / pace.rate
    plain = bare(producers, rows, max(1, mine.batches // producers), pause_s)
    print(f"P={producers} {pace.name}, {rows} rows a batch")  # noqa: T201
    print(f"  ours {mine.line()}")  # noqa: T201
    print(f"  bare {plain.line()}")  # noqa: T201
    print(  # noqa: T201
        f"  ours / bare: records/s {mine.rows / mine.wall_s / (plain.rows / plain.wall_s):.2f}, CPU per batch "
        f"{mine.cpu_us_per_batch / plain.cpu_us_per_batch:.2f}, of the driver "
        f"{mine.driver_cpu_s / mine.batches / (plain.driver_cpu_s / plain.batches):.2f}",
        flush=True,
    )


def main() -> None:
    """Embed a cluster, measure, print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="1 and 4 producers, fewer records")
    asked = arguments.parse_args()
    counts, records, seconds = ((1, 4), 100_000, 4.0) if asked.quick else ((1, 4, 8), 400_000, 10.0)
    print(f"load of the machine {os.getloadavg()[0]:.1f}; a batch is flushed at 1000 rows or {FLUSH_S:g} s")  # noqa: T201
    run_id = f"stream-producers-{os.getpid()}"
    cluster = connect(Connection("local", cpus_wanted=float(max(counts))), run_id)
    flat, paced = Pace(records, None), Pace(int(200 * seconds), 200.0)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for count in counts:
                share = replace(flat, records=records // count)
                compare(count, share, run_id, Path(folder) / f"flat-{count}")
                compare(count, paced, run_id, Path(folder) / f"paced-{count}")
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
