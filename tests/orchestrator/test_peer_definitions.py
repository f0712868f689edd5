"""Our metrics beside those of other load clients, on what each of them measured on the same scripted streams.

The files are what `python -m benchmarks.peer_metrics --save tests/data/peers` wrote: per request what the client kept,
its own summary, and the server's account (`truth`). Where a name means the same, our formula on the client's data gives
the client's figure; where it does not, the difference is stated here and in docs/peers.md.
"""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from orchestrator.metrics import summarise
from orchestrator.point_metrics import PointMetrics
from orchestrator.records import RequestRecord
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import request

DATA = Path(__file__).resolve().parent.parent / "data/peers"
# Saved values are rounded to 0.1 microseconds.
EXACT = pytest.approx
SGLANG = ("sglang-python", "sglang-rust")
# Who keeps the time of every chunk.
WITH_CHUNKS = (*SGLANG, "vllm", "aiperf")
PEERS = (*WITH_CHUNKS, "guidellm", "inference-perf")


def said(client: str, case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{client}-{case}.json").read_text(encoding="utf-8"))
    return found


def ours(found: dict[str, Any]) -> PointMetrics:
    """Our metrics of the answers that a client kept."""
    level = LoadLevel("concurrency", float(found["streams"]))
    return summarise([record(*answer) for answer in found["answers"]], level=level)


def record(ttft_ms: float, gaps_ms: list[float], tokens: int) -> RequestRecord:
    times = list(accumulate(gaps_ms, initial=ttft_ms))
    per_chunk = [1] * len(times)
    per_chunk[0] += tokens - len(times)
    return request(0.0, times, per_chunk)


def mean_of(found: dict[str, Any], metric: str) -> float:
    """Milliseconds: a metric's mean in the client's own summary, under the client's own name."""
    summary = found["summary"]
    names = {
        "sglang-python": ("mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms"),
        "sglang-rust": ("mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms"),
        "vllm": ("mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms"),
        "aiperf": ("time_to_first_token", "inter_token_latency", "inter_chunk_latency"),
        "guidellm": ("time_to_first_token_ms", "inter_token_latency_ms", ""),
        "inference-perf": ("time_to_first_token", "time_per_output_token", "inter_token_latency"),
    }[found["client"]]
    value = summary[names[("ttft", "tpot", "itl").index(metric)]]
    if found["client"] == "inference-perf":
        return float(value["mean"]) * 1e3
    return float(value if isinstance(value, int | float) else value.get("avg", value.get("mean")))


def mean_ms(metrics: PointMetrics, name: str) -> float:
    distribution = getattr(metrics, name)
    assert distribution is not None
    return float(distribution.mean)


@pytest.mark.parametrize("client", PEERS)
def test_everyone_means_the_same_by_ttft_of_a_completion(client: str) -> None:
    found = said(client, "speculation")

    assert mean_ms(ours(found), "ttft_ms") == EXACT(mean_of(found, "ttft"), rel=1e-4)


@pytest.mark.parametrize("client", ["vllm", "aiperf", "guidellm", "inference-perf"])
def test_time_per_token_after_the_first_is_the_same_under_three_names(client: str) -> None:
    """TPOT of vLLM and inference-perf, inter-token latency of AIPerf and GuideLLM."""
    found = said(client, "speculation")

    assert mean_ms(ours(found), "tpot_ms") == EXACT(mean_of(found, "tpot"), rel=1e-3)
