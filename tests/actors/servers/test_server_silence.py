"""Silence, work and lies of servers, seen through the real guard: emulated servers with faults."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import actors.servers.lifeline
import actors.servers.server
from actors.servers.endpoint import Endpoint
from actors.servers.life_event import Activity
from actors.servers.life_state import Life, Serving, rules_of
from actors.servers.server import Server
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LoadSeen, PhaseBudget, ServerDied, ServerReady, StartEvent, StartProgress
from tests.actors.emulator.test_start_faults import SILENT_S, held_to, silent_in, started
from tests.fakes.leaping_clock import LeapingClock
from tests.fakes.scripted_server import Clock, eventually
from tests.fakes.scripted_server import spec_for as scripted
from tests.fakes.scripted_server import started as attached

SERVING = (PhaseBudget(Phase.SERVING, float("inf"), 1.0, "the test", "the test"),)
# Only a request that streams its answer brings it about, so that the server can be proven before.
HANGS = "serving: {fault: hang, request: 1, token: 1, health: %d}"
SUSPECT_S = 60.0


def diagnosis(event: StartEvent | None) -> Diagnosis:
    assert isinstance(event, ServerDied), event
    return event.diagnosis


def at_signs(phase: Phase, leap_s: float) -> Callable[[Life], float]:
    """Leaps whenever a sign of life was seen in the phase."""
    seen = [0.0]

    def by_s(life: Life) -> float:
        stirred_s, seen[0] = seen[0], life.signs.stirred_s
        return leap_s if life.signs.phase is phase and stirred_s != life.signs.stirred_s else 0.0

    return by_s


def test_a_start_is_alive_while_its_bar_moves_or_it_uses_a_cpu_and_only_a_hard_limit_ends_it_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = {
        "bar": "{slow: weights, seconds: 3}",
        "busy": "{slow: weights, seconds: 3, bars: false, busy: true}",
        "asleep": "{slow: weights, seconds: 600, bars: false}",
        "busy for ever": "{hang: weights, busy: true}",
    }
    clock = Clock(monkeypatch)

    async def one(name: str) -> list[StartEvent]:
        limits: dict[str, Any] = {"phase_timeout_s": 5 * SILENT_S} if name == "busy for ever" else {}
        by_s = silent_in("weights") if name == "asleep" else at_signs(Phase.WEIGHTS, 0.7 * SILENT_S)
        limits |= {"leaps": (clock, by_s), "phase_budgets": held_to(SILENT_S, 0.5)}
        seen = list[StartEvent]()
        async with started(tmp_path / name, f"start: {scripts[name]}", seen=seen, **limits):
            return seen

    async def go() -> list[list[StartEvent]]:
        return list(await asyncio.gather(*(one(name) for name in scripts)))

    bar, busy, asleep, for_ever = asyncio.run(go())
    assert isinstance(bar[-1], ServerReady)
    assert isinstance(busy[-1], ServerReady)
    notes = [note for event in busy if isinstance(event, StartProgress) for note in event.notes]
    told = next(note for note in notes if note.startswith("weights: "))
    assert told.endswith(" s by now, at most 0 s were expected (the test); it goes on")
    silent = diagnosis(asleep[-1])
    assert (silent.label, silent.phase, silent.exit_code) == (Label.START_TIMEOUT, Phase.WEIGHTS, -15)
    assert silent.evidence.startswith("silent in phase weights for ")
    assert "; allowed are 600 s (the test); last line: " in silent.evidence
    stuck = diagnosis(for_ever[-1])
    assert (stuck.label, stuck.phase) == (Label.START_TIMEOUT, Phase.WEIGHTS)
    assert stuck.evidence.startswith("no sign of progress in phase weights for 3000 s; last line: ")


@contextlib.asynccontextmanager
async def struck(url: str) -> AsyncIterator[None]:
    """A request is in flight whose first token has come: the server hangs."""
    body: dict[str, Any] = {"text": "x", "sampling_params": {"max_new_tokens": 9}, "stream": True}
    async with aiohttp.ClientSession() as session, session.post(f"{url}/generate", json=body) as response:
        await response.content.readuntil(b"\n\n")
        yield


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it once a server hangs: from then on the time that it has to answer is over as soon as /health has."""
    clock, leaps = LeapingClock(monkeypatch), list[bool]()
    unready = Endpoint.unready

    async def hurried(self: Endpoint, path: str, timeout_s: float) -> str | None:
        told = await unready(self, path, timeout_s)
        if leaps:
            await clock.leap(timeout_s)
        return told

    monkeypatch.setattr(Endpoint, "unready", hurried)
    return lambda: leaps.append(True)


