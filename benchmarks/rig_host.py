"""One host of the rig: what runs on it, seen from outside."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from actors.gpus.gpu_ledger import GpuLedger
from benchmarks.kill_rig import RUN_MARK, alive, environment, title

NET = "10.77.0."


@dataclass
class RigHost:
    """One host: number 0 is the head. `pid1` is its first process, None while it is off; `ledger` are its GPUs."""

    number: int
    gpus: int
    folder: Path
    netns: str
    ledger: GpuLedger | None = None
    pid1: psutil.Process | None = None
    unshare: subprocess.Popen[bytes] | None = None
    starts: int = 0
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"h{self.number}"

    @property
    def address(self) -> str:
        return f"{NET}{10 + self.number}"

    @property
    def is_on(self) -> bool:
        return self.pid1 is not None and alive(self.pid1)

    def processes(self) -> list[psutil.Process]:
        """All that run on it, seen from outside."""
        if self.pid1 is None or not self.is_on:
            return []
        own = _namespace(self.pid1)
        return [process for process in psutil.process_iter() if _namespace(process) == own]

    def raylets(self) -> list[psutil.Process]:
        return [p for p in self.processes() if title(p).split(" ")[0].endswith("/raylet")]

    def actors(self, kind: str) -> list[psutil.Process]:
        """Its Ray actors of a class."""
        return [p for p in self.processes() if title(p).startswith(f"ray::{kind}")]

    def marked(self, run_id: str) -> list[str]:
        """Its living processes with the mark of a run, or of any if the id is empty, as `pid command`."""
        marks = [(p, environment(p).get(RUN_MARK)) for p in self.processes()]
        return [f"{p.pid} {title(p)[:160]}" for p, mark in marks if mark and mark.startswith(run_id) and alive(p)]


def _namespace(process: psutil.Process) -> int | None:
    try:
        return Path(f"/proc/{process.pid}/ns/pid").stat().st_ino
    except OSError:
        return None
