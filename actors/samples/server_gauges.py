"""What a running server tells of itself: SGLang's `/v1/loads`, or `/metrics` of any server whose names are known. Pure.

SGLang answers `/v1/loads` from shared memory, for 3 ms of CPU time; for `/metrics`, 96 KB, it reads files of all its
processes, for 21 ms (measured with 0.5.23). So `/metrics` is only for servers without the former.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from orchestrator.telemetry import ServerSample

LOADS, METRICS = "/v1/loads?include=core,spec,queues", "/metrics"

# Field -> its name in the metrics of SGLang (older releases write `sglang:`, newer ones `sglang_`), vLLM, llama.cpp.
_NAMES = {
    "running_requests": r"sglang[:_]num_running_reqs|vllm:num_requests_running|llamacpp:requests_processing",
    "queued_requests": r"sglang[:_]num_queue_reqs|vllm:num_requests_waiting|llamacpp:requests_deferred",
    "retracted_requests": r"sglang[:_]num_retracted_reqs",
    "used_tokens": r"sglang[:_]num_used_tokens|llamacpp:kv_cache_tokens",
    "token_usage": r"sglang[:_]token_usage|vllm:(?:gpu|kv)_cache_usage_perc|llamacpp:kv_cache_usage_ratio",
    "generation_tok_s": r"sglang[:_]gen_throughput",
    "cache_hit_rate": r"sglang[:_]cache_hit_rate",
    "accept_length": r"sglang[:_]spec_accept_length",
    "generated_tokens": r"vllm:generation_tokens_total|llamacpp:tokens_predicted_total",
}
_SAMPLE = re.compile(
    rf"^(?:{'|'.join(f'(?P<{field}>{names})' for field, names in _NAMES.items())})"
    r"(?:\{(?P<labels>.*)\})? (?P<value>\S+)",
    re.MULTILINE,
)
_REPLICA = re.compile(r'\b(?:dp_rank|engine)="([^"]*)"')
_WHOLE = {"running_requests", "queued_requests", "retracted_requests", "used_tokens"}
# What is larger is no count of anything, and fits into no column.
_MOST = 2.0**53


def _mean_of_known(values: list[float]) -> float | None:
    """Of ranks that had something to average: 0 is told by one that had not."""
    known = [value for value in values if value > 0]
    return sum(known) / len(known) if known else None


_TOGETHER: dict[str, Callable[[list[float]], float | None]] = {
    "token_usage": max,
    "cache_hit_rate": lambda values: sum(values) / len(values),
    "accept_length": _mean_of_known,
}


@dataclass(frozen=True, slots=True)
class Gauges:
    """What a server told. `generated_tokens` is a counter, where it tells that instead of its speed."""

    sample: ServerSample
    generated_tokens: float | None = None


def read_loads(text: str) -> Gauges | None:
    """The body of `/v1/loads`; None for anything else."""
    try:
        told = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    loads = told.get("loads") if isinstance(told, dict) else None
    if not isinstance(loads, list) or not loads or not all(isinstance(load, dict) for load in loads):
        return None
    found = {
        "running_requests": _numbers(load.get("num_running_reqs") for load in loads),
        "queued_requests": _numbers(load.get("num_waiting_reqs") for load in loads),
        "retracted_requests": _numbers(_section(load, "queues").get("retracted") for load in loads),
        "used_tokens": _numbers(load.get("num_used_tokens") for load in loads),
        "token_usage": _numbers(load.get("token_usage") for load in loads),
        "generation_tok_s": _numbers(load.get("gen_throughput") for load in loads),
        "cache_hit_rate": _numbers(load.get("cache_hit_rate") for load in loads),
        "accept_length": _numbers(_section(load, "speculative").get("accept_length") for load in loads),
    }
    return _gauges(found) if found["running_requests"] else None


def read_metrics(text: str) -> Gauges | None:
    """The text of `/metrics`; None if it has none of the names that are known.

    Ranks of one data-parallel replica tell the same; they count once.
    """
    by_replica: dict[str, dict[str, float]] = {}
    for match in _SAMPLE.finditer(text):
        replica, value = _REPLICA.search(match["labels"] or ""), _number(match["value"])
        if value is None:
            continue
        seen = by_replica.setdefault(next(name for name in _NAMES if match[name] is not None), {})
        key = replica[1] if replica else ""
        seen[key] = max(seen.get(key, value), value)
    found = {field: list(seen.values()) for field, seen in by_replica.items()}
    return _gauges(found) if found else None


def _gauges(found: dict[str, list[float]]) -> Gauges:
    told: dict[str, Any] = {}
    for field, values in found.items():
        value = _TOGETHER.get(field, sum)(values) if values else None
        if value is None or not abs(value) <= _MOST:
            told[field] = None
        else:
            told[field] = int(value) if field in _WHOLE else round(value, 4)
    generated = told.pop("generated_tokens", None)
    return Gauges(ServerSample(**told), generated)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _numbers(values: Iterable[Any]) -> list[float]:
    """All of them; none if one is missing: a sum over some ranks would be wrong."""
    listed = list(values)
    fine = all(isinstance(value, int | float) and not isinstance(value, bool) for value in listed)
    return [float(value) for value in listed] if fine else []


def _section(load: dict[str, Any], name: str) -> dict[str, Any]:
    section = load.get(name)
    return section if isinstance(section, dict) else {}
