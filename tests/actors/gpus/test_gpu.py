"""GPUs and their holders, from a scripted NVML."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from actors.gpus.gpu import GIB, GpuProcess, GpuState, gpu_states, wait_until_free
from actors.gpus.gpu_holders import foreign_occupants
from actors.guards.guard import RUN_MARK

# Above every pid that Linux gives out: never in /proc, like the processes of another PID namespace.
UNSEEN = 4_194_305


class NvmlGone(Exception):
    """The driver was unloaded."""


@dataclass
class FakeNvml:
    """One card of 96 GiB that holds these processes; `used` GiB in all."""

    used: float
    holders: dict[int, float]
    is_gone: bool = False
    NVMLError = NvmlGone

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        if self.is_gone:
            raise NvmlGone
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetMemoryInfo(self, _: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=96 * GIB, used=int(self.used * GIB), free=int((96 - self.used) * GIB))

    def nvmlDeviceGetUUID(self, _: int) -> bytes:  # noqa: N802
        return b"GPU-a1"

    def nvmlDeviceGetName(self, _: int) -> str:  # noqa: N802
        return "RTX PRO 6000"

    def nvmlDeviceGetComputeRunningProcesses(self, _: int) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=int(gib * GIB)) for pid, gib in self.holders.items()]

    def nvmlDeviceGetGraphicsRunningProcesses(self, _: int) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=UNSEEN, usedGpuMemory=None)]


def state(used: float) -> tuple[GpuState, ...]:
    return (GpuState(0, "GPU-a1", "RTX PRO 6000", 96.0, used, 96.0 - used, ()),)


@pytest.fixture
def marked() -> Iterator[int]:
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(command, env={RUN_MARK: "run-7"}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_a_card_is_told_with_its_processes_the_biggest_first() -> None:
    (card,) = gpu_states(FakeNvml(24.5, {os.getpid(): 24.0})) or ()
    assert (card.index, card.uuid, card.name) == (0, "GPU-a1", "RTX PRO 6000")
    assert (card.total_gib, card.used_gib, card.free_gib) == (96.0, 24.5, 71.5)
    assert [(process.pid, process.gib) for process in card.processes] == [(os.getpid(), 24.0), (UNSEEN, 0.0)]
    assert card.processes[1] == GpuProcess(UNSEEN, "?", "?", 0.0)
    assert "python" in card.processes[0].command


def test_a_host_without_nvml_or_with_a_dead_driver_has_no_states() -> None:
    assert gpu_states(FakeNvml(0.0, {}, is_gone=True)) is None


def test_a_process_without_the_mark_is_foreign_and_one_with_it_is_not(marked: int) -> None:
    def read() -> tuple[GpuState, ...] | None:
        return gpu_states(FakeNvml(60.0, {marked: 20.0, UNSEEN + 1: 39.0}))

    foreign = f"GPU 0 (RTX PRO 6000): pid {UNSEEN + 1} of ?, 39.0 GiB: ?"
    assert foreign_occupants(["0"], "run-7", read=read) == (foreign,)
    assert len(foreign_occupants(["GPU-a1"], "run-8", read=read)) == 2
    assert foreign_occupants(["1"], "run-7", read=read) == ()


@pytest.mark.parametrize(
    ("contained", "where"),
    [
        (True, "this is a container, look on the container host: nvidia-smi, fuser -v /dev/nvidia*"),
        (
            False,
            "look in other containers and as root: nvidia-smi, fuser -v /dev/nvidia*; else the driver did not free it",
        ),
    ],
)
def test_memory_that_no_visible_process_explains_is_told(
    contained: bool, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.gpus.gpu_holders.is_contained", lambda: contained)
    occupants = foreign_occupants(["0"], "run-7", read=lambda: gpu_states(FakeNvml(60.0, {})))
    assert occupants == (f"GPU 0 (RTX PRO 6000): 60.0 GiB used by no process that can be seen; {where}",)


def test_waiting_ends_when_the_memory_is_back() -> None:
    reads = iter([state(60.0), state(12.0), state(0.6)])
    assert asyncio.run(wait_until_free(["0"], 1.0, 30.0, read=lambda: next(reads), poll_s=0.0)) is True


def test_waiting_ends_at_its_limit() -> None:
    assert asyncio.run(wait_until_free(["0"], 1.0, 0.0, read=lambda: state(60.0), poll_s=0.0)) is False


@pytest.mark.parametrize("seen", [None, ()])
def test_a_card_that_cannot_be_seen_is_neither_free_nor_taken(seen: tuple[GpuState, ...] | None) -> None:
    assert asyncio.run(wait_until_free(["0"], 1.0, 30.0, read=lambda: seen, poll_s=0.0)) is None
