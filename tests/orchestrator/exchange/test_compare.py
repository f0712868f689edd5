"""Two runs compared: what was made slower is found by its name, what is the same is not, nothing unlike is mixed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import main
from orchestrator.exchange.compare_command import CompareRequest, compared
from orchestrator.exchange.comparison_report import comparison_document
from orchestrator.exchange.run_comparison import RunComparison
from orchestrator.outcome import Label
from orchestrator.server_start import LaunchSpec
from orchestrator.trial import Point
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import finished_run

FILES = Path(__file__).resolve().parent.parent.parent / "data/peers/files"
TWICE = {"measure": {"duration_s": 5, "repeats": 2}, "sweep": {"axes": {"speculative_num_steps": [1, 2]}}}


def jitter(seed: str, slower: Callable[[Point], float] = lambda point: 1.0) -> Callable[[LaunchSpec, Point], float]:
    """Starts differ by up to 1 %, as the seed has it."""

    def slowness(spec: LaunchSpec, point: Point) -> float:
        digest = hashlib.sha256(f"{seed} {point.trial_id}".encode()).digest()
        return slower(point) * (1 + (digest[0] / 255 - 0.5) * 0.01)

    return slowness


def made(root: Path, scenario: dict[str, Any] | None = None, **slot: Any) -> Path:
    told = {"version": "0.5.23", "max_total_num_tokens": 4096}
    fake = FakeSlot("a", **({"slowness": jitter("a"), "account": lambda spec: told} | slot))
    return finished_run(root, small_scenario(**(TWICE | (scenario or {}))), fake)


def slower_at_4(point: Point) -> float:
    return 1.08 if point.spec.level.value == 4 else 1.0


def dies_with_2(name: str, spec: LaunchSpec) -> Label | None:
    return Label.OOM_GRAPH_DRAFT if dict(spec.settings)["speculative_num_steps"] == 2 else None


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2 configs x 2 levels x 2 repeats, four times: as it is, again, slower at C=4, and with a death."""
    folder = tmp_path_factory.mktemp("runs")
    other = {"version": "0.6.0", "max_total_num_tokens": 3480, "attention_backend": "fa3"}
    made(folder / "base")
    made(folder / "again", slowness=jitter("b"))
    made(folder / "slow", slowness=jitter("c", slower_at_4))
    changes = {"measure": {"duration_s": 9, "repeats": 2}, "recovery": {"mode": "off"}}
    made(folder / "dead", changes, script=dies_with_2, account=lambda spec: other)
    return folder


def told(runs: Path, first: str, second: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["compare", str(runs / first), str(runs / second), *words])


def found(first: Path, second: Path, *metrics: str) -> RunComparison:
    return compared(CompareRequest(first, second, metrics))


def test_a_slower_level_is_worse_by_its_name_and_the_others_are_not(runs: Path) -> None:
    result = found(runs / "base", runs / "slow", "ttft_p50_ms", "output_throughput_tok_s")

    assert result.verdict == "worse"
    assert {(row.metric, row.level) for row in result.rows if row.standing == "worse"} == {
        ("ttft_p50_ms", "C=4"), ("output_throughput_tok_s", "C=4"),
    }  # fmt: skip
    assert {row.standing for row in result.rows if row.level == "C=1"} <= {"same", "open"}
    row = next(r for r in result.rows if (r.metric, r.level) == ("ttft_p50_ms", "C=4"))
    assert row.ratio == pytest.approx(1.08, rel=0.01)
    assert (row.trials, row.kind) == ((2, 2), "replicates")


def test_a_run_measured_again_is_neither_worse_nor_better_and_nothing_else_differs(runs: Path) -> None:
    result = found(runs / "base", runs / "again")

    assert {row.standing for row in result.rows} <= {"same", "open"}
    assert result.environment == ()
    assert (result.matches, result.only, result.served) == (2, (), ())


def test_the_exit_code_says_worse_only_when_asked(runs: Path) -> None:
    asked = ("--metric", "ttft_p50_ms")

    assert told(runs, "base", "slow", *asked).exit_code == 0
    assert told(runs, "base", "slow", *asked, "--exit-code").exit_code == 1
    assert told(runs, "base", "slow", "--metric", "goodput_rps", "--exit-code").exit_code == 3
    assert told(runs, "base", "none", "--exit-code").exit_code == 2


