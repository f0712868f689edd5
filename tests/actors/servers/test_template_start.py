"""The start of servers that only have an OpenAI API, as programs under a template."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.servers.life_state import Life
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec, ServerDied, ServerReady, StartEvent, StartProgress
from orchestrator.trial import freeze_settings
from tests.fakes.scripted_server import Clock, diagnosis_of, eventually, is_alive, started

FAKE = Path(__file__).resolve().parent.parent.parent / "fakes/openai_server.py"


def spec(*words: str, **changes: Any) -> LaunchSpec:
    told: dict[str, Any] = {
        "run_id": "run-8", "trial_id": "trial-4", "engine": "command", "model_path": "m",
        "command": (sys.executable, str(FAKE), "--host", "{host}", "--port={port}", *words),
        "settings": freeze_settings({}), "env": (), "stop_grace_s": 60.0, "start_timeout_s": 60.0,
    }  # fmt: skip
    return LaunchSpec(**{**told, **changes})


def events(
    asked: LaunchSpec, tmp_path: Path, clock: Clock | None = None, when: Callable[[Life], bool] = lambda life: False
) -> list[StartEvent]:
    async def run() -> list[StartEvent]:
        async with started(asked, tmp_path, clock, when) as (_, seen):
            return seen

    return asyncio.run(run())


def test_a_server_that_logs_nothing_is_ready_when_it_has_served(tmp_path: Path) -> None:
    async def run() -> None:
        async with started(spec("--load-s", "0.5"), tmp_path) as (server, seen):
            ready = seen[-1]
            assert isinstance(ready, ServerReady)
            assert [fact.phase for fact in ready.phases] == [Phase.LAUNCH, Phase.WARMUP, Phase.READY]
            assert ready.phases[0].ended_s == ready.phases[1].began_s
            assert ready.start_s >= 0.5
            assert ready.resolved == {"served_model": "fake-model", "version": "7.1"}
            assert await server.died() is None
            report = await server.stop(60.0)
            assert (report.exit_code, report.killed) == (-15, ())
            assert not is_alive(ready.pid)
        assert (tmp_path / "server.log").read_bytes() == b""

    asyncio.run(run())


def test_silence_is_no_reason_to_give_up_before_the_start_timeout(tmp_path: Path) -> None:
    last = events(spec("--load-s", "1.5", phase_timeout_s=0.3), tmp_path)[-1]

    assert isinstance(last, ServerReady)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("--api", "chat/completions"), {}),
        (("--ready", "/v2/up"), {"ready_path": "/v2/up"}),
        (("--name", "mine"), {"served_name": "mine"}),
    ],
)
def test_other_apis_paths_and_names_are_ready_too(
    tmp_path: Path, words: tuple[str, ...], changes: dict[str, Any]
) -> None:
    assert isinstance(events(spec(*words, **changes), tmp_path)[-1], ServerReady)


@pytest.mark.parametrize(
    ("words", "changes", "phase", "told"),
    [
        (("--load-s", "90"), {}, Phase.LAUNCH, "/health answered 503, without a line in its log"),
        (("--ready", "/up"), {}, Phase.LAUNCH, "/health answered 404: no such path"),
        (
            (),
            {"served_name": "other"},
            Phase.WARMUP,
            '/v1/completions answered 404: {"error": {"message": "no such model"}}; /v1/chat/completions answered 404',
        ),
    ],
)
def test_a_start_that_takes_too_long_is_ended_and_says_what_was_answered(
    tmp_path: Path, words: tuple[str, ...], changes: dict[str, Any], phase: Phase, told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asked = spec(*words, **{"start_timeout_s": 1800.0, **changes})
    seen = events(asked, tmp_path, Clock(monkeypatch), lambda life: told.partition(",")[0] in life.signs.refusal)
    found = diagnosis_of(seen[-1])

    assert (found.label, found.phase, found.exit_code) == (Label.START_TIMEOUT, phase, -15)
    assert found.evidence.startswith("not ready after 1800 s")
    assert told in found.evidence
    assert {e.phase for e in seen if isinstance(e, StartProgress)} <= {Phase.WARMUP}


def test_last_words_of_a_server_that_dies_are_its_diagnosis(tmp_path: Path) -> None:
    seen = events(spec("--die", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB."), tmp_path)

    assert diagnosis_of(seen[-1]) == Diagnosis(
        Label.OUT_OF_MEMORY,
        Phase.LAUNCH,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.",
        1,
        1,
    )
    assert diagnosis_of(seen[-1]).infeasible


def test_a_command_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    found = diagnosis_of(events(spec(command=("no-such-server", "{port}")), tmp_path)[-1])

    assert found.label is Label.COMMAND_NOT_FOUND
    assert "no-such-server" in found.evidence


def test_a_server_that_dies_while_it_serves_is_noticed(tmp_path: Path) -> None:
    async def run() -> ServerDied:
        async with started(spec(), tmp_path) as (server, seen):
            assert isinstance(seen[-1], ServerReady)
            assert seen[-1].pid is not None
            os.kill(seen[-1].pid, signal.SIGSEGV)
            died: ServerDied = await eventually(server.died)
            return died

    found = asyncio.run(run()).diagnosis
    assert (found.label, found.phase, found.exit_code) == (Label.SEGFAULT_ABORT, Phase.READY, -11)
    assert found.evidence == "ended by SIGSEGV without a word"