@pytest.mark.parametrize("health", [200, 503])
def test_a_server_that_hangs_is_found_from_its_silence_whatever_health_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, health: int, heard: Callable[[], None]
) -> None:
    monkeypatch.setattr(actors.servers.lifeline, "rules_of", lambda spec: replace(rules_of(spec), suspect_s=SUSPECT_S))

    async def go() -> Diagnosis:
        async with started(tmp_path, HANGS % health, phase_budgets=SERVING) as (server, ready):
            assert isinstance(ready, ServerReady)
            async with struck(ready.url):
                heard()
                died: ServerDied = await eventually(server.died, within_s=1000.0)
            return diagnosis(died)

    told = asyncio.run(go())
    assert (told.label, told.phase) == (Label.HUNG, Phase.SERVING)
    assert told.evidence.startswith("silent while serving for ")
    assert f"/health answered {health}, but /generate: no answer: nothing within 48 s" in told.evidence


def test_a_load_that_hung_has_its_server_asked_before_it_is_called_hung(
    tmp_path: Path, heard: Callable[[], None]
) -> None:
    async def asked(server: Server) -> ServerDied | None:
        return await server.died(LoadSeen(tokens_came=True, hung_s=90.0))

    async def go() -> tuple[ServerDied | None, ServerDied | None]:
        async with started(tmp_path, HANGS % 200) as (server, ready):
            assert isinstance(ready, ServerReady)
            healthy = await asked(server)
            async with struck(ready.url):
                heard()
                return healthy, await asked(server)

    healthy, hung = asyncio.run(go())
    assert healthy is None
    told = diagnosis(hung)
    assert (told.label, told.phase) == (Label.HUNG, Phase.SERVING)
    assert told.evidence.startswith("no request of the load got a byte for 90 s; /health answered 200, but /generate: ")


def test_a_server_that_was_attached_to_and_hangs_is_told_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.servers.lifeline, "rules_of", lambda spec: replace(rules_of(spec), suspect_s=SUSPECT_S))
    clock = LeapingClock(monkeypatch)

    async def go() -> ServerDied | None:
        async with started(tmp_path, HANGS % 200) as (server, ready):
            assert isinstance(ready, ServerReady)
            attaching = scripted({}, engine="attach", url=ready.url)
            async with attached(attaching, tmp_path / "guest") as (guest, events):
                assert isinstance(events[-1], ServerReady)
                async with struck(ready.url):
                    asking = asyncio.create_task(guest.died(LoadSeen(tokens_came=True, hung_s=90.0)))
                    while not asking.done():
                        await clock.leap(SUSPECT_S / 4)
                        await asyncio.sleep(0.05)
                    told = await asking
                assert await server.died() is None, "its process lives on"
                return told

    told = diagnosis(asyncio.run(go()))
    assert (told.label, told.phase) == (Label.HUNG, Phase.SERVING)
    assert told.evidence == "it served no request; no answer: nothing within 60 s"


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
    clock, silent_s = Clock(monkeypatch), 600.0
    budgets = (replace(SERVING[0], silent_s=silent_s),)
    script = "serving: {fault: endpoint, path: /health, status: 503}"

    async def go() -> None:
        async with started(tmp_path, script, phase_budgets=budgets) as (server, ready):
            assert isinstance(ready, ServerReady)
            line, asker = server._lifeline, Endpoint(ready.url)
            assert line is not None
            seen_s, deadline = [line.life.now_s], time.monotonic() + 60.0
            while len(seen_s) < 4 and time.monotonic() < deadline:
                assert await asker.refusal() is None
                if line.life.signs.tokens_s > seen_s[-1]:
                    seen_s.append(line.life.signs.tokens_s)
                    clock.leap_by(0.7 * silent_s)
            assert len(seen_s) == 4, "tokens were seen again and again"
            assert await asker.unready("/health", 60.0) == "/health answered 503"
            assert await server.died() is None
            assert line.life.state == Serving()

    asyncio.run(go())
