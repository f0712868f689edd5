"""`/start_profile`: the engine's steps as a Chrome trace, where SGLang's profiler would put its own."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from actors.emulator.log import LogWriter

MICROSECONDS = 1e6


class Profiler:
    """Records steps between `start` and `stop`. Starting anew throws away what was recorded."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._events: list[dict[str, Any]] = []
        self._left: int | None = None
        self._file: Path | None = None

    @property
    def running(self) -> bool:
        return self._file is not None

    def start(self, output_dir: str | None, num_steps: int | None, profile_id: str | None) -> None:
        """Begin; after `num_steps` steps it stops by itself."""
        folder = Path(output_dir or os.environ.get("SGLANG_TORCH_PROFILER_DIR") or tempfile.gettempdir())
        name = profile_id or str(time.time())
        self._events, self._left = [], num_steps
        self._file = folder / f"{name}-TP-0.trace.json.gz"
        self._log.rank(f"Profiling starts. Traces will be saved to: {folder} (with profile id: {name})")

    def record(self, kind: str, batch: int, seconds: float, now: float) -> None:
        """One step that ended at `now`."""
        if self._file is None:
            return
        span = {"ts": (now - seconds) * MICROSECONDS, "dur": seconds * MICROSECONDS}
        event = {"ph": "X", "cat": "emulator", "name": kind, "pid": os.getpid(), "tid": 0, **span}
        self._events.append(event | {"args": {"batch": batch}})
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.stop()

    def stop(self) -> None:
        """Write the trace. A folder that cannot be written to is told in the log."""
        file, self._file = self._file, None
        if file is None:
            return
        self._log.rank("Stop profiling...")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(file, "wt", encoding="utf-8") as out:
                json.dump({"schemaVersion": 1, "traceEvents": self._events}, out)
        except OSError as error:
            self._log.rank(f"Profiling failed: {error}")
            return
        self._log.rank(f"Profiling done. Traces are saved to: {file.parent}")
