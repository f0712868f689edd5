"""The `/metrics` page: the counters, gauges and histograms of SGLang that a load test needs."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

LATENCY_BUCKETS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
TOKEN_TIME_BUCKETS = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.5, 1.0)

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
        for bound, count in zip((*map(str, self.buckets), "+Inf"), self.counts, strict=True):
            running += count
            yield f"{name}_bucket{_braces((*labels, ('le', bound)))} {float(running)}"
        yield f"{name}_sum{_braces(labels)} {self.total}"
        yield f"{name}_count{_braces(labels)} {float(running)}"


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels)) + "}" if labels else ""


@dataclass
class Metrics:
    """Everything counted since start. Token and request counters move when a request ends, as in SGLang."""

    model_name: str
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
    retracted_requests: int = 0
    retracted_input: int = 0
    retracted_output: int = 0
    http: dict[tuple[str, str, int], int] = field(default_factory=lambda: defaultdict(int))
    gauges: dict[str, float] = field(default_factory=dict)
    graph_gib: dict[str, float] = field(default_factory=dict)
    startup: dict[str, float] = field(default_factory=dict)
    ttft: dict[bool, Histogram] = field(default_factory=lambda: defaultdict(lambda: Histogram(LATENCY_BUCKETS)))
    e2e: dict[bool, Histogram] = field(default_factory=lambda: defaultdict(lambda: Histogram(LATENCY_BUCKETS)))
    tpot: dict[bool, Histogram] = field(default_factory=lambda: defaultdict(lambda: Histogram(TOKEN_TIME_BUCKETS)))
    itl: Histogram = field(default_factory=lambda: Histogram(TOKEN_TIME_BUCKETS))
    queue_time: Histogram = field(default_factory=lambda: Histogram(LATENCY_BUCKETS))

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
        graphs = [((*self._scheduler, ("phase", phase)), value) for phase, value in self.graph_gib.items()]
        yield from _family("graph_memory_usage_gb", "gauge", graphs)
        phases = [((*self._tokenizer, ("phase", phase)), value) for phase, value in self.startup.items()]
        yield from _family("startup_time_seconds", "gauge", phases)

    def _scheduler_counters(self) -> Iterator[str]:
        one = self._scheduler
        yield from _family("num_retracted_requests_total", "counter", [(one, self.retracted_requests)])
        yield from _family("num_retracted_input_tokens_total", "counter", [(one, self.retracted_input)])
        yield from _family("num_retracted_output_tokens_total", "counter", [(one, self.retracted_output)])
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
        yield from _family("spec_verify_calls_total", "counter", [(self._tokenizer, self.verify_calls)])
        cached = [((*self._tokenizer, ("cache_source", "device")), self.cached_tokens)]
        yield from _family("cached_tokens_total", "counter", cached)
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
        yield "# TYPE sglang:inter_token_latency_seconds histogram"
        yield from self.itl.lines("sglang:inter_token_latency_seconds", self._tokenizer)
        yield "# TYPE sglang:queue_time_seconds histogram"
        yield from self.queue_time.lines("sglang:queue_time_seconds", self._scheduler)

    def _http_lines(self) -> Iterator[str]:
        rows: list[tuple[Labels, float]] = [
            ((("endpoint", endpoint), ("method", method), ("status_code", str(status))), count)
            for (endpoint, method, status), count in self.http.items()
        ]
        yield from _family("http_responses_total", "counter", rows)


def _family(name: str, kind: str, rows: list[tuple[Labels, float]] | list[tuple[Labels, int]]) -> Iterator[str]:
    yield f"# TYPE sglang:{name} {kind}"
    for labels, value in rows:
        yield f"sglang:{name}{_braces(labels)} {float(value)}"
