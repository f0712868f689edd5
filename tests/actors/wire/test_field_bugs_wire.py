"""What went wrong on the wire in other load clients, as inputs with their right answers, times scaled down."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from itertools import pairwise

import pytest

from actors.wire.client import StreamClient
from orchestrator.points.metrics import summarise
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import LoadLevel
from tests.actors.load_specs import ask, run, spec
from tests.actors.wire_loads import C1, REQUEST, asked, counted, loaded, one
from tests.fakes.leaping_clock import LeapingClock
from tests.fakes.raw_server import STREAM, RawServer, Step, chunk, chunked, whole
from tests.fakes.scripted_endpoint import DONE, chat, native


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_character_may_be_cut_anywhere(size: int) -> None:
    """Row 18: a flush in the middle of each character."""
    stream = chat({"content": "✅漢字"}) + chat({"content": "é🙂"}, finish="stop") + DONE
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]

    async def go() -> tuple[RequestRecord, str]:
        server = RawServer(lambda n: chunked(pieces))
        async with server, StreamClient(server.url, spec(api="chat")) as client:
            flight = client.flight(REQUEST, keep_text=True)
            await client.send(flight)
            return flight.record(0), flight.answer.text()

    record, text = run(go())
    assert (record.status, text, len(record.chunk_ns)) == (RequestStatus.OK, "✅漢字é🙂", 2)


FIVE = [native("a" * n, n, {"type": "stop"} if n == 5 else None) for n in range(1, 6)]
CUTS: dict[str, list[bytes]] = {
    "one frame in three writes": [FIVE[0][:10], FIVE[0][10:40], FIVE[0][40:], *FIVE[1:], DONE],
    "five frames in one write": [b"".join(FIVE), DONE],
    "the end mark in two": [*FIVE, b"data: [DO", b"NE]\n\n"],
    "all in one": [b"".join(FIVE) + DONE],
    "blank line apart": [part for event in [*FIVE, DONE] for part in (event[:-1], event[-1:])],
    "comments between": [part for event in [*FIVE, DONE] for part in (b": ping\n\n", event)],
}


@pytest.mark.parametrize("pieces", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("layer", ["chunks", "socket"])
def test_events_may_be_split_and_joined(pieces: list[bytes], layer: str) -> None:
    """Row 19, with the cuts between HTTP chunks, and with cuts of the socket inside them."""
    steps = chunked(pieces)
    if layer == "socket":
        stream = STREAM + b"".join(chunk(piece) for piece in pieces) + b"0\r\n\r\n"
        steps = [stream[i : i + 97] for i in range(0, len(stream), 97)]
    (record,), _ = asked(lambda n: steps)
    assert (record.status, record.error, sum(record.chunk_tokens), record.output_tokens, record.finish_reason) == (
        RequestStatus.OK, None, 5, 5, "stop",
    )  # fmt: skip
    assert record.end_ns == record.chunk_ns[-1]


def test_a_stream_that_goes_on_has_no_time_limit(clock: LeapingClock) -> None:
    """Row 21: five times as long as the longest time without progress."""
    events: list[bytes | float] = []
    for i in range(1, 16):
        events += [200.0, native("x" * i, i, {"type": "length"} if i == 15 else None)]
    (record,), _ = asked(lambda n: chunked([*events, DONE]), clock=clock, request_timeout_s=600.0)
    assert (record.status, record.error, record.output_tokens) == (RequestStatus.OK, None, 15)
    assert record.end_ns - record.sent_ns >= 3000 * 10**9


SILENT: list[Step] = [601.0, "hang"]
PINGS: list[Step] = [90.0, chunk(b": ping\n\n")] * 20


@pytest.mark.parametrize(
    ("steps", "awaited"),
    [
        (SILENT, "the headers of the answer"),
        ([STREAM, *SILENT], "the first token"),
        ([STREAM, chunk(chat({"role": "assistant"})), *SILENT], "the first token"),
        ([STREAM, chunk(chat({"content": "a"})), *SILENT], "the next token"),
        ([STREAM, chunk(chat({"content": "a"})), *PINGS, chunk(DONE)], "the next token"),
        ([b"HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\nhalf", *SILENT], "the rest of the answer"),
    ],
)
def test_a_timeout_says_its_type_and_what_was_awaited(steps: list[Step], awaited: str, clock: LeapingClock) -> None:
    """Row 21: a failure never comes without a reason. Comments are no progress."""
    (record,), _ = asked(lambda n: steps, api="chat", clock=clock, request_timeout_s=600.0)
    told = f"TimeoutError: no progress for 600 s while waiting for {awaited}"
    assert (record.status, record.error) == (RequestStatus.TIMEOUT, told)


def test_a_connection_that_nobody_accepts_times_out_by_name() -> None:
    """Row 21: a full backlog lets no further connection through."""

    async def go() -> RequestRecord:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            listener.setblocking(False)
            fillers = [socket.socket() for _ in range(8)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            try:
                url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                async with StreamClient(url, spec(request_timeout_s=0.1)) as client:
                    return await ask(client)
            finally:
                for filler in fillers:
                    filler.close()

    record: RequestRecord = run(go())
    told = "TimeoutError: no progress for 0.1 s while waiting for a connection"
    assert (record.status, record.error) == (RequestStatus.TIMEOUT, told)


@pytest.mark.parametrize("goodbye", ["close", "reset"])
def test_idle_connections_that_the_server_closes_cost_no_request(goodbye: Step) -> None:
    """Row 22: closed after each answer once it was idle for a moment."""

    async def go() -> tuple[list[RequestStatus], int]:
        server = RawServer(lambda n: [*counted(1, 1, 0.0), 0.03, goodbye])
        async with server, StreamClient(server.url, spec(api="chat")) as client:
            statuses = []
            for _ in range(4):
                statuses.append((await ask(client)).status)
                await asyncio.sleep(0.06)
            return statuses, server.connections

    assert run(go()) == ([RequestStatus.OK] * 4, 4)


def test_250_streams_are_open_at_once() -> None:
    """Row 23: no cap of our own."""
    _, report, server = loaded(
        lambda n: chunked([native("x", 1, {"type": "stop"}), DONE]),
        level=LoadLevel("concurrency", 250), requests=250, together=range(250),
    )  # fmt: skip
    assert (server.peak_open, report.peak_concurrency) == (250, 250)


@pytest.mark.parametrize("status", [b"503 Service Unavailable", b"429 Too Many Requests", b"500 Internal Server Error"])
def test_a_refusal_is_a_failure_and_never_tried_again(status: bytes) -> None:
    """Row 25: three refusals, then an answer."""
    busy = whole(b"busy", status, b"text/plain", b"Retry-After: 0\r\n")
    records, server = asked(lambda n: [busy] if n < 3 else counted(1, 1, 0.0), 4, api="chat")
    failures = [RequestStatus.HTTP_ERROR] * 3
    assert [r.status for r in records] == [*failures, RequestStatus.OK]
    assert [r.http_status for r in records] == [int(status[:3])] * 3 + [200]
    assert len(server.asked) == 4


def test_what_fails_is_in_no_latency_and_no_throughput() -> None:
    """Row 26: every other connection is reset at once."""

    def script(n: int) -> list[Step]:
        return ["reset"] if n % 2 else [*counted(3, 1, 0.002), "close"]

    records, report, _ = loaded(script, api="chat", requests=20)
    found = summarise(records, level=C1, client=report)
    assert (found.requests_ok, found.requests_failed, found.errors) == (10, 10, {"connection": 10})
    assert found.ttft_ms is not None
    assert found.e2e_ms is not None
    assert (found.ttft_ms.n, found.e2e_ms.n, found.output_tokens_total) == (10, 10, 30)
    assert not found.valid


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"])
def test_no_proxy_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 28: a proxy in the environment that nobody listens at."""
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    (record,), _ = asked(lambda n: counted(1, 1, 0.0), api="chat")
    assert record.status is RequestStatus.OK


