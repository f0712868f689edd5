"""The load client against an emulator with faults: every request is told as what became of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from actors.load.loadgen import LoadGenerator
from orchestrator.records import RequestRecord
from orchestrator.records import RequestStatus as Status
from orchestrator.trial import ClientReport, LoadLevel
from tests.actors.emulator.faulty import faulty
from tests.actors.emulator.running import Emulator
from tests.actors.load_specs import run, spec
from tests.fakes.leaping_clock import LeapingClock
from tests.fakes.load import load_endpoint

TOKENS = 12
# So long without a byte is a hang. A slow machine is not silent for as long; it is leapt.
SILENT_S = 600.0
# Prefills until the third request of a load is served: the server's own warm-up has one, too.
THIRD_WITH_WARM_UP = 4
# Fault of a request -> its status and what its error begins with.
FAULTS: list[tuple[dict[str, Any] | None, Status, str]] = [
    ({"fault": "cut", "token": 3}, Status.TRUNCATED, "EOFError"),
    ({"fault": "cut", "token": 3, "reset": True}, Status.TRUNCATED, ""),
    ({"fault": "cut", "token": 0}, Status.TRUNCATED, "EOFError"),
    ({"fault": "truncate", "token": 3}, Status.TRUNCATED, "the stream ended without its end mark"),
    ({"fault": "error_event", "token": 3, "message": "no memory"}, Status.SERVER_ERROR, "no memory"),
    ({"fault": "error_event", "token": 0, "message": "no memory"}, Status.SERVER_ERROR, "no memory"),
    ({"fault": "http_error", "status": 500}, Status.HTTP_ERROR, "Internal server error"),
    ({"fault": "http_error", "status": 503}, Status.HTTP_ERROR, "The request queue is full."),
    ({"fault": "http_error", "status": 502, "body": "html"}, Status.HTTP_ERROR, "<html><head><title>502 Bad Gateway"),
    ({"fault": "http_error", "status": 429, "body": "text"}, Status.HTTP_ERROR, "Too many requests"),
    ({"fault": "http_error", "status": 504, "body": "empty"}, Status.HTTP_ERROR, "status 504 without a body"),
    ({"fault": "empty"}, Status.EMPTY, ""),
    ({"fault": "done_mark", "mark": "missing"}, Status.OK, ""),
    ({"fault": "done_mark", "mark": "twice"}, Status.OK, ""),
    ({"fault": "stall", "token": 3, "seconds": 0.3}, Status.OK, ""),
    ({"fault": "slow_first_byte", "seconds": 0.3}, Status.OK, ""),
    ({"fault": "reframe", "comments": True, "crlf": True, "join": 2}, Status.OK, ""),
    (None, Status.OK, ""),
]


def load(running: Emulator, **changes: Any) -> tuple[list[RequestRecord], ClientReport]:
    given = {"output_tokens": TOKENS, **changes}
    records, report = run(load_endpoint(f"http://127.0.0.1:{running.port}", spec(**given)))
    return sorted(records, key=lambda r: r.request_index), report


@pytest.mark.parametrize("api", ["generate", "completions", "chat"])
def test_every_fault_of_a_request_has_its_status(tmp_path: Path, api: str) -> None:
    script = {"serving": [{**f, "request": n} for n, (f, _, _) in enumerate(FAULTS, 1) if f is not None]}
    with faulty(tmp_path, json.dumps(script)) as running:
        records, report = load(running, api=api, requests=len(FAULTS))
    assert [
        (r.status, (r.error or "").startswith(words)) for r, (_, _, words) in zip(records, FAULTS, strict=True)
    ] == [(status, True) for _, status, _ in FAULTS]
    assert [r.error is None for r in records] == [status in {Status.OK, Status.EMPTY} for _, status, _ in FAULTS]
    assert {r.output_tokens for r in records if r.status is Status.OK} == {TOKENS}
    assert {sum(r.chunk_tokens) for r in records if r.status is Status.OK} == {TOKENS}
    assert [r.http_status for r in records if r.status is Status.HTTP_ERROR] == [500, 503, 502, 429, 504]
    cut, _, uncut, truncated, broken = records[:5]
    assert all(3 <= (r.output_tokens or 0) < TOKENS for r in (cut, truncated, broken))
    assert (uncut.output_tokens, uncut.chunk_ns) == (None, ())
    assert (report.requests, report.stopped_by) == (len(FAULTS), "requests")


def test_under_load_no_request_is_lost_or_counted_twice(tmp_path: Path) -> None:
    kinds = ({"fault": "cut", "token": 2}, {"fault": "http_error", "status": 503}, {"fault": "reframe"})
    script = {"seed": 5, "serving": [{**kind, "probability": 0.3, "times": "always"} for kind in kinds]}
    with faulty(tmp_path, json.dumps(script)) as running:
        records, report = load(running, level=LoadLevel("concurrency", 6), requests=90)
    assert [r.request_index for r in records] == list(range(90))
    counts = Counter(r.status for r in records)
    assert set(counts) == {Status.OK, Status.TRUNCATED, Status.HTTP_ERROR}
    assert counts.total() == report.requests == 90
    assert counts == {Status.OK: 53, Status.TRUNCATED: 10, Status.HTTP_ERROR: 27}
    assert {r.output_tokens for r in records if r.status is Status.OK} == {TOKENS}


@pytest.mark.parametrize("api", ["generate", "completions", "chat"])
def test_split_frames_change_no_number(tmp_path: Path, api: str) -> None:
    script = "serving: {fault: reframe, request: 3, times: always, crlf: true, comments: true}"
    with faulty(tmp_path, script) as running:
        records, _ = load(running, api=api, requests=4, output_tokens=40)
    told = {(r.status, r.output_tokens, sum(r.chunk_tokens), r.finish_reason, r.error) for r in records}
    assert told == {(Status.OK, 40, 40, "length", None)}


def test_wrong_counts_are_believed_and_missing_ones_are_not_invented(tmp_path: Path) -> None:
    script = """
