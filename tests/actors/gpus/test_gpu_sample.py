"""One look at the GPUs of a slot: by a scripted NVML, a ledger, and the account of an emulated server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.gpus.gpu_account import account_of, read_account, write_account
from actors.gpus.gpu_ledger import GpuLedger
from actors.gpus.gpu_sample import SlotGpuLook
from orchestrator.telemetry import GpuSample
from tests.fakes.nvml import FourGpus, NvmlFault


class FakeNvml(FourGpus):
    """GPU i has i + 1 GiB in use of 80 and draws 100 (i + 1) W; what is in `silent` it does not tell."""

    def __init__(self, silent: frozenset[str] = frozenset(), reasons: int = 0) -> None:
        self.silent = silent
        self.reasons = reasons

    def __getattr__(self, call: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=(gpu + 1) * 2**30, total=80 * 2**30),
            "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=97),
            "nvmlDeviceGetPowerUsage": lambda gpu: 100_040 * (gpu + 1),
            "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: 700_000,
            "nvmlDeviceGetClockInfo": lambda gpu, kind: {1: 1755}[kind],
            "nvmlDeviceGetTemperature": lambda gpu, sensor: {0: 61}[sensor],
            "nvmlDeviceGetTotalEccErrors": lambda gpu, kind, counter: {(1, 0): 3}[kind, counter],
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: self.reasons,
        }
        if call not in answers:
            raise AttributeError(call)  # an older binding
        if call in self.silent:
            raise_fault = NvmlFault

            def refuse(*_: Any) -> Any:
                raise raise_fault

            return refuse
        return answers[call]


def look(nvml: FakeNvml, *gpu_ids: str) -> tuple[GpuSample, ...]:
    return SlotGpuLook(gpu_ids, nvml=nvml).samples()


@pytest.mark.parametrize("name", ["1", "GPU-1"])
def test_a_gpu_tells_memory_power_clocks_and_heat(name: str) -> None:
    assert look(FakeNvml(), name) == (
        GpuSample(name, memory_used_gib=2.0, memory_total_gib=80.0, power_w=200.1, power_limit_w=700.0,
                  sm_clock_mhz=1755, temperature_c=61, utilization_percent=97, throttle=(), ecc_errors=3),
    )  # fmt: skip


def test_why_clocks_are_low_is_told_in_words() -> None:
    (gpu,) = look(FakeNvml(reasons=0x04 | 0x40 | 0x01), "0")

    assert gpu.throttle == ("idle", "power_cap", "hw_thermal")


def test_what_a_card_does_not_tell_is_unknown_and_costs_nothing_else() -> None:
    silent = frozenset({"nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo"})
    (gpu,) = look(FakeNvml(silent), "0")

    assert (gpu.ecc_errors, gpu.power_w, gpu.memory_used_gib, gpu.memory_free_gib) == (None, None, None, None)
    assert gpu.sm_clock_mhz == 1755


def test_a_gpu_that_is_not_there_tells_nothing() -> None:
    assert look(FakeNvml(), "0", "7") == (GpuSample("0"), GpuSample("7"))


def test_a_host_without_nvml_has_samples_that_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.gpus.gpu_sample.installed_nvml", lambda: None)

    assert SlotGpuLook(("0", "1")).samples() == (GpuSample("0"), GpuSample("1"))
    assert SlotGpuLook(()).samples() == ()


def test_gpus_that_the_server_does_not_use_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.gpus.gpu_sample.installed_nvml", FakeNvml)

    assert SlotGpuLook(("0",), watched=False).samples() == (GpuSample("0"),)


def test_the_ledger_tells_memory_of_its_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    GpuLedger.create(tmp_path, [24.0, 48.0]).hold(os.getpid(), 1, 30.5)
    monkeypatch.setenv("SPECSWEEP_GPU_LEDGER", str(tmp_path))

    assert SlotGpuLook(("1", "5")).samples() == (GpuSample("1", 30.5, 48.0), GpuSample("5"))


def test_an_emulated_server_tells_what_it_would_hold_for_as_long_as_it_lives(tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    seen = SlotGpuLook(("4", "5"), account=file)
    assert seen.samples() == (GpuSample("4"), GpuSample("5"))
    assert account_of({"SPECSWEEP_GPU_ACCOUNT": str(file)}) == file
    assert account_of({}) is None

    write_account(file, 17.25, 24.0, 2)
    assert seen.samples() == (GpuSample("4", 17.25, 24.0), GpuSample("5", 17.25, 24.0))
    assert SlotGpuLook((), account=file).samples() == (GpuSample("0", 17.25, 24.0), GpuSample("1", 17.25, 24.0))

    of_a_dead_one = "from pathlib import Path; from actors.gpus.gpu_account import write_account; import sys; "
    of_a_dead_one += "write_account(Path(sys.argv[1]), 17.25, 24.0, 2)"
    subprocess.run([sys.executable, "-c", of_a_dead_one, str(file)], check=True)
    assert seen.samples() == (GpuSample("4", 0.0, 24.0), GpuSample("5", 0.0, 24.0))


def test_an_account_that_cannot_be_written_or_read_is_none(tmp_path: Path) -> None:
    write_account(tmp_path / "no" / "such" / "folder", 1.0, 2.0, 1)
    (tmp_path / "torn").write_text("[1.0, 2")

    assert read_account(tmp_path / "torn") is None
