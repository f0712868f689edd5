"""What GPUs draw, from a scripted NVML."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gpus.gpu_energy import EnergyMeter, SlotPower
from tests.fakes.nvml import FourGpus, NvmlFault


class FakeNvml(FourGpus):
    """Four GPUs; GPU i has used (i + 1) x `seconds` x 100 J and draws (i + 1) x `watts`."""

    def __init__(self, *, counts: bool = True, watts: float = 100.0) -> None:
        self.seconds = 0.0
        self.counts = counts
        self.watts = watts

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
        if not self.counts:
            raise NvmlFault
        return round((handle + 1) * self.seconds * 100e3)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return round((handle + 1) * self.watts * 1e3)


def power(nvml: FakeNvml, gpu_ids: tuple[str, ...]) -> SlotPower:
    return SlotPower(gpu_ids, nvml, clock=lambda: 1000.0 + nvml.seconds)


def sampled(nvml: FakeNvml, slot: SlotPower, seconds: Iterator[float] | list[float]) -> None:
    for at in seconds:
        nvml.seconds = at
        assert slot.sample()


@pytest.mark.parametrize("gpu_ids", [("1", "2"), ("GPU-1", "GPU-2")])
def test_the_power_of_a_slot_is_that_of_its_gpus_by_their_energy_counters(gpu_ids: tuple[str, ...]) -> None:
    nvml = FakeNvml()
    slot = power(nvml, gpu_ids)
    sampled(nvml, slot, [0.0, 5.0])
    nvml.seconds = 10.0

    assert asyncio.run(slot.mean_w(1002.0, 1009.0)) == pytest.approx(500.0)


def test_without_counters_power_is_sampled() -> None:
    nvml = FakeNvml(counts=False)
    slot = power(nvml, ("0",))
    for at, watts in ((0.0, 100.0), (1.0, 300.0), (2.0, 300.0)):
        nvml.watts = watts
        sampled(nvml, slot, [at])

    assert asyncio.run(slot.mean_w(1000.0, 1001.0)) == pytest.approx(200.0)
    assert asyncio.run(slot.mean_w(1001.0, 1002.0)) == pytest.approx(300.0)


def test_a_window_that_the_samples_do_not_cover_has_no_power() -> None:
    meter = EnergyMeter()
    meter.counted(100.0, 0.0)
    assert meter.mean_w(100.0, 101.0) is None
    meter.counted(110.0, 1000.0)

    assert meter.mean_w(99.5, 110.5) == pytest.approx(100.0)  # clocks of hosts differ a little
    assert meter.mean_w(90.0, 105.0) is None
    assert meter.mean_w(105.0, 115.0) is None
    assert meter.mean_w(105.0, 105.0) is None


def test_gpus_that_are_not_there_and_hosts_without_nvml_tell_nothing() -> None:
    assert not power(FakeNvml(), ("7",)).sample()
    assert not power(FakeNvml(), ()).sample()


def test_emulated_gpus_draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.gpus.gpu_energy.ledger_of", lambda _: object())
    monkeypatch.setattr("actors.gpus.gpu_energy.installed_nvml", FakeNvml)

    assert not SlotPower(("0",)).sample()


@given(st.lists(st.floats(0.1, 5.0), min_size=2, max_size=30), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_constant_power_comes_out_whatever_the_samples_and_the_window(gaps: list[float], a: float, b: float) -> None:
    counted, drawn, at = EnergyMeter(), EnergyMeter(), 50.0
    for gap in gaps:
        counted.counted(at, 7e6 + 320.0 * at)
        drawn.drew(at, 320.0)
        at += gap
    last = at - gaps[-1]
    began, ended = sorted(50.0 + share * (last - 50.0) for share in (a, b))
    if ended - began < 0.01:
        return

    assert counted.mean_w(began, ended) == pytest.approx(320.0, rel=1e-4)
    assert drawn.mean_w(began, ended) == pytest.approx(320.0, rel=1e-4)


def test_a_slot_samples_by_itself_while_its_server_runs_and_not_after() -> None:
    async def run() -> tuple[float | None, bool]:
        nvml = FakeNvml()
        slot = power(nvml, ("0",))
        slot.begin()
        while not slot._meter._samples:  # noqa: ASYNC110
            await asyncio.sleep(0)
        nvml.seconds = 8.0
        mean_w = await slot.mean_w(1000.0, 1008.0)
        slot.end()
        await asyncio.sleep(0)
        assert slot._task is not None
        return mean_w, slot._task.cancelled()

    mean_w, ended = asyncio.run(run())

    assert mean_w == pytest.approx(100.0)
    assert ended
