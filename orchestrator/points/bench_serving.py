"""A point as a line of SGLang's bench_serving (keys of 0.5.23), and such lines of any release as points. Pure.

Exported is what bench_serving would have said of the same requests, by its own definitions: everything divided by the
whole time from first send to last end, latencies from the send, TPOT = (latency - TTFT) / (tokens - 1). What differs
from our metrics of that name is thus different in the line as well. Null is what cannot be known from our records, and
the rate of a closed loop, which bench_serving writes as Infinity: that is no JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.errors import BadInput
from orchestrator.points.acceptance import accept_length
from orchestrator.points.peer_point import (
    FROM_THE_SEND,
    WHOLE_TIME,
    ImportedPoint,
    known,
    level_text,
    load_level,
    statistics_ms,
    without_streaming,
)
from orchestrator.points.rates import peak_concurrency
from orchestrator.points.request_columns import Flags, Floats, RequestColumns
from orchestrator.records import RequestRecord, RequestStatus
from orchestrator.trial import ClientReport, LoadLevel

# What it calls the three APIs.
BACKENDS = {"generate": "sglang", "completions": "sglang-oai", "chat": "sglang-oai-chat"}
_STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True)
class LoadArguments:
    """What the load was asked to be, as bench_serving's own arguments say it; None where they have no word for it."""

    backend: str = "sglang"
    dataset: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    max_concurrency: int | None = None
    tag: str | None = None


def bench_serving_line(
    source: Mapping[str, Any] | Sequence[RequestRecord],
    *,
    level: LoadLevel,
    client: ClientReport | None = None,
    given: LoadArguments,
) -> dict[str, Any]:
    """The object of one line. `source` as `summarise` takes it."""
    columns = RequestColumns.of(source)
    ok = columns.has_status(RequestStatus.OK)
    duration = float(columns.end_ns.max() - columns.sent_ns.min()) / 1e9 if len(columns) else 0.0
    prompt, output = columns.prompt_tokens[ok], columns.output_tokens[ok]
    latency = (columns.end_ns - columns.sent_ns)[ok] / 1e6
    ttft = (columns.first_token_ns - columns.sent_ns)[ok] / 1e6
    gaps, what = _token_gaps_ms(columns, ok)
    inside = {"requests": float(ok.sum()), "input": _sum(prompt), "output": _sum(output)}
    per_second = {k: v / duration if v is not None and duration > 0 else None for k, v in inside.items()}
    total = None if None in per_second.values() else (per_second["input"] or 0) + (per_second["output"] or 0)
    return {
        "tag": given.tag,
        "backend": given.backend,
        "dataset_name": given.dataset,
        "request_rate": level.value if level.kind == "rate" else "trace" if level.kind == "trace" else None,
        "max_concurrency": given.max_concurrency if level.open_loop else int(level.value),
        "sharegpt_output_len": None,
        "random_input_len": given.input_tokens,
        "random_output_len": given.output_tokens,
        "random_range_ratio": None,
        "server_info": None,
        "duration": duration,
        "completed": int(ok.sum()),
        "total_input_tokens": _whole(inside["input"]),
        "total_input_text_tokens": _whole(inside["input"]),
        "total_input_vision_tokens": None,
        "total_output_tokens": _whole(inside["output"]),
        "total_output_tokens_retokenized": None,
        "request_throughput": per_second["requests"],
        "input_throughput": per_second["input"],
        "output_throughput": per_second["output"],
        "total_throughput": total,
        **_statistics("e2e_latency", latency),
        **_statistics("ttft", ttft),
        **_statistics("tpot", (latency - ttft) / np.where(output > 1, output - 1, np.nan)),
        **_statistics("itl", gaps),
        "concurrency": float(latency.sum()) / 1000 / duration if duration > 0 else None,
        "accept_length": accept_length(columns, ok, client),
        "max_output_tokens_per_s": None,
        "max_concurrent_requests": peak_concurrency(columns),
        "specsweep_itl": what,
    }


