"""llama.cpp with a real small model under a command template: it really drafts, and its own counters say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from tests.integration.programs import ROOT, marked_processes, run

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (ROOT / ".llamacpp/.installed").exists(), reason="tests/llamacpp/install.sh has not been run"
    ),
]

CONFIGS: list[dict[str, Any]] = [{}, {"ngram": 8, "lookup": 3}, {"self_draft": 3}, {"context": 800_000}]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped scenario on repetitive text, cut down to a minute."""
    folder = tmp_path_factory.mktemp("llamacpp")
    told = yaml.safe_load((ROOT / "scenarios/llamacpp-smollm2.yaml").read_text())
    told["engine"]["address_space_limit_gib"] = 4
    told["sweep"]["configs"] = CONFIGS
    told["workloads"] = [{**told["workloads"][1], "input_tokens": 96, "output_tokens": 32, "concurrency": [2]}]
    told["measure"] = {"warmup_s": 0, "requests": 8}
    told["objectives"] = [{"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 2}}]
    (folder / "small.yaml").write_text(yaml.safe_dump(told))
    done = run(
        "run", str(folder / "small.yaml"), "--address", "local", "--run-dir", str(folder / "llama"), timeout_s=800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "llama"


def rows(root: Path, name: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = ds.dataset(root / "dataset" / name).to_table().to_pylist()
    return listed


def by_kind(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """Row of each measured config by what drafts in it."""
    settings = {t["config_id"]: json.loads(t["settings_json"]) for t in rows(root, "trials")}
    kinds = {c: "ngram" if s["ngram"] else "self_draft" if s["self_draft"] else "plain" for c, s in settings.items()}
    return {kinds[row["config_id"]]: row for row in rows(root, name)}


def test_drafting_is_told_by_the_servers_counters(swept: Path) -> None:
    deltas = {
        kind: (client["drafted_tokens_delta"], client["accepted_tokens_delta"], client["verify_calls_delta"])
        for kind, load in by_kind(swept, "loads").items()
        for client in [json.loads(load["client_json"])]
    }

    assert deltas["plain"] == (0.0, 0.0, 0.0)
    for kind in ("ngram", "self_draft"):
        drafted, accepted, verified = deltas[kind]
        assert 0 < accepted <= drafted
        assert 0 < verified <= drafted


def test_acceptance_is_that_of_the_drafts(swept: Path) -> None:
    points = by_kind(swept, "points")

    assert (points["plain"]["accept_length"], points["plain"]["accept_rate"]) == (None, None)
    # A model that drafts for itself is right but where the end of an answer cuts the draft.
    assert points["self_draft"]["accept_rate"] > 0.9
    assert 3 < points["self_draft"]["accept_length"] <= 4
    assert 1 < points["ngram"]["accept_length"] <= 9


def test_every_request_made_the_tokens_it_was_asked_for_from_a_cold_cache(swept: Path) -> None:
    measured = [r for r in rows(swept, "requests") if not r["warmup"]]

    assert {(r["status"], r["output_tokens"], r["cached_tokens"]) for r in measured} == {("ok", 32, 0)}
    assert len(measured) == 8 * 3
    assert all(abs(r["prompt_tokens"] - 96) <= 10 for r in measured)


def test_a_context_that_does_not_fit_is_infeasible_with_the_line_that_shows_it(swept: Path) -> None:
    (refused,) = json.loads((swept / "ranking.json").read_text())["infeasible"]

    assert (refused["settings"]["context"], refused["label"], refused["phase"]) == (800_000, "out_of_memory", "launch")
    assert "insufficient memory (attempted to allocate" in refused["evidence"]


def test_no_process_of_the_run_is_left(swept: Path) -> None:
    assert marked_processes("llama") == []
