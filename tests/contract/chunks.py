"""Streams in chunks: a busy server, real or emulated, puts into one chunk what several steps gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.actors.emulator.running import Answer
from tests.contract.servers import Server

FEWEST = 4


def in_chunks(server: Server, ask: Callable[[], Answer]) -> Answer:
    """A streamed answer whose first token came alone; asked for again where the server had no time for that."""
    answers: list[Answer] = []

    def came_apart() -> bool:
        answers.append(ask())
        return len(answers[-1].events) >= FEWEST and _first_count(answers[-1].events) == 1

    server.wait_until(came_apart, "answer in chunks")
    return answers[-1]


def _first_count(events: list[Any]) -> int | None:
    counts = (event.get("meta_info") or event.get("usage") for event in events[:-1])
    return next((int(told["completion_tokens"]) for told in counts if told), None)
