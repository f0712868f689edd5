"""One look at the GPUs of a slot: memory, power, clocks, heat. By NVML, or by what stands in for it.

What a GPU does not tell is None. A host without NVML is a fact, not an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from actors.gpus.gpu import GIB, gpu_handle, installed_nvml
from actors.gpus.gpu_account import read_account
from actors.gpus.gpu_ledger import GpuLedger, ledger_of
from orchestrator.telemetry import GpuSample

# Bits of NVML's clock event reasons.
_REASONS = (
    (0x001, "idle"),
    (0x002, "set_clocks"),
    (0x004, "power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal"),
    (0x040, "hw_thermal"),
    (0x080, "hw_power_brake"),
    (0x100, "display_clock"),
    (0x200, "board_limit"),
    (0x400, "reliability"),
)
_REASON_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class SlotGpuLook:
    """Looks at the GPUs of a slot. `account` is the file of an emulated server; `nvml` is for tests.

    `watched` is False where the server uses none of the host's GPUs: what NVML has of them says nothing about it.
    """

    def __init__(
        self, gpu_ids: Sequence[str], *, watched: bool = True, account: Path | None = None, nvml: Any | None = None
    ) -> None:
        self._ids = tuple(gpu_ids)
        self._watched = watched
        self._account = account
        self._nvml = nvml
        self._handles: list[Any] = []

    def samples(self) -> tuple[GpuSample, ...]:
        """One of each GPU. Blocks for some milliseconds."""
        if self._account is not None:
            return self._accounted(self._account)
        if self._nvml is None and (ledger := ledger_of(os.environ)) is not None:
            return self._in_ledger(ledger)
        nvml = (self._nvml or installed_nvml()) if self._watched else None
        if nvml is None:
            return tuple(map(GpuSample, self._ids))
        try:
            self._handles = self._handles or [gpu_handle(nvml, gpu) for gpu in self._ids]
        except nvml.NVMLError:
            return tuple(map(GpuSample, self._ids))
        return tuple(_sample(nvml, gpu, handle) for gpu, handle in zip(self._ids, self._handles, strict=True))

    def _accounted(self, file: Path) -> tuple[GpuSample, ...]:
        told = read_account(file)
        if told is None:
            return tuple(map(GpuSample, self._ids))
        used_gib, total_gib, gpus = told
        names = self._ids[:gpus] or tuple(map(str, range(gpus)))
        return tuple(GpuSample(name, round(used_gib, 3), round(total_gib, 3)) for name in names)

    def _in_ledger(self, ledger: GpuLedger) -> tuple[GpuSample, ...]:
        try:
            gpus = {str(gpu.index): gpu for gpu in ledger.gpus()}
        except (OSError, ValueError, TypeError, KeyError):
            gpus = {}
        return tuple(
            GpuSample(name, round(gpus[name].used_gib, 3), round(gpus[name].total_gib, 3))
            if name in gpus
            else GpuSample(name)
            for name in self._ids
        )


def _sample(nvml: Any, gpu: str, handle: Any) -> GpuSample:
    def ask(call: str, *arguments: Any) -> Any | None:
        try:
            return getattr(nvml, call)(handle, *arguments)
        except (nvml.NVMLError, AttributeError):  # the card, the driver or the binding does not know it
            return None

    memory = ask("nvmlDeviceGetMemoryInfo")
    use = ask("nvmlDeviceGetUtilizationRates")
    return GpuSample(
        gpu,
        memory_used_gib=None if memory is None else round(memory.used / GIB, 3),
        memory_total_gib=None if memory is None else round(memory.total / GIB, 3),
        power_w=_watts(ask("nvmlDeviceGetPowerUsage")),
        power_limit_w=_watts(ask("nvmlDeviceGetEnforcedPowerLimit")),
        sm_clock_mhz=_whole(ask("nvmlDeviceGetClockInfo", 1)),
        temperature_c=_whole(ask("nvmlDeviceGetTemperature", 0)),
        utilization_percent=None if use is None else int(use.gpu),
        throttle=_reasons(ask),
        ecc_errors=_whole(ask("nvmlDeviceGetTotalEccErrors", 1, 0)),
    )


def _reasons(ask: Callable[[str], Any | None]) -> tuple[str, ...] | None:
    for call in _REASON_CALLS:  # the second is what older drivers and bindings call it
        mask = ask(call)
        if mask is not None:
            return tuple(word for bit, word in _REASONS if int(mask) & bit)
    return None


def _watts(milliwatts: Any | None) -> float | None:
    return None if milliwatts is None else round(float(milliwatts) / 1e3, 1)


def _whole(value: Any | None) -> int | None:
    return None if value is None else int(value)
