"""One request against a server whose bytes, pauses and faults are scripted."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from actors.wire.client import StreamClient
from actors.wire.flight import Request
from actors.workloads.workload import Prompt
from orchestrator.records import RequestRecord, RequestStatus
from tests.actors.load_specs import ask, run, spec
from tests.fakes.leaping_clock import LeapingClock
from tests.fakes.scripted_endpoint import (
    DONE,
    Script,
    ScriptedEndpoint,
    chat,
    frame,
    native,
    native_answer,
    trailing_usage,
)

S = 1_000_000_000


def answer_to(script: Script, clock: LeapingClock | None = None, **changes: Any) -> RequestRecord:
    """Record of one request that is answered with the script."""

    async def go() -> RequestRecord:
        server = ScriptedEndpoint(lambda n, body: script, clock=clock)
        async with server, StreamClient(server.url, spec(**changes)) as client:
            return await ask(client)

    record: RequestRecord = run(go())
    return record


def outcome(record: RequestRecord) -> tuple[RequestStatus, int | None, str | None]:
    return record.status, record.http_status, record.error


def test_a_good_answer_is_recorded_chunk_by_chunk(clock: LeapingClock) -> None:
    record = answer_to(native_answer(3, pause_s=200.0, per_chunk=4, first_s=500.0), clock, request_timeout_s=900.0)
    assert outcome(record) == (RequestStatus.OK, 200, None)
    assert record.chunk_tokens == (4, 4, 4)
    assert (record.prompt_tokens, record.cached_tokens, record.output_tokens) == (9, 4, 12)
    assert (record.finish_reason, record.prompt_hash) == ("length", "hash")
    assert record.first_token_ns == record.chunk_ns[0] >= record.sent_ns + 500 * S
    assert all(after - before >= 200 * S for before, after in pairwise(record.chunk_ns))
    assert record.end_ns == record.chunk_ns[2]


def test_events_that_are_called_json_are_events_however_the_network_cuts_them() -> None:
    first = chat({"content": "a"}, tokens=1, finish="stop")
    cut = [(0.0, first[:1]), (0.02, first[1:3]), (0.02, first[3:]), (0.0, DONE)]
    record = answer_to(Script(cut, content_type="application/json"), api="chat")
    assert (outcome(record), record.output_tokens) == ((RequestStatus.OK, 200, None), 1)


def test_the_end_is_the_last_token_not_the_usage_frame_behind_it(clock: LeapingClock) -> None:
    script = Script([(0, chat({"content": "a"}, tokens=1)), (9.0, trailing_usage(1)), (0, DONE)])
    record = answer_to(script, clock, api="chat")
    assert (record.status, record.end_ns) == (RequestStatus.OK, record.chunk_ns[0])


def test_a_late_role_chunk_is_not_the_first_token(clock: LeapingClock) -> None:
    role = chat({"role": "assistant", "content": ""})
    text, end = chat({"content": "a"}), chat({}, finish="stop")
    record = answer_to(Script([(0, role), (9.0, text), (0, end + trailing_usage(1) + DONE)]), clock, api="chat")
    assert record.first_token_ns is not None
    assert record.first_token_ns - record.sent_ns >= 9 * S


def test_characters_and_frames_split_between_writes_are_whole_again() -> None:
    text = "✅漢字"
    stream = native(text, 1) + native(text * 2, 2, {"type": "stop"}) + DONE
    record = answer_to(Script([(0.0002, stream[i : i + 3]) for i in range(0, len(stream), 3)]))
    assert (record.status, record.chunk_tokens) == (RequestStatus.OK, (1, 1))


def test_requests_say_what_they_ask_for() -> None:
    async def go() -> list[dict[str, Any]]:
        server = ScriptedEndpoint(lambda n, body: native_answer(1))
        async with server:
            for api in ("generate", "completions", "chat"):
                async with StreamClient(server.url, spec(api=api), api_key="secret") as client:
                    await ask(client)
        assert {h["Authorization"] for h in server.headers} == {"Bearer secret"}
        assert server.calls == ["/generate", "/v1/completions", "/v1/chat/completions"]
        return server.bodies

    generate, completions, chat_body = run(go())
    sampling = {"temperature": 0.0, "max_new_tokens": 3, "ignore_eos": True}
    assert generate == {"text": "Hello", "sampling_params": sampling, "stream": True}
    asked = {
        "model": "m",
        "max_tokens": 3,
        "temperature": 0.0,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    assert completions == asked | {"prompt": "Hello"}
    messages = [{"role": "user", "content": "Hello"}]
    assert chat_body == asked | {"messages": messages, "max_completion_tokens": 3}


def test_an_error_status_keeps_its_message() -> None:
    refused = b'{"error":{"message":"The input (18000 tokens) is too long."}}'
    record = answer_to(Script([(0, refused)], status=400))
    assert outcome(record) == (RequestStatus.HTTP_ERROR, 400, "The input (18000 tokens) is too long.")
    plain = answer_to(Script([(0, b"Internal Server Error")], status=500))
    assert outcome(plain) == (RequestStatus.HTTP_ERROR, 500, "Internal Server Error")


def test_an_error_inside_the_stream_is_no_success() -> None:
    record = answer_to(Script([(0, native("a", 1)), (0, frame({"error": {"message": "lost"}})), (0, DONE)]))
    assert outcome(record) == (RequestStatus.SERVER_ERROR, 200, "lost")


def test_an_answer_that_is_no_stream_is_no_success() -> None:
    record = answer_to(Script([(0, b'{"text":"all at once"}')], content_type="application/json"))
    assert record.status is RequestStatus.SERVER_ERROR
    assert record.error == 'the answer is not a stream: {"text":"all at once"}'


def test_a_cut_stream_is_truncated_whether_closed_or_reset() -> None:
    closed = answer_to(Script([(0, native("a", 1))]))
    assert outcome(closed) == (RequestStatus.TRUNCATED, 200, "the stream ended without its end mark")
    reset = answer_to(Script([(0.02, native("a", 1)), (0.05, native("aa", 2))], end="reset"))
    assert reset.status is RequestStatus.TRUNCATED
    assert reset.error is not None
    assert reset.error == "EOFError: the server closed the connection, while waiting for the next token"
    assert (reset.chunk_tokens, reset.output_tokens, reset.prompt_tokens) == ((1, 1), 2, 9)


def test_an_end_mark_alone_is_empty() -> None:
    record = answer_to(Script([(0, DONE)]))
    assert (record.status, record.first_token_ns, record.output_tokens) == (RequestStatus.EMPTY, None, None)


def test_a_server_that_keeps_the_stream_open_after_the_end_mark_costs_a_moment() -> None:
    record = answer_to(Script([(0, native("a", 1, {"type": "stop"}) + DONE)], end="hang"))
    assert record.status is RequestStatus.OK


TIMED_OUT = "TimeoutError: no progress for 600 s while waiting for the next token"


def test_a_request_without_an_end_times_out_by_name(clock: LeapingClock) -> None:
    silent = Script([(0, native("a", 1))], end="hang", before_end=601.0)
    record = answer_to(silent, clock, request_timeout_s=600.0)
    assert outcome(record) == (RequestStatus.TIMEOUT, 200, TIMED_OUT)
    assert record.chunk_tokens == (1,)


def test_a_cancelled_request_says_why() -> None:
    async def go() -> RequestRecord:
        server = ScriptedEndpoint(lambda n, body: Script([(0, native("a", 1))], end="hang"))
        async with server, StreamClient(server.url, spec()) as client:
            flight = client.flight(Request(0, False, 0, Prompt("x", None, "h"), 3))
            sending = asyncio.create_task(client.send(flight))
            while not flight.answer.chunk_ns:  # noqa: ASYNC110 - the client says so nowhere else
                await asyncio.sleep(0.001)
            flight.cancel(RequestStatus.CANCELLED, "enough")
            await sending
            return flight.record(0)

    assert outcome(run(go())) == (RequestStatus.CANCELLED, 200, "enough")


def test_nobody_listening_is_a_connection_error_with_its_type() -> None:
    async def go() -> RequestRecord:
        async with StreamClient("http://127.0.0.1:9", spec()) as client:
            return await ask(client)

    record = run(go())
    assert record.status is RequestStatus.CONNECTION
    assert record.error.startswith("ConnectionRefusedError: [Errno 111] ")
    assert record.error.endswith(", while waiting for a connection")


def test_answers_503_are_three_failures_and_no_hidden_retry() -> None:
    async def go() -> tuple[list[int | None], int]:
        server = ScriptedEndpoint(lambda n, body: Script([(0, b"busy")], status=503) if n < 3 else native_answer(1))
        async with server, StreamClient(server.url, spec()) as client:
            return [(await ask(client)).http_status for _ in range(4)], len(server.bodies)

    assert run(go()) == ([503, 503, 503, 200], 4)


def test_a_reset_before_the_answer_is_a_failure() -> None:
    record = answer_to(Script(end="reset"))
    assert record.status is RequestStatus.CONNECTION
    assert record.error == "EOFError: the server closed the connection, while waiting for the headers of the answer"


def test_loopback_goes_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert answer_to(native_answer(1)).status is RequestStatus.OK


class ClosingServer:
    """Answers `served` requests on each connection, and closes it when one more comes."""

    def __init__(self, served: int) -> None:
        self._served = served
        self.connections = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        body = native("a", 1, {"type": "stop"}) + DONE
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
        for _ in range(self._served):
            header = await reader.readuntil(b"\r\n\r\n")
            length = int(header.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            json.loads(await reader.readexactly(length))
            writer.write(head + body)
            await writer.drain()
        await reader.read(1)
        writer.close()


def ask_closing(served: int, requests: int) -> tuple[list[RequestStatus], int, int]:
    async def go() -> tuple[list[RequestStatus], int, int]:
        closing = ClosingServer(served)
        server = await asyncio.start_server(closing.talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, StreamClient(f"http://127.0.0.1:{port}", spec()) as client:
            statuses = [(await ask(client)).status for _ in range(requests)]
            return statuses, closing.connections, client.reconnects

    result: tuple[list[RequestStatus], int, int] = run(go())
    return result


def test_a_kept_alive_connection_that_was_closed_is_replaced_once_and_counted() -> None:
    assert ask_closing(served=2, requests=3) == ([RequestStatus.OK] * 3, 2, 1)


def test_a_server_that_keeps_no_connection_is_found_out_the_first_time() -> None:
    assert ask_closing(served=1, requests=5) == ([RequestStatus.OK] * 5, 5, 0)


def test_a_server_that_kept_a_connection_once_is_trusted_with_the_next() -> None:
    assert ask_closing(served=2, requests=5) == ([RequestStatus.OK] * 5, 3, 2)


def test_a_new_connection_that_is_closed_is_a_failure() -> None:
    assert ask_closing(served=0, requests=1) == ([RequestStatus.CONNECTION], 1, 0)


def test_idle_connections_closed_by_the_server_cause_no_failure() -> None:
    async def go() -> list[RequestStatus]:
        server = ScriptedEndpoint(lambda n, body: native_answer(1), keepalive_s=0.1)
        async with server, StreamClient(server.url, spec()) as client:
            statuses = []
            for _ in range(3):
                statuses.append((await ask(client)).status)
                await asyncio.sleep(0.25)
            return statuses

    assert run(go()) == [RequestStatus.OK] * 3
