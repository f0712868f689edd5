"""The main job on real SGLang servers (CPU, tiny random model): same code path, same dataset, honest picks.

Nothing here expects a depth to win: speeds are artefacts of stand-in kernels. What must hold is that the ranking says
what was measured, by a computation of its own in this file.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from orchestrator.schemas import request_schema
from tests.fakes.stall_witness import undisturbed
from tests.integration.programs import ROOT, marked_processes, run

# On two cores that thirty others shared, a sweep took 820 s.
SWEEP_LIMIT_S = 1000

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(SWEEP_LIMIT_S + 400),
    pytest.mark.skipif(
        not (ROOT / ".sglang-cpu/.installed").exists(), reason="tests/sglang_cpu/install.sh has not been run"
    ),
]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run directory of what `make demo-real` does, in short windows and with two depths less, and what it said.

    Where the machine stands still in a window of seconds, its load client is void, or a speed is no server's.
    """
    root, done = undisturbed(lambda: whole(tmp_path_factory.mktemp("runs") / "real"), is_told_apart)
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done.stdout


def whole(root: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    shorter = ("--set", "measure.duration_s=7", "--set", "sweep.axes.speculative_num_steps=[0,3]")
    asked = ("scenarios/real-sglang-cpu.yaml", *shorter, "--address", "local", "--run-dir", str(root))
    return root, run("run", *asked, timeout_s=SWEEP_LIMIT_S)


def is_told_apart(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> bool:
    """Whether every config that served has a value (a void point has none), and speeds of its own."""
    root, done = ran
    if done.returncode:
        return False
    rankings = json.loads((root / "ranking.json").read_text())["objectives"].values()
    valued = [{row["config_id"] for row in r["ranking"] if row["value"] is not None} for r in rankings]
    return all(configs == set(measured_depths(root)) for configs in valued) and speeds_differ(root)


def table(root: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(root / "dataset" / name).to_table().to_pylist()
    return rows


def depth_of(trial: dict[str, Any]) -> int:
    settings = json.loads(trial["settings_json"])
    return int(settings.get("speculative_num_steps", 0))


def measured_depths(root: Path) -> dict[str, int]:
    return {t["config_id"]: depth_of(t) for t in table(root, "trials") if t["outcome"] == "measured"}


def requests_of(root: Path, config_id: str, concurrency: int) -> list[dict[str, Any]]:
    points = {x["point_id"] for x in table(root, "loads") if x["config_id"] == config_id and x["level"] == concurrency}
    return [r for r in table(root, "requests") if r["point_id"] in points and not r["warmup"]]


def throughput(requests: list[dict[str, Any]], concurrency: int) -> float:
    """Tokens per second from when all slots are filled until the first is not filled again, token by token."""
    sent = sorted(r["sent_ns"] for r in requests)
    begin = sent[concurrency - 1]
    end = sorted(r["end_ns"] for r in requests)[len(requests) - concurrency]
    tokens = 0
    for request in requests:
        for at, count in zip(request["chunk_ns"], request["chunk_tokens"], strict=True):
            tokens += count if begin <= at <= end else 0
    return float(tokens / ((end - begin) / 1e9))


def test_depths_0_and_3_are_measured_and_the_config_without_kv_cache_is_infeasible(swept: tuple[Path, str]) -> None:
    root, printed = swept
    ranked = json.loads((root / "ranking.json").read_text())

    assert sorted(measured_depths(root).values()) == [0, 3]
    assert [(c["settings"]["max_total_tokens"], c["label"], c["phase"]) for c in ranked["infeasible"]] == [
        (0, "kv_budget", "kv_pool")
    ]
    assert ranked["infeasible"][0]["evidence"] == (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    )
    assert ranked["failed"] == []
    assert "load_format=dummy" in printed


def test_the_dataset_has_the_schema_of_every_other_run(swept: tuple[Path, str]) -> None:
    root, _ = swept

    stored = ds.dataset(root / "dataset/requests").schema
    assert stored.equals(request_schema())
    assert stored.metadata == request_schema().metadata
    assert {r["engine"] for r in table(root, "requests")} == {"sglang"}
    assert {t["engine_version"] for t in table(root, "trials") if t["outcome"] == "measured"} == {"0.5.23"}


def test_torch_of_every_server_is_that_of_its_own_python_also_of_one_that_died(swept: tuple[Path, str]) -> None:
    root, _ = swept
    python = str(ROOT / ".sglang-cpu/venv/bin/python")
    told = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__, torch.version.cuda)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    known = [json.loads(t["software_json"]) for t in table(root, "trials")]

    assert {t["outcome"] for t in table(root, "trials")} == {"measured", "infeasible"}
    assert {(k["versions"]["sglang"], k["versions"]["torch"], k["unknown"]) for k in known} == {("0.5.23", told[0], "")}
    assert {str(k["versions"].get("cuda")) for k in known} == {told[1]}


def test_accept_length_is_above_1_with_speculation_by_both_of_the_servers_counters(swept: tuple[Path, str]) -> None:
    root, _ = swept
    for config_id, depth in measured_depths(root).items():
        for load in [x for x in table(root, "loads") if x["config_id"] == config_id]:
            client = json.loads(load["client_json"])
            requests = [r for r in requests_of(root, config_id, int(load["level"])) if r["status"] == "ok"]
            if depth == 0:
                assert not client["verify_calls_delta"]
                assert {r["verify_ct"] for r in requests} <= {None, 0}
                continue
            by_request = 1 + sum(r["correct_drafts"] for r in requests) / sum(r["verify_ct"] for r in requests)
            tokens = client["generation_tokens_delta"] - client["requests_delta"]
            assert 1 < by_request <= depth + 1
            assert tokens / client["verify_calls_delta"] == pytest.approx(by_request, rel=0.1)


@pytest.mark.parametrize(("objective", "concurrency"), [("single-user", 1), ("four-users", 4)])
def test_each_pick_follows_from_the_raw_requests(swept: tuple[Path, str], objective: str, concurrency: int) -> None:
    root, _ = swept
    ranking = json.loads((root / "ranking.json").read_text())["objectives"][objective]["ranking"]
    speeds = {c: throughput(requests_of(root, c, concurrency), concurrency) for c in measured_depths(root)}
    ttft = {
        c: statistics.median(
            (r["first_token_ns"] - r["sent_ns"]) / 1e6 for r in requests_of(root, c, 4) if r["status"] == "ok"
        )
        for c in speeds
    }
    best = max(speeds.values())
    tied = [c for c, speed in speeds.items() if (best - speed) / best <= 0.02]
    quickest = min(ttft[c] for c in tied)
    if objective == "single-user" or len(tied) == 1:
        expected = {max(speeds, key=lambda c: speeds[c])}
    else:
        expected = {c for c in tied if (ttft[c] - quickest) / quickest <= 0.02}

    assert {row["config_id"]: row["value"] for row in ranking} == {
        c: pytest.approx(speed, rel=1e-6) for c, speed in speeds.items()
    }
    assert ranking[0]["config_id"] in expected


def speeds_differ(root: Path) -> bool:
    """Of the two depths for one user, and of four users from one at each depth."""
    at_1 = {d: throughput(requests_of(root, c, 1), 1) for c, d in measured_depths(root).items()}
    at_4 = {d: throughput(requests_of(root, c, 4), 4) for c, d in measured_depths(root).items()}

    by_depth = max(at_1.values()) > 1.05 * min(at_1.values())
    return by_depth and all(at_4[depth] > 1.05 * at_1[depth] for depth in at_1)


def test_speeds_differ_by_depth_and_by_load_level(swept: tuple[Path, str]) -> None:
    assert speeds_differ(swept[0])


def test_start_phases_are_those_that_the_server_logged(swept: tuple[Path, str]) -> None:
    root, _ = swept
    for trial in table(root, "trials"):
        phases = [p["phase"] for p in trial["phases"]]
        assert phases[:1] == ["launch"]
        assert "weights" in phases
        if trial["outcome"] == "measured":
            assert {"kv_pool", "ready"} <= set(phases)
            assert ("draft_weights" in phases) == (depth_of(trial) > 0)


def test_no_process_of_the_run_is_left(swept: tuple[Path, str]) -> None:
    assert marked_processes("real") == []
