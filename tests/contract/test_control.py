"""What acts on a running server, and the load it tells meanwhile: /v1/loads, flush, abort, profile."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.actors.emulator.running import Answer
from tests.contract.divergence import LOAD_KEYS
from tests.contract.servers import Server, Stream, Variant

LONG = {"max_new_tokens": 3500, "ignore_eos": True, "temperature": 0}
CORE = {"timestamp", "dp_rank", "num_running_reqs", "num_waiting_reqs", "num_waiting_uncached_tokens"}
CORE |= {"num_used_tokens", "num_total_tokens", "num_active_tokens", "num_prealloc_ready_tokens"}
CORE |= {"max_total_num_tokens", "max_running_requests", "token_usage", "gen_throughput", "cache_hit_rate"}
CORE |= {"utilization", "total_prefill_uncached_tokens", "total_prefill_busy_us"}
SECTIONS = {
    "memory": {"weight_gb", "kv_cache_gb", "graph_gb", "token_capacity"},
    "disaggregation": {
        *(f"{name}_queue_reqs" for name in ("prefill_bootstrap", "prefill_inflight", "decode_prealloc")),
        *("mode", "decode_transfer_queue_reqs", "decode_retracted_queue_reqs"),
        *("kv_transfer_speed_gb_s", "kv_transfer_latency_ms"),
    },
    "queues": {"waiting", "grammar", "paused", "retracted", "prealloc_ready"},
}
SPECULATIVE = {"speculative": {"accept_length", "accept_rate"}}


@contextlib.contextmanager
def running_stream(server: Server, rid: str) -> Iterator[Stream]:
    """A stream that has begun and runs for minutes, ended at the end."""
    with server.crawling():
        stream = Stream(server, text="a long story", sampling_params=LONG, rid=rid)
        assert stream.event()["meta_info"]["id"] == rid
        try:
            yield stream
        finally:
            server.call("POST", "/abort_request", {"abort_all": True}, admin=True)
            stream.close()


def load(server: Server, query: str = "") -> dict[str, Any]:
    answer = server.call("GET", "/v1/loads" + query).json
    (only,) = answer["loads"]
    assert set(answer) == {"timestamp", "version", "accelerator", "num_accelerators", "loads"}
    assert (answer["version"], answer["accelerator"], answer["num_accelerators"]) == ("0.5.23", None, 1)
    return {key: value for key, value in only.items() if key not in LOAD_KEYS}


def test_loads_has_these_sections(server: Server, variant: Variant) -> None:
    # Speculation is told once there was a decode line.
    server.generate(text="hello", sampling_params={"max_new_tokens": 130, "ignore_eos": True})
    told = load(server)
    sections = SECTIONS | (SPECULATIVE if variant.algorithm else {})
    assert set(told) == CORE | set(sections)
    assert {name: set(told[name]) for name in sections} == sections
    assert (told["max_total_num_tokens"], told["max_running_requests"]) == (4096, variant.max_running)
    assert told["memory"]["token_capacity"] == 4096


def test_loads_can_be_asked_for_one_section(server: Server) -> None:
    assert set(load(server, "?include=core")) == CORE
    assert set(load(server, "?include=memory,queues")) == CORE | {"memory", "queues"}


def test_loads_in_prometheus_form(server: Server) -> None:
    answer = server.call("GET", "/v1/loads?format=prometheus")
    assert answer.headers["content-type"].startswith("text/plain")
    for name in ("num_running_reqs", "token_usage", "memory_token_capacity", "queues_waiting"):
        assert f"# TYPE sglang_{name} gauge\n" in answer.text
        assert f'\nsglang_{name}{{dp_rank="0"}} ' in answer.text


def test_loads_tells_what_runs(server: Server) -> None:
    server.wait_until(lambda: load(server)["num_running_reqs"] == 0, "idle")
    with running_stream(server, "load") as stream:
        stream.event()
        server.wait_until(lambda: load(server)["num_running_reqs"] == 1, "running request")
        told = load(server)
        assert 0 < told["num_used_tokens"] <= 4096
        assert told["num_waiting_reqs"] == 0
    server.wait_until(lambda: load(server)["num_used_tokens"] == 0, "idle again")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_flushing_an_idle_server(server: Server, method: str) -> None:
    server.flush()
    answer = server.call(method, "/flush_cache", admin=True)
    assert answer.status == 200
    assert answer.text == (
        "Cache flushed.\nPlease check backend logs for more details. "
        "(When there are running or waiting requests, the operation will not be performed.)\n"
    )
    server.wait_for("Cache flushed successfully!")


def test_flushing_a_busy_server_is_refused(server: Server) -> None:
    with running_stream(server, "busy"):
        answer = server.call("POST", "/flush_cache", admin=True)
        assert (answer.status, answer.text) == (400, "Flush cache failed.\n")
        words = "Cache not flushed because there are pending requests. #queue-req: 0, #running-req: "
        # Between two batches a scheduler without overlap holds none.
        server.wait_until(lambda: {words + "0", words + "1"} & set(server.messages()) != set(), "refusal in the log")


def test_an_aborted_stream_ends_with_what_it_had(server: Server) -> None:
    with running_stream(server, "abort-1") as stream:
        assert server.call("POST", "/abort_request", {"rid": "abort-1"}, admin=True).status == 200
        *_, final, done = stream.rest()
    meta = final["meta_info"]
    assert done == "[DONE]"
    assert meta["finish_reason"] == {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    assert len(final["output_ids"]) == meta["completion_tokens"] > 0


def test_aborting_all_ends_whole_answers_too(server: Server) -> None:
    answers: list[Answer] = []
    body = {"text": "a long story", "sampling_params": LONG, "rid": "abort-2"}
    client = threading.Thread(target=lambda: answers.append(server.generate(**body)))
    with server.crawling():
        client.start()
        server.wait_until(lambda: load(server)["num_running_reqs"] == 1, "running request")
        # An id that only begins alike is not meant.
        assert server.call("POST", "/abort_request", {"rid": "abort"}, admin=True).status == 200
        assert load(server)["num_running_reqs"] == 1
        assert server.call("POST", "/abort_request", {"abort_all": True}, admin=True).status == 200
        client.join()
    assert [answer.status for answer in answers] == [200]
    assert answers[0].json["meta_info"]["finish_reason"]["type"] == "abort"


def test_a_client_that_goes_away_ends_its_request(server: Server) -> None:
    with server.crawling():
        stream = Stream(server, text="a long story", sampling_params=LONG)
        stream.event()
        stream.close()
        # By itself it would run on for two minutes at least.
        server.wait_until(lambda: load(server)["num_running_reqs"] == 0, "idle", 60)


@pytest.mark.parametrize("body", [{"rid": "none"}, {}])
def test_aborting_nothing_is_no_error(server: Server, body: dict[str, Any]) -> None:
    answer = server.call("POST", "/abort_request", body, admin=True)
    assert (answer.status, answer.text) == (200, "")


def test_freeze_gc(server: Server) -> None:
    answer = server.call("GET", "/freeze_gc", admin=True)
    assert (answer.status, answer.text) == (200, "Garbage collection frozen.\n")


def traces(folder: Path) -> list[Path]:
    return sorted(folder.glob("*-TP-0.trace.json.gz"))


def test_a_profile_is_written_into_its_folder(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    started = server.call("POST", "/start_profile", {"output_dir": str(folder), "activities": ["CPU"]}, admin=True)
    assert (started.status, started.text) == (200, "Start profiling.\n")
    server.generate(text="profiled", sampling_params={"max_new_tokens": 4, "ignore_eos": True})
    stopped = server.call("POST", "/stop_profile", admin=True)
    assert (stopped.status, stopped.text) == (200, "Stop profiling. This will take some time.\n")
    server.wait_for(f"Profiling done. Traces are saved to: {folder}")
    (trace,) = traces(folder)
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert any(event.get("ph") == "X" and event["dur"] > 0 for event in events)


def test_a_profile_of_some_steps_stops_by_itself(server: Server, tmp_path: Path) -> None:
    body = {"output_dir": str(tmp_path), "num_steps": 3, "activities": ["CPU"]}
    assert server.call("POST", "/start_profile", body, admin=True).status == 200
    server.generate(text="profiled again", sampling_params={"max_new_tokens": 30, "ignore_eos": True})
    server.wait_for(f"Profiling done. Traces are saved to: {tmp_path}")
    assert len(traces(tmp_path)) == 1


def test_stopping_a_profile_that_does_not_run_fails(server: Server) -> None:
    answer = server.call("POST", "/stop_profile", admin=True)
    assert (answer.status, answer.text) == (500, "Internal Server Error")
