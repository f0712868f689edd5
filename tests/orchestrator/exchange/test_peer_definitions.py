"""Our metrics beside those of other load clients, on what each of them measured on the same scripted streams.

The files are what `python -m benchmarks.peer_metrics --save tests/data/peers` wrote: per request what the client kept,
its own summary, and the server's account (`truth`). Where a name means the same, our formula on the client's data gives
the client's figure; where it does not, the difference is stated here and in docs/peers.md.
"""

from __future__ import annotations

import json
import statistics
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from orchestrator.points.metrics import summarise
from orchestrator.points.point_metrics import PointMetrics
from orchestrator.records import RequestRecord
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import request

DATA = Path(__file__).resolve().parent.parent.parent / "data/peers"
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
    per_chunk[-1] += tokens - len(times)  # a first chunk of one token, as everybody's formula takes it to be
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


def test_tokens_that_came_in_the_first_chunk_are_not_decoded_after_it_for_us_and_are_for_others() -> None:
    found = said("vllm", "speculation")
    threes = [request(0.0, list(accumulate(gaps, initial=ttft)), [3] * 40) for ttft, gaps, _ in found["answers"]]
    level = LoadLevel("concurrency", float(found["streams"]))

    assert mean_ms(summarise(threes, level=level), "tpot_ms") == EXACT(mean_of(found, "tpot") * 119 / 117, rel=1e-3)


@pytest.mark.parametrize("client", SGLANG)
def test_sglang_ends_a_request_with_its_last_line_so_its_tpot_is_longer_by_the_tail_of_the_stream(client: str) -> None:
    found = said(client, "speculation")

    assert 1.0 <= mean_of(found, "tpot") / mean_ms(ours(found), "tpot_ms") < 1.05


@pytest.mark.parametrize("client", ["vllm", "aiperf", "sglang-rust"])
def test_gaps_of_vllm_aiperf_and_sglangs_rust_client_are_between_chunks_as_our_chunk_gap(client: str) -> None:
    found = said(client, "speculation")

    assert mean_ms(ours(found), "chunk_gap_ms") == EXACT(mean_of(found, "itl"), rel=1e-4)
    assert mean_of(found, "itl") == EXACT(9.0, rel=0.1)


def test_sglangs_python_client_divides_gaps_by_tokens_where_the_server_speculates() -> None:
    """Its Rust client does not: the same streams have an ITL of 9 ms there and of 3 ms here."""
    found = said("sglang-python", "speculation")

    assert mean_of(found, "itl") == EXACT(mean_ms(ours(found), "chunk_gap_ms") / 3, rel=1e-4)


def test_inference_perf_gives_every_token_of_a_chunk_the_same_time_so_two_gaps_of_three_are_nothing() -> None:
    found = said("inference-perf", "speculation")

    assert found["summary"]["inter_token_latency"]["median"] == 0.0
    assert mean_of(found, "itl") == EXACT(mean_of(found, "tpot"), rel=1e-6)


def test_what_guidellm_calls_time_per_output_token_has_the_first_token_in_it() -> None:
    found = said("guidellm", "speculation")

    whole = statistics.fmean((ttft + sum(gaps)) / tokens for ttft, gaps, tokens in found["answers"])
    assert found["summary"]["time_per_output_token_ms"]["mean"] == EXACT(whole, rel=1e-4)
    assert whole > 1.2 * mean_ms(ours(found), "tpot_ms")


@pytest.mark.parametrize("client", ["specsweep", *SGLANG, "aiperf", "guidellm", "inference-perf"])
def test_a_role_alone_is_no_first_token(client: str) -> None:
    """It comes 20 ms after the request, the first token after 100 ms."""
    found = said(client, "chat-role")

    assert all(ttft >= 99.0 for ttft, _, _ in found["answers"])


def test_vllm_takes_the_role_alone_for_the_first_token() -> None:
    found = said("vllm", "chat-role")

    assert min(ttft for ttft, _, _ in found["answers"]) < 60.0
    assert mean_of(found, "ttft") < found["truth"]["ttft_mean_ms"] - 20.0
    assert mean_of(found, "tpot") > found["truth"]["tpot_mean_ms"] * 1.15


@pytest.mark.parametrize("case", ["failures", "chat-failures"])
def test_we_count_every_refused_cut_and_broken_answer_as_failed(case: str) -> None:
    found = said("specsweep", case)

    assert found["truth"]["statuses"] == {"cut": 4, "error": 4, "ok": 28, "refused": 4}
    assert (found["completed"], found["failed"]) == (28, 12)


@pytest.mark.parametrize(
    ("client", "case", "completed"),
    [
        ("sglang-python", "failures", 28),
        ("sglang-python", "chat-failures", 32),
        ("sglang-rust", "failures", 32),
        ("sglang-rust", "chat-failures", 32),
        ("vllm", "failures", 32),
        ("vllm", "chat-failures", 32),
        ("aiperf", "failures", 32),
        ("aiperf", "chat-failures", 32),
        ("guidellm", "failures", 28),
        ("guidellm", "chat-failures", 28),
        ("inference-perf", "failures", 32),
        ("inference-perf", "chat-failures", 32),
    ],
)
def test_who_takes_an_error_inside_a_stream_for_a_whole_answer(client: str, case: str, completed: int) -> None:
    """28 of 40 answers were whole, 4 more ended with an error object: whoever completed 32 did not see it."""
    found = said(client, case)

    assert found["truth"]["ok"] == 28
    assert (found["completed"], found["failed"]) == (completed, 40 - completed)
