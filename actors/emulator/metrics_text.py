"""The `/metrics` page: every family of SGLang's but those that docs/emulator.md lists."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_LATENCY = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
FIRST_TOKEN_BUCKETS = _LATENCY
REQUEST_BUCKETS = (*_LATENCY, 600.0, 1200.0, 1800.0, 2400.0)
TOKEN_TIME_BUCKETS = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8),
    *(1.0, 2.0, 4.0, 6.0, 8.0),
)
QUEUE_BUCKETS = (
    *(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0),
    *(60.0, 70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0),
    *(1600.0, 1800.0, 2000.0, 2500.0, 3000.0),
)
TOKEN_COUNT_BUCKETS = (
    *(100.0, 300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0, 9000.0),
    *(10000.0, 12500.0, 15000.0, 17500.0, 20000.0, 22500.0, 25000.0, 27500.0, 30000.0, 35000.0, 40000.0, 60000.0),
    *(80000.0, 100000.0, 200000.0, 300000.0, 400000.0, 600000.0, 800000.0, 1e6, 1.1e6),
)

# Gauges of what no emulated server has (windows, states, disaggregation): 0, as on a real server without them.
ALWAYS_ZERO = [
    "num_grammar_queue_reqs",
    "swa_token_usage",
    "swa_available_tokens",
    "swa_evictable_tokens",
    "swa_used_tokens",
    "mamba_usage",
    "mamba_available_tokens",
    "mamba_evictable_tokens",
    "mamba_used_tokens",
    "spec_cap_length",
    "spec_block_accept_length",
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
]
MOVING = [
    "num_running_reqs",
    "num_queue_reqs",
    "num_used_tokens",
    "token_usage",
    "full_token_usage",
    "gen_throughput",
    "cache_hit_rate",
    "decode_sum_seq_lens",
    "kv_available_tokens",
    "kv_evictable_tokens",
    "kv_used_tokens",
    "spec_accept_length",
    "spec_accept_rate",
    "new_token_ratio",
    "is_cuda_graph",
]

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Cumulative buckets as Prometheus wants them."""

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.buckets, value)] += times
        self.total += value * times

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        running = 0
        for bound, count in zip((*map(_bound, self.buckets), "+Inf"), self.counts, strict=True):
            running += count
            yield f"{name}_bucket{_braces((*labels, ('le', bound)))} {float(running)}"
        yield f"{name}_sum{_braces(labels)} {self.total}"
        yield f"{name}_count{_braces(labels)} {float(running)}"


def _bound(value: float) -> str:
    """As Go prints floats, which Prometheus asks for."""
    return str(value) if value < 1e6 else f"{value:g}"


def _by_stream(buckets: tuple[float, ...]) -> dict[bool, Histogram]:
    return defaultdict(lambda: Histogram(buckets))


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels)) + "}" if labels else ""


