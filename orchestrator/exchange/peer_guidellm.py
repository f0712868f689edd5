"""Benchmarks of a GuideLLM report (`--output kind=json`) in our names. Pure. Read in reports of 0.8.1; those of 0.2 and
later have the same shape, with `args` where newer ones have `config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.points.peer_point import FROM_THE_SEND, ImportedPoint, first, is_number, known, level_text, mapping
from orchestrator.trial import LoadLevel

KIND = "guidellm"
# Their metric -> (our distribution, factor to milliseconds).
_TIMES = {
    "time_to_first_token_ms": ("ttft", 1.0),
    "inter_token_latency_ms": ("tpot", 1.0),
    "request_latency": ("e2e", 1000.0),
}
_PERCENTILES = ("p50", "p90", "p95", "p99")
_NOTES = (
    "throughput is over the measured time, first request to last answer: lower than over a settled window",
    FROM_THE_SEND,
    "TPOT is GuideLLM's inter-token latency; its statistics count a request once for each of its tokens. Its own time "
    "per output token has TTFT in it and is left out",
    "GuideLLM's percentiles are values that occurred: with few requests p99 is the largest",
)


def is_guidellm(document: Any) -> bool:
    """Whether a JSON value is a report of GuideLLM."""
    if not isinstance(document, Mapping):
        return False
    return "request_totals" in mapping(first(document.get("benchmarks")), "metrics")


def read_guidellm(document: Mapping[str, Any]) -> list[ImportedPoint]:
    """A point for each of its benchmarks."""
    return [_point(i, benchmark) for i, benchmark in enumerate(document["benchmarks"], 1)]


def _point(number: int, benchmark: Mapping[str, Any]) -> ImportedPoint:
    metrics = mapping(benchmark, "metrics")
    totals = mapping(metrics, "request_totals")
    found: dict[str, Any] = {
        "requests_ok": totals.get("successful"),
        "requests_failed": totals.get("errored"),
        "requests_cancelled": totals.get("incomplete"),
        "requests_total": totals.get("total"),
        "request_throughput_rps": _successful(metrics, "requests_per_second").get("mean"),
        "goodput_rps": _successful(metrics, "request_goodput").get("mean"),
        "output_throughput_tok_s": _successful(metrics, "output_tokens_per_second").get("mean"),
        "input_throughput_tok_s": _successful(metrics, "prompt_tokens_per_second").get("mean"),
        "peak_concurrency": _successful(metrics, "request_concurrency").get("max"),
        "prompt_tokens_mean": _successful(metrics, "prompt_token_count").get("mean"),
        "prompt_tokens_total": _successful(metrics, "prompt_token_count").get("total_sum"),
        "output_tokens_mean": _successful(metrics, "output_token_count").get("mean"),
        "output_tokens_total": _successful(metrics, "output_token_count").get("total_sum"),
    }
    total, errored = found["requests_total"], found["requests_failed"] or 0
    if is_number(total) and is_number(errored) and total:
        found["failed_share"] = errored / total
    for theirs, (ours, factor) in _TIMES.items():
        told = _successful(metrics, theirs)
        if not told.get("count"):
            continue
        values = {"mean": told.get("mean"), "max": told.get("max")}
        values |= {p: mapping(told, "percentiles").get(p) for p in _PERCENTILES}
        found |= {f"{ours}_{name}_ms": v * factor for name, v in values.items() if is_number(v)}
    load, text = _load(benchmark)
    notes = (*_NOTES, *_warnings(benchmark))
    return ImportedPoint(number, _name(benchmark), text, known(found), notes, KIND, load)


def _warnings(benchmark: Mapping[str, Any]) -> list[str]:
    """What GuideLLM itself found wrong with the benchmark: a rate that was not reached, too few requests."""
    told = benchmark.get("warnings")
    messages = (mapping(one).get("message") for one in told) if isinstance(told, list) else ()
    return [f"GuideLLM warned: {message}" for message in messages if message]


def _successful(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return mapping(metrics, name, "successful")


def _settings(benchmark: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(benchmark, "config") or mapping(benchmark, "args")


def _load(benchmark: Mapping[str, Any]) -> tuple[LoadLevel | None, str]:
    """(load level, the same in words) by the strategy of the benchmark; one that has no level has its name."""
    strategy = mapping(_settings(benchmark), "strategy")
    kind, most = str(strategy.get("type_") or ""), strategy.get("max_concurrency")
    if kind == "synchronous":
        load = LoadLevel("concurrency", 1.0)
    elif kind == "concurrent" and is_number(strategy.get("streams")):
        load = LoadLevel("concurrency", float(strategy["streams"]))
    elif kind in {"constant", "poisson"} and is_number(strategy.get("rate")):
        load = LoadLevel("rate", float(strategy["rate"]))
    else:
        return None, level_text(None) if kind in {"throughput", ""} else kind
    return load, level_text(load, most)


def _name(benchmark: Mapping[str, Any]) -> str:
    return str(mapping(_settings(benchmark), "backend").get("model") or KIND)
