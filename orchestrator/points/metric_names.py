"""Every scalar metric by name: unit, which way is better, formula. Pure; the source of the metrics reference."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from orchestrator.points.distribution import FEWEST


class Metric(NamedTuple):
    """What a metric name means. `note` says where a definition comes from, or how others of that name differ."""

    unit: str
    direction: Literal["max", "min", "none"]
    formula: str
    note: str = ""


STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
LOW_STATISTICS = ("mean", "p50", "p10", "p5", "min")

# Distributions over requests; every statistic of each is a metric, e.g. ttft_p95_ms.
DISTRIBUTIONS: dict[str, tuple[str, str]] = {
    "ttft": (
        "first token - start, over ok requests; start is the send in a closed loop, the due time in an open one",
        "from the due time, so that a late or gated send does not hide a queue; bench_serving always counts from the "
        "send",
    ),
    "tpot": (
        "(end - first token) / (output tokens - tokens of the first chunk), over ok requests with tokens after the "
        "first chunk; where the server counts only at the end, the first chunk counts as one token",
        "with one token in the first chunk, which is what SGLang sends, this is bench_serving's (end - first token) / "
        "(tokens - 1). If the first chunk brings more (a parser that buffers, `--stream-interval`), those "
        "tokens were not made after it: 6 chunks of 20 tokens every 800 ms are 40 ms a token by this formula, 33.6 "
        "by the other",
    ),
    "chunk_gap": (
        "gap between consecutive token-bearing chunks of a request, over all gaps; not a time per token",
        "called inter-token latency (ITL) where every chunk has one token",
    ),
    "e2e": ("last token - start, over ok requests", "a usage frame after the last token does not count"),
    "queue": (
        "time the server says that it let the request wait, over ok requests that carry it",
        "SGLang's own clock",
    ),
    "schedule_delay": ("send - due time, over all requests of an open loop", ""),
}

_LOAD = "asked every half second of the measured load"

_SCALARS: dict[str, Metric] = {
    "output_throughput_tok_s": Metric(
        "tok/s", "max", "closed loop: output tokens whose chunk came inside the settled window / window; open loop: "
                        "those of ok requests whose middle, (first token + end) / 2, lies inside the window moved by "
                        "the median of (middle - start) / window; failed requests left out",
                        "bench_serving divides all tokens by the whole time, start-up and drain with it: lower"),
    "input_throughput_tok_s": Metric(
        "tok/s", "max", "prompt tokens of ok requests whose first token came inside the window / window; open loop: "
                        "inside the window moved by the median TTFT"),
    "request_throughput_rps": Metric(
        "req/s", "max", "closed loop: mean number of ok requests in flight inside the window / their mean e2e; open "
                        "loop: ok requests that ended inside the window moved by the median e2e / window",
                        "Little's law"),
    "goodput_rps": Metric("req/s", "max", "request_throughput_rps of the ok requests within every per-request limit"),
    "attainment": Metric("", "max", "ok requests within every per-request limit / all requests issued"),
    "attainment_n": Metric("", "none", "requests issued / (1 + 2 x sum of the autocorrelations of being good, in order "
                           "of sending): as many independent requests say as much about attainment",
                           "autocorrelations are summed in pairs up to the first pair below 0 (Geyer 1992)"),
    "accept_length": Metric("tok", "max", "1 + correct drafts / verify passes, over the point's ok requests, or where "
                            "they tell of passes only (output tokens - 1) / verify passes; without "
                            "per-request counters 1 + accepted / verify steps of the server, or (generated tokens - "
                            "requests) / verify calls", "includes the bonus token, as SGLang prints it"),
    "accept_rate": Metric("", "max", "correct drafts / proposed drafts, over the point's ok requests; without "
                          "per-request counters accepted / drafted tokens of the server"),
    "cached_share": Metric("", "none", "cached prompt tokens / prompt tokens, over ok requests"),
    "cached_tokens_total": Metric("tok", "none", "cached prompt tokens of ok requests, by the server's count"),
    "unique_prompt_share": Metric("", "none", "different prompts / requests issued"),
    "requested_rate_rps": Metric("req/s", "none", "the rate of the load level; absent in a closed loop"),
    "achieved_rate_rps": Metric("req/s", "none", "(requests - 1) / (last send - first send)"),
    "peak_concurrency": Metric("", "none", "most requests between send and end at once, over the records of all load "
                               "processes together"),
    "server_running_mean": Metric("", "none", f"mean of the requests that the server said it was running, {_LOAD}; all "
                                  "data-parallel ranks together"),
    "server_running_max": Metric("", "none", "most requests that the server said it was running at once"),
    "server_queued_max": Metric("", "min", "most requests that the server said were waiting"),
    "server_token_usage_max": Metric("", "none", "largest share of the KV cache in use, of the fullest rank"),
    "requests_total": Metric("", "none", "measured requests issued = ok + empty + failed + client_limit + cancelled"),
    "requests_ok": Metric("", "none", "requests that ended well with at least one token"),
    "requests_failed": Metric("", "min", "requests that ended in an error, a cut stream or a timeout"),
    "requests_empty": Metric("", "min", "requests that ended well without a token"),
    "requests_client_limit": Metric("", "min", "requests for which the client had no port, file or memory left; says "
                                    "nothing about the server"),
    "requests_cancelled": Metric("", "none", "requests that we ended at the end of the point"),
    "failed_share": Metric("", "min", "failed requests / requests issued"),
    "output_tokens_total": Metric("tok", "none", "output tokens of ok requests, by the server's count"),
    "output_tokens_mean": Metric("tok", "none", "mean output tokens of ok requests"),
    "output_tokens_share": Metric("", "none", "output tokens / output tokens asked for, over ok requests; 1 where the "
                                  "end-of-sequence token is ignored"),
    "prompt_tokens_total": Metric("tok", "none", "prompt tokens of ok requests, by the server's count"),
    "prompt_tokens_mean": Metric("tok", "none", "mean prompt tokens of ok requests, by the server's count"),
    "prompt_tokens_asked_mean": Metric("tok", "none", "mean length that the prompts of ok requests were meant to have"),
    "prompt_tokens_error_p95": Metric("", "min", "p95 of |prompt tokens - asked| / asked, over ok requests"),
    "retractions": Metric("", "min", "times the server took a running request back for lack of KV cache"),
    "output_throughput_tok_s_per_gpu": Metric("tok/s", "max", "output_throughput_tok_s / GPUs of the server on all its "
                                              "hosts; absent for servers on CPU"),
    "cost_per_million_output_tokens": Metric("cost", "min", "slots.gpu_hour_cost x GPUs of the server / "
                                             "(output_throughput_tok_s x 3600) x 1e6",
                                             "in the currency of gpu_hour_cost; the server is paid for, busy or not"),
    "gpu_power_w": Metric("W", "min", "mean power of the server's GPUs together while the measured load was sent",
                          "growth of NVML's energy counter / time, or the mean of power samples where a GPU has no "
                          "counter; other GPUs of the host do not count"),
    "joules_per_output_token": Metric("J", "min", "gpu_power_w / output_throughput_tok_s"),
    "output_tokens_per_joule": Metric("1/J", "max", "output_throughput_tok_s / gpu_power_w"),
    "window_s": Metric("s", "none", "length of the settled window"),
    "settle_cut_s": Metric("s", "min", "how much of the point's beginning MSER-5 would leave out; absent if the state "
                           "is unknown or saturated", "White 1997, Spratt 1998; see docs/statistics.md"),
}  # fmt: skip

SPEED = Metric(
    "tok/s",
    "max",
    "1000 / tpot_ms of each request: the speed at which one user sees tokens come",
    "also called interactivity; a low percentile is of the slow users",
)

METRICS: dict[str, Metric] = (
    _SCALARS
    | {f"tok_s_per_user_{statistic}": SPEED._replace(formula=f"{statistic} of: {SPEED.formula}")
       for statistic in LOW_STATISTICS}
    | {
        f"{name}_{statistic}_ms": Metric("ms", "min", f"{statistic} of: {formula}", note)
        for name, (formula, note) in DISTRIBUTIONS.items()
        for statistic in STATISTICS
    }
)  # fmt: skip

# Of a server start, the same at all points of its trial; `objectives` may name them, without a load level.
TRIAL_METRICS: dict[str, Metric] = {
    "free_gib_after_capture": Metric("GiB", "max", "free memory of the fullest GPU when the server was ready: the last "
                                     "figure that its log gave while it started"),
    "kv_tokens": Metric("tok", "max", "max_total_num_tokens as the server resolved it: tokens that its KV cache holds"),
    "simplicity": Metric("", "max", "1 / (1 + settings given that differ from SGLang's default + draft tokens of a "
                         "verify pass)", "without speculation comes before any, a smaller depth before a larger"),
}  # fmt: skip

# Of all points of a workload in a trial together.
WORKLOAD_METRICS: dict[str, Metric] = {
    "max_rate_rps": Metric("req/s", "max", "highest rate at which the share `max_rate.attainment` of requests keeps "
                           "the slo, found by searching over the rate in the trial"),
    "max_rate_low_rps": Metric("req/s", "max", "highest probed rate that surely keeps it; 0 if none does"),
    "max_rate_high_rps": Metric("req/s", "max", "lowest probed rate that surely does not keep it; absent if none"),
}  # fmt: skip


# All that an objective may name.
# Seconds from launch to ready: a series of nights, and nothing that configs are ranked by.
START_S = "start_s"
RANKABLE: dict[str, Metric] = METRICS | TRIAL_METRICS | WORKLOAD_METRICS


@cache
def parts(name: str) -> tuple[str, str] | None:
    """(field of PointMetrics, statistic) of a metric that is a statistic of a distribution, else None."""
    if name.startswith("tok_s_per_user_"):
        return "tok_s_per_user", name.removeprefix("tok_s_per_user_")
    base, _, unit = name.rpartition("_")
    field, _, statistic = base.rpartition("_")
    return (f"{field}_{unit}", statistic) if field in DISTRIBUTIONS else None


@cache
def values_needed(name: str) -> int:
    """How many requests (of a chunk gap: gaps) the metric needs to be more than its largest values; 1 for most."""
    found = parts(name)
    return FEWEST.get(found[1] if found else name.rpartition("_")[2], 1)
