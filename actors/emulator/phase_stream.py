"""The stream under the log writer, which sees where the start is by what is written."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from typing import TextIO

_PREFIX = re.compile(r"^\[[^\]]*\] ")
# First words of a line -> (phase, whether every rank says it): the phase is reached when the last rank has said it.
_AFTER = (
    ("Init parallel begin", "dist_init", True),
    ("Load weight begin", "weights", True),
    ("Capture target decode", "graph_target", True),
    ("Capture target verify", "graph_target", True),
    ("Capture draft", "graph_draft", True),
    ("max_total_num_tokens=", "http_bind", False),
    ("INFO:     Uvicorn running on", "warmup", False),
    ("The server is fired up", "ready", False),
    ("Dummy health check server started", "ready", False),  # of a node that serves no requests
)
# The phase is reached when this is about to be said for the first time.
_BEFORE = (("server_args=", "args"), ("Mamba Cache is allocated", "kv_pool"), ("KV Cache is allocated", "kv_pool"))


class PhaseStream(io.TextIOBase):
    """Passes everything on, and tells each phase once, as the server reaches it."""

    def __init__(self, stream: TextIO, ranks: int, reached: Callable[[str], None]) -> None:
        self._stream = stream
        self._ranks = ranks
        self._reached = reached
        self._said: Counter[str] = Counter()
        self._told: set[str] = set()

    def write(self, text: str) -> int:
        message = _PREFIX.sub("", text, count=1)
        for words, phase in _BEFORE:
            if message.startswith(words):
                self._tell(phase)
        written = self._stream.write(text)
        for words, phase, by_all in _AFTER:
            if message.startswith(words) and " end." not in message[:60]:
                self._said[words] += 1
                self._tell_after(phase, self._said[words], by_all)
        return written

    def _tell_after(self, phase: str, said: int, by_all: bool) -> None:
        """The second load of a rank is the draft's; the other phases are told once."""
        ranks = self._ranks if by_all else 1
        if said == ranks:
            self._tell(phase)
        elif phase == "weights" and said == 2 * ranks:
            self._tell("draft_weights")

    def _tell(self, phase: str) -> None:
        if phase not in self._told:
            self._told.add(phase)
            self._stream.flush()
            self._reached(phase)

    def write_bytes(self, data: bytes) -> None:
        """Bytes as they are, which need not be UTF-8."""
        self._stream.flush()
        self._stream.buffer.write(data)
        self._stream.buffer.flush()

    def flush(self) -> None:
        self._stream.flush()
