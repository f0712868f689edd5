"""How busy the server says it is while a point runs: `/v1/loads`, or what older releases have in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson

# `/v1/loads` is read from shared memory; the older endpoint is a round trip to the scheduler.
_EVERY_S = 0.5
_EVERY_OLD_S = 2.0
CURRENT = "/v1/loads?include=core"
OLD = "/get_load"


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """Requests running and waiting over all data-parallel ranks; `token_usage` is the fullest rank's share of KV."""

    running: int
    waiting: int
    token_usage: float | None


def read_load(text: str) -> ServerLoad | None:
    """The body of either endpoint; None for anything else.

    0.5.9 and later: `{"loads": [{"num_running_reqs": ...}]}`. Before: a list with `num_reqs` (running and waiting).
    """
    try:
        told = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if isinstance(told, dict) and isinstance(told.get("loads"), list):
        ranks = [_rank(rank, "num_running_reqs") for rank in told["loads"]]
    elif isinstance(told, list):
        ranks = [_old_rank(rank) for rank in told]
    else:
        return None
    known = [rank for rank in ranks if rank is not None]
    if not known or len(known) < len(ranks):
        return None
    usages = [rank.token_usage for rank in known if rank.token_usage is not None]
    return ServerLoad(sum(r.running for r in known), sum(r.waiting for r in known), max(usages, default=None))


def _rank(rank: Any, running: str) -> ServerLoad | None:
    if not isinstance(rank, dict):
        return None
    counts = rank.get(running), rank.get("num_waiting_reqs")
    if not all(isinstance(n, int) for n in counts):
        return None
    usage = rank.get("token_usage")
    return ServerLoad(
        int(counts[0] or 0), int(counts[1] or 0), float(usage) if isinstance(usage, int | float) else None
    )


def _old_rank(rank: Any) -> ServerLoad | None:
    found = _rank(rank, "num_reqs")
    return found and ServerLoad(max(found.running - found.waiting, 0), found.waiting, None)


class ServerLoadWatch:
    """Polls while it is open and keeps sums; stops by itself at a server that has no such endpoint."""

    def __init__(self, get_text: Callable[[str], Awaitable[str | None]]) -> None:
        self._get_text = get_text
        self._count = 0
        self._running_sum = 0
        self.running_max: int | None = None
        self.queued_max: int | None = None
        self.token_usage_max: float | None = None

    @property
    def running_mean(self) -> float | None:
        return self._running_sum / self._count if self._count else None

    async def poll(self) -> None:
        """Until cancelled, or until the server shows that it cannot tell."""
        path, pause_s = CURRENT, _EVERY_S
        while True:
            text = await self._get_text(path)
            load = read_load(text) if text is not None else None
            if load is not None:
                self._see(load)
            elif self._count == 0:
                if path == OLD:
                    return
                path, pause_s = OLD, _EVERY_OLD_S
                continue
            await asyncio.sleep(pause_s)

    def _see(self, load: ServerLoad) -> None:
        self._count += 1
        self._running_sum += load.running
        self.running_max = max(self.running_max or 0, load.running)
        self.queued_max = max(self.queued_max or 0, load.waiting)
        if load.token_usage is not None:
            self.token_usage_max = max(self.token_usage_max or 0.0, load.token_usage)
