"""Results of `vllm bench serve --save-result` in our names. Pure. Read in the source of vLLM 0.32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

KIND = "vllm"
_SAME = {
    "completed": "requests_ok",
    "failed": "requests_failed",
    "num_prompts": "requests_total",
    "request_throughput": "request_throughput_rps",
    "request_goodput:": "goodput_rps",  # the key of releases before 0.11
    "request_goodput": "goodput_rps",
    "output_throughput": "output_throughput_tok_s",
    "total_input_tokens": "prompt_tokens_total",
    "total_output_tokens": "output_tokens_total",
    "spec_decode_acceptance_length": "accept_length",
    "max_concurrent_requests": "peak_concurrency",
}
_TIMES = {"ttft": "ttft", "tpot": "tpot", "itl": "chunk_gap", "e2el": "e2e"}
_STATISTICS = {"mean": "mean", "median": "p50", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_NOTES = (
    "vLLM's ITL is the gap between chunks",
    "vLLM's TTFT ends with the first chunk that has `choices`: over chat that is the role alone, before any token",
    "vLLM counts an answer that broke inside its stream as completed",
)


def is_vllm(document: Any) -> bool:
    """Whether a JSON value is a result of vLLM's client: bench_serving, which it comes from, has no `tokenizer_id`."""
    return isinstance(document, Mapping) and {"completed", "mean_ttft_ms", "tokenizer_id"} <= set(document)


def read_vllm(number: int, document: Mapping[str, Any]) -> ImportedPoint:
    """The point of one result; what it lacks is left out (embeddings have no tokens)."""
    found = {ours: document[theirs] for theirs, ours in _SAME.items() if document.get(theirs) is not None}
    found |= statistics_ms(document, _TIMES, _STATISTICS)
    if isinstance(rate := document.get("spec_decode_acceptance_rate"), int | float):
        found["accept_rate"] = rate / 100  # theirs is in percent
    metrics = known(found)
    if ok := metrics.get("requests_ok"):
        metrics["prompt_tokens_mean"] = metrics.get("prompt_tokens_total", 0.0) / ok
        metrics["output_tokens_mean"] = metrics.get("output_tokens_total", 0.0) / ok
    if total := metrics.get("requests_total"):
        metrics["failed_share"] = metrics.get("requests_failed", 0.0) / total
    notes = [WHOLE_TIME, FROM_THE_SEND, *_NOTES]
    without_streaming(metrics, notes)
    most = document.get("max_concurrency")
    load = load_level(document.get("request_rate"), most)
    text = level_text(load, most)
    if ramp := document.get("ramp_up_strategy"):  # its rate grows: `request_rate` is not what was sent
        load, rates = None, (document.get(f"ramp_up_{end}_rps") for end in ("start", "end"))
        text = f"{ramp} ramp from {' to '.join(map(str, rates))} req/s"
    name = str(document.get("label") or document.get("model_id") or KIND)
    return ImportedPoint(number, name, text, metrics, tuple(notes), KIND, load)
