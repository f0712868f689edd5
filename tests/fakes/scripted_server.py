"""Servers that follow a script (`log_server.py`), started as a slot starts real ones."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import actors.servers.lifeline
import actors.servers.pulse
import actors.servers.server
from actors.guards.guard_process import process_table
from actors.servers.launch import free_port
from actors.servers.life_state import Life
from actors.servers.server import Server
from orchestrator.outcome import Diagnosis
from orchestrator.server_start import LaunchSpec, ServerDied, StartEvent
from orchestrator.trial import freeze_settings

FAKE = Path(__file__).with_name("log_server.py")
# Tests that run beside each other must not choose the same ports, and no connection may take one that was chosen: up to
# three slots above this one are used, and of six workers all are below the ephemeral ports.
SLOT = 8 + 4 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 6)
STAMP = "[2026-08-07 17:35:59]"
START = [
    f"{STAMP} server_args={{'model_path': 'm', 'api_key': 'sk-printed'}}",
    f"{STAMP} Load weight begin. avail mem=94.00 GB",
    f"{STAMP} Load weight end. elapsed=8.82 s, type=M, avail mem=58.00 GB, mem usage=36.00 GB.",
    f"{STAMP} KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4096, K size: 1.00 GB, V size: 1.00 GB",
    f"{STAMP} Memory pool end. avail mem=25.40 GB",
    f"{STAMP} Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=2, avail mem=25.39 GB",
]


def spec_for(script: dict[str, Any], **changes: Any) -> LaunchSpec:
    """The launch of a server with this script."""
    spec = LaunchSpec(
        run_id="run-7",
        trial_id="trial-3",
        engine="sglang",
        command=(sys.executable, str(FAKE)),
        model_path="m",
        settings=freeze_settings({}),
        env=(("FAKE_SCRIPT", json.dumps(script)), ("HF_TOKEN", "hf_do_not_store")),
        stop_grace_s=60.0,
    )
    return replace(spec, **changes)


def events_of(server: Server, spec: LaunchSpec, tmp_path: Path) -> AsyncIterator[StartEvent]:
    """Its start, without GPUs, on this host."""
    log = tmp_path / "server.log"
    return server.start(spec, gpu_ids=(), host="127.0.0.1", port=free_port(SLOT), log_path=log)


class Clock:
    """The clock by which servers are held to their limits. It leaps over the rest of them once a server is at a known
    place, so that the machine may take as long as it likes to get there.

    Tasks share it, but for those that went apart: servers that are started side by side have a clock each.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shared_s = [0.0]
        self._own_s: ContextVar[list[float] | None] = ContextVar("own_s", default=None)
        for module in (actors.servers.lifeline, actors.servers.server, actors.servers.pulse):
            monkeypatch.setattr(module, "time", self)
        monkeypatch.setattr(actors.servers.pulse, "_LONGEST_S", actors.servers.pulse._SHORTEST_S)

    @property
    def _ahead_s(self) -> list[float]:
        return self._own_s.get() or self._shared_s

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s[0]

    def go_apart(self) -> None:
        """This task, and those that it starts from now on, have a clock of their own."""
        self._own_s.set([0.0])

    def leap_by(self, seconds: float) -> None:
        """So much later, now."""
        self._ahead_s[0] += seconds

    async def leap(self, server: Server, when: Callable[[Life], bool]) -> None:
        """An hour, as soon as its life is so."""
        while (line := server._lifeline) is None or not when(line.life):  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.01)
        self._ahead_s[0] = 3600.0

    async def leap_on(self, server: Server, by_s: Callable[[Life], float]) -> None:
        """By so much at every look, until it has ended; a sign of life that comes meanwhile is of the new time."""
        while (line := server._lifeline) is None or line.life.verdict is None:
            if line is not None:
                self.leap_by(by_s(line.life))
            await asyncio.sleep(0.05)


@asynccontextmanager
async def started(
    spec: LaunchSpec, tmp_path: Path, clock: Clock | None = None, when: Callable[[Life], bool] = lambda life: False
) -> AsyncIterator[tuple[Server, list[StartEvent]]]:
    """A server after its start, with all events of it; it is gone afterwards whatever the test does."""
    server = Server()
    leaping = asyncio.create_task(clock.leap(server, when)) if clock else None
    try:
        yield server, [event async for event in events_of(server, spec, tmp_path)]
    finally:
        if leaping is not None:
            leaping.cancel()
        await server.stop(0.0)


async def eventually(condition: Callable[[], Coroutine[Any, Any, Any]], within_s: float = 60.0) -> Any:
    """What the condition returned when it was first true."""
    deadline = time.monotonic() + within_s
    while not (found := await condition()) and time.monotonic() < deadline:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.02)
    return found


def is_alive(pid: int | None) -> bool:
    """Whether the process runs; zombies do not."""
    return pid is not None and process_table().get(pid, (0, "Z"))[1] != "Z"


def diagnosis_of(event: StartEvent) -> Diagnosis:
    """Why it died."""
    assert isinstance(event, ServerDied)
    return event.diagnosis