def test_failures_are_counted_and_rates_are_of_the_rest() -> None:
    """Row 42: three of ten answers are errors."""
    broken = whole(b'{"error":{"message":"scheduler died"}}', b"500 Internal Server Error", b"application/json")
    records, report, _ = loaded(
        lambda n: [broken] if n % 10 < 3 else counted(2, 1, 0.0),
        api="chat",
        requests=50,
        level=LoadLevel("concurrency", 4),
    )
    found = summarise(records, level=LoadLevel("concurrency", 4), client=report)
    assert (found.requests_failed, found.requests_ok, found.errors) == (15, 35, {"http_error": 15})
    assert {r.error for r in records if r.status is RequestStatus.HTTP_ERROR} == {"scheduler died"}
    assert "15 of 50 requests failed" in found.void_reasons


def test_a_server_that_takes_requests_and_answers_none_is_hung(clock: LeapingClock) -> None:
    """Row 44: good answers, then not a byte more."""
    records, report, _ = loaded(
        lambda n: counted(1, 1, 0.0) if n < 100 else SILENT,
        api="chat", requests=200, request_timeout_s=600.0, level=LoadLevel("concurrency", 4),
        clock=clock, together=range(100, 104),
    )  # fmt: skip
    assert report.stopped_by == "hung"
    assert Counter(r.status for r in records) == {RequestStatus.OK: 100, RequestStatus.TIMEOUT: 4}


def test_pings_do_not_hide_that_a_server_hangs(clock: LeapingClock) -> None:
    """A sibling of row 44: a gateway keeps the connection alive while the engine is dead."""
    records, report, _ = loaded(
        lambda n: [STREAM, *PINGS], clock=clock,
        api="chat", requests=10, request_timeout_s=600.0, level=LoadLevel("concurrency", 2),
    )  # fmt: skip
    assert report.stopped_by == "hung"
    assert {r.status for r in records} == {RequestStatus.TIMEOUT}


def test_stamps_are_in_order() -> None:
    record, _ = one(counted(30, 1, 0.0), api="chat")
    assert all(a <= b for a, b in pairwise((record.sent_ns, *record.chunk_ns, record.end_ns)))
