"""What each peer has written, read into one vocabulary. Nothing is computed that the peer does not compute itself,
except a request's own TPOT where the peer keeps only its parts, by the peer's formula.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.peers.work import Kept, Reading, Work


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if isinstance(value, int | float)}


def _like_sglang(found: dict[str, Any], latency: list[float] | None, failed: int) -> Reading:
    """SGLang's and vLLM's details: TTFT is 0 and the error not empty where a request failed."""
    ok = [not error and tokens > 0 for error, tokens in zip(found["errors"], found["output_lens"], strict=True)]
    ttft = found["ttfts"]
    gaps = found["itls"]
    ends = latency or [first + sum(between) for first, between in zip(ttft, gaps, strict=True)]
    tpot = [
        (end - first) / (tokens - 1) * 1e3
        for good, end, first, tokens in zip(ok, ends, ttft, found["output_lens"], strict=True)
        if good and tokens > 1
    ]
    answers = [
        Kept(first * 1e3, tuple(gap * 1e3 for gap in between), tokens)
        for good, first, between, tokens in zip(ok, ttft, gaps, found["output_lens"], strict=True)
        if good
    ]
    return Reading(
        completed=found["completed"],
        failed=failed,
        ttft_ms=[value * 1e3 for good, value in zip(ok, ttft, strict=True) if good],
        tpot_ms=tpot,
        itl_ms=[gap * 1e3 for good, between in zip(ok, gaps, strict=True) if good for gap in between],
        throughput_tok_s=found["output_throughput"],
        answers=answers,
        summary=_numbers(found),
    )


def read_sglang(work: Work) -> Reading:
    """The JSON line of both clients of SGLang. They count no failures: what is missing from `completed` failed."""
    found = json.loads((work.folder / "sglang.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return _like_sglang(found, None, work.requests - found["completed"])


def read_vllm(work: Work) -> Reading:
    """The result file of `vllm bench serve --save-detailed`."""
    found = _load(work.folder / "vllm.json")
    return _like_sglang(found, found.get("latencies"), found["failed"])


def read_aiperf(work: Work) -> Reading:
    """Its summary, and one JSON line a request; failed requests have an error there and no metrics."""
    found = _load(work.folder / "aiperf/profile_export_aiperf.json")
    lines = (work.folder / "aiperf/profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    requests = [json.loads(line) for line in lines]
    ok = [request["metrics"] for request in requests if not request.get("error")]

    def values(name: str) -> list[float]:
        return [metrics[name]["value"] for metrics in ok if name in metrics]

    summary = {
        key: {"unit": value.get("unit"), "avg": value.get("avg"), "p50": value.get("p50"), "p99": value.get("p99")}
        for key, value in found.items()
        if isinstance(value, dict) and "avg" in value and not key.startswith(("http_", "active_", "effective_"))
    }
    return Reading(
        completed=round((found.get("request_count") or {"avg": 0})["avg"]),
        failed=round((found.get("error_request_count") or {"avg": len(requests) - len(ok)})["avg"]),
        ttft_ms=values("time_to_first_token"),
        tpot_ms=values("inter_token_latency"),
        itl_ms=[gap for metrics in ok for gap in metrics.get("inter_chunk_latency", {"value": []})["value"]],
        throughput_tok_s=(found.get("output_token_throughput") or {"avg": None})["avg"],
        answers=[
            Kept(
                metrics["time_to_first_token"]["value"],
                tuple(metrics.get("inter_chunk_latency", {"value": []})["value"]),
                metrics["output_sequence_length"]["value"],
            )
            for metrics in ok
        ],
        summary=summary,
    )


def read_guidellm(work: Work) -> Reading:
    """Its report: what it calls inter-token latency is one value a request, (last - first token) / (tokens - 1)."""
    found = _load(work.folder / "guidellm.json")["benchmarks"][0]
    ok, metrics = found["requests"]["successful"], found["metrics"]
    names = ("time_to_first_token_ms", "time_to_first_output_token_ms", "time_per_output_token_ms",
             "inter_token_latency_ms", "output_tokens_per_second", "requests_per_second", "request_latency",
             "output_tokens_per_iteration")  # fmt: skip
    summary: dict[str, Any] = {"request_totals": metrics["request_totals"]}
    for name in names:
        good = metrics[name]["successful"]
        summary[name] = {k: good[k] for k in ("mean", "median", "count")} | {"p99": good["percentiles"]["p99"]}
    return Reading(
        completed=metrics["request_totals"]["successful"],
        failed=metrics["request_totals"]["errored"],
        ttft_ms=[request["time_to_first_token_ms"] for request in ok],
        tpot_ms=[request["inter_token_latency_ms"] for request in ok],
        throughput_tok_s=summary["output_tokens_per_second"]["mean"],
        answers=[
            Kept(
                request["time_to_first_token_ms"],
                (request["inter_token_latency_ms"] * (request["output_tokens"] - 1),),
                request["output_tokens"],
            )
            for request in ok
        ],
        summary=summary,
    )


def read_inference_perf(work: Work) -> Reading:
    """Its reports: times of every chunk are kept a request, from which it computes what it summarises."""
    folder = work.folder / "inference-perf"
    found = _load(folder / "stage_0_lifecycle_metrics.json")
    latency, requests = found["successes"]["latency"] or {}, _load(folder / "per_request_lifecycle_metrics.json")
    ok = [request for request in requests if not request.get("error")]
    answers = []
    for request in ok:
        times = (request["info"].get("response_metrics") or {}).get("output_token_times") or []
        if times:
            gaps = tuple((b - a) * 1e3 for a, b in pairwise(times))
            answers.append(Kept((times[0] - request["start_time"]) * 1e3, gaps, _server_tokens(request, len(times))))
    summary = {name: _short(value) for name, value in latency.items() if value}
    summary |= {"failures": found["failures"]["count"], "by_label": found["failures"].get("by_label")}
    return Reading(
        completed=found["successes"]["count"],
        failed=found["failures"]["count"],
        ttft_ms=[answer.ttft_ms for answer in answers],
        tpot_ms=[sum(answer.gaps_ms) / (answer.tokens - 1) for answer in answers if answer.tokens > 1],
        itl_ms=[gap for answer in answers for gap in answer.gaps_ms],
        throughput_tok_s=(found["successes"].get("throughput") or {}).get("output_tokens_per_sec"),
        answers=answers,
        summary=summary,
    )


def _server_tokens(request: dict[str, Any], otherwise: int) -> int:
    usage = (request["info"].get("response_metrics") or {}).get("server_usage") or {}
    return int(usage.get("completion_tokens") or otherwise)


def _short(value: dict[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in ("mean", "median", "p99") if name in value}
