"""Files of other load clients, as they wrote them: vLLM 0.32, GuideLLM 0.8.1, AIPerf 0.13 and bench_serving 0.5.23.

Lists with a value for each request were cut out of them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.errors import BadInput
from orchestrator.exchange.compared_side import side_of_points
from orchestrator.exchange.exchange_cli import import_points
from orchestrator.exchange.peer_file import KIND_NAMES, KINDS, read_peer_file
from orchestrator.points.metric_names import METRICS
from orchestrator.trial import LoadLevel

FILES = Path(__file__).resolve().parent.parent.parent / "data/peers/files"
C16 = LoadLevel("concurrency", 16.0)


def document(name: str) -> Any:
    return json.loads((FILES / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("file", "kind", "expected"),
    [
        ("vllm-concurrency.json", "vllm",
         {"requests_ok": 64.0, "requests_failed": 0.0, "output_throughput_tok_s": 741.0432979063224,
          "ttft_p50_ms": 110.87691799912136, "ttft_p99_ms": 137.68525050167227, "tpot_mean_ms": 20.043202467510877,
          "chunk_gap_p99_ms": 27.059608469426166, "prompt_tokens_mean": 128.0, "output_tokens_mean": 64.0}),
        ("guidellm-concurrent.json", "guidellm",
         {"requests_ok": 64.0, "output_throughput_tok_s": 688.7180187764882, "ttft_p50_ms": 129.48155403137207,
          "tpot_mean_ms": 19.902395527987252, "e2e_p50_ms": 1389.5771503448486, "prompt_tokens_mean": 128.0,
          "output_tokens_total": 4096.0, "peak_concurrency": 16.0}),
        ("aiperf-concurrency.json", "aiperf",
         {"requests_ok": 64.0, "requests_failed": 0.0, "requests_total": 64.0, "failed_share": 0.0,
          "output_throughput_tok_s": 693.1805409802096, "ttft_p95_ms": 158.5140372,
          "tpot_p50_ms": 20.279525253968252, "e2e_max_ms": 1461.101796, "output_tokens_mean": 64.0}),
        ("bench_serving.jsonl", "bench_serving",
         {"requests_ok": 64.0, "prompt_tokens_mean": 128.0, "output_tokens_mean": 64.0}),
    ],
)  # fmt: skip
def test_each_client_is_known_by_its_file_and_read_in_our_units(
    file: str, kind: str, expected: dict[str, float]
) -> None:
    (point,) = read_peer_file(FILES / file)

    assert (point.kind, point.load, point.level) == (kind, C16, "C=16")
    assert {name: point.metrics[name] for name in expected} == pytest.approx(expected)
    assert set(point.metrics) <= set(METRICS)
    assert point.notes


def test_the_load_of_open_loops_is_a_rate() -> None:
    (vllm,) = read_peer_file(FILES / "vllm-rate.json")
    (aiperf,) = read_peer_file(FILES / "aiperf-rate.json")

    assert (vllm.load, aiperf.load) == (LoadLevel("rate", 8.0), LoadLevel("rate", 8.0))
    assert vllm.metrics["goodput_rps"] == pytest.approx(7.286613381111441)
    assert vllm.metrics["e2e_p95_ms"] == document("vllm-rate.json")["p95_e2el_ms"]


def test_every_benchmark_of_a_guidellm_report_is_a_point() -> None:
    points = read_peer_file(FILES / "guidellm-sweep.json")

    assert [(p.line, p.level) for p in points] == [
        (1, "C=1"), (2, "all at once"), (3, "11.8132 req/s, at most C=512"), (4, "21.5422 req/s, at most C=512"),
    ]  # fmt: skip
    assert [p.load.kind if p.load else None for p in points] == ["concurrency", None, "rate", "rate"]
    assert {p.name for p in points} == {"Qwen/Qwen3.5-122B-A10B"}


def test_reports_of_earlier_releases_are_read_where_they_have_other_names(tmp_path: Path) -> None:
    guide = document("guidellm-concurrent.json")
    (benchmark,) = guide["benchmarks"]
    benchmark["args"] = {"strategy": benchmark.pop("config")["strategy"]}
    aiperf = document("aiperf-rate.json")
    aiperf["input_config"] = {"loadgen": {"request_rate": 8.0}, "endpoint": {"model_names": ["m"]}}
    vllm = document("vllm-rate.json")
    vllm["request_goodput:"] = vllm.pop("request_goodput")
    file = tmp_path / "mixed.json"
    file.write_text(json.dumps([guide, aiperf, vllm]))

    points = read_peer_file(file)

    assert [(p.kind, p.level) for p in points] == [("guidellm", "C=16"), ("aiperf", "8 req/s"), ("vllm", "8 req/s")]
    assert points[1].name == "m"
    assert points[2].metrics["goodput_rps"] == pytest.approx(7.286613381111441)


def test_results_that_vllm_appended_are_a_point_each(tmp_path: Path) -> None:
    file = tmp_path / "appended.json"
    file.write_text("\n".join(json.dumps(document(f"vllm-{name}.json")) for name in ("rate", "concurrency")))

    assert [(p.line, p.level) for p in read_peer_file(file)] == [(1, "8 req/s"), (2, "C=16")]


def test_speculation_of_vllm_is_told_as_ours_is(tmp_path: Path) -> None:
    told = document("vllm-rate.json") | {"spec_decode_acceptance_length": 2.4, "spec_decode_acceptance_rate": 70.0}
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(told))

    metrics = read_peer_file(file)[0].metrics

    assert (metrics["accept_length"], metrics["accept_rate"]) == (2.4, 0.7)


def test_answers_that_were_not_streamed_have_no_first_token(tmp_path: Path) -> None:
    told = document("vllm-concurrency.json") | {"mean_ttft_ms": 0.0, "median_ttft_ms": 0.0}
    file = tmp_path / "whole.json"
    file.write_text(json.dumps(told))

    (point,) = read_peer_file(file)

    assert not [name for name in point.metrics if name.startswith(("ttft", "tpot", "chunk_gap"))]
    assert point.notes[-1] == "TTFT is 0: nothing streamed was seen; it and the times per token are left out"


def test_seconds_of_aiperf_become_milliseconds_and_failures_are_shares(tmp_path: Path) -> None:
    told = document("aiperf-concurrency.json")
    told["request_latency"] |= {"unit": "sec", "avg": 1.5}
    told["error_request_count"] = {"unit": "requests", "avg": 16.0}
    told["was_cancelled"] = True
    file = tmp_path / "a.json"
    file.write_text(json.dumps(told))

    (point,) = read_peer_file(file)

    assert (point.metrics["e2e_mean_ms"], point.metrics["failed_share"]) == (1500.0, 0.2)
    assert point.notes[-1] == "the run was cancelled: it is not whole"


def test_numbers_that_are_none_are_left_out_and_nothing_of_a_file_breaks_its_reader(tmp_path: Path) -> None:
    told = document("guidellm-concurrent.json")
    (benchmark,) = told["benchmarks"]
    benchmark["metrics"]["time_to_first_token_ms"] = None
    benchmark["metrics"]["request_latency"]["successful"]["percentiles"] = []
    benchmark["metrics"]["requests_per_second"]["successful"]["mean"] = float("nan")
    benchmark["config"]["strategy"] = "concurrent"
    file = tmp_path / "g.json"
    file.write_text(json.dumps(told))

    (point,) = read_peer_file(file)

    assert point.load is None
    assert "request_throughput_rps" not in point.metrics
    assert not [name for name in point.metrics if name.startswith("ttft")]
    assert "e2e_mean_ms" in point.metrics


def test_a_file_of_another_client_than_was_said_is_refused() -> None:
    told = r"vllm-rate\.json: line 1 is not a result of aiperf, but of vllm; give profile_export_aiperf\.json"
    with pytest.raises(BadInput, match=told):
        read_peer_file(FILES / "vllm-rate.json", "aiperf")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"timeslices": [], "input_config": {}}, "has `timeslices` of AIPerf, not the whole run"),
        ({"aiperf_version": "0.13.0", "metadata": {"aggregation_type": "confidence"}, "metrics": {}},
         "is AIPerf's aggregate of several runs (`metadata.aggregation_type`): give the file of each run, or"),
        ({"metadata": {"x_request_id": "1"}, "metrics": {}}, "is one request of AIPerf (`metadata.x_request_id`)"),
        ({"avg_latency": 1.0, "latencies": [1.0]}, "is of vllm bench latency (`avg_latency`), which loads no server"),
        ({"elapsed_time": 1.0, "tokens_per_second": 9.0}, "is of vllm bench throughput (`elapsed_time`), which"),
        ({"completed": 9, "tokenizer_id": "t", "mean_e2el_ms": 3.0}, "has no `mean_ttft_ms`: results of embeddings"),
        ({"model": "m", "ttft": 3.0}, "is not a result of a load client that we know: it has model, ttft, while a "
         "result has `mean_ttft_ms` (vLLM, bench_serving), `benchmarks` with `request_totals` (GuideLLM) or `request_"),
        ([1, 2], "is not a result of a load client that we know: it is no JSON object; give the JSON file of vllm"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_result_is_told_by_its_keys_and_which_to_give(tmp_path: Path, told: Any, why: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(told))

    with pytest.raises(BadInput) as refused:
        read_peer_file(file)

    assert str(refused.value).startswith(f"{file}: line 1 {why}")
    assert "profile_export_aiperf.json of aiperf profile" in str(refused.value)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of everything inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*place, key)
        yield from places(one, (*place, key))


@pytest.mark.parametrize(
    "name", ["aiperf-rate.json", "bench_serving.jsonl", "guidellm-concurrent.json", "vllm-rate.json"]
)
@pytest.mark.parametrize("wrong", [None, "x", [], {}, [[]], True, -1, 10**400], ids=lambda value: str(value)[:5])
def test_whatever_is_wrong_at_one_place_of_a_file_it_is_read_or_refused(name: str, wrong: Any) -> None:
    whole = document(name)
    for *above, key in places(whole):
        inside = whole
        for step in above:
            inside = inside[step]
        kept, inside[key] = inside[key], wrong
        kind = next((kind for kind in KINDS if kind.knows(whole)), None)
        with contextlib.suppress(BadInput):
            side_of_points("file", kind.read(1, whole) if kind else [])
        inside[key] = kept


def test_what_guidellm_found_wrong_and_its_goodput_are_told(tmp_path: Path) -> None:
    told = document("guidellm-concurrent.json")
    (benchmark,) = told["benchmarks"]
    benchmark["metrics"]["request_goodput"] = {"successful": {"mean": 7.5}}
    benchmark["warnings"] = [{"code": "rate", "message": "The rate was not reached", "unit": "ratio"}]
    file = tmp_path / "g.json"
    file.write_text(json.dumps(told))

    (point,) = read_peer_file(file)

    assert point.metrics["goodput_rps"] == 7.5
    assert point.notes[-1] == "GuideLLM warned: The rate was not reached"


def test_a_load_without_a_level_is_told_by_its_name_and_is_not_all_at_once(tmp_path: Path) -> None:
    guide, aiperf, vllm = (document(f"{name}.json") for name in ("guidellm-concurrent", "aiperf-rate", "vllm-rate"))
    guide["benchmarks"][0]["config"]["strategy"] = {"type_": "trace"}
    aiperf["input_config"]["phases"] = [{"kind": "profiling", "type": "fixed_schedule"}]
    aiperf["is_complete"] = False
    vllm |= {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 10, "request_rate": "inf"}
    file = tmp_path / "three.json"
    file.write_text(json.dumps([guide, aiperf, vllm]))

    points = read_peer_file(file)

    assert [(p.level, p.load) for p in points] == [
        ("trace", None), ("fixed schedule", None), ("linear ramp from 1 to 10 req/s", None)
    ]  # fmt: skip
    assert points[1].notes[-1] == "AIPerf says that the run is not complete"


def test_the_command_names_all_kinds_and_shows_their_points() -> None:
    (option,) = [p for p in import_points.params if p.name == "kind"]
    said = CliRunner().invoke(main, ["import-points", str(FILES / "guidellm-sweep.json"), "--from", "guidellm"])
    listed = CliRunner().invoke(main, ["import-points", str(FILES / "aiperf-rate.json"), "--json"])

    assert tuple(option.type.choices) == KIND_NAMES  # type: ignore[attr-defined]
    assert said.exit_code == 0
    assert "all at" in said.output
    assert "note: TPOT is GuideLLM's inter-token latency" in said.output
    (point,) = json.loads(listed.output)
    assert (point["kind"], point["load"]) == ("aiperf", {"kind": "rate", "value": 8.0})
