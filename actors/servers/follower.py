"""Follows a log file that a server writes: whole lines, and the state of progress bars that end in no newline."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

# A pending carriage return may be half of "\r\n": it says nothing before the next byte is there.
_BREAK = re.compile(rb"\r?\n|\r(?!\n)(?=.)", re.DOTALL)
_BAR = re.compile(r"\d+%(?: Completed)?\s*\|.*?\d+/\d+ \[")
# Of longer lines the rest is left out: nothing that we look for is that long.
_LONGEST_LINE = 1 << 16
# No more of a file than this is read at a time: a flood must neither fill memory nor hold up the event loop.
_BITE = 1 << 18
# A bar has no newline, so the next log line is glued to it: "| 0/13 [00:00<?, ?it/s][2025-06-16 16:07:35 TP0] ...".
_GLUED = re.compile(r"(?P<bar>.*\d+%(?: Completed)?\s*\|.*?\d+/\d+ \[[^\[\]]*\])(?P<line>\S.*)")


# Lines of which a healthy server writes millions: batches and answered requests, one after the other.
_CALM = re.compile(
    rb"""(?:(?:[^\n\[\r]{0,100}+\[[^\]\n]{8,60}+\]\ )?(?:Decode\ batch|Prefill\ batch
      |INFO:\ +[\d.]+:\d+\ -\ "(?:GET|POST)\ [^"\n]*+"\ 200)[^\n\[\r]*+\n)++""",
    re.VERBOSE,
)
# So many lines of a calm run are told one by one (they show that a server has survived an exception), and its last one.
_TOLD_OF_A_RUN = 48


@dataclass(frozen=True, slots=True)
class Segment:
    """A log line, or one state of a progress bar. `number` counts the lines of the file from 1."""

    text: str
    number: int
    is_bar: bool = False


class LineSplitter:
    """Bytes in, segments out; how the bytes were cut on their way here makes no difference.

    With `skim`, of a long run of lines about batches and answered requests only the first and the last are told.
    """

    def __init__(self, *, skim: bool = False) -> None:
        self._skim = skim
        self._pending = b""
        self._number = 1
        self._skipping = False

    def feed(self, data: bytes) -> list[Segment]:
        """The segments that these bytes complete."""
        self._pending += data
        segments: list[Segment] = []
        start = 0
        while found := _BREAK.search(self._pending, start):
            if self._skim and not self._skipping and (calm := _CALM.match(self._pending, start)):
                segments += self._run(calm[0])
                start = calm.end()
                continue
            segments += self._line(self._pending[start : found.start()])
            start = found.end()
            if found[0].endswith(b"\n"):
                self._number += 1
        self._pending = self._pending[start:]
        if len(self._pending) > _LONGEST_LINE:
            segments += self._line(self._pending)
            self._pending, self._skipping = b"", True
        return segments

    def _run(self, calm: bytes) -> list[Segment]:
        lines = calm.split(b"\n", _TOLD_OF_A_RUN)
        rest = lines.pop()
        segments = [Segment(_decoded(line), self._number + place) for place, line in enumerate(lines)]
        self._number += len(lines)
        if rest:
            self._number += rest.count(b"\n")
            segments.append(Segment(_decoded(rest[rest.rfind(b"\n", 0, -1) + 1 : -1]), self._number - 1))
        return segments

    @property
    def bar(self) -> Segment | None:
        """The progress bar that stands unfinished at the end of the file, if one does."""
        if b"%" not in self._pending:
            return None
        text = _decoded(self._pending)
        return Segment(text, self._number, is_bar=True) if _BAR.search(text) else None

    def flush(self) -> list[Segment]:
        """What is left when no more bytes will come."""
        rest, self._pending = self._pending.removesuffix(b"\r"), b""
        return self._line(rest)

    def _line(self, raw: bytes) -> list[Segment]:
        """A line, unless it is the rest of one that was cut."""
        skipped, self._skipping = self._skipping, False
        return [] if skipped else self._segments(raw)

    def _segments(self, raw: bytes) -> list[Segment]:
        text = _decoded(raw[:_LONGEST_LINE])
        if not text.strip():
            return []
        if "%" not in text:
            return [Segment(text, self._number)]
        glued = _GLUED.fullmatch(text)
        if glued:
            return [Segment(glued["bar"], self._number, is_bar=True), Segment(glued["line"], self._number)]
        return [Segment(text, self._number, is_bar=bool(_BAR.search(text)))]


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace").strip("\r")


def split_log(data: bytes) -> list[Segment]:
    """The segments of a whole log."""
    splitter = LineSplitter()
    return [*splitter.feed(data), *splitter.flush()]


class LogTail:
    """The new part of a growing file, as segments; a file that shrank is read again from its start.

    `position`: how many of its bytes are not new.
    """

    def __init__(self, path: Path, position: int = 0) -> None:
        self._path = path
        self._position = position
        self._splitter = LineSplitter()
        self._bar: Segment | None = None
        self.is_behind = False

    def read(self) -> list[Segment]:
        """What came since the last call, but not more than a bite; and the bar at the end of the file if it moved."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._position:
                    self._position, self._splitter = 0, LineSplitter()
                file.seek(self._position)
                data = file.read(_BITE)
        except FileNotFoundError:
            self.is_behind = False
            return []
        self._position += len(data)
        self.is_behind = len(data) == _BITE
        segments = self._splitter.feed(data)
        bar = self._splitter.bar
        if bar is not None and bar != self._bar:
            segments.append(bar)
        self._bar = bar
        return segments

    def rest(self) -> list[Segment]:
        """The last segments of a file that nobody writes any more."""
        segments = self.read()
        return segments if self.is_behind else [*segments, *self._splitter.flush()]


async def follow(path: Path, ended: Callable[[], bool], poll_s: float = 0.07) -> AsyncIterator[list[Segment]]:
    """What the file gained, at every poll (often nothing), until `ended`; then once what is left."""
    tail = LogTail(path)
    while not ended():
        yield tail.read()
        await asyncio.sleep(0 if tail.is_behind else poll_s)
    yield tail.rest()
    while tail.is_behind:
        await asyncio.sleep(0)
        yield tail.rest()
