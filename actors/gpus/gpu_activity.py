"""How busy GPUs are, by NVML. A host without NVML is a fact, not an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actors.gpus.gpu import gpu_handle, installed_nvml


def busiest_gpu_percent(gpu_ids: Sequence[str], nvml: Any | None = None) -> int | None:
    """How much of the last moment the busiest of these GPUs (index or UUID) computed; None if one cannot be seen."""
    nvml = nvml or installed_nvml()
    if nvml is None or not gpu_ids:
        return None
    try:
        return max(int(nvml.nvmlDeviceGetUtilizationRates(gpu_handle(nvml, name)).gpu) for name in gpu_ids)
    except nvml.NVMLError:  # MIG slices and some cards do not tell
        return None
