"""Keys of workloads that are refused: by place, key and what is allowed, before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.errors import ScenarioError
from tests.orchestrator.objectives.test_workload_keys import specs
from tests.orchestrator.scenario_samples import small_scenario

BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"input_tokens": "x"}, "input_tokens", "input should be a valid integer, not 'x'"),
    ({"input_tokens": 0}, "input_tokens", "input should be greater than or equal to 1, not 0"),
    ({"input_tokens": {"normall": {}}}, "input_tokens.normall", "is not a key here; did you mean 'normal'? Allowed: normal, lognormal, uniform, exponential, histogram"),
    ({"input_tokens": {}}, "input_tokens", "wants exactly one of normal, lognormal, uniform"),
    ({"input_tokens": {"exponential": {"mean": 3}, "uniform": {"low": 1, "high": 2}}}, "input_tokens", "wants exactly one of"),
    ({"input_tokens": {"normal": {"mean": 3}}}, "input_tokens.normal.std", "is missing"),
    ({"input_tokens": {"normal": {"mean": 3, "std": -1}}}, "input_tokens.normal.std", "input should be greater than or equal to 0, not -1"),
    ({"input_tokens": {"normal": {"mean": 300, "std": 9, "high": 90}}}, "input_tokens.normal", "mean 300 is above high 90, to which every draw is clipped"),
    ({"output_tokens": {"uniform": {"low": 0, "high": 9}}}, "output_tokens.uniform.low", "is 0; allowed: from 1"),
    ({"output_tokens": {"uniform": {"low": 9, "high": 3}}}, "output_tokens.uniform.high", "is 3, which is below the smallest, 9"),
    ({"output_tokens": {"histogram": [[0, 1]]}}, "output_tokens.histogram[0]", "has the value 0; allowed: from 1"),
    ({"output_tokens": {"histogram": [[5, 0]]}}, "output_tokens.histogram", "has no weight above 0"),
    ({"output_tokens": {"histogram": []}}, "output_tokens.histogram", "at least 1 item"),
    ({"output_tokens": {"histogram": [[5]]}}, "output_tokens.histogram[0]", "at least 2 items"),
    ({"session": {"turn": 3}}, "session.turn", "is not a key here; did you mean 'turns'?"),
    ({"session": {}}, "session.turns", "is missing"),
    ({"session": {"turns": 2, "kind": "chatty"}}, "session.kind", "is 'chatty', allowed: 'chat' or 'agentic'"),
    ({"session": {"turns": 2, "gap_s": -1}}, "session.gap_s", "input should be greater than or equal to 0"),
    ({"session": {"turns": {"uniform": {"low": 0.5, "high": 3}}}}, "session.turns.uniform.low", "is 0.5; allowed: from 1"),
    ({"mix": [{"name": "a"}, {"name": "a"}]}, "mix[1].name", "'a' is used twice"),
    ({"mix": [{"name": "a", "weight": 0}]}, "mix[0].weight", "input should be greater than 0"),
    ({"mix": [{"name": "a", "dataset": "prose"}]}, "mix[0].dataset", "is 'prose', allowed: random_text, code"),
    ({"mix": [{"name": "a", "dataset": "random_ids"}], "api": "chat"}, "mix[0].dataset", "random_ids sends token ids"),
    ({"mix": [{"name": "a", "inputs": 3}]}, "mix[0].inputs", "is not a key here; did you mean 'input_tokens'?"),
    ({"mix": [{"name": "a", "session": {"turns": {"uniform": {"low": 4, "high": 3}}}}]}, "mix[0].session.turns.uniform.high", "is 3, which is below"),
    ({"shared_prefix_tokens": 90, "input_tokens": {"uniform": {"low": 10, "high": 90}}}, "shared_prefix_tokens", "must be below the mean of input_tokens 50"),
    ({"prefix_groups": 4}, "prefix_groups", "is for prompts with a shared prefix: give shared_prefix_tokens"),
    ({"rates": [2], "arrival": "uniform"}, "arrival", "is 'uniform', allowed: 'poisson', 'constant' or 'gamma'"),
    ({"rates": [2], "arrival": "gamma"}, "arrival", "is gamma, whose burstiness is missing"),
    ({"rates": [2], "arrival": {"kind": "gamma", "burstiness": 0}}, "arrival.burstiness", "input should be greater than 0, not 0"),
    ({"rates": [2], "arrival": {"kind": "gamma", "burstiness": float("inf")}}, "arrival.burstiness", "input should be a finite number"),
    ({"rates": [2], "arrival": {"burstiness": 1.0}}, "arrival.burstiness", "is for arrival gamma, but arrival is poisson"),
    ({"rates": [2], "arrival": {"ramp": 3}}, "arrival.ramp", "is not a key here; did you mean 'ramp_s'?"),
    ({"rates": [2], "arrival": {"ramp_s": -3}}, "arrival.ramp_s", "input should be greater than or equal to 0"),
    ({"rates": [2], "arrival": {"steps": [[10, 0]]}}, "arrival", "steps have one of 0 times the rate; allowed"),
    ({"rates": [2], "arrival": {"steps": [[0, 1]]}}, "arrival", "steps have one of 0 seconds; allowed"),
    ({"rates": [2], "arrival": {"steps": [10]}}, "arrival.steps[0]", "input should be a valid list"),
    ({"rates": [float("inf")]}, "rates[0]", "input should be a finite number"),
    ({"concurrency": [1], "arrival": "constant"}, "arrival", "is for `rates`; in a closed loop only ramp_s has a meaning"),
    ({"trace": [1.0]}, "trace", "replays a trace, but dataset is 'random_text': give `dataset: file:PATH`"),
    ({"trace": [0]}, "trace[0]", "input should be greater than 0"),
    ({"trace": [1.0], "dataset": "file:t", "rates": [2]}, "rates", "does not go with `trace`"),
    ({"trace": [1.0], "dataset": "file:t", "session": {"turns": 2}}, "session", "does not go with `trace`"),
    ({"trace": [1.0], "dataset": "file:t", "input_tokens": 9}, "input_tokens", "does not go with `trace`, which says"),
    ({"trace": [1.0], "dataset": "file:t", "output_tokens": 256}, "output_tokens", "leave it out, or use another"),
    ({"trace": [1.0], "dataset": "file:t", "arrival": {"ramp_s": 2}}, "arrival.ramp_s", "a trace has its own times"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "place", "told"), BAD)
def test_a_bad_key_is_refused_by_its_place(keys: dict[str, Any], place: str, told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        specs(**keys)
    assert caught.value.key == f"workloads[0].{place}"
    assert told in str(caught.value)


def test_an_objective_looks_at_one_level_that_is_measured() -> None:
    def at(**level: float) -> str:
        with pytest.raises(ScenarioError) as caught:
            small_scenario(
                workloads=[{"name": "w", "dataset": "file:t", "trace": [1.0, 2.0]}],
                objectives=[{"name": "f", "maximize": "output_throughput_tok_s", "at": level}],
            )
        return str(caught.value)

    assert "objectives[0].at.trace: is 3, but workload 'w' is measured at: 1, 2" in at(trace=3.0)
    assert "objectives[0].at: wants one of concurrency, rate and trace" in at(trace=1.0, rate=2.0)
    assert "objectives[0].at: wants one of concurrency, rate and trace" in at()


def plan(tmp_path: Path, workload: dict[str, Any]) -> str:
    path = tmp_path / "s.yaml"
    at = {"trace": 1.0} if "trace" in workload else {"concurrency": 1}
    path.write_text(
        json.dumps(
            {
                "name": "x",
                "model": {"path": "m", "bundled_draft": True},
                "engine": {"kind": "emulator"},
                "workloads": [{"name": "w", **workload}],
                "measure": {"duration_s": 1},
                "objectives": [{"name": "f", "maximize": "output_throughput_tok_s", "at": at}],
            }
        )
    )
    result = CliRunner().invoke(main, ["plan", str(path)])
    return result.stderr if result.exit_code == 2 else f"exit code {result.exit_code}"


def test_files_are_read_before_anything_starts(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.jsonl", tmp_path / "good.jsonl"
    bad.write_text('{"text": "x"}\n')
    good.write_text("Say something.\n")
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}\n')

    assert "workloads[0].dataset" in plan(tmp_path, {"dataset": f"file:{bad}", "concurrency": [1]})
    mix = [{"name": "a"}, {"name": "b", "dataset": f"file:{tmp_path}/none"}]
    assert "workloads[0].mix[1].dataset" in plan(tmp_path, {"mix": mix, "concurrency": [1]})
    assert "workloads[0].dataset" in plan(tmp_path, {"dataset": f"file:{good}", "trace": [1.0]})
    assert plan(tmp_path, {"dataset": f"file:{trace}", "trace": [1.0]}) == "exit code 0"
    assert plan(tmp_path, {"dataset": f"file:{good}", "concurrency": [1]}) == "exit code 0"
