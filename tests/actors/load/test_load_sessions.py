"""Sessions against a scripted server: what each request carries, when it is due, what a failure ends."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from actors.load.load_phase import measured_phase
from actors.workloads.request_source import RequestSource
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.traffic import Arrival, Draw, Session, Traffic
from orchestrator.trial import ClientReport, LoadLevel, Shard
from tests.actors.emulator.running import READY, emulator
from tests.actors.load_specs import run, spec
from tests.fakes.leaping_clock import LeapingClock
from tests.fakes.load import load_endpoint
from tests.fakes.scripted_endpoint import DONE, Script, ScriptedEndpoint, chat, native

Loaded = tuple[list[RequestRecord], ClientReport, ScriptedEndpoint]


def load(server: ScriptedEndpoint, **changes: Any) -> Loaded:
    async def go() -> Loaded:
        async with server:
            records, report = await load_endpoint(server.url, spec(**changes))
        return sorted(records, key=lambda r: (r.warmup, r.request_index)), report, server

    loaded: Loaded = run(go())
    return loaded


def talking(turns: int = 3, kind: Any = "chat", gap_s: float = 0.0, **more: Any) -> tuple[Traffic, ...]:
    session = Session(kind, Draw(mean=turns), Draw(mean=gap_s), Draw(mean=8))
    given: dict[str, Any] = {"dataset": "random_text", "input_tokens": Draw(mean=16), "output_tokens": Draw(mean=5)}
    return (Traffic("talk", 1.0, session=session, **{**given, **more}),)


def answer(n: int, body: dict[str, Any]) -> Script:
    """Five tokens that name the request."""
    return Script([(0, native(f"answer {n}", 5, {"type": "length", "length": 5})), (0, DONE)])


def chat_answer(n: int, body: dict[str, Any]) -> Script:
    words = [chat({"role": "assistant"}), chat({"content": "answer "}, tokens=2), chat({"content": f"{n}"}, tokens=5)]
    return Script([*((0.0, word) for word in words), (0, chat({}, tokens=5, finish="length")), (0, DONE)])


def test_a_session_as_text_carries_all_that_was_said_and_answered() -> None:
    records, report, server = load(ScriptedEndpoint(answer), requests=3, traffic=talking())

    first, second, third = (body["text"] for body in server.bodies)
    assert second.startswith(f"{first}answer 0\n\n")
    assert third.startswith(f"{second}answer 1\n\n")
    assert len(second) - len(first) > 8 * 4.6 * 0.7
    assert [(r.traffic, r.session_index, r.turn, r.asked_input_tokens) for r in records] == [
        ("talk", 0, 0, 16),
        ("talk", 0, 1, 16 + 5 + 8),
        ("talk", 0, 2, 16 + 2 * (5 + 8)),
    ]
    assert (report.requests, report.stopped_by) == (3, "requests")


def test_a_session_by_the_chat_api_is_messages() -> None:
    _, _, server = load(ScriptedEndpoint(chat_answer), api="chat", requests=3, traffic=talking())

    first, second, third = (body["messages"] for body in server.bodies)
    assert [m["role"] for m in third] == ["user", "assistant", "user", "assistant", "user"]
    assert second[:1] == first
    assert third[:3] == second
    assert [third[1]["content"], third[3]["content"]] == ["answer 0", "answer 1"]


def test_an_agent_has_its_tools_in_front_and_gets_results_of_them() -> None:
    agent = talking(kind="agentic", input_tokens=Draw(mean=40), shared_prefix_tokens=20)
    _, _, server = load(ScriptedEndpoint(chat_answer), api="chat", requests=5, traffic=agent)

    primed, first, second, _, other = (body["messages"] for body in server.bodies[:5])
    assert [m["role"] for m in second] == ["system", "user", "assistant", "user"]
    assert first[0] == other[0] == primed[0]
    assert first[1] != other[1]
    assert second[3]["content"].startswith("Tool result:\n")


def test_the_next_request_is_due_a_gap_after_the_answer() -> None:
    records, report, _ = load(ScriptedEndpoint(answer), requests=3, traffic=talking(gap_s=0.15))

    for before, after in pairwise(records):
        assert after.scheduled_ns == before.end_ns + 150_000_000
        assert after.sent_ns >= after.scheduled_ns
    assert report.peak_concurrency == 1


def test_a_user_of_a_closed_loop_runs_one_session_after_the_other() -> None:
    level = LoadLevel("concurrency", 2)
    records, report, server = load(ScriptedEndpoint(answer), level=level, requests=12, traffic=talking())

    assert [(r.request_index, r.session_index, r.turn) for r in records] == [(i, i // 3, i % 3) for i in range(12)]
    assert server.peak_open <= 2
    assert report.peak_concurrency == 2
    for first in records[::3]:
        session = [r for r in records if r.session_index == first.session_index]
        assert all(b.sent_ns >= a.end_ns for a, b in pairwise(session))


def test_the_last_session_is_cut_where_the_requests_end() -> None:
    records, _, _ = load(ScriptedEndpoint(answer), requests=5, traffic=talking())

    assert [(r.session_index, r.turn) for r in records] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_a_failed_turn_ends_its_session_and_another_takes_its_place() -> None:
    def script(n: int, body: dict[str, Any]) -> Script:
        return Script([(0, b"broken")], status=500) if n == 1 else answer(n, body)

    records, report, _ = load(ScriptedEndpoint(script), requests=6, traffic=talking())

    assert [(r.session_index, r.turn, r.status.value) for r in records] == [
        (0, 0, "ok"), (0, 1, "http_error"), (1, 0, "ok"), (1, 1, "ok"), (1, 2, "ok"), (2, 0, "ok"),
    ]  # fmt: skip
    assert (report.requests, report.stopped_by) == (6, "requests")


def test_in_an_open_loop_sessions_begin_when_due_whatever_became_of_others() -> None:
    slow = Script([(0.3, native("x", 5, {"type": "length"})), (0, DONE)])
    given: dict[str, Any] = {"level": LoadLevel("rate", 60.0), "requests": 12, "traffic": talking(2)}
    records, _, _ = load(ScriptedEndpoint(lambda n, body: slow), **given)

    starts = [r.scheduled_ns for r in records if r.turn == 0]
    planned = [start.due_ns for start in measured_phase(RequestSource(spec(**given)), Shard()).starts]
    assert [at - starts[0] for at in starts] == [at - planned[0] for at in planned]
    assert len(starts) == 6
    assert [r.scheduled_ns for r in records if r.turn == 1] == [r.end_ns for r in records if r.turn == 0]


def test_who_thinks_longer_than_the_load_lasts_is_not_waited_for(clock: LeapingClock) -> None:
    def script(n: int, body: dict[str, Any]) -> Script:
        told = answer(n, body)
        return replace(told, writes=[(600.0, b""), *told.writes]) if n == 2 else told

    records, report, _ = load(
        ScriptedEndpoint(script, together=range(3), clock=clock),
        requests=None, duration_s=600.0, request_timeout_s=3600.0, traffic=talking(gap_s=36_000.0),
        level=LoadLevel("concurrency", 3),
    )  # fmt: skip

    assert [r.turn for r in records] == [0, 0, 0]
    assert report.stopped_by == "duration"
    assert 600 <= report.duration_s < 3600


def test_a_recorded_conversation_is_asked_again_with_the_servers_answers(tmp_path: Path) -> None:
    turns = [("user", "Hi"), ("assistant", "old answer"), ("user", "More"), ("assistant", "old end")]
    file = tmp_path / "talk.jsonl"
    file.write_text(json.dumps({"messages": [{"role": r, "content": c} for r, c in turns]}))
    records, _, server = load(
        ScriptedEndpoint(chat_answer), api="chat", requests=4, traffic=talking(9, dataset=f"file:{file}")
    )

    assert [(r.session_index, r.turn) for r in records] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    said = [(m["role"], m["content"].rpartition(". ")[2]) for m in server.bodies[1]["messages"]]
    assert said == [("user", "Hi"), ("assistant", "answer 0"), ("user", "More")]


def test_a_server_with_a_prefix_cache_finds_all_that_was_said_before(tmp_path: Path) -> None:
    talk = talking(4, output_tokens=Draw(mean=40))
    with emulator(tmp_path, "--model-path m", speedup=1000.0) as running:
        running.wait_for(READY)
        url = f"http://127.0.0.1:{running.port}"
        records, _ = run(load_endpoint(url, spec(requests=8, traffic=talk, warmup_requests=1)))

    turns = sorted((r for r in records if not r.warmup), key=lambda r: r.request_index)
    assert {(r.status, r.error) for r in turns} == {(RequestStatus.OK, None)}
    assert [r.turn for r in turns] == [0, 1, 2, 3] * 2
    for before, after in pairwise(turns):
        shared = after.cached_tokens or 0
        assert shared < 4 if after.turn == 0 else shared >= (before.prompt_tokens or 0) - 2
    assert all((r.prompt_tokens or 0) > 0.8 * (r.asked_input_tokens or 0) for r in turns)


@pytest.mark.parametrize("status", [RequestStatus.OK, RequestStatus.TRUNCATED])
def test_kinds_of_a_mix_are_told_apart_in_the_records(status: RequestStatus) -> None:
    def script(n: int, body: dict[str, Any]) -> Script:
        return answer(n, body) if status is RequestStatus.OK else Script([(0, native("x", 1))])

    other = Traffic("other", 1.0, "code", Draw(mean=16), Draw(mean=2))
    records, _, _ = load(ScriptedEndpoint(script), requests=20, traffic=(*talking(2), other))

    assert {r.traffic for r in records} == {"talk", "other"}
    assert all((r.session_index is None) == (r.traffic == "other") for r in records)
    assert {r.requested_output_tokens for r in records if r.traffic == "other"} == {2}
    assert {r.status for r in records} == {status}
    assert len(records) == 20


def test_users_who_would_begin_later_in_the_ramp_than_the_load_lasts_never_do() -> None:
    ramp = Arrival(ramp_s=3600.0)
    records, report, server = load(
        ScriptedEndpoint(answer), level=LoadLevel("concurrency", 3), requests=5, arrival=ramp
    )

    assert [r.request_index for r in records] == [0, 1, 2, 3, 4]
    assert (server.peak_open, report.peak_concurrency) == (1, 1)


def test_a_trace_is_replayed_at_its_times_with_its_lengths(tmp_path: Path) -> None:
    rows = [(0, 20, 3), (100, 30, 5), (300, 25, 4)]
    file = tmp_path / "trace.jsonl"
    keys = ("timestamp", "input_length", "output_length")
    file.write_text("\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in rows))
    records, report, server = load(
        ScriptedEndpoint(answer), level=LoadLevel("trace", 2.0), dataset=f"file:{file}", requests=100
    )

    assert [r.scheduled_ns - records[0].scheduled_ns for r in records] == [0, 50_000_000, 150_000_000]
    assert [r.requested_output_tokens for r in records] == [3, 5, 4]
    assert [r.asked_input_tokens for r in records] == [20, 30, 25]
    assert sorted(body["sampling_params"]["max_new_tokens"] for body in server.bodies) == [3, 4, 5]
    assert (report.requests, report.stopped_by) == (3, "requests")
