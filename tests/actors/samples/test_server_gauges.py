"""What servers tell of themselves, from their own answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from actors.samples.server_gauges import Gauges, read_loads, read_metrics
from orchestrator.telemetry import ServerSample

CAPTURES = Path(__file__).parent.parent.parent / "data" / "captures"
LABELS = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="{tp}"'
SGLANG = f"""\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{{LABELS.format(tp=0)}}} 7.0
sglang:num_queue_reqs{{{LABELS.format(tp=0)}}} 2.0
sglang:num_used_tokens{{{LABELS.format(tp=0)}}} 1500.0
sglang:token_usage{{{LABELS.format(tp=0)}}} 0.36
sglang:full_token_usage{{{LABELS.format(tp=0)}}} 0.99
sglang:gen_throughput{{{LABELS.format(tp=0)}}} 812.25
sglang:cache_hit_rate{{{LABELS.format(tp=0)}}} 0.7857142857142857
sglang:spec_accept_length{{{LABELS.format(tp=0)}}} 2.41
sglang:num_retracted_reqs{{{LABELS.format(tp=0)},pid="15934"}} 1.0
"""
TOLD = ServerSample(
    running_requests=7, queued_requests=2, retracted_requests=1, used_tokens=1500, token_usage=0.36,
    generation_tok_s=812.25, cache_hit_rate=0.7857, accept_length=2.41,
)  # fmt: skip


def test_a_real_idle_server_tells_its_load() -> None:
    body = (CAPTURES / "0.5.23-base" / "v1_loads.txt").read_text().split("\n\n", 1)[1]

    idle = ServerSample(
        running_requests=0, queued_requests=0, retracted_requests=0, used_tokens=0, token_usage=0.0,
        generation_tok_s=0.0, cache_hit_rate=0.0,
    )  # fmt: skip
    assert read_loads(body) == Gauges(idle)


def test_ranks_of_a_data_parallel_server_are_one_server() -> None:
    body = """{"loads": [
      {"num_running_reqs": 5, "num_waiting_reqs": 1, "num_used_tokens": 10, "token_usage": 0.25, "gen_throughput": 9.5,
       "cache_hit_rate": 0.5, "speculative": {"accept_length": 3.0}, "queues": {"retracted": 2}},
      {"num_running_reqs": 3, "num_waiting_reqs": 0, "num_used_tokens": 30, "token_usage": 0.75, "gen_throughput": 50,
       "cache_hit_rate": 0.0, "speculative": {"accept_length": 2.0}, "queues": {"retracted": 0}}]}"""

    assert read_loads(body) == Gauges(
        ServerSample(
            running_requests=8, queued_requests=1, retracted_requests=2, used_tokens=40, token_usage=0.75,
            generation_tok_s=59.5, cache_hit_rate=0.25, accept_length=2.5,
        )
    )  # fmt: skip


def test_what_one_rank_does_not_tell_is_not_told_of_the_server() -> None:
    body = '{"loads": [{"num_running_reqs": 5, "token_usage": 0.2}, {"num_running_reqs": 3, "token_usage": null}]}'

    assert read_loads(body) == Gauges(ServerSample(running_requests=8))


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", "{}", '{"loads": []}', '{"loads": [1]}', '{"loads": [{"num_running_reqs": true}]}']
)
def test_other_answers_are_no_loads(text: str) -> None:
    assert read_loads(text) is None


@pytest.mark.parametrize("prefix", ["sglang:", "sglang_"])
def test_the_metrics_of_sglang_are_read_under_both_spellings(prefix: str) -> None:
    assert read_metrics(SGLANG.replace("sglang:", prefix)) == Gauges(TOLD)


def test_tensor_parallel_ranks_tell_the_same_once_and_data_parallel_ranks_add_up() -> None:
    other_tp = SGLANG.replace('tp_rank="0"', 'tp_rank="1"')
    other_dp = SGLANG.replace('model_name="m"', 'model_name="m",dp_rank="1"')

    assert read_metrics(SGLANG + other_tp) == Gauges(TOLD)
    assert read_metrics(SGLANG + other_dp) == Gauges(
        replace(TOLD, running_requests=14, queued_requests=4, retracted_requests=2, used_tokens=3000,
                generation_tok_s=1624.5)
    )  # fmt: skip


def test_a_server_that_speculates_not_has_no_accept_length() -> None:
    gauges = read_metrics("sglang:spec_accept_length 0.0\nsglang:num_running_reqs 1\n")

    assert gauges == Gauges(ServerSample(running_requests=1))


def test_vllm_and_llama_cpp_tell_requests_and_a_counter_of_tokens() -> None:
    vllm = """\
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.125
vllm:generation_tokens_total{engine="0",model_name="m"} 1000.0
vllm:generation_tokens_total{engine="1",model_name="m"} 500.0
"""
    llama = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 4\nllamacpp:tokens_predicted_total 77\n"

    assert read_metrics(vllm) == Gauges(ServerSample(3, 1, token_usage=0.125), 1500.0)
    assert read_metrics(llama) == Gauges(ServerSample(2, 4), 77.0)


@pytest.mark.parametrize("text", ["", "# nothing\n", "http_requests_total 5\n", "sglang:num_running_reqs NaN\n", "{}"])
def test_metrics_without_a_known_name_tell_nothing(text: str) -> None:
    assert read_metrics(text) is None


@pytest.mark.parametrize(
    "text",
    [
        'sglang:num_running_reqs{dp_rank="0"} 1e308\nsglang:num_running_reqs{dp_rank="1"} 1e308\n',
        "sglang:num_running_reqs 1e300\n",
    ],
)
def test_a_number_that_counts_nothing_is_not_told(text: str) -> None:
    told = read_metrics(text + "sglang:num_queue_reqs 3\n")

    assert told is not None
    assert (told.sample.running_requests, told.sample.queued_requests) == (None, 3)
