"""Python runs this as it starts where this folder is on its path: its monotonic clock is ahead by what a file says."""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

_seconds, _nanoseconds = time.monotonic, time.monotonic_ns
with Path(os.environ["LEAPING_CLOCK"]).open("r+b") as file:
    _shared = mmap.mmap(file.fileno(), 8)


def _ahead_ns() -> int:
    (ahead_ns,) = struct.unpack_from("q", _shared)
    return int(ahead_ns)


time.monotonic = lambda: _seconds() + _ahead_ns() / 1e9
time.monotonic_ns = lambda: _nanoseconds() + _ahead_ns()
