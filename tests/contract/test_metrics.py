"""`/metrics`: families with types, labels and buckets, and what the counters count."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from tests.contract.divergence import METRIC_FAMILIES
from tests.contract.servers import Server, Stream, Variant

SCHEDULER = frozenset({"model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank"})
TOKENIZER = frozenset({"model_name", "engine_type"})
STREAMING = TOKENIZER | {"is_streaming"}

SCHEDULER_GAUGES = [
    "max_total_num_tokens",
    "weight_memory_usage_gb",
    "kv_cache_memory_usage_gb",
    "page_size",
    "num_pages",
    "context_len",
    "startup_available_gpu_memory_gb",
    "num_running_reqs",
    "num_queue_reqs",
    "num_grammar_queue_reqs",
    "gen_throughput",
    "cache_hit_rate",
    "decode_sum_seq_lens",
    "token_usage",
    "full_token_usage",
    "swa_token_usage",
    "mamba_usage",
    "num_used_tokens",
    "kv_available_tokens",
    "kv_evictable_tokens",
    "kv_used_tokens",
    "swa_available_tokens",
    "swa_evictable_tokens",
    "swa_used_tokens",
    "mamba_available_tokens",
    "mamba_evictable_tokens",
    "mamba_used_tokens",
    "spec_accept_length",
    "spec_accept_rate",
    "spec_cap_length",
    "spec_block_accept_length",
    "spec_num_steps",
    "spec_num_draft_tokens",
    "num_prefill_bootstrap_queue_reqs",
    "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
    "num_decode_host_receive_queue_reqs",
    "num_decode_deferred_kv_release_reqs",
    "pending_prealloc_token_usage",
    "prealloc_full_token_usage",
    "prealloc_swa_token_usage",
    "utilization",
    "new_token_ratio",
    "is_cuda_graph",
    "fwd_occupancy",
    "num_unique_running_routing_keys",
]

FAMILIES: dict[str, tuple[str, frozenset[str]]] = {
    **dict.fromkeys(SCHEDULER_GAUGES, ("gauge", SCHEDULER)),
    "num_retracted_reqs": ("gauge", SCHEDULER | {"pid"}),
    "num_paused_reqs": ("gauge", SCHEDULER | {"pid"}),
    "graph_memory_usage_gb": ("gauge", SCHEDULER | {"phase"}),
    "startup_time_seconds": ("gauge", TOKENIZER | {"phase"}),
    "startup_cuda_graph_time_seconds": ("gauge", TOKENIZER | {"phase"}),
    "routing_keys_active": ("gauge", frozenset()),
    "routing_key_running_req_count": ("gauge", SCHEDULER | {"gt", "le"}),
    "routing_key_all_req_count": ("gauge", SCHEDULER | {"gt", "le"}),
    "http_requests_active": ("gauge", frozenset({"endpoint", "method"})),
    "http_requests_total": ("counter", frozenset({"endpoint", "method"})),
    "http_responses_total": ("counter", frozenset({"endpoint", "method", "status_code"})),
    "prompt_tokens_total": ("counter", STREAMING),
    "generation_tokens_total": ("counter", STREAMING),
    "num_requests_total": ("counter", STREAMING),
    "cached_tokens_total": ("counter", TOKENIZER | {"cache_source"}),
    "num_aborted_requests_total": ("counter", TOKENIZER),
    "spec_verify_calls_total": ("counter", TOKENIZER),
    "realtime_tokens_total": ("counter", SCHEDULER | {"mode"}),
    "cuda_graph_passes_total": ("counter", SCHEDULER | {"mode"}),
    "prefill_effective_tokens_total": ("counter", SCHEDULER | {"mode"}),
    "scheduler_idle_seconds_total": ("counter", SCHEDULER),
    "scheduler_process_cpu_seconds_total": ("counter", SCHEDULER),
    "scheduler_stage_seconds_total": ("counter", SCHEDULER | {"category", "forward_overlap"}),
    "process_cpu_seconds_total": ("counter", frozenset({"component"})),
    "dp_attention_tokens_total": ("counter", SCHEDULER | {"kind"}),
    "dp_attention_pairs_total": ("counter", SCHEDULER | {"kind"}),
    "dp_attention_steps_total": ("counter", SCHEDULER | {"rank_state"}),
    "dp_attention_token_imbalance_ratio": ("histogram", SCHEDULER),
    "dp_attention_sync_wait_seconds": ("histogram", SCHEDULER),
    "per_stage_req_latency_seconds": ("histogram", SCHEDULER | {"stage"}),
    "queue_time_seconds": ("histogram", SCHEDULER),
    "time_to_first_token_seconds": ("histogram", STREAMING),
    "e2e_request_latency_seconds": ("histogram", STREAMING),
    "request_time_per_output_token_seconds": ("histogram", STREAMING),
    "inter_token_latency_seconds": ("histogram", TOKENIZER),
    "prompt_tokens_histogram": ("histogram", TOKENIZER),
    "uncached_prompt_tokens_histogram": ("histogram", TOKENIZER),
    "generation_tokens_histogram": ("histogram", TOKENIZER),
    "get_loads_duration_seconds": ("histogram", TOKENIZER),
}
RETRACTED = {f"num_retracted_{what}_total" for what in ("requests", "input_tokens", "output_tokens")}

FIRST_TOKEN = "0.1 0.2 0.4 0.6 0.8 1.0 2.0 4.0 6.0 8.0 10.0 20.0 40.0 60.0 80.0 100.0 200.0 400.0"
EACH_TOKEN = (
    "0.002 0.004 0.006 0.008 0.01 0.015 0.02 0.025 0.03 0.035 0.04 0.06 0.08 0.1 0.2 0.4 0.6 0.8 1.0 2.0 4.0 6.0 8.0"
)
TOKENS = (
    "100.0 300.0 500.0 700.0 1000.0 1500.0 2000.0 3000.0 4000.0 5000.0 6000.0 7000.0 8000.0 9000.0 10000.0 12500.0 "
    "15000.0 17500.0 20000.0 22500.0 25000.0 27500.0 30000.0 35000.0 40000.0 60000.0 80000.0 100000.0 200000.0 "
    "300000.0 400000.0 600000.0 800000.0 1e+06 1.1e+06"
)
BUCKETS = {
    "time_to_first_token_seconds": FIRST_TOKEN,
    "e2e_request_latency_seconds": FIRST_TOKEN + " 600.0 1200.0 1800.0 2400.0",
    "request_time_per_output_token_seconds": EACH_TOKEN,
    "inter_token_latency_seconds": EACH_TOKEN,
    "prompt_tokens_histogram": TOKENS,
    "uncached_prompt_tokens_histogram": TOKENS,
    "generation_tokens_histogram": TOKENS,
    "queue_time_seconds": "0.0 0.001 0.005 0.01 0.05 0.1 0.2 0.5 1.0 2.0 3.0 4.0 5.0 10.0 15.0 20.0 30.0 40.0 50.0 "
    "60.0 70.0 80.0 90.0 100.0 200.0 300.0 400.0 500.0 600.0 700.0 800.0 900.0 1000.0 1200.0 1400.0 1600.0 "
    "1800.0 2000.0 2500.0 3000.0",
}


@dataclass
class Page:
    """A scraped page: type, label names and bucket bounds of each family, in order of appearance."""

    types: dict[str, str] = field(default_factory=dict)
    labels: dict[str, set[frozenset[str]]] = field(default_factory=lambda: defaultdict(set))
    buckets: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def scrape(server: Server) -> Page:
    page = Page()
    for line in server.call("GET", "/metrics").text.splitlines():
        kind = re.fullmatch(r"# TYPE sglang:(\w+) (\w+)", line)
        sample = re.match(r"sglang:(\w+)(?:\{(.*)\})? ", line)
        if kind:
            page.types[kind[1]] = kind[2]
        elif sample:
            name = re.sub(r"_(bucket|sum|count)$", "", sample[1])
            name = name if page.types.get(name) == "histogram" else sample[1]
            labels = dict(re.findall(r'(\w+)="([^"]*)"', sample[2] or ""))
            if page.types[name] == "histogram":
                bound = labels.pop("le", None)
                page.buckets[name] += [bound] if bound and bound not in page.buckets[name] else []
            page.labels[name].add(frozenset(labels))
    return page


@pytest.fixture
def page(server: Server) -> Page:
    """A page after every kind of request that a counter waits for."""
    body = {"input_ids": [71, 72, 73, 74, 75], "sampling_params": {"max_new_tokens": 15, "ignore_eos": True}}
    for stream in (False, True):
        server.generate(**body, stream=stream)
    server.call("GET", "/v1/loads")
    name = "sglang:num_aborted_requests_total"
    before = server.metrics().get(name, 0.0)
    with server.crawling():
        cut = Stream(server, input_ids=[76], sampling_params={"max_new_tokens": 3000, "ignore_eos": True}, rid="gone")
        cut.event()
        server.call("POST", "/abort_request", {"rid": "gone"}, admin=True)
        cut.rest()
    server.wait_until(lambda: server.metrics().get(name, 0.0) > before, "aborted counter")
    return scrape(server)


def test_the_families_are_those_of_the_real_one(page: Page, server: Server, variant: Variant) -> None:
    expected = dict(FAMILIES)
    if variant.algorithm is None:
        del expected["spec_verify_calls_total"]
    if server.engine == "emulator":
        expected = {name: family for name, family in expected.items() if name not in METRIC_FAMILIES}
    found = {name: (page.types[name], page.labels[name]) for name in page.labels if name not in RETRACTED}
    assert found == {name: (kind, {labels}) for name, (kind, labels) in expected.items()}


def test_histograms_have_the_buckets_of_the_real_one(page: Page) -> None:
    assert {name: page.buckets[name] for name in BUCKETS} == {n: [*b.split(), "+Inf"] for n, b in BUCKETS.items()}


def test_both_spellings_of_the_path_answer_in_prometheus_text(server: Server) -> None:
    for path in ("/metrics", "/metrics/"):
        answer = server.call("GET", path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain")


def grown(server: Server, before: dict[str, float], requests: int, **others: int) -> dict[str, float]:
    """Growth of all samples once `requests` more have been counted; the scheduler counts `others` by itself, later."""
    least = {f"sglang:{name}": growth for name, growth in {"num_requests_total": requests, **others}.items()}

    def counted() -> bool:
        now = server.metrics()
        return all(now.get(name, 0.0) - before.get(name, 0.0) >= growth for name, growth in least.items())

    server.wait_until(counted, f"growth of {least}")
    return {name: value - before.get(name, 0.0) for name, value in server.metrics().items()}


def test_counters_after_five_requests(server: Server, variant: Variant) -> None:
    server.flush()
    before = server.metrics()
    prompts = [[80 + i, *range(200, 219)] for i in range(4)]
    metas = [
        server.generate(input_ids=prompt, sampling_params={"max_new_tokens": 31, "ignore_eos": True}).json["meta_info"]
        for prompt in [*prompts, prompts[0]]
    ]
    delta = grown(server, before, 5)
    assert delta["sglang:num_requests_total"] == 5
    assert delta["sglang:prompt_tokens_total"] == 5 * 20
    assert delta["sglang:generation_tokens_total"] == 5 * 31
    assert delta["sglang:cached_tokens_total"] == sum(meta["cached_tokens"] for meta in metas) > 0
    assert delta["sglang:prompt_tokens_histogram_sum"] == 100
    assert delta["sglang:generation_tokens_histogram_sum"] == 155
    assert delta["sglang:uncached_prompt_tokens_histogram_sum"] == 100 - delta["sglang:cached_tokens_total"]
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_time_per_output_token_seconds"):
        assert delta[f"sglang:{name}_count"] == 5
    latency = sum(meta["e2e_latency"] for meta in metas)
    assert delta["sglang:e2e_request_latency_seconds_sum"] == pytest.approx(latency, rel=0.1, abs=0.05)
    if variant.algorithm:
        verifies = sum(meta["spec_verify_ct"] for meta in metas)
        assert delta["sglang:spec_verify_calls_total"] == verifies
        accept = 1 + sum(meta["spec_num_correct_drafts"] for meta in metas) / verifies
        # Drafts beyond the limit of an answer count as correct, but are no tokens of it.
        assert (155 - 5) / verifies == pytest.approx(accept, rel=0.1)


def test_live_counters_move_with_prefill_and_decode(server: Server) -> None:
    server.flush()
    before = server.metrics()
    body = {"input_ids": list(range(300, 350)), "sampling_params": {"max_new_tokens": 31, "ignore_eos": True}}
    for _ in range(2):
        server.generate(**body)
    # 2 x 50 prompt tokens, computed or found, and 2 x 30 from decoding; more with drafts beyond the limit.
    delta = grown(server, before, 2, realtime_tokens_total=160, prefill_effective_tokens_total=100)
    modes = re.findall(r'sglang:realtime_tokens_total\{.*?mode="(\w+)"', server.call("GET", "/metrics").text)
    assert set(modes) == {"prefill_compute", "prefill_cache", "decode"}
    assert 160 <= delta["sglang:realtime_tokens_total"] < 180
    assert delta["sglang:prefill_effective_tokens_total"] == 100
    assert delta["sglang:cuda_graph_passes_total"] > 2
    # Chunks: tokens after the first one, each counted.
    assert delta["sglang:inter_token_latency_seconds_count"] in {0, 60}


def test_constant_gauges_hold_what_was_resolved(server: Server, variant: Variant) -> None:
    metrics = server.metrics()
    assert metrics["sglang:max_total_num_tokens"] == metrics["sglang:num_pages"] == 4096
    assert (metrics["sglang:page_size"], metrics["sglang:context_len"]) == (1, 4096)
    assert metrics["sglang:spec_num_steps"] == (0 if variant.algorithm == "NGRAM" else variant.steps)
    assert metrics["sglang:spec_num_draft_tokens"] == variant.draft_tokens


def test_the_pool_is_split_into_used_evictable_and_available(server: Server) -> None:
    server.generate(input_ids=[91, 92, 93], sampling_params={"max_new_tokens": 15, "ignore_eos": True})
    # Each is written for itself: a page may be read in between.
    server.wait_until(lambda: sum(pool(server)) == 4096, "parts that add up")


def pool(server: Server) -> list[float]:
    """Used, evictable and available tokens, none of which may be below 0."""
    metrics = server.metrics()
    parts = [metrics[f"sglang:kv_{part}_tokens"] for part in ("used", "evictable", "available")]
    assert min(parts) >= 0
    return parts


def test_http_counters_count_calls_by_endpoint(server: Server) -> None:
    def calls(name: str) -> int:
        pattern = rf'sglang:{name}\{{[^}}]*endpoint="/v1/models"[^}}]*\}} (\S+)'
        return int(sum(float(value) for value in re.findall(pattern, server.call("GET", "/metrics").text)))

    before = calls("http_requests_total"), calls("http_responses_total")
    for _ in range(3):
        server.call("GET", "/v1/models")
    # An answer may be read before it is counted.
    server.wait_until(lambda: calls("http_responses_total") - before[1] >= 3, "counted answers")
    assert (calls("http_requests_total") - before[0], calls("http_responses_total") - before[1]) == (3, 3)
    server.wait_until(lambda: calls("http_requests_active") == 0, "end of all calls")
