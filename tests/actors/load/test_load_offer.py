"""How the requests of a load get on their way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from actors.load.load_offer import LoadOffer
from actors.load.load_phase import measured_phase
from actors.load.load_watch import OwnSpeed
from actors.wire.flight import Flight, Request
from actors.workloads.request_source import RequestSource
from orchestrator.trial import LoadLevel, Shard
from tests.actors.load_specs import run, spec

USERS = 200
# Rounds of the event loop that a connection takes to be made.
ROUNDS = 5


class SlowToConnect:
    """A client whose requests need some rounds of the loop before they are on the wire; `told` is what came when."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.all_sent = asyncio.Event()

    def flight(self, request: Request, in_flight: int, *, keep_text: bool) -> Flight:
        self.told.append(("begun", request.index))
        return Flight(request, native=True, in_flight=in_flight, keep_text=keep_text)

    async def send(self, flight: Flight) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        self.told.append(("sent", flight.request.index))
        if flight.request.index == USERS - 1:
            self.all_sent.set()
        await self.all_sent.wait()
        flight.conclude()


def test_of_hundreds_of_users_that_begin_at_once_each_is_heard_before_the_clocks_of_many_others_run() -> None:
    async def go() -> list[tuple[str, int]]:
        point = spec(level=LoadLevel("concurrency", USERS), requests=USERS)
        source, client, stream = RequestSource(point), SlowToConnect(), SimpleNamespace(add=lambda record: None)
        parts: Any = (point, client, source, stream, OwnSpeed())
        offer = LoadOffer(*parts, shard=Shard(), origin_ns=0)
        phase = measured_phase(source, Shard())
        await offer.prepare(phase)
        await offer.offer(phase)
        return client.told

    told = run(go())
    between = [told.index(("sent", user)) - told.index(("begun", user)) for user in range(USERS)]
    assert max(between) <= 4 * ROUNDS
