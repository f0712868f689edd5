"""A slot on GPUs of a ledger: proof that their memory is back, what is done if it is not, and what is said of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import actors.servers.slot_gpus
from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger
from actors.guards.guard import RUN_MARK
from actors.host.evictions import evict, evictable
from actors.servers.slot_gpus import SlotGpus
from actors.slot_host import SlotHost
from orchestrator.outcome import Label, Phase
from orchestrator.server_start import LaunchSpec, ServerDied, ServerReady, StartEvent
from tests.fakes.gpu_holder import Start, holders, watched_ledger
from tests.fakes.scripted_server import SLOT, diagnosis_of

RUN = f"slot-gpus-{os.getpid()}"
SPEC = LaunchSpec(
    run_id=RUN,
    trial_id="t1",
    engine="emulator",
    command=(),
    model_path="example/small-model",
    settings=(),
    env=(),
    extra_args=("--emulator-start-speedup", "1000"),
    stop_grace_s=60.0,
)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuLedger:
    for name, seconds in {"_SETTLE_S": 0.1, "_RETURN_S": 0.3, "_ENDED_S": 60.0}.items():
        monkeypatch.setattr(actors.servers.slot_gpus, name, seconds)
    return watched_ledger(tmp_path, [200.0, 200.0], monkeypatch)


@pytest.fixture
def start(ledger: GpuLedger) -> Iterator[Start]:
    with holders(ledger) as start:
        yield start


def slot(gpu: str = "1") -> SlotHost:
    return SlotHost(RUN, SLOT + 3, (gpu,), "127.0.0.1")


async def launched(host: SlotHost) -> StartEvent:
    return [event async for event in host.launch(SPEC)][-1]


def test_memory_is_proven_back_gpu_by_gpu_and_the_slot_goes_on(ledger: GpuLedger) -> None:
    async def run() -> None:
        host = slot()
        assert isinstance(await launched(host), ServerReady)
        used = round(ledger.gpus()[1].used_gib, 2)
        assert used > 100
        told = await host.stop(60.0)
        assert (told["gpu_free"], told["gpus"], told["refused"], told["notes"]) == (True, [[1, used, 0.0]], None, ())
        assert isinstance(await launched(host), ServerReady)
        await host.close(60.0)

    asyncio.run(run())


def test_memory_that_never_comes_back_refuses_the_slot_with_gib_before_and_after(ledger: GpuLedger) -> None:
    async def run() -> None:
        host = slot()
        assert isinstance(await launched(host), ServerReady)
        used = ledger.gpus()[1].used_gib
        GpuLedger.create(ledger.folder, [200.0, 200.0], release_lag_s=None)
        told = await host.stop(60.0)
        assert told["gpu_free"] is False
        refused = str(told["refused"])
        numbers = f"GPU memory did not come back (GPU 1: {used:.1f} GiB before the stop, {used:.1f} after); "
        assert refused.startswith(
            f"{numbers}GPU 1 (Emulated GPU): {used:.1f} GiB used by no process that can be seen; "
        )
        died = await launched(host)
        assert (diagnosis_of(died).label, diagnosis_of(died).evidence) == (Label.GPU_OCCUPIED, refused)
        assert (await host.stop(60.0))["refused"] == refused
        await host.close(60.0)

    asyncio.run(run())


def test_what_an_earlier_server_of_the_run_left_is_ended_before_the_next_starts(start: Start) -> None:
    left, other = start({1: 60.0}, env={RUN_MARK: RUN}), start({0: 60.0}, env={RUN_MARK: RUN})

    async def run() -> None:
        host = slot()
        assert isinstance(await launched(host), ServerReady)
        assert (left.poll(), other.poll()) == (-15, None)  # the other is another slot's
        await host.close(60.0)

    asyncio.run(run())


def test_a_stranger_on_the_gpu_is_named_and_the_slot_refuses(start: Start) -> None:
    stranger = start({1: 60.0}, words=("vllm", "serve"))

    async def run() -> ServerDied:
        host = slot()
        died = await launched(host)
        assert isinstance(died, ServerDied)
        assert (await host.stop(60.0))["refused"] == died.diagnosis.evidence
        await host.close(60.0)
        return died

    died = asyncio.run(run())
    assert (died.diagnosis.label, died.diagnosis.phase) == (Label.GPU_OCCUPIED, Phase.LAUNCH)
    assert f"GPU 1 (Emulated GPU): pid {stranger.pid} of " in died.diagnosis.evidence
    assert "60.0 GiB" in died.diagnosis.evidence
    assert died.diagnosis.evidence.endswith("vllm serve; end it, or let `specsweep run --evict` end it")
    assert stranger.poll() is None


def test_one_that_was_evicted_and_is_there_again_is_told_as_restarted(start: Start) -> None:
    first = start({1: 60.0}, words=("vllm", "serve"))
    evict([h.process for h in evictable(RUN) if h.process], run_id=RUN, gpu_ids=["1"], watch_s=0.0)
    assert first.wait(60) == -15
    second = start({1: 60.0}, words=("vllm", "serve"))
    evidence = diagnosis_of(asyncio.run(launched(slot()))).evidence
    assert f"pid {second.pid} runs the command of pid {first.pid} again, which was evicted" in evidence
    assert second.poll() is None


def test_a_stranger_that_came_while_the_server_served_is_noted(start: Start) -> None:
    earlier = start({1: 0.5})

    async def run() -> dict[str, object]:
        host = slot()
        assert isinstance(await launched(host), ServerReady)
        free = 200.0 - sum(gib for gib in GpuLedger(Path(os.environ[LEDGER_VARIABLE])).gpus()[1].holders.values())
        late = start({1: min(3.0, free)})
        told = await host.stop(60.0)
        assert str(told["notes"]).count(f"GPU 1: pid {late.pid} of ") == 1
        assert str(told["notes"]).count("began while the server of this trial ran") == 1
        assert str(earlier.pid) not in str(told["notes"])
        await host.close(60.0)
        return told

    assert asyncio.run(run())["gpu_free"] is False


@pytest.mark.parametrize(
    ("engine", "gpu_ids", "with_ledger", "watched"),
    [
        ("emulator", ("1",), True, True),
        ("emulator", ("1",), False, False),
        ("sglang", ("1",), False, True),
        ("command", ("1",), False, True),
        ("attach", ("1",), True, False),
        ("sglang", (), True, False),
    ],
)
def test_gpus_are_watched_where_the_server_uses_them(
    ledger: GpuLedger,
    monkeypatch: pytest.MonkeyPatch,
    engine: Any,
    gpu_ids: tuple[str, ...],
    with_ledger: bool,
    watched: bool,
) -> None:
    if not with_ledger:
        monkeypatch.delenv(LEDGER_VARIABLE)
    assert SlotGpus(replace(SPEC, engine=engine), gpu_ids).watched is watched
