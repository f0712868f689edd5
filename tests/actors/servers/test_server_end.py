"""Stops, deaths while serving, servers of others, and what is stored of a server."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import zstandard

import actors.processes.kernel_kills
import actors.servers.slot_gpus
from actors.servers.launch import free_port
from actors.servers.server import Server
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import ServerDied, ServerReady, StartEvent, StartProgress
from tests.fakes.scripted_endpoint import Script, ScriptedEndpoint
from tests.fakes.scripted_server import (
    SLOT,
    STAMP,
    START,
    diagnosis_of,
    events_of,
    eventually,
    spec_for,
    started,
)


def test_a_stop_in_the_middle_of_a_start_ends_it_as_stopped(tmp_path: Path) -> None:
    async def run() -> tuple[StartEvent, int | None]:
        server = Server()
        last: StartEvent | None = None
        stopping: asyncio.Task[Any] | None = None
        async for event in events_of(server, spec_for({"lines": START, "then": "hang"}), tmp_path):
            last = event
            if isinstance(event, StartProgress) and event.phase is Phase.GRAPH_TARGET and stopping is None:
                stopping = asyncio.create_task(server.stop(60.0))
        assert last is not None
        assert stopping is not None
        return last, (await stopping).exit_code

    died, exit_code = asyncio.run(run())
    assert diagnosis_of(died) == Diagnosis(Label.STOP_REQUESTED, Phase.GRAPH_TARGET, START[-1], len(START), -15)
    assert exit_code == -15


def test_a_stop_before_the_launch_keeps_it_from_being_launched(tmp_path: Path) -> None:
    async def run() -> list[StartEvent]:
        server = Server()
        report = await server.stop(1.0)
        assert (report.exit_code, report.killed) == (None, ())
        return [event async for event in events_of(server, spec_for({"lines": [], "then": "hang"}), tmp_path)]

    (died,) = asyncio.run(run())
    assert diagnosis_of(died).label is Label.STOP_REQUESTED
    assert not (tmp_path / "server.log").exists()


def test_a_server_that_dies_while_serving_is_diagnosed(tmp_path: Path) -> None:
    async def run() -> ServerDied:
        async with started(spec_for({"lines": START, "then": "serve"}), tmp_path) as (server, events):
            ready = events[-1]
            assert isinstance(ready, ServerReady)
            assert ready.pid is not None
            with (tmp_path / "server.log").open("a", encoding="utf-8") as log:
                log.write("RuntimeError: Prefill out of memory. Try to lower your batch size.\n")
            os.kill(ready.pid, signal.SIGKILL)
            died: ServerDied = await eventually(server.died)
            return died

    diagnosis = diagnosis_of(asyncio.run(run()))
    assert (diagnosis.label, diagnosis.phase, diagnosis.exit_code) == (Label.RUNTIME_POOL, Phase.SERVING, -9)


@pytest.mark.parametrize(
    ("oom_kills", "label", "why"),
    [
        (7, "unknown", "the log says nothing about why"),
        (8, "host_oom", "meanwhile the kernel of the host ended 1 process(es) for lack of memory"),
    ],
)
def test_a_sigkill_from_outside_is_an_out_of_memory_only_if_the_kernel_counted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, oom_kills: int, label: str, why: str
) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text("nr_free_pages 1\noom_kill 7\n", encoding="ascii")
    monkeypatch.setattr(actors.processes.kernel_kills, "_VMSTAT", counters)

    async def run() -> ServerDied:
        async with started(spec_for({"lines": START, "then": "serve"}), tmp_path) as (server, events):
            ready = events[-1]
            assert isinstance(ready, ServerReady)
            assert ready.pid is not None
            counters.write_text(f"nr_free_pages 1\noom_kill {oom_kills}\n", encoding="ascii")
            os.kill(ready.pid, signal.SIGKILL)
            died: ServerDied = await eventually(server.died)
            return died

    evidence = f"ended by SIGKILL; {why} (last line: POST /generate)"
    assert diagnosis_of(asyncio.run(run())) == Diagnosis(Label(label), Phase.SERVING, evidence, 0, -9)


def test_a_host_that_does_not_count_kills_for_memory_counts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.processes.kernel_kills, "_VMSTAT", tmp_path / "nothing")
    assert actors.processes.kernel_kills.oom_kills() == 0
    (tmp_path / "old").write_text("nr_free_pages 1\n", encoding="ascii")
    monkeypatch.setattr(actors.processes.kernel_kills, "_VMSTAT", tmp_path / "old")
    assert actors.processes.kernel_kills.oom_kills() == 0


def test_the_stored_log_is_compressed_and_holds_no_secret(tmp_path: Path) -> None:
    lines = [*START, "using token hf_do_not_store"]

    async def run() -> bytes:
        async with started(spec_for({"lines": lines, "then": "exit"}), tmp_path) as (server, _):
            return server.log_bytes()

    text = zstandard.ZstdDecompressor().decompress(asyncio.run(run()), max_output_size=10_000_000).decode()
    assert text.splitlines()[0] == f"{STAMP} server_args={{'model_path': 'm', 'api_key': '***'}}"
    assert text.splitlines()[-1] == "using token ***"


def test_evidence_holds_no_secret(tmp_path: Path) -> None:
    script = {"lines": ["ValueError: hf_do_not_store is not a token"], "then": "exit", "exit_code": 1}

    async def run() -> StartEvent:
        async with started(spec_for(script), tmp_path) as (_, events):
            return events[-1]

    assert diagnosis_of(asyncio.run(run())).evidence == "ValueError: *** is not a token"


def test_attaching_asks_a_server_that_runs_and_never_ends_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with started(spec_for({"lines": START, "then": "serve"}), tmp_path) as (server, events):
            running = events[-1]
            assert isinstance(running, ServerReady)
            spec = spec_for({}, engine="attach", url=running.url + "/")
            async with started(spec, tmp_path / "other") as (guest, attached):
                (ready,) = attached
                assert isinstance(ready, ServerReady)
                assert (ready.url, ready.pid, ready.phases[0].phase) == (running.url, None, Phase.LAUNCH)
                assert ready.resolved["version"] == "0.5.23"
                assert (await guest.stop(1.0)).exit_code is None
            async with started(spec, tmp_path / "other") as (guest, _):
                assert await guest.died() is None
                await server.stop(60.0)
                gone = await guest.died()
                assert gone is not None
                assert gone.diagnosis.label is Label.UNKNOWN

    asyncio.run(run())


def test_attaching_to_nothing_is_told_after_the_time_limit(tmp_path: Path) -> None:
    spec = spec_for({}, engine="attach", url=f"http://127.0.0.1:{free_port(SLOT + 1)}", start_timeout_s=0.1)

    async def run() -> list[StartEvent]:
        async with started(spec, tmp_path) as (_, events):
            return events

    (died,) = asyncio.run(run())
    diagnosis = diagnosis_of(died)
    assert diagnosis.label is Label.START_TIMEOUT
    assert diagnosis.evidence.startswith(f"{spec.url}/generate: no answer: Cannot connect to host 127.0.0.1")


def test_the_answer_of_a_server_that_was_attached_to_is_told_without_the_key(tmp_path: Path) -> None:
    async def run() -> list[StartEvent]:
        script = Script([(0.0, b"sk-attached may not do this")], status=401)
        async with ScriptedEndpoint(lambda n, body: script) as endpoint:
            env = (("SPECSWEEP_API_KEY", "sk-attached"),)
            spec = spec_for({}, engine="attach", url=endpoint.url, env=env, start_timeout_s=0.1)
            async with started(spec, tmp_path) as (_, events):
                assert endpoint.headers[0]["Authorization"] == "Bearer sk-attached"
                return events

    (died,) = asyncio.run(run())
    assert diagnosis_of(died).evidence.endswith("/generate: 401: *** may not do this")


def test_a_gpu_that_somebody_else_holds_refuses_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_free(*_: Any, **__: Any) -> bool:
        return False

    sentence = "GPU 0 (RTX PRO 6000): pid 77 of bob, 60.0 GiB: python serve.py --api-key {}"
    monkeypatch.setattr(actors.servers.slot_gpus, "wait_until_free", never_free)
    monkeypatch.setattr(actors.servers.slot_gpus, "foreign_occupants", lambda *_: (sentence.format("sk-of-bob"),))

    async def run() -> list[StartEvent]:
        start = Server().start(spec_for({}), gpu_ids=("0",), host="127.0.0.1", port=1, log_path=tmp_path / "server.log")
        return [event async for event in start]

    (died,) = asyncio.run(run())
    assert diagnosis_of(died) == Diagnosis(Label.GPU_OCCUPIED, Phase.LAUNCH, sentence.format("***"))
    assert not (tmp_path / "server.log").exists()
