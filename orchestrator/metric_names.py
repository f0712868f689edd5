"""Every scalar metric by name: unit, which way is better, formula. Pure; the source of the metrics reference."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """What a metric name means."""

    unit: str
    direction: Literal["max", "min", "none"]
    formula: str


STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")

# Distributions over requests; every statistic of each is a metric, e.g. ttft_p95_ms.
DISTRIBUTIONS: dict[str, str] = {
    "ttft": "first token - start, over ok requests; start is the send in a closed loop, the due time in an open one",
    "tpot": "(end - first token) / (output tokens - 1), over ok requests with at least 2 tokens that did not all come "
    "at once",
    "chunk_gap": "gap between consecutive token-bearing chunks of a request, over all gaps; not a time per token",
    "e2e": "last token - start, over ok requests",
    "schedule_delay": "send - due time, over all requests of an open loop",
}

_SCALARS: dict[str, Metric] = {
    "output_throughput_tok_s": Metric(
        "tok/s", "max", "closed loop: output tokens whose chunk came inside the settled window / window; open loop: "
                        "those of ok requests whose middle, (first token + end) / 2, lies inside the window moved by "
                        "the median of (middle - start) / window; failed requests left out"),
    "input_throughput_tok_s": Metric(
        "tok/s", "max", "prompt tokens of ok requests whose first token came inside the window / window; open loop: "
                        "inside the window moved by the median TTFT"),
    "request_throughput_rps": Metric(
        "req/s", "max", "closed loop: mean number of ok requests in flight inside the window / their mean e2e; open "
                        "loop: ok requests that ended inside the window moved by the median e2e / window"),
    "goodput_rps": Metric("req/s", "max", "request_throughput_rps of the ok requests within every per-request limit"),
    "attainment": Metric("", "max", "ok requests within every per-request limit / all requests issued"),
    "accept_length": Metric("tok", "max", "1 + correct drafts / verify passes, over the point's ok requests; without "
                            "per-request counters 1 + accepted / verify steps of the server, or (generated tokens - "
                            "requests) / verify calls"),
    "accept_rate": Metric("", "max", "correct drafts / proposed drafts, over the point's ok requests; without "
                          "per-request counters accepted / drafted tokens of the server"),
    "cached_share": Metric("", "none", "cached prompt tokens / prompt tokens, over ok requests"),
    "achieved_rate_rps": Metric("req/s", "none", "(requests - 1) / (last send - first send)"),
    "peak_concurrency": Metric("", "none", "most requests in flight at once"),
    "server_running_mean": Metric("", "none", "mean of the requests that the server said it was running, asked every "
                                  "half second of the measured load; all data-parallel ranks together"),
    "server_running_max": Metric("", "none", "most requests that the server said it was running at once"),
    "server_queued_max": Metric("", "min", "most requests that the server said were waiting"),
    "server_token_usage_max": Metric("", "none", "largest share of the KV cache in use, of the fullest rank"),
    "requests_total": Metric("", "none", "measured requests issued"),
    "requests_ok": Metric("", "none", "requests that ended well with at least one token"),
    "requests_failed": Metric("", "min", "requests that ended in an error, a cut stream or a timeout"),
    "requests_empty": Metric("", "min", "requests that ended well without a token"),
    "requests_cancelled": Metric("", "none", "requests that we ended at the end of the point"),
    "failed_share": Metric("", "min", "failed requests / requests issued"),
    "output_tokens_total": Metric("tok", "none", "output tokens of ok requests, by the server's count"),
    "prompt_tokens_total": Metric("tok", "none", "prompt tokens of ok requests, by the server's count"),
    "retractions": Metric("", "min", "times the server took a running request back for lack of KV cache"),
    "window_s": Metric("s", "none", "length of the settled window"),
}  # fmt: skip

METRICS: dict[str, Metric] = _SCALARS | {
    f"{name}_{statistic}_ms": Metric("ms", "min", f"{statistic} of: {formula}")
    for name, formula in DISTRIBUTIONS.items()
    for statistic in STATISTICS
}
