"""A server of no known kind, described by a template alone, from scenario to ranking on an embedded Ray."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.fakes.stall_witness import undisturbed
from tests.integration.programs import marked_processes, run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

SCENARIO = """\
name: other
model: {path: some/model}
engine:
  kind: command
  command: [PYTHON, tests/fakes/openai_server.py, --host, "{host}", --port, "{port}", "{flags}",
            --only-with, cache_prompt, --token-s, "0.01"]
  flags:
    depth: --depth
    last_words: --die
  depth: depth
  counters: {drafted: "fake:drafted_total", accepted: "fake:accepted_total", verified: "fake:steps"}
sweep:
  axes: {depth: [0, 3]}
  include:
    - {last_words: "CUDA out of memory. Tried to allocate 9 GiB"}
slots: {gpus: 0, per_host: 1}
workloads:
  - {name: chat, api: completions, input_tokens: 32, output_tokens: 24, concurrency: [2],
     extra_body: {cache_prompt: false}}
measure: {warmup_s: 0.2, requests: 12}
objectives:
  - {name: fast, minimize: tpot_p50_ms, at: {concurrency: 2}}  # a machine that stands still changes no median
  - {name: sure, maximize: accept_rate, at: {concurrency: 2}}
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    scenario = folder / "other.yaml"
    scenario.write_text(SCENARIO.replace("PYTHON", sys.executable))

    def whole() -> Path:
        root = Path(tempfile.mkdtemp(dir=folder)) / "other-server"
        done = run("run", str(scenario), "--address", "local", "--run-dir", str(root))
        assert done.returncode == 0, done.stdout + done.stderr
        return root

    return undisturbed(whole, lambda root: not any(p["void_reasons"] for p in rows(root, "points")))


def rows(root: Path, name: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = ds.dataset(root / "dataset" / name).to_table().to_pylist()
    return listed


def test_the_config_that_drafts_is_faster_and_its_acceptance_is_that_of_the_server(swept: Path) -> None:
    ranked = json.loads((swept / "ranking.json").read_text())
    (sure,) = [r for r in ranked["objectives"]["sure"]["ranking"] if r["value"] is not None]

    assert [r["settings"]["depth"] for r in ranked["objectives"]["fast"]["ranking"]] == [3, 0]
    assert (sure["settings"]["depth"], sure["value"]) == (3, pytest.approx(2 / 3))
    assert sorted(p["accept_length"] or 0 for p in rows(swept, "points")) == [0, pytest.approx(3.0)]


def test_every_request_was_measured_and_the_counters_are_those_of_the_measured_ones(swept: Path) -> None:
    drafted = {}
    for load in rows(swept, "loads"):
        client = json.loads(load["client_json"])
        drafted[client["drafted_tokens_delta"]] = client["accepted_tokens_delta"]
    measured = [r for r in rows(swept, "requests") if not r["warmup"]]

    assert drafted == {0.0: 0.0, 12 * 24 * 3.0: 12 * 24 * 2.0}
    assert [r["status"] for r in measured] == ["ok"] * 24
    assert {(r["output_tokens"], r["prompt_tokens"], r["engine"]) for r in measured} == {(24, 32, "command")}


def test_a_config_whose_server_has_no_memory_is_infeasible(swept: Path) -> None:
    ranked = json.loads((swept / "ranking.json").read_text())

    assert [(c["label"], c["phase"], c["evidence"]) for c in ranked["infeasible"]] == [
        ("out_of_memory", "launch", "CUDA out of memory. Tried to allocate 9 GiB")
    ]
    assert {t["engine_version"] for t in rows(swept, "trials") if t["outcome"] == "measured"} == {"7.1"}


def test_no_process_of_the_run_is_left(swept: Path) -> None:
    assert marked_processes("other-server") == []
