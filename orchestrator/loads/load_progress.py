"""One line that tells how a load goes, on a terminal; nothing elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Self

from rich.console import Console

_FAILURES_LEFT_OUT = {"ok", "empty", "cancelled"}


class LoadProgress:
    """Counts the records that come. Use as a context manager; the line is gone afterwards."""

    def __init__(self, console: Console) -> None:
        self._status = console.status("warming up") if console.is_terminal else None
        self._began_s = time.monotonic()
        self._counted: Counter[str] = Counter()
        self._tokens = 0

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def saw(self, batch: Any) -> None:
        """Some records."""
        if self._status is None:
            return
        import pyarrow.compute as pc

        measured = batch.filter(pc.invert(batch.column("warmup")))
        if not measured.num_rows:
            return
        if not self._counted:
            self._began_s = time.monotonic()
        self._counted.update(measured.column("status").to_pylist())
        self._tokens += pc.sum(measured.column("output_tokens")).as_py() or 0
        self._status.update(self.line(time.monotonic() - self._began_s))

    def line(self, seconds: float) -> str:
        """What is shown `seconds` after the first records."""
        failed = sum(n for status, n in self._counted.items() if status not in _FAILURES_LEFT_OUT)
        speed = f", {self._tokens / seconds:.0f} tok/s" if seconds > 0 else ""
        return f"{seconds:.0f} s: {failed} failed, {self._counted['ok']} ok{speed}"
