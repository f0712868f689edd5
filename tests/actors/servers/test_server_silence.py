"""Silence, work and lies of servers, seen through the real guard: emulated servers with faults."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import actors.servers.lifeline
import actors.servers.server
from actors.servers.endpoint import Endpoint
from actors.servers.life_event import Activity
from actors.servers.life_state import Serving, rules_of
from actors.servers.server import Server
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LoadSeen, PhaseBudget, ServerDied, ServerReady, StartEvent, StartProgress
from tests.actors.emulator.test_start_faults import SILENT_S, held_to, started
from tests.fakes.scripted_server import eventually
from tests.fakes.scripted_server import spec_for as scripted
from tests.fakes.scripted_server import started as attached

SERVING = (PhaseBudget(Phase.SERVING, float("inf"), 1.0, "the test", "the test"),)
# Only a request that streams its answer brings it about, so that the server can be proven before.
HANGS = "serving: {fault: hang, request: 1, token: 0, health: %d}"


def diagnosis(event: StartEvent | None) -> Diagnosis:
    assert isinstance(event, ServerDied), event
    return event.diagnosis


def test_a_start_is_alive_while_its_bar_moves_or_it_uses_a_cpu_and_only_a_hard_limit_ends_it_then(
    tmp_path: Path,
) -> None:
    scripts = {
        "bar": "{slow: weights, seconds: 3}",
        "busy": "{slow: weights, seconds: 3, bars: false, busy: true}",
        "asleep": "{slow: weights, seconds: 600, bars: false}",
        "busy for ever": "{hang: weights, busy: true}",
    }
    expected_s = 0.5

    async def one(number: int, name: str) -> list[StartEvent]:
        limits = {"phase_timeout_s": 4.0} if name == "busy for ever" else {}
        budgets, seen = held_to(SILENT_S, expected_s), list[StartEvent]()
        script = f"start: {scripts[name]}"
        async with started(tmp_path / name, script, number, seen=seen, phase_budgets=budgets, **limits):
            return seen

    async def go() -> list[list[StartEvent]]:
        return list(await asyncio.gather(*(one(number, name) for number, name in enumerate(scripts))))

    bar, busy, asleep, for_ever = asyncio.run(go())
    assert isinstance(bar[-1], ServerReady)
    assert isinstance(busy[-1], ServerReady)
    notes = [note for event in busy if isinstance(event, StartProgress) for note in event.notes]
    told = next(note for note in notes if note.startswith("weights: "))
    assert told.endswith(" s by now, at most 0 s were expected (the test); it goes on")
    silent = diagnosis(asleep[-1])
    assert (silent.label, silent.phase, silent.exit_code) == (Label.START_TIMEOUT, Phase.WEIGHTS, -15)
    assert silent.evidence.startswith("silent in phase weights for ")
    assert "; allowed are 2 s (the test); last line: " in silent.evidence
    stuck = diagnosis(for_ever[-1])
    assert (stuck.label, stuck.phase) == (Label.START_TIMEOUT, Phase.WEIGHTS)
    assert stuck.evidence.startswith("no sign of progress in phase weights for 4 s; last line: ")


@contextlib.asynccontextmanager
async def struck(url: str) -> AsyncIterator[None]:
    """A request that streams its answer is in flight."""
    body: dict[str, Any] = {"text": "x", "sampling_params": {"max_new_tokens": 9}, "stream": True}
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(_ask(session, url, body))
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    async with session.post(f"{url}/generate", json=body) as response:
        await response.read()


def test_a_server_that_hangs_is_found_from_its_silence_whatever_health_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.servers.lifeline, "rules_of", lambda spec: replace(rules_of(spec), suspect_s=3.0))

    async def one(number: int, health: int) -> Diagnosis:
        folder = tmp_path / str(health)
        async with started(folder, HANGS % health, number, phase_budgets=SERVING) as (server, ready):
            assert isinstance(ready, ServerReady)
            async with struck(ready.url):
                died: ServerDied = await eventually(server.died)
            return diagnosis(died)

    async def go() -> list[Diagnosis]:
        return list(await asyncio.gather(one(0, 200), one(1, 503)))

    for health, told in zip((200, 503), asyncio.run(go()), strict=True):
        assert (told.label, told.phase) == (Label.HUNG, Phase.SERVING)
        assert told.evidence.startswith("silent while serving for ")
        assert f"/health answered {health}, but /generate: no answer: nothing within 2.4 s" in told.evidence


def test_a_load_that_hung_has_its_server_asked_before_it_is_called_hung(tmp_path: Path) -> None:
    async def asked(server: Server) -> ServerDied | None:
        return await server.died(LoadSeen(tokens_came=True, hung_s=2.0))

    async def go() -> tuple[ServerDied | None, ServerDied | None]:
        async with started(tmp_path, HANGS % 200) as (server, ready):
            assert isinstance(ready, ServerReady)
            healthy = await asked(server)
            async with struck(ready.url):
                asker = Endpoint(ready.url)
                assert await eventually(lambda: asker.refusal(0.5)), "it has taken the request"
                return healthy, await asked(server)

    healthy, hung = asyncio.run(go())
    assert healthy is None
    told = diagnosis(hung)
    assert (told.label, told.phase) == (Label.HUNG, Phase.SERVING)
    assert told.evidence.startswith("no request of the load got a byte for 2 s; /health answered 200, but /generate: ")


def test_a_server_that_was_attached_to_and_hangs_is_told_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.servers.lifeline, "rules_of", lambda spec: replace(rules_of(spec), suspect_s=1.0))

    async def go() -> ServerDied | None:
        async with started(tmp_path, HANGS % 200) as (server, ready):
            assert isinstance(ready, ServerReady)
            attaching = scripted({}, engine="attach", url=ready.url)
            async with attached(attaching, tmp_path / "guest") as (guest, events):
                assert isinstance(events[-1], ServerReady)
                async with struck(ready.url):
                    asker = Endpoint(ready.url)
                    assert await eventually(lambda: asker.refusal(0.5)), "it has taken the request"
                    told = await guest.died(LoadSeen(tokens_came=True, hung_s=2.0))
                assert await server.died() is None, "its process lives on"
                return told

    told = diagnosis(asyncio.run(go()))
    assert (told.label, told.phase) == (Label.HUNG, Phase.SERVING)
    assert told.evidence == "it served no request; no answer: nothing within 1 s"


class Asleep:
    """Processes that never do anything that can be seen."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def sample(self) -> Activity:
        return Activity(1.0, 3, 0.0)


def test_a_server_whose_health_is_503_is_alive_while_its_log_tells_of_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.servers.server, "TreeActivity", Asleep)
    script = "serving: {fault: endpoint, path: /health, status: 503}"

    async def go() -> None:
        async with started(tmp_path, script, phase_budgets=SERVING) as (server, ready):
            assert isinstance(ready, ServerReady)
            line, asker = server._lifeline, Endpoint(ready.url)
            assert line is not None
            seen_s, deadline = [line.life.now_s], time.monotonic() + 60.0
            while len(seen_s) < 4 and time.monotonic() < deadline:
                assert await asker.refusal() is None
                if line.life.signs.tokens_s > seen_s[-1]:
                    seen_s.append(line.life.signs.tokens_s)
            assert len(seen_s) == 4, "tokens were seen again and again"
            assert await asker.unready("/health", 5.0) == "/health answered 503"
            assert await server.died() is None
            assert line.life.state == Serving()

    asyncio.run(go())
