"""A whole run whose servers live in containers: commands around them, variables per config, a driver that is killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from orchestrator.run_files.journal import read_events
from tests.fakes.docker_host import DockerHost, docker_host
from tests.integration.programs import QUICK, ROOT, at_work, held, let_go, marked_processes, run, start, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

ENGINE = f"""  command: [docker, run, --gpus, all, image, {sys.executable}, -m, actors.emulator]
  env: {{PYTHONPATH: "{ROOT}"}}
  ulimits: {{nofile: 1024}}
  before_start: [{{command: [sh, -c, "echo A is $FAKE_A on GPU $SPECSWEEP_GPU_IDS"]}}]
  after_stop: [{{command: [sh, -c, "! docker ps -a | grep specsweep-$SPECSWEEP_RUN_ID-$SPECSWEEP_PORT"]}}]
"""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerHost]:
    with docker_host(monkeypatch) as running:
        yield running


def test_a_driver_that_is_killed_leaves_no_container_and_the_run_is_finished_by_resume(
    host: DockerHost, tmp_path: Path
) -> None:
    root = tmp_path / "boxed"
    text = QUICK.replace("  start_speedup", ENGINE + "  start_speedup")
    text = text.replace("speculative_num_steps: [0, 1, 2, 3]", 'env.FAKE_A: ["0", "1"]')
    scenario = held(tmp_path, text.replace("speculative_algorithm: NEXTN, ", ""))
    driver = start("run", str(scenario), "--address", "local", "--run-dir", str(root))
    wait_until(lambda: len(at_work(root)) == 2 or driver.poll() is not None, "two points are measured")
    options = [host.options(name) for name in host.names()]
    driver.kill()
    driver.communicate()
    wait_until(lambda: not marked_processes("boxed") and not host.names(), "containers and clients are gone")
    let_go(tmp_path)

    assert len(options) == 2
    for given in options:
        assert given[given.index("--gpus") + 1] in {"device=0", "device=1"}
        assert given.count("--gpus") == 1
        assert given[given.index("--ulimit") + 1] == "nofile=1024"

    resumed = run("run", "--resume", str(root), "--address", "local")

    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "after_stop" not in resumed.stdout
    assert host.names() == []
    assert len([e for e in read_events(root / "journal.jsonl") if e["event"] == "point_done"]) == 4
    ranked = json.loads((root / "ranking.json").read_text())["objectives"]["fast"]["ranking"]
    assert sorted(row["settings"]["env.FAKE_A"] for row in ranked) == ["0", "1"]
    assert "env.FAKE_A=1" in resumed.stdout
    logs = [zstandard.ZstdDecompressor().decompress(f.read_bytes(), 10_000_000) for f in root.glob("logs/*/*.zst")]
    assert {log.splitlines()[1][:6] for log in logs} == {b"A is 0"[:6], b"A is 1"[:6]}