def _token_gaps_ms(columns: RequestColumns, ok: Flags) -> tuple[Floats, str]:
    """Gaps between tokens as bench_serving makes them where chunks have counts: gap / tokens, once for each token."""
    same = columns.following_chunks(ok)
    gaps = np.diff(columns.chunk_ns)[same] / 1e6
    tokens = columns.chunk_tokens[1:][same]
    if not len(tokens) or (tokens <= 0).any():
        return gaps, "gap between chunks, whose tokens the server did not count one by one"
    return np.repeat(gaps / tokens, tokens.astype(np.int64)), "gap between chunks / tokens of the chunk, once per token"


def _statistics(name: str, values: Floats) -> dict[str, float | None]:
    values = values[~np.isnan(values)]
    if not len(values):
        return {f"{statistic}_{name}_ms": None for statistic in _STATISTICS}
    p50, p90, p95, p99 = (float(p) for p in np.percentile(values, (50, 90, 95, 99)))
    found = (float(values.mean()), p50, float(values.std()), p90, p95, p99)
    return {f"{statistic}_{name}_ms": value for statistic, value in zip(_STATISTICS, found, strict=True)}


def _sum(values: Floats) -> float | None:
    return float(values.sum()) if len(values) and not np.isnan(values).any() else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


_SAME = {
    "completed": "requests_ok",
    "request_throughput": "request_throughput_rps",
    "input_throughput": "input_throughput_tok_s",
    "output_throughput": "output_throughput_tok_s",
    "total_input_tokens": "prompt_tokens_total",
    "total_output_tokens": "output_tokens_total",
    "accept_length": "accept_length",
    "max_concurrent_requests": "peak_concurrency",
}
_THEIR_NAMES = {"ttft": "ttft", "tpot": "tpot", "itl": "chunk_gap", "e2e_latency": "e2e"}
_THEIR_STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
KIND = "bench_serving"


def is_bench_serving(document: Any) -> bool:
    """Whether a JSON value is a line of bench_serving, of any release."""
    return isinstance(document, Mapping) and "completed" in document and "mean_ttft_ms" in document


def read_bench_serving_line(line: int, document: Any) -> ImportedPoint:
    """One line, parsed; releases differ in keys, and what a line lacks is left out. BadInput if it is no such line."""
    if not is_bench_serving(document):
        raise BadInput(f"line {line} is not a result of bench_serving: it has no `completed` and `mean_ttft_ms`")
    found: dict[str, Any] = {ours: document.get(theirs) for theirs, ours in _SAME.items()}
    found |= statistics_ms(document, _THEIR_NAMES, _THEIR_STATISTICS)
    metrics = known(found)
    for tokens in ("prompt_tokens", "output_tokens"):
        if f"{tokens}_total" in metrics and metrics.get("requests_ok"):
            metrics[f"{tokens}_mean"] = metrics[f"{tokens}_total"] / metrics["requests_ok"]
    notes = [WHOLE_TIME, FROM_THE_SEND]
    if any(name.startswith("chunk_gap") for name in metrics):
        per_token = document.get("backend") == "sglang"
        notes.append(
            "ITL of backend sglang is per token (gap / tokens of the chunk), a chunk gap is not"
            if per_token
            else "ITL of this backend is the gap between chunks, unless accept_length is there: then it is per token"
        )
    if not metrics.get("ttft_mean_ms"):
        metrics["ttft_mean_ms"] = 0.0
        without_streaming(metrics, notes)
    level, load = _level(document)
    name = str(document.get("tag") or document.get("backend") or "")
    return ImportedPoint(line, name, level, metrics, tuple(notes), KIND, load)


def _level(document: Mapping[str, Any]) -> tuple[str, LoadLevel | None]:
    rate, most = document.get("request_rate"), document.get("max_concurrency")
    if rate == "trace":
        return "trace", LoadLevel("trace", 1.0)
    load = load_level(rate, most)
    return level_text(load, most), load
