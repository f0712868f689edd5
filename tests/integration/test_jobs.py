"""Runs as jobs of a cluster of several hosts with token authentication: all goes through the dashboard's port."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.host_rig import HostRig
from benchmarks.kill_rig import environment
from tests.integration.programs import ROOT, events, started_hosts, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SMALL = """\
name: small
model: {path: example/small-model, bundled_draft: true}
engine:
  kind: emulator
  start_speedup: 100
  settings: {speculative_algorithm: NEXTN, max_running_requests: 16}
sweep:
  axes: {speculative_num_steps: [0, 1]}
slots: {gpus: 1}
workloads:
  - {name: chat, dataset: "file:prompts.txt", output_tokens: 16, concurrency: [1]}
measure: {warmup_s: 0.2, requests: 4}
objectives:
  - {name: fast, maximize: output_throughput_tok_s, at: {concurrency: 1}}
"""


@pytest.fixture(scope="module")
def rig() -> Iterator[HostRig]:
    """A head without GPUs, and a host with two."""
    with started_hosts([0, 2], with_jobs=True) as rig:
        yield rig


@pytest.fixture(scope="module")
def clone(rig: HostRig) -> Path:
    """The project without what tools left in it, and with what must stay here beside it."""
    clone = rig.folder / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "*.egg-info"))
    for name in (".rayignore", ".gitignore"):
        shutil.copyfile(ROOT / name, clone / name)
    for name, text in {"small.yaml": SMALL, "prompts.txt": "Why?\nWhen?\n", ".env": "HF_TOKEN=hf_verysecret"}.items():
        (clone / name).write_text(text)
    return clone


def on_head(rig: HostRig, clone: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    started = rig.popen(rig.hosts[0], sys.executable, "-m", *argv, cwd=clone)
    said, complained = started.communicate(timeout=300)
    return subprocess.CompletedProcess(argv, started.returncode, said, complained)


def logs_that_load(folder: Path) -> list[str]:
    """Logs of servers below a folder that have begun to load their weights, and have not come to an end of it."""
    found = []
    for below, _, names in os.walk(folder):  # files come and go meanwhile
        with contextlib.suppress(OSError):
            text = (Path(below) / "server.log").read_text(errors="replace") if "server.log" in names else ""
            found += [below] if "Load weight begin" in text and "Load weight end" not in text else []
    return found


def holding(folder: Path, secret: bytes) -> list[str]:
    """Files of Ray's sessions below a folder in which a secret stands."""
    found = []
    for below, _, names in os.walk(folder):
        for path in (Path(below) / name for name in names if "/session_" in below):
            with contextlib.suppress(OSError):
                if path.is_file() and secret in path.read_bytes():
                    found.append(str(path))
    return found


def test_a_clean_clone_is_submitted_by_ray_itself_and_runs_on_the_other_host(rig: HostRig, clone: Path) -> None:
    grace = json.dumps({"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}})
    run_dir = rig.folder / "plain"
    words = [sys.executable, "-m", "orchestrator", "run", "small.yaml", "--run-dir", str(run_dir)]
    submitted = on_head(
        rig, clone, "ray.scripts.scripts", "job", "submit", "--address", rig.jobs, "--working-dir", ".",
        "--runtime-env-json", grace, "--", *words,
    )  # fmt: skip

    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["verdict"], result["trials"]["measured"], result["points"]["missing"]) == ("complete", 2, 0)
    assert {e["place"]["host"] for e in events(run_dir, "trial_started")} == {"h1"}
    sent = [file.name for file in rig.folder.rglob("working_dir_files/_ray_pkg_*/*")]
    assert {"orchestrator", "actors", "small.yaml"} <= set(sent)
    assert not {".env", "tests", "runs", ".git"} & set(sent)


def test_ray_job_stop_while_weights_load_ends_the_run_in_order(rig: HostRig, clone: Path) -> None:
    run_dir, faults = rig.folder / "slow", rig.folder / "slow.yaml"
    faults.write_text("start: {slow: weights, until: never}\n")
    submitted = on_head(
        rig, clone, "orchestrator", "submit", "small.yaml", "--address", rig.jobs, "--python", sys.executable,
        "--run-dir", str(run_dir), "--set", f"engine.faults={faults}", "--no-wait",
        "--set", 'engine.env={"HF_TOKEN": "hf_verysecret"}',
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    job = submitted.stdout.split()[1]
    wait_until(lambda: len(logs_that_load(rig.hosts[1].folder / "tmp")) == 2, "both servers load weights")
    servers = [psutil.Process(int(line.split()[0])) for line in rig.hosts[1].marked("slow-")]
    assert servers
    assert all("working_dir_files" in environment(server)["PYTHONPATH"] for server in servers)
    (listed,) = json.loads(on_head(rig, clone, "orchestrator", "status", "--address", rig.jobs, "--json").stdout)[:1]
    assert (listed["job"], listed["state"], listed["run_dir"]) == (job, "running", str(run_dir))

    on_head(rig, clone, "ray.scripts.scripts", "job", "stop", "--address", rig.jobs, job)

    followed = on_head(rig, clone, "orchestrator", "logs", job, "-f", "--address", rig.jobs)
    assert followed.returncode == 130, followed.stdout + followed.stderr
    assert "The run is not complete; everything measured so far is kept." in followed.stderr
    result = json.loads((clone / "runs" / job / "result.json").read_text())
    assert (result["verdict"], result["trials"]["cancelled"]) == ("interrupted", 2)
    assert result == json.loads((run_dir / "result.json").read_text())
    assert rig.marked() == []
    assert "hf_verysecret" not in followed.stdout + json.dumps(result)
    assert holding(rig.folder, b"hf_verysecret") == []


def test_a_wrong_token_is_told_as_such(rig: HostRig, clone: Path) -> None:
    words = ("-m", "orchestrator", "status", "--address", rig.jobs)
    refused = rig.popen(rig.hosts[0], sys.executable, *words, env={"RAY_AUTH_TOKEN": "wrong"}, cwd=clone)
    _, complained = refused.communicate(timeout=300)

    assert refused.returncode == 3
    assert f"{rig.jobs} does not accept our token" in complained
