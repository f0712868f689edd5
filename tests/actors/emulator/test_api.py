"""The HTTP API, key by key as a real SGLang 0.5.23 with three speculative steps answered."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.actors.emulator.planning import chain
from tests.actors.emulator.running import READY, Emulator, emulator

HEAD_KEYS = ["id", "finish_reason", "prompt_tokens", "weight_version", "num_retractions", "storage_prefetch_wait"]
HEAD_KEYS += ["storage_staging_wait", "forward_entry_time", "prefill_finished_time", "queue_time", "reasoning_tokens"]
HEAD_KEYS += ["completion_tokens", "cached_tokens"]
DETAIL_KEYS = ["cached_tokens_details", "dp_rank"]
SPEC_KEYS = ["spec_accept_rate", "spec_accept_length", "spec_num_correct_drafts", "spec_num_proposed_drafts"]
SPEC_KEYS += ["spec_verify_ct", "spec_correct_drafts_histogram"]
TIME_KEYS = ["request_received_ts", "first_token_latency", "api_server_dispatch_finish_ts", "request_finished_ts"]
TIME_KEYS += ["decode_throughput", "response_sent_to_client_ts"]
FINAL_KEYS = {*HEAD_KEYS, "weight_versions", *DETAIL_KEYS, "e2e_latency", *SPEC_KEYS, *TIME_KEYS}

PROMPT = list(range(500, 540))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    flags = "--model-path m --context-length 4096 --enable-metrics" + chain(3)
    with emulator(tmp_path_factory.mktemp("api"), flags) as running:
        running.wait_for(READY)
        yield running


def test_a_stream_has_the_keys_of_the_real_one(server: Emulator) -> None:
    sampling = {"max_new_tokens": 32, "ignore_eos": True}
    events = server.generate(input_ids=PROMPT, sampling_params=sampling, stream=True).events
    assert events[-1] == "[DONE]"
    first, middle, final = events[0], events[1], events[-2]
    assert list(first) == ["text", "output_ids", "meta_info"]
    assert list(first["meta_info"]) == [*HEAD_KEYS, *DETAIL_KEYS, "response_sent_to_client_ts"]
    assert list(middle["meta_info"]) == [*HEAD_KEYS, *DETAIL_KEYS]
    assert set(final["meta_info"]) == FINAL_KEYS
    assert final["meta_info"]["finish_reason"] == {"type": "length", "length": 32}


def test_chunks_repeat_everything_so_far_and_one_verify_gives_up_to_four_tokens(server: Emulator) -> None:
    events = server.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 64}, stream=True).events[:-1]
    counts = [event["meta_info"]["completion_tokens"] for event in events]
    assert counts[0] == 1
    assert counts[-1] == 64
    assert all(len(event["output_ids"]) == count for event, count in zip(events, counts, strict=True))
    assert all(b["text"].startswith(a["text"]) for a, b in pairwise(events))


def test_accept_numbers_of_a_request_add_up(server: Emulator) -> None:
    answer = server.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 200}).json
    meta = answer["meta_info"]
    histogram = meta["spec_correct_drafts_histogram"]
    assert len(answer["output_ids"]) == meta["completion_tokens"] == 200
    assert len(histogram) == 4
    assert sum(histogram) == meta["spec_verify_ct"]
    assert sum(k * n for k, n in enumerate(histogram)) == meta["spec_num_correct_drafts"]
    assert meta["spec_num_proposed_drafts"] == 3 * meta["spec_verify_ct"]
    assert meta["spec_accept_length"] == pytest.approx(200 / meta["spec_verify_ct"])
    assert 1 + meta["spec_num_correct_drafts"] / meta["spec_verify_ct"] == pytest.approx(2.9, rel=0.02)


def test_the_same_prompt_again_is_cached_until_the_cache_is_flushed(server: Emulator) -> None:
    body = {"input_ids": list(range(900, 960)), "sampling_params": {"max_new_tokens": 4}}
    server.generate(**body)
    assert server.generate(**body).json["meta_info"]["cached_tokens"] == 58
    flushed = server.call("POST", "/flush_cache")
    assert flushed.status == 200
    assert flushed.text.startswith("Cache flushed.\n")
    meta = server.generate(**body).json["meta_info"]
    assert (meta["cached_tokens"], meta["cached_tokens_details"]) == (0, None)


def test_a_chat_stream_starts_with_the_role_and_ends_with_usage(server: Emulator) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "stream": True}
    events = server.call("POST", "/v1/chat/completions", body | {"stream_options": {"include_usage": True}}).events
    assert list(events[0]) == ["id", "object", "created", "model", "choices"]
    assert events[0]["choices"][0]["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
    assert list(events[1]["choices"][0]) == ["index", "delta", "logprobs", "finish_reason", "matched_stop"]
    assert events[-3]["choices"][0]["delta"] == {"reasoning_content": None}
    assert events[-3]["choices"][0]["finish_reason"] == "length"
    assert events[-2]["choices"] == []
    assert events[-2]["usage"] == {
        "prompt_tokens": 7,
        "total_tokens": 13,
        "completion_tokens": 6,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }
    assert events[-1] == "[DONE]"


def test_a_completion_stream_puts_the_finish_reason_into_its_last_text(server: Emulator) -> None:
    body = {"prompt": "hello world", "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    events = server.call("POST", "/v1/completions", body).events
    assert events[0]["usage"] is None
    assert events[-3]["choices"][0]["finish_reason"] == "length"
    assert events[-2]["usage"] == {"prompt_tokens": 3, "total_tokens": 7, "completion_tokens": 4, "reasoning_tokens": 0}


def test_continuous_usage_counts_tokens_in_every_chunk(server: Emulator) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": "hello world", "max_tokens": 20, "stream": True, "stream_options": options}
    events = server.call("POST", "/v1/completions", body).events[:-1]
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 20)


def test_a_prompt_beyond_the_context_is_refused_in_sglangs_words(server: Emulator) -> None:
    message = "The input (5000 tokens) is longer than the model's context length (4096 tokens)."
    refused = server.generate(input_ids=[1] * 5000)
    assert (refused.status, refused.json) == (400, {"error": {"message": message}})
    streamed = server.generate(input_ids=[1] * 5000, stream=True)
    assert streamed.status == 200
    error = {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}
    assert streamed.events == [{"error": error}, "[DONE]"]
    chat = {"messages": [{"role": "user", "content": "x" * 40000}], "stream": True}
    answer = server.call("POST", "/v1/chat/completions", chat)
    assert answer.status == 400
    assert list(answer.json) == ["object", "message", "type", "param", "code"]


def test_other_bad_requests_have_the_real_bodies(server: Emulator) -> None:
    assert server.generate(input_ids=[1, 2, 3], sampling_params={"max_new_tokens": 100000}).json == {
        "error": {
            "message": "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested "
            "a total of 100003 tokens: 3 tokens from the input messages and 100000 tokens for the completion. Please "
            "reduce the number of tokens in the input messages or the completion to fit within the limit."
        }
    }
    nothing = server.generate(sampling_params={})
    assert nothing.json == {"error": {"message": "Either text, input_ids or input_embeds should be provided."}}
    broken = server.call("POST", "/generate", b'{"text": ')
    assert (broken.status, broken.json["type"]) == (400, "Bad Request")
    cold = server.generate(text="x", sampling_params={"temperature": -1})
    assert cold.json == {"error": {"message": "temperature must be a non-negative finite number, got -1."}}
    assert server.call("GET", "/no_such").status == 404
    assert server.call("GET", "/generate").status == 405


def test_server_info_tells_resolved_settings_and_that_this_is_no_gpu(server: Emulator) -> None:
    info = server.call("GET", "/server_info").json
    assert info["version"] == "0.5.23"
    assert info["engine"] == "emulator"
    assert info["max_running_requests"] == 48
    assert info["speculative_num_draft_tokens"] == 4
    internal = info["internal_states"][0]
    assert internal["effective_max_running_requests_per_dp"] == 48
    assert list(internal["memory_usage"]) == [
        "weight", "kvcache", "startup_available", "token_capacity", "token_capacity_swa", "graph"
    ]  # fmt: skip
    assert internal["memory_usage"]["token_capacity"] == info["max_total_num_tokens"]


def test_counters_move_by_what_finished_requests_report(server: Emulator) -> None:
    def counter(name: str) -> float:
        lines = server.call("GET", "/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"sglang:{name}{{"))

    names = ("prompt_tokens_total", "generation_tokens_total", "spec_verify_calls_total", "num_requests_total")
    before = [counter(name) for name in names]
    meta = server.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 50}).json["meta_info"]
    moved = [counter(name) - start for name, start in zip(names, before, strict=True)]
    assert moved == [40, 50, meta["spec_verify_ct"], 1]
    assert counter("num_retracted_requests_total") == 0


def test_health_models_loads_and_ready_answer(server: Emulator) -> None:
    assert server.call("GET", "/health").status == 200
    assert server.call("GET", "/ready").status == 200
    assert server.call("GET", "/get_model_info").json["model_path"] == "m"
    assert server.call("GET", "/v1/models").json["data"][0]["max_model_len"] == 4096
    load = server.call("GET", "/v1/loads").json["loads"][0]
    assert (load["num_running_reqs"], load["max_running_requests"]) == (0, 48)


def test_a_client_that_hangs_up_frees_its_place_in_the_batch(server: Emulator) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = {"text": "hang up", "sampling_params": {"max_new_tokens": 4000}, "stream": True}
    connection.request("POST", "/generate", json.dumps(body))
    response = connection.getresponse()
    response.read(100)
    response.close()
    connection.close()
    end = time.monotonic() + 5
    while server.call("GET", "/v1/loads").json["loads"][0]["num_running_reqs"]:
        assert time.monotonic() < end
    assert server.call("POST", "/flush_cache").status == 200


def test_keys_are_required_and_never_shown(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path m --api-key s3cret") as running:
        running.wait_for(READY)
        assert running.call("GET", "/server_info").status == 401
        assert running.call("GET", "/health").status == 200
        shown = running.call("GET", "/server_info", key="s3cret")
        assert shown.status == 200
        assert "s3cret" not in shown.text
        assert "s3cret" not in running.log


def test_incremental_output_sends_only_what_is_new(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path m --incremental-streaming-output") as running:
        running.wait_for(READY)
        events = running.generate(text="hello", sampling_params={"max_new_tokens": 5}, stream=True).events[:-1]
        assert [len(event["output_ids"]) for event in events] == [1, 1, 1, 1, 1]
        assert "spec_verify_ct" not in events[-1]["meta_info"]
        assert "queue_time" not in events[-1]["meta_info"]
