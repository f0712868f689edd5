"""Nights on emulated servers, whose builds are worse by a known amount."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.kill_rig import KillRig
from tests.fakes.stall_witness import undisturbed
from tests.integration.programs import marked_processes, run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

FAULTS = {"start": [{"label": "oom_graph_target", "when": {"speculative_num_steps": 3}}]}
SCENARIO: dict[str, Any] = {
    "name": "pinned",
    "model": {"path": "example/small-model", "bundled_draft": True},
    "engine": {
        "kind": "emulator", "start_speedup": 100,
        "settings": {"speculative_algorithm": "NEXTN", "max_running_requests": 16},
    },
    "sweep": {"axes": {"speculative_num_steps": [2, 3]}},
    "slots": {"gpus": 1},
    "workloads": [{"name": "chat", "input_tokens": 32, "output_tokens": 32, "concurrency": [2]}],
    "measure": {"warmup_s": 0.2, "duration_s": 1.5},
    "objectives": [{"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 2}}],
    "nightly": {
        "reference": {"name": "pinned"},
        "candidate": {},
        "configs": "all",
        "metrics": ["output_throughput_tok_s", "tpot_p50_ms", "e2e_p50_ms"],
    },
}  # fmt: skip


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    faults = tmp_path / "faults.yaml"
    faults.write_text(yaml.safe_dump(FAULTS))
    worse = ["--emulator-slowdown", "1.08", "--emulator-kv-share", "0.85"]
    nightly = {**SCENARIO["nightly"], "candidate": {"name": "worse", "extra_args": worse, "faults": str(faults)}}
    file = tmp_path / "pinned.yaml"
    file.write_text(yaml.safe_dump({**SCENARIO, "nightly": nightly}))
    return file


def told_by(root: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((root / "night.json").read_text())
    return told


def regressions(told: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["metric"], one["label"]): one for one in told["series"] if one["verdict"] == "regressed"}


def slowed(told: dict[str, Any]) -> bool:
    """Whether speeds regressed, each by what the build is slower."""
    of_two = {key: one for key, one in regressions(told).items() if key[1].endswith("=2") and key[0] != "kv_tokens"}
    worse = [one["worse"] for one in of_two.values() if one["kind"] == "speed"]
    return bool(of_two) and worse == [pytest.approx(0.08, abs=0.03)] * len(worse)


def test_a_slowdown_a_lost_kv_cache_and_a_death_are_regressions_by_name_and_the_reference_against_itself_is_none(
    cluster: KillRig, scenario: Path, tmp_path: Path
) -> None:
    def night() -> tuple[Path, Path]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        worse = run("nightly", str(scenario), "--history", str(folder / "history"), "--address", cluster.address,
                    "--run-dir", str(folder / "worse"), "--junit", str(folder / "junit.xml"))  # fmt: skip
        assert worse.returncode == 1, worse.stdout + worse.stderr
        return folder / "worse", folder / "history"

    root, history = undisturbed(night, lambda ran: slowed(told_by(ran[0])))
    told = told_by(root)
    regressed = regressions(told)
    died = regressed["feasible", "speculative_num_steps=3"]
    assert died["reason"].startswith("died (oom_graph_target)")
    assert "CUDA out of memory" in died["evidence"][0]
    assert regressed["kv_tokens", "speculative_num_steps=2"]["worse"] == pytest.approx(0.15, abs=0.005)
    assert slowed(told), told["headline"]
    assert "driver" in told["hosts"][0]["facts"] or told["hosts"][0]["facts"]["cpu"]

    same = run("nightly", str(scenario), "--self-test", "--address", cluster.address, "--json", "-",
               "--run-dir", str(tmp_path / "same"), "--set", "nightly.configs=first",
               "--set", "nightly.candidate.name=again")  # fmt: skip

    again = json.loads(same.stdout)
    assert [one for one in again["series"] if one["verdict"] == "regressed"] == []
    assert same.returncode in {0, 3}, same.stderr  # on a busy machine it may be left open, never a regression
    assert len(list((history / "nights").glob("*.parquet"))) == 1
    assert marked_processes("worse") == marked_processes("same") == []
