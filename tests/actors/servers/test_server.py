"""The start of a server under a scripted stand-in: ready, progress, deaths and deadlines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import actors.servers.lifeline
import actors.servers.server
from actors.guards.guard import Guarded
from actors.servers.life_state import Life, rules_of
from actors.servers.server import Server
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import ServerReady, StartEvent, StartProgress
from tests.fakes.scripted_server import (
    STAMP,
    START,
    Clock,
    diagnosis_of,
    events_of,
    is_alive,
    spec_for,
    started,
)


def test_a_server_is_ready_when_it_said_so_and_served_a_request(tmp_path: Path) -> None:
    async def run() -> None:
        async with started(spec_for({"lines": START, "then": "serve"}), tmp_path) as (server, events):
            ready = events[-1]
            assert isinstance(ready, ServerReady)
            assert ready.resolved == {
                "version": "0.5.23",
                "max_total_num_tokens": 4096,
                "api_key": "***",
                "launch_command": "python -m sglang.launch_server --api-key *** --port 1",
            }
            phases = {fact.phase: fact.free_gib for fact in ready.phases}
            assert (phases[Phase.WEIGHTS], phases[Phase.KV_POOL]) == (58.0, 25.4)
            assert server.is_ready
            assert is_alive(ready.pid)
            assert await server.died() is None
            report = await server.stop(60.0)
            assert (report.exit_code, report.killed, report.gpu_free) == (-15, (), None)
            assert not is_alive(ready.pid)
        log = (tmp_path / "server.log").read_text(encoding="utf-8")
        assert log.index("ready to roll!") < log.index("POST /generate") < log.index("POST /abort_request")

    asyncio.run(run())


def test_progress_is_told_by_phase(tmp_path: Path) -> None:
    def told(phase: Phase) -> dict[str, str]:
        return {"until": str(tmp_path / phase)}

    lines = [
        START[0], told(Phase.SPAWN), START[1], told(Phase.WEIGHTS), *START[2:5], told(Phase.KV_POOL), START[5],
        told(Phase.GRAPH_TARGET),
    ]  # fmt: skip

    async def run() -> list[StartEvent]:
        server, events = Server(), list[StartEvent]()
        async for event in events_of(server, spec_for({"lines": lines, "then": "serve"}), tmp_path):
            events.append(event)
            if isinstance(event, StartProgress):
                (tmp_path / event.phase).touch()
        await server.stop(0.0)
        return events

    progress = [event for event in asyncio.run(run()) if isinstance(event, StartProgress)]
    phases = list(dict.fromkeys(event.phase for event in progress))
    assert phases[:4] == [Phase.SPAWN, Phase.WEIGHTS, Phase.KV_POOL, Phase.GRAPH_TARGET]
    assert set(phases[4:]) <= {Phase.READY, Phase.SERVING}
    assert [event.free_gib for event in progress if event.phase is Phase.GRAPH_TARGET] == [25.39]
    assert {event.trial_id for event in progress} == {"trial-3"}


def test_many_signs_within_a_moment_are_told_once(tmp_path: Path) -> None:
    bars = [f"Capturing batches (bs={n} avail_mem={n}.00 GB): 1%| | {n}/99 [00:00<?, ?it/s]" for n in range(99)]
    lines = [*START, *(item for bar in bars for item in (bar, 0.01))]

    async def run() -> list[StartEvent]:
        async with started(spec_for({"lines": lines, "then": "serve"}), tmp_path) as (_, events):
            return events

    events = asyncio.run(run())
    ready = events[-1]
    assert isinstance(ready, ServerReady)
    assert 2 <= len(events) <= 10 + ready.start_s / actors.servers.server._TELL_EVERY_S


@pytest.mark.parametrize(
    ("last_line", "exit_code", "label", "phase"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.50 GiB.",
            137,
            "oom_graph_target",
            "graph_target",
        ),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", 1, "kv_budget", "kv_pool"),
        ("sglang serve: error: unrecognized arguments: --nosuch", 2, "flag_invalid", "args"),
        (f"{STAMP} no reason given", 1, "unknown", "graph_target"),
    ],
)
def test_a_server_that_dies_while_starting_is_diagnosed(
    tmp_path: Path, last_line: str, exit_code: int, label: str, phase: str
) -> None:
    script = {"lines": [*START, last_line], "then": "exit", "exit_code": exit_code}

    async def run() -> StartEvent:
        async with started(spec_for(script), tmp_path) as (_, events):
            return events[-1]

    assert diagnosis_of(asyncio.run(run())) == Diagnosis(Label(label), Phase(phase), last_line, 7, exit_code)


def test_a_command_that_does_not_exist_is_said_to_be_missing(tmp_path: Path) -> None:
    async def run() -> StartEvent:
        async with started(spec_for({}, command=("/no-such-program",)), tmp_path) as (_, events):
            return events[-1]

    diagnosis = diagnosis_of(asyncio.run(run()))
    assert (diagnosis.label, diagnosis.phase) == (Label.COMMAND_NOT_FOUND, Phase.LAUNCH)
    assert "/no-such-program" in diagnosis.evidence


def test_a_command_that_ends_at_once_and_says_nothing_is_told_so(tmp_path: Path) -> None:
    async def run() -> StartEvent:
        async with started(spec_for({}, command=("/bin/true",)), tmp_path) as (_, events):
            return events[-1]

    evidence = "ended with exit code 0 without a word"
    assert diagnosis_of(asyncio.run(run())) == Diagnosis(Label.UNKNOWN, Phase.LAUNCH, evidence, 0, 0)


def test_a_guard_that_cannot_be_started_is_a_death_and_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pipe(*_: Any, **__: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Guarded, "boot", no_pipe)

    async def run() -> StartEvent:
        async with started(spec_for({}), tmp_path) as (_, events):
            return events[-1]

    evidence = "the guard could not be started: [Errno 24] Too many open files"
    assert diagnosis_of(asyncio.run(run())) == Diagnosis(Label.UNKNOWN, Phase.LAUNCH, evidence)


def test_a_server_that_never_says_a_word_is_given_up_with_evidence(tmp_path: Path) -> None:
    async def run() -> StartEvent:
        spec = spec_for({"lines": [], "then": "hang"}, phase_timeout_s=0.5)
        async with started(spec, tmp_path) as (_, events):
            return events[-1]

    evidence = "no sign of progress in phase launch for 0.5 s, without a line in its log"
    assert diagnosis_of(asyncio.run(run())) == Diagnosis(Label.START_TIMEOUT, Phase.LAUNCH, evidence, 0, -15)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"start_timeout_s": 1800.0}, "not ready after 1800 s"),
        ({"phase_timeout_s": 600.0}, "no sign of progress in phase graph_target for 600 s"),
    ],
)
def test_a_start_without_end_is_ended_with_all_its_processes(
    tmp_path: Path, limits: dict[str, float], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    daemon = tmp_path / "daemon"
    script = {"lines": START, "then": "hang", "ignore_term": True, "daemon": str(daemon)}

    def hangs(life: Life) -> bool:
        return life.signs.phase is Phase.GRAPH_TARGET

    async def run() -> StartEvent:
        asked = spec_for(
            script, **{"start_timeout_s": 10_000.0, "phase_timeout_s": 10_000.0, **limits}, stop_grace_s=0.2
        )
        async with started(asked, tmp_path, clock, hangs) as (_, events):
            assert not is_alive(int(daemon.read_text(encoding="utf-8")))
            return events[-1]

    assert diagnosis_of(asyncio.run(run())) == Diagnosis(
        Label.START_TIMEOUT, Phase.GRAPH_TARGET, f"{words}; last line: {START[-1]}", len(START), -9
    )


def test_a_server_that_says_ready_but_does_not_serve_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    script = {"lines": START, "then": "serve", "generate_status": 500}

    async def run() -> StartEvent:
        asked = spec_for(script, start_timeout_s=1800.0)
        async with started(asked, tmp_path, clock, lambda life: bool(life.signs.refusal)) as (server, events):
            assert not server.is_ready
            return events[-1]

    diagnosis = diagnosis_of(asyncio.run(run()))
    assert diagnosis.label is Label.START_TIMEOUT
    assert diagnosis.evidence == 'it said it was ready, but /generate answered 500: {"text": "x"}'


def test_a_server_that_names_a_cause_but_lingers_is_ended_with_that_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.servers.lifeline, "rules_of", lambda spec: replace(rules_of(spec), linger_s=0.3))
    bind = f"{STAMP} ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 1): address in use"

    async def run() -> StartEvent:
        async with started(spec_for({"lines": [*START, bind], "then": "hang"}), tmp_path) as (_, events):
            return events[-1]

    assert diagnosis_of(asyncio.run(run())).label is Label.PORT_IN_USE