def test_a_config_that_dies_and_a_smaller_cache_are_worse_without_any_statistics(runs: Path) -> None:
    result = found(runs / "base", runs / "dead")

    (config,) = result.served
    assert (config.config, config.first, config.standing) == ("speculative_num_steps=2", "served", "worse")
    assert config.second == "died (oom_graph_draft in kv_pool: the line that shows it)"
    shrunk = [row for row in result.rows if row.metric == "kv_tokens"]
    assert [(row.config, row.standing, row.first, row.second, row.reason) for row in shrunk] == [
        ("speculative_num_steps=1", "worse", 4096.0, 3480.0, "smaller at every start")
    ]
    assert result.verdict == "worse"
    assert found(runs / "dead", runs / "base").served[0].standing == "better"


def test_what_differs_besides_the_results_is_told_what_moves_them_first(runs: Path) -> None:
    result = found(runs / "base", runs / "dead", "ttft_p50_ms")

    assert [(d.name, d.first, d.second) for d in result.environment] == [
        ("version of the server", "0.5.23", "0.6.0"),
        ("measure.duration_s", "5.0", "9.0"),
        ("recovery.mode", "apply", "off"),
    ]  # fmt: skip
    assert [d.deciding for d in result.environment] == [True, True, False]
    said = told(runs, "base", "dead").output
    assert said.index("version of the server") < said.index("speculative_num_steps=2: served; now died")


def test_a_run_is_compared_with_the_file_of_another_client_by_shape_and_load(runs: Path, tmp_path: Path) -> None:
    vllm = json.loads((FILES / "vllm-concurrency.json").read_text())
    # The fake slot's prompts have 8 tokens, its answers 4.
    shape = {"total_input_tokens": 64 * 8, "total_output_tokens": 64 * 4}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps([vllm | shape | {"max_concurrency": c} for c in (4, 16)]))

    result = found(runs / "base", file, "ttft_p50_ms")

    assert {(row.config, row.level) for row in result.rows} == {
        ("speculative_num_steps=1 / bench-model", "C=4"), ("speculative_num_steps=2 / bench-model", "C=4"),
    }  # fmt: skip
    assert [row.second for row in result.rows] == pytest.approx([110.87691799912136] * 2)
    assert "mine.json was measured by vllm: its file tells neither server nor hosts" in result.warnings
    assert "base: its numbers are those that bench_serving would have told of the same requests" in result.notes
    assert result.only == ("only base has 1 load level: chat at C=1", "only mine.json has 1 load level: chat at C=16")


def test_files_whose_requests_have_other_lengths_are_not_compared(runs: Path) -> None:
    result = found(runs / "base", FILES / "vllm-concurrency.json")

    assert (result.verdict, result.rows) == ("nothing", ())
    assert result.only[0] == (
        "workload chat (8 tokens in, 4 out) is not compared: nothing in vllm-concurrency.json is within 10% of its "
        "lengths (128 tokens in, 64 out)"
    )


def test_an_unknown_metric_is_refused_with_the_one_that_was_meant(runs: Path) -> None:
    said = told(runs, "base", "again", "--metric", "ttft_p50")

    assert (said.exit_code, "did you mean 'ttft_p50_ms'" in said.output) == (2, True)


def test_json_and_both_reports_say_the_same(runs: Path, tmp_path: Path) -> None:
    files = ("--html", str(tmp_path / "r.html"), "--md", str(tmp_path / "r.md"))
    document = json.loads(told(runs, "base", "slow", "--json", *files).output)

    assert (document["first"], document["second"], document["verdict"]) == ("base", "slow", "worse")
    worse = [row for row in document["rows"] if row["standing"] == "worse"]
    assert {row["metric"] for row in worse} >= {"ttft_p50_ms", "tpot_p50_ms", "e2e_p50_ms"}
    assert all(row["q"] <= 0.05 for row in worse)
    assert "slow against base" in (tmp_path / "r.md").read_text()
    assert "slow against base" in (tmp_path / "r.html").read_text()
    headline = comparison_document(found(runs / "base", runs / "slow"), "2026-11-30T00:00:00+00:00").headlines[0]
    assert (headline.verdict, headline.tone) == ("worse", "bad")
