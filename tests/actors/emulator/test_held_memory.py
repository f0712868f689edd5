"""An emulated server in a GPU ledger: what its schedulers hold, and how it dies where another process holds it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.diagnosis import diagnose
from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger
from actors.servers.follower import Segment
from orchestrator.outcome import Label
from tests.actors.emulator.running import READY, emulator
from tests.fakes.gpu_holder import end_holder, start_holder
from tests.integration.programs import wait_until

QWEN = "--model-path Qwen/Qwen3.5-122B-A10B --tp 2 --mem-fraction-static 0.8 --context-length 8192"


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuLedger:
    made = GpuLedger.create(tmp_path / "ledger", [200.0, 200.0, 200.0])
    monkeypatch.setenv(LEDGER_VARIABLE, str(made.folder))
    return made


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = start_holder()
    yield process
    end_holder(process)


def label_of(log: str) -> Label:
    return diagnose([Segment(line, n) for n, line in enumerate(log.splitlines(), 1)], exit_code=-9).label


def test_schedulers_hold_the_memory_of_the_gpus_they_see_until_they_end(
    ledger: GpuLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    with emulator(tmp_path, QWEN, speedup=1000) as server:
        server.wait_for(READY)
        first, unused, second = ledger.gpus()
        schedulers = [c.pid for c in server.children() if "scheduler" in " ".join(c.cmdline())]
        told = float(server.log.rpartition("available_gpu_mem=")[2].split()[0])
        assert list(second.holders) + list(first.holders) == schedulers
        assert (round(first.free_gib, 2), round(second.free_gib, 2), unused.used_gib) == (told, told, 0.0)
    # The schedulers die with their parent, a moment after it.
    wait_until(lambda: [gpu.used_gib for gpu in ledger.gpus()] == [0.0, 0.0, 0.0], "the memory is given back")


def test_gpus_that_are_not_equally_free_are_refused_as_sglang_does(
    ledger: GpuLedger, stranger: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ledger.hold(stranger.pid, 1, 60.0)
    with emulator(tmp_path, QWEN, speedup=1000) as server:
        assert server.process.wait(60) == -9
        assert "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied" in server.log
        assert label_of(server.log) is Label.GPU_OCCUPIED


def test_a_server_whose_memory_another_process_holds_dies_and_names_that_process(
    ledger: GpuLedger, stranger: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ledger.hold(stranger.pid, 0, 120.0)
    ledger.hold(stranger.pid, 1, 120.0)
    with emulator(tmp_path, QWEN, speedup=1000) as server:
        assert server.process.wait(60) == -9
        assert f"Process {stranger.pid} has 120.00 GiB memory in use." in server.log
        assert label_of(server.log) is Label.OOM_WEIGHTS


def test_memory_that_another_process_takes_while_a_server_starts_is_missing_in_the_phase_that_wants_it(
    ledger: GpuLedger, stranger: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "faults.yaml").write_text("start: {slow: weights, until: go}", encoding="utf-8")
    with emulator(tmp_path, f"{QWEN} --emulator-faults {tmp_path / 'faults.yaml'}", speedup=1000) as server:
        server.wait_for("Load weight begin")
        ledger.hold(stranger.pid, 1, ledger.gpus()[1].free_gib)
        (tmp_path / "go").touch()
        assert server.process.wait(60) == -9
        assert "torch.OutOfMemoryError: CUDA out of memory" in server.log
        assert "GPU 1 has a total capacity of 200.00 GiB of which 0.00 GiB is free" in server.log
        assert label_of(server.log) is Label.OOM_WEIGHTS
