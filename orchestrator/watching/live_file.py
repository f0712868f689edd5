"""`live.json` in the directory of a run that goes on: written by a thread of its own, read by whoever watches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import orjson

from orchestrator.paths import write_whole
from orchestrator.watching.live_view import LIVE_SCHEMA, LiveView

# How often it is written: often enough to watch, and nothing for a shared file system.
BEAT_S = 1.0
# A file system that hangs does not keep a run from ending. Waited for in pieces: a process that stands still for a
# while has then lost one of them, not the time in which its end would have been written.
_LAST_WRITE_S, _PIECE_S = 10.0, 0.1


class LiveFile:
    """Keeps the file new while it is open, and marks its end. Whatever goes wrong with it, the run goes on.

    `view` is asked from the thread; `before` each view: what is slow to find out, and is shown.
    """

    def __init__(
        self, path: Path, view: Callable[[], LiveView], before: Callable[[], object] = lambda: None,
        beat_s: float = BEAT_S,
    ) -> None:  # fmt: skip
        self._path = path
        self._view = view
        self._before = before
        self._beat_s = beat_s
        self._beats = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="live", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        left = round(_LAST_WRITE_S / _PIECE_S)
        while left and self._thread.is_alive():
            self._thread.join(_PIECE_S)
            left -= 1

    def _work(self) -> None:
        while not self._over.is_set():
            self._write(ended=False)
            self._over.wait(self._beat_s)
        self._write(ended=True)

    def _write(self, *, ended: bool) -> None:
        # No fault of a view may become one of the run: not a full disk, and not a bug of ours.
        with contextlib.suppress(Exception):
            self._before()
        with contextlib.suppress(Exception):
            self._beats += 1
            view = replace(self._view(), beat=self._beats, told_unix_s=time.time(), ended=ended)
            view = replace(view, left=None) if ended else view
            write_whole(self._path, live_bytes(view), durable=False)


def live_bytes(view: LiveView) -> bytes:
    """What the file holds: `as_json`, made in a tenth of the time."""
    return orjson.dumps({"schema": LIVE_SCHEMA} | {name: getattr(view, name) for name in view.__slots__})


def read_live(path: Path) -> LiveView | None:
    """What was written last; None where there is none, or none that can be read."""
    try:
        return LiveView.from_json(orjson.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None
