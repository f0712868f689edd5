"""A run of AIPerf (`profile_export_aiperf.json`) in our names. Pure. Read in exports of 0.13 (schema 1.4); those of
earlier releases have `input_config.loadgen` where newer ones have `phases`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.points.peer_point import (
    FROM_THE_SEND,
    WHOLE_TIME,
    ImportedPoint,
    first,
    is_number,
    known,
    level_text,
    load_level,
    mapping,
)
from orchestrator.trial import LoadLevel

KIND = "aiperf"
_AVERAGES = {
    "request_throughput": "request_throughput_rps",
    "goodput": "goodput_rps",
    "output_token_throughput": "output_throughput_tok_s",
    "input_token_throughput": "input_throughput_tok_s",
    "request_count": "requests_ok",
    "error_request_count": "requests_failed",
    "input_sequence_length": "prompt_tokens_mean",
    "output_sequence_length": "output_tokens_mean",
    "total_isl": "prompt_tokens_total",
    "total_osl": "output_tokens_total",
}
_TIMES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "chunk_gap",
    "request_latency": "e2e",
}
_STATISTICS = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
_TO_MS = {"ms": 1.0, "sec": 1000.0, "s": 1000.0, "us": 1e-3, "ns": 1e-6}
_NOTES = (
    WHOLE_TIME,
    FROM_THE_SEND,
    "TPOT is AIPerf's inter-token latency, (end - first token) / (tokens - 1) of each request",
    "AIPerf counts tokens by its own tokenizer unless told to take the server's",
)


def is_aiperf(document: Any) -> bool:
    """Whether a JSON value is the summary of a run of AIPerf."""
    if not isinstance(document, Mapping) or "request_throughput" not in document:
        return False
    return "aiperf_version" in document or "avg" in mapping(document, "request_latency")


def read_aiperf(number: int, document: Mapping[str, Any]) -> ImportedPoint:
    """The point of one run; what it lacks is left out (without streaming there is no first token)."""
    found: dict[str, Any] = {ours: mapping(document, theirs).get("avg") for theirs, ours in _AVERAGES.items()}
    for theirs, ours in _TIMES.items():
        told = mapping(document, theirs)
        factor = _TO_MS.get(str(told.get("unit")), 0.0)
        for statistic, our_statistic in _STATISTICS.items():
            if factor and is_number(told.get(statistic)):
                found[f"{ours}_{our_statistic}_ms"] = told[statistic] * factor
    ok, failed = found["requests_ok"], found["requests_failed"]
    if is_number(ok):
        found["requests_failed"] = failed if is_number(failed) else 0.0
        found["requests_total"] = ok + found["requests_failed"]
        found["failed_share"] = found["requests_failed"] / found["requests_total"] if found["requests_total"] else None
    notes = list(_NOTES)
    if document.get("was_cancelled") is True:
        notes.append("the run was cancelled: it is not whole")
    elif document.get("is_complete") is False:
        notes.append("AIPerf says that the run is not complete")
    load, text = _load(document)
    return ImportedPoint(number, _name(document), text, known(found), tuple(notes), KIND, load)


def _load(document: Mapping[str, Any]) -> tuple[LoadLevel | None, str]:
    """(load level, the same in words) of the profiled phase; one that has no level, as of a trace, has its type."""
    asked = mapping(document, "input_config")
    phases = asked.get("phases")
    told = mapping(asked, "loadgen")
    for phase in phases if isinstance(phases, list) else ():
        if isinstance(phase, Mapping) and phase.get("kind", phase.get("name")) == "profiling":
            told = phase
    rate = told.get("rate", told.get("request_rate"))
    most = told.get("concurrency")
    load = load_level(rate, most)
    kind = told.get("type")
    return load, str(kind).replace("_", " ") if load is None and kind else level_text(load, most)


def _name(document: Mapping[str, Any]) -> str:
    asked = mapping(document, "input_config")
    model = mapping(first(mapping(asked, "models").get("items"))).get("name")
    return str(model or first(mapping(asked, "endpoint").get("model_names")) or KIND)
