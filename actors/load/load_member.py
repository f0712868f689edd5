"""One member of an ensemble: where it waits for the others while they offer one point together, and what it tells.

An ensemble is several processes that offer the load of one point, each its share of the same requests. A point that one
process offers alone meets nobody and waits nowhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from orchestrator.trial import Shard


class Place(StrEnum):
    """Where members wait until all are there, in this order. The last two only if a profile is taken."""

    PROBED = "probed"  # brings how long the probe's prompt was
    WARM = "warm"  # the warm-up is drained
    START = "start"  # brings the moment at which all begin
    DRAINED = "drained"
    TRACING = "tracing"
    TRACED = "traced"


# Once the measured load runs, a member that ends early ends nothing for the others: their time is up as well.
BEFORE_LOAD = (Place.PROBED, Place.WARM, Place.START)

Ending = Literal["cancelled", "hung"]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A member waits at a place. `value` is JSON; that of member 0 goes to all. `ended`: it sends no more requests."""

    place: Place
    value: Any = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """Told twice a second: whether bytes of any answer came since the last one, and whether requests are in flight."""

    moved: bool
    busy: bool


@dataclass(frozen=True, slots=True)
class Silent:
    """None of the member's requests had a byte for as long as a server may take."""


Message = Arrived | Beat | Silent
MESSAGES = (Arrived, Beat, Silent)


@dataclass(frozen=True, slots=True)
class Release:
    """All may go on from a place."""

    place: Place
    value: Any = None


@dataclass(frozen=True, slots=True)
class End:
    """The point ends soon, for this reason."""

    why: Ending


class LoadMember:
    """What a point asks of the ensemble it is offered by. Without `post` it is offered by this process alone.

    `post` hands messages to the coordinator; `release` brings its answers, in the event loop of the point.
    """

    def __init__(self, shard: Shard | None = None, post: Callable[[Message], None] | None = None) -> None:
        self.shard = shard or Shard()
        self._post = post
        self._released: dict[Place, asyncio.Future[Any]] = {}

    @property
    def alone(self) -> bool:
        return self._post is None

    @property
    def leads(self) -> bool:
        """Whether this member is the one that asks the server aside: probe, flush, counters, profile."""
        return self.shard.index == 0

    async def meet(self, place: Place, value: Any = None, *, ended: bool = False) -> Any:
        """Wait until every member is here; the value that the coordinator gives to all."""
        if self._post is None:
            return value
        self._post(Arrived(place, value, ended))
        return await self._future(place)

    def release(self, place: Place, value: Any) -> None:
        """All are there."""
        future = self._future(place)
        if not future.done():
            future.set_result(value)

    def tell(self, message: Message) -> None:
        """To the coordinator, if there is one."""
        if self._post is not None:
            self._post(message)

    def _future(self, place: Place) -> asyncio.Future[Any]:
        return self._released.setdefault(place, asyncio.get_running_loop().create_future())


def monotonic_of(unix_ns: int) -> int:
    """A moment of the wall clock on this process's monotonic clock; as exact as the host's clock is set."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(5)]
    before, wall, after = min(readings, key=lambda r: r[2] - r[0])  # the one between which we were not put aside
    return unix_ns - wall + (before + after) // 2
