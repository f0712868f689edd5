"""Every serving fault of a script as a client sees it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actors.emulator.gate import Gate
from tests.actors.emulator.faulty import ask, faulty, raw_chunks, raw_request
from tests.actors.emulator.running import READY, emulator

QUEUE_FULL = "The request queue is full."


def steady(event: dict[str, object]) -> tuple[object, object]:
    """What of an event does not depend on the time of the day."""
    meta = event["meta_info"]
    assert isinstance(meta, dict)
    return event["text"], meta["completion_tokens"]


def test_a_cut_ends_the_connection_inside_the_answer(tmp_path: Path) -> None:
    script = "serving: [{fault: cut, request: 2, token: 5}, {fault: cut, request: 3, token: 5, reset: true}]"
    with faulty(tmp_path, script) as running:
        first, closed, reset, last = (ask(running, 100) for _ in range(4))
    for whole in (first, last):
        assert (whole.complete, whole.tokens, whole.events[-1]) == (True, 100, "[DONE]")
    for cut in (closed, reset):
        assert (cut.complete, b"[DONE]" in cut.data, cut.tokens < 100) == (False, False, True)
    assert closed.tokens >= 5  # a reset may take along what was under way


def test_a_truncated_answer_ends_like_a_whole_one_but_for_its_marks(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: truncate, token: 3}") as running:
        stream = ask(running, 150)
    assert stream.complete
    assert 3 <= stream.tokens < 150
    assert stream.events[-1]["meta_info"]["finish_reason"] is None


def test_an_error_inside_the_stream_is_an_event_and_then_the_end_mark(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: error_event, token: 0, message: no memory}") as running:
        stream = ask(running)
    assert (stream.status, stream.events) == (200, [{"error": {"message": "no memory"}}, "[DONE]"])


def test_http_errors_have_the_bodies_of_sglang_and_of_proxies(tmp_path: Path) -> None:
    openai = {"object": "error", "message": QUEUE_FULL, "type": "BadRequestError", "param": None, "code": 503}
    cases = [
        (503, "json", "generate", json.dumps({"error": {"message": QUEUE_FULL}})),
        (503, "json", "completions", json.dumps(openai)),
        (500, "text", "chat", "Internal server error"),
        (429, "json", "generate", json.dumps({"error": {"message": "Too many requests"}})),
        (504, "empty", "generate", ""),
        (502, "html", "generate", "<html><head><title>502 Bad Gateway</title></head><body>Bad Gateway</body></html>"),
    ]
    faults = [{"fault": "http_error", "request": n, "status": s, "body": b} for n, (s, b, _, _) in enumerate(cases, 1)]
    with faulty(tmp_path, json.dumps({"serving": faults})) as running:
        answers = [ask(running, 3, api) for _, _, api, _ in cases]
        assert ask(running, 3).status == 200
    assert [a.status for a in answers] == [status for status, _, _, _ in cases]
    assert [re.sub(r'([,:])(?=["{n\d])', r"\1 ", a.data.decode()) for a in answers] == [text for *_, text in cases]


def test_an_empty_answer_has_no_token_and_ends_well(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: empty, times: always}") as running:
        answers = {api: ask(running, api=api).events for api in ("generate", "completions", "chat")}
    assert [events[1:] for events in answers.values()] == [["[DONE]"]] * 3
    event = answers.pop("generate")[0]
    assert (event["text"], event["output_ids"], event["meta_info"]["completion_tokens"]) == ("", [], 0)
    assert event["meta_info"]["finish_reason"]["type"] == "stop"
    for event, _ in answers.values():
        choice = event["choices"][0]
        assert (choice["finish_reason"], event["usage"]["completion_tokens"]) == ("stop", 0)
        assert choice.get("text", "") == choice.get("delta", {}).get("content", "") == ""


def test_a_slow_first_byte_comes_after_its_time(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: slow_first_byte, seconds: 0.6}") as running:
        began = time.monotonic()
        stream = ask(running)
    assert stream.times[0] - began >= 0.6
    assert stream.tokens == 20


def test_a_kept_connection_is_dropped_at_its_next_request_only(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: drop_connection}") as running:
        kept = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
        assert ask(running, on=kept).tokens == 20
        with pytest.raises(http.client.RemoteDisconnected):
            ask(running, on=kept)
        assert ask(running, on=kept).tokens == 20  # reconnected
        assert ask(running, on=kept).tokens == 20  # struck once
        kept.close()


def test_reframed_streams_say_the_same_in_other_pieces(tmp_path: Path) -> None:
    script = "serving: {fault: reframe, request: 2, split: true, join: 3, crlf: true, comments: true}"
    with faulty(tmp_path, script) as running:
        plain = ask(running, 120)
        chunks = raw_chunks(running, 120)
    text = b"".join(chunks).decode()
    assert text.count("\n") == text.count("\r\n") > 0
    assert text.count(": keep-alive\r\n\r\n") == text.count("data: ")
    told = [e.removeprefix("data: ") for e in text.replace("\r\n", "\n").split("\n\n") if e.startswith("data: ")]
    assert told[-1] == "[DONE]"
    last = json.loads(told[-2])
    assert steady(last) == steady(plain.events[-2])
    assert max(map(len, chunks)) <= 40
    assert any(not _is_utf8(chunk) for chunk in chunks), "no piece ends inside a character"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_joined_frames_come_in_one_write(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: reframe, split: false, join: 4}") as running:
        chunks = raw_chunks(running, 30)
    assert {chunk.count(b"data: ") for chunk in chunks[:-1]} == {4}
    assert b"[DONE]" in chunks[-1]


def test_token_counts_can_be_wrong(tmp_path: Path) -> None:
    cases = [("missing", None), ("zero", 0), ("doubled", 40)] * 2
    faults = [{"fault": "usage", "request": n, "counts": counts} for n, (counts, _) in enumerate(cases, 1)]
    with faulty(tmp_path, json.dumps({"serving": faults})) as running:
        native = [ask(running, 20).events[-2]["meta_info"] for _ in range(3)]
        openai = [ask(running, 20, "completions").events[-2]["usage"] for _ in range(3)]
    assert [usage.get("completion_tokens") for usage in native + openai] == [told for _, told in cases]


def test_the_end_mark_can_be_missing_or_there_twice(tmp_path: Path) -> None:
    script = "serving: [{fault: done_mark, mark: missing}, {fault: done_mark, mark: twice, request: 2}]"
    with faulty(tmp_path, script) as running:
        answers = [ask(running).events for _ in range(3)]
    assert [events.count("[DONE]") for events in answers] == [0, 2, 1]
    for events in answers:
        last = [event for event in events if event != "[DONE]"][-1]
        assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 20}


def test_side_endpoints_can_be_missing_broken_or_refusing(tmp_path: Path) -> None:
    script = """