@dataclass
class Metrics:
    """Everything counted since start. Token and request counters move when a request ends, as in SGLang."""

    model_name: str
    speculating: bool = False
    prompt_tokens: dict[bool, int] = field(default_factory=lambda: defaultdict(int))
    generation_tokens: dict[bool, int] = field(default_factory=lambda: defaultdict(int))
    requests: dict[bool, int] = field(default_factory=lambda: defaultdict(int))
    aborted: int = 0
    cached_tokens: int = 0
    verify_calls: int = 0
    realtime: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("prefill_compute", "prefill_cache", "decode"), 0)
    )
    passes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    idle_s: float = 0.0
    retracted_requests: int = 0
    retracted_input: int = 0
    retracted_output: int = 0
    http: dict[tuple[str, str, int], int] = field(default_factory=lambda: defaultdict(int))
    http_requests: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    http_active: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    gauges: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*MOVING, *ALWAYS_ZERO), 0.0))
    retracted_now: int = 0
    graph_gib: dict[str, float] = field(default_factory=dict)
    startup: dict[str, float] = field(default_factory=dict)
    startup_graphs: dict[str, float] = field(default_factory=dict)
    ttft: dict[bool, Histogram] = field(default_factory=lambda: _by_stream(FIRST_TOKEN_BUCKETS))
    e2e: dict[bool, Histogram] = field(default_factory=lambda: _by_stream(REQUEST_BUCKETS))
    tpot: dict[bool, Histogram] = field(default_factory=lambda: _by_stream(TOKEN_TIME_BUCKETS))
    itl: Histogram = field(default_factory=lambda: Histogram(TOKEN_TIME_BUCKETS))
    queue_time: Histogram = field(default_factory=lambda: Histogram(QUEUE_BUCKETS))
    prompt_sizes: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNT_BUCKETS))
    uncached_sizes: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNT_BUCKETS))
    answer_sizes: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNT_BUCKETS))

    def render(self) -> str:
        """The page in Prometheus text format."""
        return "\n".join(self._lines()) + "\n"

    @property
    def _scheduler(self) -> Labels:
        ranks = (("moe_ep_rank", "0"), ("pp_rank", "0"), ("tp_rank", "0"))
        return (("engine_type", "unified"), ("model_name", self.model_name), *ranks)

    @property
    def _tokenizer(self) -> Labels:
        return (("engine_type", "unified"), ("model_name", self.model_name))

    def _lines(self) -> Iterator[str]:
        yield from self._gauge_lines()
        yield from self._scheduler_counters()
        yield from self._tokenizer_counters()
        yield from self._histograms()
        yield from self._http_lines()

    def _gauge_lines(self) -> Iterator[str]:
        for name, value in self.gauges.items():
            yield from _family(name, "gauge", [(self._scheduler, value)])
        own = (*self._scheduler, ("pid", str(os.getpid())))
        yield from _family("num_retracted_reqs", "gauge", [(own, self.retracted_now)])
        yield from _family("num_paused_reqs", "gauge", [(own, 0)])
        graphs = [((*self._scheduler, ("phase", phase)), value) for phase, value in self.graph_gib.items()]
        yield from _family("graph_memory_usage_gb", "gauge", graphs)
        for name, seconds in (
            ("startup_time_seconds", self.startup),
            ("startup_cuda_graph_time_seconds", self.startup_graphs),
        ):
            phases = [((*self._tokenizer, ("phase", phase)), value) for phase, value in seconds.items()]
            yield from _family(name, "gauge", phases)

    def _scheduler_counters(self) -> Iterator[str]:
        one = self._scheduler
        # Like all counters that count nothing yet, SGLang's are not there before the first retraction.
        if self.retracted_requests:
            yield from _family("num_retracted_requests_total", "counter", [(one, self.retracted_requests)])
            yield from _family("num_retracted_input_tokens_total", "counter", [(one, self.retracted_input)])
            yield from _family("num_retracted_output_tokens_total", "counter", [(one, self.retracted_output)])
        yield from _family("scheduler_idle_seconds_total", "counter", [(one, self.idle_s)])
        hits = {"device_hit": self.realtime["prefill_cache"], "host_hit": 0, "storage_hit": 0}
        effective = {"input": self.realtime["prefill_compute"], **hits}
        rows = [((*one, ("mode", mode)), count) for mode, count in effective.items()]
        yield from _family("prefill_effective_tokens_total", "counter", rows)
        modes = [((*one, ("mode", mode)), count) for mode, count in self.realtime.items()]
        yield from _family("realtime_tokens_total", "counter", modes)
        passes = [((*one, ("mode", mode)), count) for mode, count in self.passes.items()]
        yield from _family("cuda_graph_passes_total", "counter", passes)

    def _tokenizer_counters(self) -> Iterator[str]:
        by_stream = {
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generation_tokens,
            "num_requests_total": self.requests,
        }
        for name, counts in by_stream.items():
            rows = [((*self._tokenizer, ("is_streaming", str(s).lower())), n) for s, n in sorted(counts.items())]
            yield from _family(name, "counter", rows)
        if self.speculating:
            yield from _family("spec_verify_calls_total", "counter", [(self._tokenizer, self.verify_calls)])
        if self.cached_tokens:
            cached = [((*self._tokenizer, ("cache_source", "device")), self.cached_tokens)]
            yield from _family("cached_tokens_total", "counter", cached)
        if self.aborted:
            yield from _family("num_aborted_requests_total", "counter", [(self._tokenizer, self.aborted)])

    def _histograms(self) -> Iterator[str]:
        by_stream = {
            "time_to_first_token_seconds": self.ttft,
            "e2e_request_latency_seconds": self.e2e,
            "request_time_per_output_token_seconds": self.tpot,
        }
        for name, histograms in by_stream.items():
            yield f"# TYPE sglang:{name} histogram"
            for streaming, histogram in sorted(histograms.items()):
                labels = (*self._tokenizer, ("is_streaming", str(streaming).lower()))
                yield from histogram.lines(f"sglang:{name}", labels)
        for name, histogram, labels in (
            ("inter_token_latency_seconds", self.itl, self._tokenizer),
            ("prompt_tokens_histogram", self.prompt_sizes, self._tokenizer),
            ("uncached_prompt_tokens_histogram", self.uncached_sizes, self._tokenizer),
            ("generation_tokens_histogram", self.answer_sizes, self._tokenizer),
            ("queue_time_seconds", self.queue_time, self._scheduler),
        ):
            yield f"# TYPE sglang:{name} histogram"
            yield from histogram.lines(f"sglang:{name}", labels)

    def _http_lines(self) -> Iterator[str]:
        rows: list[tuple[Labels, float]] = [
            ((("endpoint", endpoint), ("method", method), ("status_code", str(status))), count)
            for (endpoint, method, status), count in self.http.items()
        ]
        yield from _family("http_responses_total", "counter", rows)
        for name, kind, counts in (
            ("http_requests_total", "counter", self.http_requests),
            ("http_requests_active", "gauge", self.http_active),
        ):
            calls = [((("endpoint", endpoint), ("method", method)), n) for (endpoint, method), n in counts.items()]
            yield from _family(name, kind, calls)


def _family(name: str, kind: str, rows: Sequence[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# TYPE sglang:{name} {kind}"
    for labels, value in rows:
        yield f"sglang:{name}{_braces(labels)} {float(value)}"
