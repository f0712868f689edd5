"""Requests of a point that the network took: what was measured around them says nothing about the server."""

from __future__ import annotations

import errno
import os
from typing import Any

from orchestrator.plural import plural
from orchestrator.slots.slot_port import TrialBroken

# The client probes silent connections, and a host that is there answers whatever its server does.
_WORDS = (os.strerror(errno.ETIMEDOUT), os.strerror(errno.EHOSTUNREACH), os.strerror(errno.ENETUNREACH))
_LOST = {"connection", "truncated"}


class CutNetwork:
    """Counts the batches of one point. `name`: the slot, for what is told."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._requests = 0
        self._first = ""

    def count(self, item: Any) -> None:
        """An Arrow batch of request records, or anything else, which has none."""
        if not hasattr(item, "column"):
            return
        errors = item.column("error")
        if errors.null_count == len(errors):
            return
        for status, error in zip(item.column("status").to_pylist(), errors.to_pylist(), strict=True):
            if status in _LOST and error and any(word in error for word in _WORDS):
                self._requests += 1
                self._first = self._first or error

    def check(self) -> None:
        """TrialBroken if there was such a request: the trial is tried once more."""
        if self._requests:
            raise TrialBroken(
                f"{self._name}: the network between load and server was cut under {plural(self._requests, 'request')} "
                f"(the first: {self._first[:200]}); the point is not measured"
            )