serving:
  - {fault: endpoint, path: /metrics}
  - {fault: endpoint, path: /server_info, status: 200, body: '{"version": "0.5'}
  - {fault: endpoint, path: /flush_cache, status: 400, body: busy, content_type: text/plain, times: 2}
"""
    with faulty(tmp_path, script, "--enable-metrics") as running:
        assert running.call("GET", "/metrics").status == 404
        info = running.call("GET", "/server_info")
        assert (info.status, info.text) == (200, '{"version": "0.5')
        assert [running.call("POST", "/flush_cache").status for _ in range(3)] == [400, 400, 200]


def test_a_stall_silences_all_streams_and_then_they_go_on(tmp_path: Path) -> None:
    with (
        faulty(tmp_path, "serving: {fault: stall, request: 2, token: 20, seconds: 0.8}") as running,
        ThreadPoolExecutor() as pool,
    ):
        streams = list(pool.map(lambda _: ask(running, 150), range(2)))
    for stream in streams:
        assert stream.tokens == 150
        assert max(b - a for a, b in zip(stream.times, stream.times[1:], strict=False)) >= 0.7


@pytest.mark.parametrize("health", [200, 503])
def test_a_hung_server_lives_without_ever_giving_a_token(tmp_path: Path, health: int) -> None:
    with faulty(tmp_path, f"serving: {{fault: hang, request: 1, token: 4, health: {health}}}") as running:
        stream = ask(running, 150, timeout_s=3.0)
        assert not stream.complete
        assert 4 <= stream.tokens < 150
        assert ask(running, timeout_s=0.5).data == b""
        assert running.call("GET", "/health").status == health
        assert running.process.poll() is None


def test_a_server_is_held_until_a_file_is_there_and_then_answers_whole(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: stall, request: 1, token: 4, until: go}") as running:
        with socket.create_connection(("127.0.0.1", running.port)) as connection:
            connection.sendall(raw_request(150))
            connection.settimeout(0.5)
            before = b""
            with contextlib.suppress(TimeoutError):
                while piece := connection.recv(1 << 16):
                    before += piece
            assert b"[DONE]" not in before
            (tmp_path / "go").touch()
            connection.settimeout(60)
            after = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        assert b'"completion_tokens":150,' in after
        assert after.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_server_whose_warm_up_is_held_answers_that_it_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text("start: {slow: warmup, until: go}")
    with emulator(tmp_path, f"--model-path m --emulator-faults {tmp_path / 'faults.yaml'}", 1000) as running:
        running.wait_for("Uvicorn running on")
        assert [running.call("GET", path).status for path in ("/health", "/ready", "/model_info")] == [503, 503, 200]
        assert READY not in running.log
        (tmp_path / "go").touch()
        running.wait_for(READY)
        assert running.call("GET", "/health").status == 200


def test_steps_crawl_for_as_long_as_a_file_is_there(tmp_path: Path) -> None:
    async def delay(gate: Gate) -> float:
        return await gate(0.01)

    gate = Gate()
    gate.crawl(0.05, tmp_path / "slow")

    before = asyncio.run(delay(gate))
    (tmp_path / "slow").touch()
    meanwhile = asyncio.run(delay(gate))

    assert meanwhile >= 0.05
    (tmp_path / "slow").unlink()
    # Nothing waits where the file is not there: the clock alone passed.
    assert min(before, *(asyncio.run(delay(gate)) for _ in range(20))) < 0.05


def test_a_server_crawls_by_its_script(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: crawl, seconds: 1, whenever: slow}") as running:
        assert ask(running, 150).tokens == 150
        (tmp_path / "slow").touch()
        crawling = ask(running, 150, timeout_s=0.5)
        assert not crawling.complete
        assert crawling.tokens < 150
        (tmp_path / "slow").unlink()
        assert ask(running, 150).tokens == 150


def test_a_slow_death_doubles_the_delay_of_a_step_every_halving() -> None:
    async def delays() -> float:
        gate = Gate()
        gate.decay(0.05)
        await asyncio.sleep(0.25)
        return await gate(0.01)

    assert asyncio.run(delays()) >= 0.01 * (2**5 - 1)


def test_a_dying_throughput_never_ends_an_answer(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: slow_death, request: 1, halving_s: 0.05}") as running:
        stream = ask(running, 1000, timeout_s=1.0)
        assert not stream.complete
        assert stream.tokens < 1000


SIGQUIT = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("runtime_oom", ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.93 GiB.", SIGQUIT]),
        ("runtime_pool", ["RuntimeError: Prefill out of memory. Try to lower your batch size.", SIGQUIT]),
        ("cuda_ima", ["CUDA error: an illegal memory access was encountered", SIGQUIT]),
        ("software_bug", ["ValueError: Failed to allocate token prealloc indices", SIGQUIT]),
        ("watchdog_hang", ["Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", SIGQUIT]),
        ("segfault_abort", ["Fatal Python error: Segmentation fault", "crashed with exit code -11.", SIGQUIT]),
        ("nccl_timeout", ["Watchdog caught collective operation timeout", "crashed with exit code -6.", SIGQUIT]),
        ("rank_killed", ["Subprocess scheduler_0 (pid=", "crashed with exit code -9. Triggering SIGQUIT", SIGQUIT]),
        ("killed", []),
    ],
)
def test_a_server_dies_with_the_words_of_the_cause(tmp_path: Path, label: str, words: list[str]) -> None:
    with faulty(tmp_path, f"serving: {{fault: die, label: {label}, request: 2, token: 3}}") as running:
        assert ask(running).tokens == 20
        stream = ask(running, 150)
        assert (stream.complete, stream.tokens < 150) == (False, True)
        assert running.process.wait(60) == -signal.SIGKILL
        log = running.log
    assert [w for w in words if w not in log] == []
    if label == "killed":
        assert "SIGQUIT" not in log


def test_a_fault_without_a_request_strikes_by_itself(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: die, label: killed, after_s: 0.2}") as running:
        assert running.process.wait(60) == -signal.SIGKILL


def test_a_flooded_log_has_every_kind_of_line_and_the_server_serves(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: log_flood, mib_per_s: 4, seconds: 1}") as running:
        assert ask(running).tokens == 20
        end = time.monotonic() + 30
        while running.log_file.stat().st_size < 3 << 20 and time.monotonic() < end:
            time.sleep(0.05)
        log = running.log_file.read_bytes()
    assert len(log) >= 3 << 20
    for piece in (b"Ignore import error", b"\x1b[33m[", b"\xff\xfe\xc3\x28", b"\rDownloading shards"):
        assert piece in log
    assert max(map(len, log.split(b"\n"))) > 200_000
