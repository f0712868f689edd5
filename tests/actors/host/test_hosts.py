"""Slots and load on their hosts, without Ray: what a driver asks of them, in order and out of order."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

import actors.host.host_cleanup
import actors.slot_host
from actors.gpus.gpu import GpuProcess, GpuState
from actors.gpus.gpu_holders import gpu_uses
from actors.host.host_cleanup import end_leftovers, gpus_told
from actors.host.run_lease import remove_scratch, scratch_dir
from actors.load.record_batch import records_of
from actors.load_host import LoadHost, spool_file, spooled_batches
from actors.slot_host import SlotHost
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec, ServerDied, ServerReady, StartEvent
from orchestrator.trial import ClientReport
from tests.actors.load_specs import point
from tests.fakes.scripted_endpoint import ScriptedEndpoint, native_answer
from tests.fakes.scripted_server import SLOT, START, diagnosis_of, eventually, is_alive, spec_for

RUN = "run-7"
NO_STOP: dict[str, Any] = {
    "exit_code": None,
    "seconds": 0.0,
    "gpu_free": None,
    "notes": (),
    "gpus": [],
    "refused": None,
}


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def slot(number: int = SLOT + 2, **changes: Any) -> SlotHost:
    return SlotHost(RUN, number, (), "127.0.0.1", **changes)


async def launched(host: SlotHost, spec: LaunchSpec) -> StartEvent:
    """The last event of a launch."""
    return [event async for event in host.launch(spec)][-1]


async def served(host: SlotHost, **changes: Any) -> ServerReady:
    """A server that came up."""
    ready = await launched(host, spec_for({"lines": START, "then": "serve"}, **changes))
    assert isinstance(ready, ServerReady)
    return ready


def text_of(log: bytes) -> str:
    return zstandard.ZstdDecompressor().decompress(log, max_output_size=10_000_000).decode()


def test_two_who_ask_for_the_end_at_once_both_wait_for_it() -> None:
    async def run() -> None:
        host = slot()
        ready = await served(host)
        first, second = await asyncio.gather(host.stop(60.0), host.stop(5.0))
        assert first == second
        assert not is_alive(ready.pid)
        await host.close(1.0)

    asyncio.run(run())


def test_a_slot_serves_and_stops_and_tells_the_end_again_to_whoever_has_lost_the_answer() -> None:
    async def run() -> None:
        host = slot()
        assert await host.died() is None
        ready = await served(host)
        assert await host.died() is None
        report = await host.stop(60.0)
        assert (report["exit_code"], report["gpu_free"]) == (-15, None)
        assert not is_alive(ready.pid)
        assert await host.stop(60.0) == report
        log = text_of(await host.server_log())
        assert log.startswith(START[0][:40])
        assert "sk-printed" not in log
        assert text_of(await host.server_log()) == log
        await host.close(1.0)

    asyncio.run(run())


def test_a_new_launch_ends_the_server_before_it_and_begins_a_log_of_its_own() -> None:
    async def run() -> None:
        host = slot()
        first = await served(host)
        second = await served(host)
        assert not is_alive(first.pid)
        assert is_alive(second.pid)
        await host.stop(60.0)
        assert text_of(await host.server_log()).count("ready to roll!") == 1
        await host.close(1.0)

    asyncio.run(run())


def test_a_driver_that_falls_silent_loses_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(actors.slot_host, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    async def run() -> None:
        host = slot(lease_s=0.1)
        ready = await served(host)
        for _ in range(3):
            now_s[0] += 0.09
            await host.heartbeat()
            await asyncio.sleep(0.2)  # meanwhile the lease is looked at
            assert is_alive(ready.pid)
        now_s[0] += 0.11

        async def gone() -> bool:
            return not is_alive(ready.pid)

        assert await eventually(gone)
        assert await host.died() is None
        await host.close(1.0)

    asyncio.run(run())


def test_a_driver_that_comes_back_gets_a_new_lease() -> None:
    async def run() -> None:
        host = slot(lease_s=0.1)
        died = await launched(host, spec_for({"lines": START, "then": "hang"}))
        assert diagnosis_of(died).label is Label.STOP_REQUESTED
        died = await launched(host, spec_for({"lines": START, "then": "hang"}))
        assert diagnosis_of(died).label is Label.STOP_REQUESTED
        await host.close(1.0)

    asyncio.run(run())


def test_a_slot_without_a_free_port_tells_so_as_a_death() -> None:
    async def run() -> None:
        host = slot(200)
        died = await launched(host, spec_for({}))
        evidence = "no free port for slot 200 between 84000 and 84320; `ss -ltnp` shows who listens there"
        assert died == ServerDied("trial-3", Diagnosis(Label.PORT_IN_USE, Phase.LAUNCH, evidence), (), 0.0)
        assert await host.died() is None
        assert await host.stop(1.0) == NO_STOP
        assert await host.server_log() == b""
        await host.close(1.0)

    asyncio.run(run())


def test_a_slot_that_cannot_keep_a_log_tells_so_as_a_death() -> None:
    async def run() -> StartEvent:
        host = slot()
        folder = scratch_dir(RUN)
        folder.mkdir(parents=True)
        (folder / f"slot-{SLOT + 2}").write_text("in the way", encoding="utf-8")
        died = await launched(host, spec_for({}))
        await host.close(1.0)
        return died

    diagnosis = diagnosis_of(asyncio.run(run()))
    assert (diagnosis.label, diagnosis.phase) == (Label.UNKNOWN, Phase.LAUNCH)
    assert diagnosis.evidence.startswith("the launch could not be prepared: [Errno ")
    assert f"slot-{SLOT + 2}" in diagnosis.evidence


def test_leftovers_are_told_without_their_secrets() -> None:
    run_id = f"run-of-{os.getpid()}"
    left = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", "--api-key", "sk-left", "--hf-token=hf_left"],
        env={**os.environ, "SPECSWEEP_RUN_ID": run_id},
    )
    told = end_leftovers(run_id)
    assert left.wait(timeout=60) == -15
    command = f"{sys.executable} -c import time; time.sleep(60) --api-key *** --hf-token=***"
    assert told == [(left.pid, command)]


def test_holders_of_gpus_are_told_without_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = GpuProcess(7, "bob", "serve --api-key sk-of-bob --port 1", 60.0)
    states = (GpuState(0, "GPU-1", "RTX", 96.0, 60.0, 36.0, (holder,)),)
    monkeypatch.setattr(actors.host.host_cleanup, "gpu_uses", lambda: gpu_uses(read=lambda: states))
    told = gpus_told()
    assert told is not None
    assert told[0]["holders"][0]["command"] == "serve --api-key *** --port 1"
    monkeypatch.setattr(actors.host.host_cleanup, "gpu_uses", lambda: None)
    assert gpus_told() is None


def test_scratch_is_removed_once_and_again() -> None:
    spool_file(RUN, "p1", 1).parent.mkdir(parents=True)
    for _ in range(2):
        remove_scratch(RUN)
        assert not scratch_dir(RUN).exists()


@pytest.mark.parametrize("key", ["sk-load", None])
def test_load_is_offered_with_the_key_and_spooled_until_it_is_forgotten(key: str | None) -> None:
    async def run() -> None:
        host = LoadHost(RUN, "attach")
        async with ScriptedEndpoint(lambda n, body: native_answer(3)) as endpoint:
            came = [item async for item in host.run_point(endpoint.url, point(requests=4), 2, key)]
            items = [item for item in came if item is not None]  # none only says that it is still there
        *batches, last = items
        assert isinstance(last, ClientReport)
        assert (last.requests, last.stopped_by) == (4, "requests")
        records = [record for batch in batches for record in records_of(batch)]
        assert {record.status for record in records} == {"ok"}
        expected = f"Bearer {key}" if key else None
        assert {headers.get("Authorization") for headers in endpoint.headers} == {expected}

        spooled = spooled_batches(RUN, "p1", 2, 0)
        assert [batch.num_rows for batch in spooled] == [batch.num_rows for batch in batches]
        assert spooled_batches(RUN, "p1", 2, len(batches)) == []
        await host.forget("p1", 2)
        await host.forget("p1", 2)
        assert spooled_batches(RUN, "p1", 2, 0) == []

    asyncio.run(run())


def test_load_that_is_interrupted_ends_with_its_report() -> None:
    async def run() -> ClientReport:
        host = LoadHost(RUN, "attach")
        await host.interrupt()  # nothing runs: nothing happens
        async with ScriptedEndpoint(lambda n, body: native_answer(3, pause_s=0.05)) as endpoint:
            stream = host.run_point(endpoint.url, point(requests=10_000), 1)
            items = []
            async for item in stream:
                items.append(item)
                await host.interrupt()
        report: ClientReport = items[-1]
        return report

    report = asyncio.run(run())
    assert report.stopped_by == "cancelled"
    assert report.requests < 10_000


def test_faults_of_the_load_reach_the_driver() -> None:
    async def run() -> None:
        scratch_dir(RUN).mkdir(parents=True)
        (scratch_dir(RUN) / "spool").write_text("in the way", encoding="utf-8")
        async for _ in LoadHost(RUN, "attach").run_point("http://127.0.0.1:1", point(), 1):
            pass

    with pytest.raises(OSError, match="spool"):
        asyncio.run(run())