serving:
  - {fault: usage, counts: missing, request: 1}
  - {fault: usage, counts: doubled, request: 2}
"""
    with faulty(tmp_path, script) as running:
        records, _ = load(running, requests=3)
    assert [(r.status, r.output_tokens) for r in records] == [(Status.OK, None), (Status.OK, 24), (Status.OK, TOKENS)]


def test_a_dropped_connection_is_counted_and_costs_no_request(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: drop_connection, request: 3}") as running:
        records, report = load(running, requests=6)
    assert Counter(r.status for r in records) == {Status.OK: 6}
    assert report.reconnects == 1


def test_an_unflushable_cache_and_missing_metrics_are_told(tmp_path: Path) -> None:
    script = """
serving:
  - {fault: endpoint, path: /flush_cache, status: 400, body: busy}
  - {fault: endpoint, path: /metrics}
"""
    with faulty(tmp_path, script, "--enable-metrics") as running:
        records, report = load(running, requests=2)
    assert Counter(r.status for r in records) == {Status.OK: 2}
    assert (report.cache_flushed, report.verify_calls_delta, report.requests_delta) == (False, None, None)


@pytest.mark.parametrize("health", [200, 503])
def test_a_hang_ends_the_point_as_hung_whatever_health_says(tmp_path: Path, health: int, clock: LeapingClock) -> None:
    async def leap_once_it_is_served(running: Emulator) -> None:
        while running.log.count("Prefill batch") < THIRD_WITH_WARM_UP:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
        while True:
            await clock.leap(SILENT_S)
            await asyncio.sleep(0.05)

    async def hung(running: Emulator) -> tuple[list[RequestRecord], ClientReport]:
        url = f"http://127.0.0.1:{running.port}"
        asked = spec(output_tokens=TOKENS, requests=6, request_timeout_s=1000 * SILENT_S)
        leaping = asyncio.create_task(leap_once_it_is_served(running))
        try:
            return await load_endpoint(url, asked, generator=LoadGenerator(hang_timeout_s=SILENT_S))
        finally:
            leaping.cancel()

    with faulty(tmp_path, f"serving: {{fault: hang, request: 3, token: 2, health: {health}}}") as running:
        records, report = run(hung(running))
    assert [r.status for r in sorted(records, key=lambda r: r.request_index)] == [Status.OK, Status.OK, Status.TIMEOUT]
    assert report.stopped_by == "hung"


@pytest.mark.parametrize("label", ["runtime_oom", "killed", "rank_killed"])
def test_requests_of_a_server_that_dies_are_cut_and_the_rest_refused(tmp_path: Path, label: str) -> None:
    with faulty(tmp_path, f"serving: {{fault: die, label: {label}, request: 3, token: 2}}") as running:
        records, report = load(running, requests=5)
    assert [r.status for r in records] == [Status.OK, Status.OK, Status.TRUNCATED, Status.CONNECTION, Status.CONNECTION]
    assert report.requests == 5
