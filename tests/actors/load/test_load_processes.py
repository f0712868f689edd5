"""Child processes that offer one load: the same load as of one process, and nothing left of them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
from aiohttp import web

from actors.load.load_member import Arrived, Beat, End, Place, Release, Silent
from actors.load.load_phase import measured_phase
from actors.load.load_pipe import Broke, Job, LoadOptions, packed, read_item
from actors.load.load_processes import LoadProcesses
from actors.load.record_batch import batch_of, records_of
from actors.workloads.request_source import RequestSource
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import ClientReport, LoadLevel, Point, PointSpec, Shard
from tests.actors.load_specs import point, run, spec
from tests.fakes.leaping_clock import ClockOfChildren
from tests.fakes.scripted_endpoint import Script, ScriptedEndpoint, native_answer

SECRETS = LoadOptions(engine="attach", api_key="sk-never-shown", headers=(("X-Tenant", "tenant-never-shown"),))


def children() -> list[psutil.Process]:
    """Load processes of ours that live; one may end while we look."""
    return [c for c in psutil.Process().children() if "actors.load.load_process" in _command(c)]


def _command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


class FlushSeen(ScriptedEndpoint):
    """Keeps how many answers were under way when it was asked to flush."""

    open_at_flush: ClassVar[list[int]] = []

    async def _flush(self, request: web.Request) -> web.Response:
        self.open_at_flush.append(self._open)
        return await super()._flush(request)


def load(
    count: int, asked: PointSpec, script: Callable[[int, dict[str, Any]], Script],
    see: Callable[[list[RequestRecord]], object] = id, options: LoadOptions = SECRETS, **how: Any,
) -> tuple[list[RequestRecord], ClientReport | None, ScriptedEndpoint, list[str]]:  # fmt: skip
    """What `count` processes measured; `see` is called with all records so far whenever some have come."""

    async def go() -> Any:
        processes, records, report = LoadProcesses(count, options), [], None
        server = FlushSeen(script, **how)
        async with server, aclosing(processes.run(server.url, Point("p1", "t1", "c1", 0, asked))) as items:
            async for item in items:
                if isinstance(item, ClientReport):
                    report = item
                else:
                    records += records_of(item)
                see(records)
        return records, report, server, processes.faults

    records, report, server, faults = run(go())
    return records, report, server, faults


def offered_alone(asked: PointSpec, probe: RequestRecord) -> tuple[list[str], list[int]]:
    """Hashes of the prompts of the measured requests, and when they are due, of one process alone."""
    alone = RequestSource(asked)
    alone.calibrate([probe.prompt_tokens])
    due = [start.due_ns for start in measured_phase(alone, Shard()).starts]
    return [alone.script(i, "measured").ask().prompt.digest for i in range(len(due))], due


def test_three_processes_offer_the_load_of_one() -> None:
    asked = spec(level=LoadLevel("rate", 30.0), requests=60, warmup_requests=5, input_tokens=50)
    seen: list[str] = []

    def look(records: list[RequestRecord]) -> None:
        seen.extend(filter(None, map(_command, children())))

    FlushSeen.open_at_flush.clear()
    records, report, server, faults = load(3, asked, lambda n, body: native_answer(2, pause_s=0.1), look)

    assert faults == []
    assert report is not None
    assert (report.processes, report.requests, report.stopped_by) == (3, 60, "requests")
    measured = {r.request_index: r for r in records if not r.warmup}
    assert sorted(measured) == list(range(60)) == sorted(r.request_index for r in records if not r.warmup)
    # one probe by the first member, and what it learned is known to all: prompts are those of a process alone
    (probe,) = [r for r in records if r.warmup and r.requested_output_tokens == 1]
    prompts, planned = offered_alone(asked, probe)
    assert [measured[i].prompt_hash for i in range(60)] == prompts
    # due times are those of one schedule, counted from one origin
    starts = [measured[i].scheduled_ns - planned[i] for i in range(60)]
    assert max(starts) - min(starts) < 50_000_000  # three readings of one host's clocks
    last_warm = max(r.end_ns for r in records if r.warmup)
    assert min(r.sent_ns for r in measured.values()) > last_warm
    assert FlushSeen.open_at_flush == [0]  # once, when the warm-up of all had ended
    assert server.calls.count("/metrics") == 2
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-never-shown"}
    assert {headers["X-Tenant"] for headers in server.headers} == {"tenant-never-shown"}
    assert len(set(seen)) == 1  # every process was seen, and all look alike
    assert not any("never-shown" in line for line in seen)
    assert children() == []


def test_a_killed_process_ends_the_load_for_all_with_what_came_kept() -> None:
    def kill(records: list[RequestRecord]) -> None:
        if {r.request_index % 2 for r in records} == {0, 1} and len(living := children()) == 2:
            living[1].kill()

    asked = spec(level=LoadLevel("concurrency", 4), requests=None, duration_s=600.0)
    records, report, _, faults = load(2, asked, lambda n, body: native_answer(3, pause_s=0.01), kill)

    assert faults == ["load process 2 of 2: killed by SIGKILL"]
    assert report is not None
    assert (report.stopped_by, report.processes) == ("cancelled", 1)
    assert {r.request_index % 2 for r in records} == {0, 1}
    assert {r.status for r in records} == {RequestStatus.OK, RequestStatus.CANCELLED}
    assert children() == []


def test_a_hung_server_is_found_by_all_processes_together_and_a_dropped_load_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = spec(level=LoadLevel("concurrency", 3), requests=100, request_timeout_s=3600.0)
    options = LoadOptions(hang_timeout_s=600.0)
    script = lambda n, body: native_answer(1) if n < 10 else Script(end="hang", before_end=601.0)  # noqa: E731
    clock = ClockOfChildren(monkeypatch, tmp_path)
    records, report, _, faults = load(2, asked, script, options=options, together=range(10, 13), clock=clock)

    assert faults == []
    assert report is not None
    assert report.stopped_by == "hung"
    ended = [r.status for r in records]
    assert (ended.count(RequestStatus.OK), ended.count(RequestStatus.TIMEOUT), len(ended)) == (10, 3, 13)

    async def drop() -> list[psutil.Process]:
        async with ScriptedEndpoint(lambda n, body: native_answer(1, first_s=0.01)) as server:
            items = LoadProcesses(1, LoadOptions()).run(server.url, point(requests=None, duration_s=600.0))
            async with aclosing(items):
                await anext(items)
                return children()

    assert len(run(drop())) == 1
    assert children() == []


def test_what_breaks_in_a_process_is_told_in_its_words(tmp_path: Path) -> None:
    asked = spec(dataset=f"file:{tmp_path}/gone.txt")
    records, report, server, faults = load(1, asked, lambda n, body: native_answer(1))

    assert (records, report, server.bodies) == ([], None, [])
    (fault,) = faults
    assert fault.startswith(f"load process 1 of 1: BadInput: {tmp_path}/gone.txt: cannot be read")


async def read_back(data: bytes) -> list[Any]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    items = []
    while (item := await read_item(reader)) is not None:
        items.append(item)
    return items


RECORD = RequestRecord(3, False, 1, 2, 5, 9, (5, 9), (1, 2), 1, 3, 9, 4, 3, None, None, None, None, "length",
                       RequestStatus.OK, 200, None, "hash")  # fmt: skip


def test_every_item_comes_out_of_the_pipe_as_it_went_in() -> None:
    report = ClientReport("p1", 2.5, 0.5, 1.0, 2.0, 3, 4, "hung", profile="there", backlog_p99_kib=1.5)
    job = Job("http://127.0.0.1:1", point(level=LoadLevel("rate", 2.5), counters=(("drafted", "x"),)),
              Shard(1, 3, 1_796_000_000_123_456_789), SECRETS)  # fmt: skip
    values = [job, Arrived(Place.PROBED, [0, 41], ended=True), Beat(True, False), Silent(), Release(Place.START, 7),
              End("hung"), report, Broke("ValueError: ü")]  # fmt: skip
    assert run(read_back(b"".join(packed(value) for value in values))) == values
    batch = batch_of(
        [RECORD], dict.fromkeys(("run_id", "trial_id", "point_id", "config_id", "engine"), "x") | {"attempt": 1}
    )
    (again,) = run(read_back(packed(batch)))
    assert again.equals(batch)
    assert records_of(again) == [RECORD]


@pytest.mark.parametrize("cut", [1, 4, 6, 12])
def test_a_pipe_that_ends_inside_a_frame_ends(cut: int) -> None:
    assert run(read_back(packed(End("hung")) + packed(End("hung"))[:cut])) == [End("hung")]
