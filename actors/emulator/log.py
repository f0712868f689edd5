"""The server log: SGLang's line prefix and rank tags, written to one stream."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import TextIO

from actors.emulator.ranks import LocalRanks

ONE_RANK = LocalRanks()


class LogWriter:
    """Writes `[time RANK] message` lines. With one rank there is no tag, as in SGLang.

    All goes to one stream but for uvicorn's access log, which has `access_stream`. Ranks are counted from the first
    of this node.
    """

    def __init__(
        self,
        stream: TextIO,
        ranks: LocalRanks = ONE_RANK,
        clock: Callable[[], datetime] = datetime.now,
        access_stream: TextIO | None = None,
    ) -> None:
        self._stream = stream
        self._access_stream = access_stream or stream
        self.ranks = ranks
        self._clock = clock

    def say(self, text: str) -> None:
        """A line of the main process: no rank tag."""
        self._write(f"[{self._clock():%Y-%m-%d %H:%M:%S}] {text}\n")

    def access(self, text: str) -> None:
        """A line of the access log."""
        self._write(f"[{self._clock():%Y-%m-%d %H:%M:%S}] {text}\n", self._access_stream)

    def rank(self, text: str, rank: int = 0) -> None:
        """A line of one scheduler."""
        self._write(f"[{self._clock():%Y-%m-%d %H:%M:%S}{self.ranks.tag(rank)}] {text}\n")

    def every_rank(self, text: str) -> None:
        """The same line from all schedulers."""
        for rank in range(self.ranks.count):
            self.rank(text, rank)

    def raw(self, text: str) -> None:
        """Text as it is: progress bars, tracebacks of the main process."""
        self._write(text)

    def _write(self, text: str, stream: TextIO | None = None) -> None:
        # A server outlives whoever reads its log.
        stream = stream or self._stream
        with contextlib.suppress(OSError):
            stream.write(text)
            stream.flush()


def progress_bar(label: str, done: int, total: int, elapsed_s: float, seconds_each: float) -> str:
    """One state of a tqdm bar ten characters wide, without the carriage return."""
    eighths = " ▏▎▍▌▋▊▉█"
    share = done / total
    full, part = divmod(int(share * 80), 8)
    bar = "█" * full + (eighths[part] if full < 10 and part else "")
    rate = f"{seconds_each:5.2f}s/it" if seconds_each >= 1 else f"{1 / seconds_each:5.2f}it/s"
    remaining = _minutes((total - done) * seconds_each) if done else "?"
    if not done:
        rate = "?it/s"
    return f"{label}: {share:4.0%}|{bar:<10}| {done}/{total} [{_minutes(elapsed_s)}<{remaining}, {rate}]"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
