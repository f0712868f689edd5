"""What the GPUs of a slot draw, from NVML, in samples that a later question is answered from.

A GPU's energy counter (Volta and later) misses nothing between two samples. Where one of them has none, power is
sampled and summed up. Emulated GPUs draw nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from actors.gpus.gpu import gpu_handle, installed_nvml
from actors.gpus.gpu_ledger import ledger_of

SAMPLE_S = 0.5
# Some seven hours; no point is longer.
_MOST_SAMPLES = 50_000
# A window may begin or end so much outside of the samples: clocks of hosts differ, and a sample may come late.
_EDGE_S = 2 * SAMPLE_S


class EnergyMeter:
    """Joules since the first sample, at the wall-clock times of the samples (seconds since 1970)."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MOST_SAMPLES)
        self._watts: float | None = None

    def counted(self, at_s: float, joules: float) -> None:
        """The GPUs' own counters stand at this sum."""
        self._samples.append((at_s, joules))

    def drew(self, at_s: float, watts: float) -> None:
        """The GPUs draw this now; between two samples it is taken to change evenly."""
        if not self._samples or self._watts is None:
            self._samples.append((at_s, 0.0))
        else:
            last_s, joules = self._samples[-1]
            self._samples.append((at_s, joules + (self._watts + watts) / 2 * max(at_s - last_s, 0.0)))
        self._watts = watts

    def mean_w(self, began_s: float, ended_s: float) -> float | None:
        """Mean power between two times; None where the samples do not cover them."""
        if len(self._samples) < 2 or ended_s <= began_s:
            return None
        first_s, last_s = self._samples[0][0], self._samples[-1][0]
        if began_s < first_s - _EDGE_S or ended_s > last_s + _EDGE_S:
            return None
        began_s, ended_s = max(began_s, first_s), min(ended_s, last_s)
        if ended_s <= began_s:
            return None
        samples = list(self._samples)
        return (_joules_at(samples, ended_s) - _joules_at(samples, began_s)) / (ended_s - began_s)


def _joules_at(samples: list[tuple[float, float]], at_s: float) -> float:
    """Between two samples on the straight line."""
    i = min(max(bisect_right(samples, at_s, key=lambda sample: sample[0]), 1), len(samples) - 1)
    (before_s, before), (after_s, after) = samples[i - 1], samples[i]
    return before + (after - before) * (at_s - before_s) / (after_s - before_s) if after_s > before_s else after


class SlotPower:
    """Samples the GPUs of a slot while a server runs there."""

    def __init__(self, gpu_ids: Sequence[str], nvml: Any | None = None, clock: Callable[[], float] = time.time) -> None:
        self._ids = tuple(gpu_ids)
        self._nvml = nvml
        self._clock = clock
        self._meter = EnergyMeter()
        self._handles: list[Any] = []
        self._counts: bool | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Sample from now on; ends by itself where the GPUs tell nothing."""
        self._task = asyncio.create_task(self._sample_on())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def mean_w(self, began_s: float, ended_s: float) -> float | None:
        """Mean power of all these GPUs together between two times of the wall clock; None where it is not known."""
        await asyncio.to_thread(self.sample)
        return self._meter.mean_w(began_s, ended_s)

    async def _sample_on(self) -> None:
        goes_on = True
        while goes_on:
            goes_on = await asyncio.to_thread(self.sample)
            await asyncio.sleep(SAMPLE_S)

    def sample(self) -> bool:
        """Take one sample; False where the GPUs tell nothing."""
        nvml = self._nvml
        if nvml is None:
            nvml = None if ledger_of(os.environ) is not None else installed_nvml()
        if nvml is None or not self._ids:
            return False
        try:
            self._handles = handles = self._handles or [gpu_handle(nvml, gpu) for gpu in self._ids]
            if self._counts is None:
                self._counts = _has_counters(nvml, handles)
            if self._counts:
                joules = sum(nvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles) / 1e3
                self._meter.counted(self._clock(), joules)
            else:
                watts = sum(nvml.nvmlDeviceGetPowerUsage(handle) for handle in handles) / 1e3
                self._meter.drew(self._clock(), watts)
        except nvml.NVMLError:
            return False
        return True


def _has_counters(nvml: Any, handles: Sequence[Any]) -> bool:
    try:
        for handle in handles:
            nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except nvml.NVMLError:
        return False
    return True
