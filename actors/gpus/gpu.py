"""Who holds how much memory on which GPU of this host, by NVML or a ledger. A host without either is no error."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from actors.gpus.gpu_ledger import GpuLedger, ledger_of
from actors.processes.process_facts import command_of, user_of

GIB = 2**30
# An idle card shows up to this much used: driver, display, monitoring.
IDLE_GIB = 1.0


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with memory on a GPU. User and command are '?' if it lives in another PID namespace."""

    pid: int
    user: str
    command: str
    gib: float

    def __str__(self) -> str:
        return f"pid {self.pid} of {self.user}, {self.gib:.1f} GiB: {self.command[:120]}"


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU at one moment; `index` in PCI order, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts."""

    index: int
    uuid: str
    name: str
    total_gib: float
    used_gib: float
    free_gib: float
    processes: tuple[GpuProcess, ...]

    def is_one_of(self, gpu_ids: Sequence[str]) -> bool:
        """Whether this GPU is named, by index or by UUID."""
        return str(self.index) in gpu_ids or self.uuid in gpu_ids


@cache
def installed_nvml() -> Any | None:
    """The NVML binding, initialised; None on a host without the library, a driver or a GPU."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def gpu_handle(nvml: Any, name: str) -> Any:
    """NVML's handle of a GPU by index or UUID; its NVMLError if there is none."""
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)


def gpu_states(nvml: Any | None = None) -> tuple[GpuState, ...] | None:
    """All GPUs of the host, by NVML or the ledger that stands in for it; None if neither is there or answers."""
    if nvml is None and (ledger := ledger_of(os.environ)) is not None:
        return _ledger_states(ledger)
    nvml = nvml or installed_nvml()
    if nvml is None:
        return None
    try:
        return tuple(_state(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError:
        return None


def gpu_capability(gpu_ids: Sequence[str], nvml: Any | None = None) -> tuple[int, int] | None:
    """CUDA compute capability of these GPUs (index or UUID); None without NVML, if one is missing, or they differ."""
    if nvml is None and (ledger := ledger_of(os.environ)) is not None:
        return ledger.traits.capability
    nvml = nvml or installed_nvml()
    if nvml is None:
        return None
    found: dict[str, tuple[int, int]] = {}
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            for name in {str(index), nvml_text(nvml.nvmlDeviceGetUUID(handle))} & set(gpu_ids):
                major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
                found[name] = (int(major), int(minor))
    except nvml.NVMLError:
        return None
    return next(iter(found.values())) if len(found) == len(set(gpu_ids)) and len(set(found.values())) == 1 else None


def _ledger_states(ledger: GpuLedger) -> tuple[GpuState, ...] | None:
    try:
        traits, gpus = ledger.traits, ledger.gpus()
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return tuple(
        GpuState(
            index=gpu.index,
            uuid=f"GPU-ledger-{gpu.index}",
            name=traits.name,
            total_gib=gpu.total_gib,
            used_gib=gpu.used_gib,
            free_gib=gpu.free_gib,
            processes=tuple(
                _process(pid, int(gib * GIB) if traits.tells_gib else None)
                for pid, gib in sorted(gpu.holders.items(), key=lambda holder: -holder[1])
                if traits.lists_pids
            ),
        )
        for gpu in gpus
    )


def _state(nvml: Any, index: int) -> GpuState:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    holders = [*nvml.nvmlDeviceGetComputeRunningProcesses(handle), *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)]
    processes = {holder.pid: _process(holder.pid, holder.usedGpuMemory) for holder in holders}
    return GpuState(
        index=index,
        uuid=nvml_text(nvml.nvmlDeviceGetUUID(handle)),
        name=nvml_text(nvml.nvmlDeviceGetName(handle)),
        total_gib=memory.total / GIB,
        used_gib=memory.used / GIB,
        free_gib=memory.free / GIB,
        processes=tuple(sorted(processes.values(), key=lambda process: -process.gib)),
    )


def _process(pid: int, used_bytes: int | None) -> GpuProcess:
    return GpuProcess(pid, user_of(pid), command_of(pid), (used_bytes or 0) / GIB)


def nvml_text(value: str | bytes) -> str:
    """Releases of the binding differ in what they give."""
    return value.decode() if isinstance(value, bytes) else value


async def wait_until_free(
    gpu_ids: Sequence[str],
    limit_gib: float = IDLE_GIB,
    timeout_s: float = 30.0,
    *,
    read: Callable[[], tuple[GpuState, ...] | None] = gpu_states,
    poll_s: float = 0.25,
) -> bool | None:
    """Whether all these GPUs came down to `limit_gib` used memory in time; None if that cannot be seen.

    The driver gives memory back some time after the last process is gone.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        states = await asyncio.to_thread(read)
        if states is None:
            return None
        mine = [state for state in states if state.is_one_of(gpu_ids)]
        if len(mine) < len(gpu_ids):
            return None
        if all(state.used_gib <= limit_gib for state in mine):
            return True
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(poll_s)
