"""Prompts that are built before they are due are those that would be built when due."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.load import prompts_ahead
from actors.load.load_phase import Phase, measured_phase
from actors.load.prompts_ahead import PromptsAhead
from actors.workloads.request_source import RequestSource
from actors.workloads.session_script import SessionScript
from orchestrator.trial import LoadLevel, Shard
from tests.actors.load_specs import run, spec


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sessions whose prompt was built, in order."""
    found: list[int] = []
    ask = SessionScript.ask

    def seen(self: SessionScript) -> Any:
        if self._ready is None:
            found.append(self._place.number)
        return ask(self)

    monkeypatch.setattr(SessionScript, "ask", seen)
    monkeypatch.setattr(prompts_ahead, "_MOST_SECONDS", 600.0)  # the first prompt has its text read from the disk
    return found


def points(requests: int, shard: Shard | None = None, **changes: Any) -> tuple[RequestSource, Phase]:
    source = RequestSource(spec(requests=requests, **changes))
    return source, measured_phase(source, shard or Shard())


@pytest.mark.parametrize("level", [LoadLevel("concurrency", 4), LoadLevel("rate", 5.0)])
def test_sessions_of_the_shard_are_built_in_order_and_once(level: LoadLevel, built: list[int]) -> None:
    source, phase = points(20, Shard(1, 3), level=level)
    ahead = PromptsAhead(source)
    run(ahead.fill(phase))
    assert built == [1, 4, 7, 10, 13, 16, 19]
    phase.begin(0)
    start = phase.take(1)
    assert start is not None
    script = ahead.take(phase, start.number)
    assert script.ask().prompt == source.script(1, "measured").ask().prompt
    assert built == [1, 4, 7, 10, 13, 16, 19, 1]  # the last by this test


def test_no_more_is_built_than_there_is_room_for(built: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_ahead, "_FEW", 1000)
    monkeypatch.setattr(prompts_ahead, "_MOST_CHARACTERS", 1000)
    source, phase = points(50, level=LoadLevel("concurrency", 1))
    ahead = PromptsAhead(source)
    run(ahead.fill(phase))
    assert 1000 / 148 <= len(built) <= 1000 / 110 + 1

    before = len(built)

    async def go() -> None:
        building = asyncio.create_task(ahead.keep_full(phase))
        phase.begin(0)
        for _ in range(4):
            start = phase.take(1)
            assert start is not None
            ahead.take(phase, start.number).ask()
        while len(built) < before + 4:  # noqa: ASYNC110 - the time limit of the test ends it
            await asyncio.sleep(0.005)
        building.cancel()

    run(go())
    assert built[: before + 4] == list(range(before + 4))


def test_a_phase_that_was_not_prepared_builds_when_asked(built: list[int]) -> None:
    source, phase = points(5)
    assert PromptsAhead(source).take(phase, 3).ask().prompt.text
    assert built == [3]
