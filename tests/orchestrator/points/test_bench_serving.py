"""Lines of bench_serving: what SGLang 0.5.23's own `calculate_metrics` says of the same requests, and back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.errors import BadInput
from orchestrator.points.bench_serving import LoadArguments, bench_serving_line, read_bench_serving_line
from orchestrator.records import RequestRecord
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import C1, failed, request

# Computed by SGLang 0.5.23 (benchmark/serving.py) from the requests below.
SGLANG_SAYS = {
    "completed": 40, "total_input_tokens": 400, "total_output_tokens": 400, "request_throughput": 4.303805640137292,
    "input_throughput": 43.03805640137292, "output_throughput": 43.03805640137292,
    "total_throughput": 86.07611280274584, "mean_ttft_ms": 119.5, "median_ttft_ms": 119.5,
    "std_ttft_ms": 11.543396380615052, "p90_ttft_ms": 135.1, "p95_ttft_ms": 137.05, "p99_ttft_ms": 138.61,
    "mean_tpot_ms": 11.95, "median_tpot_ms": 11.95, "std_tpot_ms": 1.1543396380615198, "p90_tpot_ms": 13.51,
    "p95_tpot_ms": 13.705, "p99_tpot_ms": 13.861, "mean_itl_ms": 11.95, "median_itl_ms": 10.6,
    "std_itl_ms": 3.652909799050618, "p90_itl_ms": 18.165, "p95_itl_ms": 19.5075, "p99_itl_ms": 20.6115,
    "mean_e2e_latency_ms": 227.05, "median_e2e_latency_ms": 227.05, "std_e2e_latency_ms": 21.93245312316873,
    "p90_e2e_latency_ms": 256.69, "p95_e2e_latency_ms": 260.395, "p99_e2e_latency_ms": 263.359,
    "concurrency": 0.9771790705931713, "max_concurrent_requests": 4,
}  # fmt: skip
NOT_KNOWN = {
    "tag", "request_rate", "sharegpt_output_len", "random_input_len", "random_output_len", "random_range_ratio",
    "server_info",
    "total_input_vision_tokens", "total_output_tokens_retokenized", "accept_length", "max_output_tokens_per_s",
}  # fmt: skip


def requests() -> list[RequestRecord]:
    """Forty requests in rounds of four, 1 + 3 + 2 + 4 tokens each, with gaps of 30 ms and more."""
    records = []
    for i in range(40):
        sent = (i // 4) * 1000.0 + (i % 4) * 10
        records.append(request(sent, [sent + 100 + i + 30 * k * (1 + 0.01 * i) for k in range(4)], [1, 3, 2, 4]))
    return records


def test_a_line_says_what_bench_serving_says_of_the_same_requests() -> None:
    line = bench_serving_line(requests(), level=LoadLevel("concurrency", 4), given=LoadArguments(dataset="random"))
    assert {name: line[name] for name in SGLANG_SAYS} == pytest.approx(SGLANG_SAYS)
    assert {name for name, value in line.items() if value is None} == NOT_KNOWN
    assert (line["backend"], line["dataset_name"], line["max_concurrency"]) == ("sglang", "random", 4)
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert line["specsweep_itl"] == "gap between chunks / tokens of the chunk, once per token"


def test_a_line_of_an_open_loop_counts_from_the_send_as_bench_serving_does() -> None:
    late = replace(request(200, [250, 260]), scheduled_ns=0)
    given = LoadArguments(input_tokens=128, output_tokens=2, max_concurrency=8, tag="a")
    line = bench_serving_line([late], level=LoadLevel("rate", 2), given=given)
    assert (line["mean_ttft_ms"], line["request_rate"], line["max_concurrency"], line["tag"]) == (50.0, 2, 8, "a")
    assert (line["random_input_len"], line["random_output_len"]) == (128, 2)


def test_what_cannot_be_known_is_null_in_a_line() -> None:
    nothing = bench_serving_line([], level=C1, given=LoadArguments())
    assert (nothing["completed"], nothing["mean_ttft_ms"], nothing["output_throughput"]) == (0, None, None)
    uncounted = bench_serving_line([request(0, [10, 30], [0, 0], output=None)], level=C1, given=LoadArguments())
    assert (uncounted["mean_tpot_ms"], uncounted["total_output_tokens"], uncounted["mean_itl_ms"]) == (None, None, 20.0)
    assert "did not count one by one" in uncounted["specsweep_itl"]
    assert bench_serving_line([failed(0, 9)], level=C1, given=LoadArguments())["completed"] == 0


def test_a_line_comes_back_under_our_names() -> None:
    line = bench_serving_line(requests(), level=LoadLevel("concurrency", 4), given=LoadArguments(tag="base"))
    point = read_bench_serving_line(1, json.loads(json.dumps(line)))
    assert (point.name, point.level, point.metrics["requests_ok"]) == ("base", "C=4", 40)
    assert point.metrics["ttft_p95_ms"] == pytest.approx(137.05)
    assert point.metrics["e2e_p50_ms"] == pytest.approx(227.05)
    assert point.metrics["tpot_mean_ms"] == pytest.approx(11.95)
    assert "ITL of backend sglang is per token (gap / tokens of the chunk), a chunk gap is not" in point.notes


OLD = {  # keys of a release of 2024
    "backend": "sglang-oai", "request_rate": 4.0, "total_input_tokens": 100, "total_output_tokens": 200,
    "total_output_tokens_retokenized": 199, "mean_e2e_latency_ms": 900.0, "median_e2e_latency_ms": 880.0,
    "median_ttft_ms": 40.0, "mean_ttft_ms": 42.0, "median_itl_ms": 9.0, "output_throughput": 22.0, "duration": 9.0,
    "completed": 10,
}  # fmt: skip


def test_lines_of_older_releases_have_what_they_have() -> None:
    point = read_bench_serving_line(3, OLD)
    assert (point.level, point.name) == ("4 req/s", "sglang-oai")
    assert dict(point.metrics) == {
        "requests_ok": 10.0, "output_throughput_tok_s": 22.0, "prompt_tokens_total": 100.0,
        "prompt_tokens_mean": 10.0, "output_tokens_total": 200.0, "output_tokens_mean": 20.0, "ttft_mean_ms": 42.0,
        "ttft_p50_ms": 40.0, "chunk_gap_p50_ms": 9.0, "e2e_mean_ms": 900.0, "e2e_p50_ms": 880.0,
    }  # fmt: skip


def test_a_ttft_of_zero_is_not_a_measured_one() -> None:
    point = read_bench_serving_line(1, OLD | {"mean_ttft_ms": 0.0, "median_ttft_ms": 0.0})
    assert not [name for name in point.metrics if name.startswith(("ttft", "chunk_gap"))]
    assert point.notes[-1] == "TTFT is 0: nothing streamed was seen; it and the times per token are left out"


def test_the_command_shows_the_points_and_what_their_names_mean_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "bench.jsonl"
    file.write_text(json.dumps(OLD) + "\n\n" + json.dumps(OLD | {"request_rate": math.inf, "max_concurrency": 8}))
    said = CliRunner().invoke(main, ["import-points", str(file)])
    assert said.exit_code == 0
    assert "4 req/s" in said.output
    assert "C=8" in said.output
    assert said.output.count("note: throughput is over the whole time") == 1
    listed = json.loads(CliRunner().invoke(main, ["import-points", str(file), "--json"]).output)
    assert [(p["line"], p["metrics"]["ttft_p50_ms"]) for p in listed] == [(1, 40.0), (3, 40.0)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "has no line"),
        ("{", ":1: not JSON"),
        ('{"a": 1}', "line 1 is not a result of a load client that we know"),
        ("[1]", "line 1 is not a result of a load client that we know"),
    ],
)
def test_other_files_are_refused_by_line(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(text)
    said = CliRunner().invoke(main, ["import-points", str(file)])
    assert said.exit_code == 2
    assert fault in said.output
    assert str(file) in said.output


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["import-points", str(tmp_path / "none.jsonl")])
    assert (said.exit_code, "cannot be read" in said.output) == (2, True)
    with pytest.raises(BadInput):
        read_bench_serving_line(1, {"completed": 1})
