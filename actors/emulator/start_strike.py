"""What the start faults of a script do when the start reaches their phase. It may block: nothing is served yet."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from actors.emulator.deathbed import Deathbed, end_with, hang_for_ever, spin
from actors.emulator.fault import Fault
from actors.emulator.last_words import words_of
from actors.emulator.log import LogWriter, progress_bar
from actors.emulator.log_flood import flood
from actors.emulator.phase_stream import PhaseStream
from actors.emulator.start_fault import (
    FloodedStart,
    HangingStart,
    IgnoredSigterm,
    LabelledEnd,
    Orphan,
    ReplayedLog,
    SilentEnd,
    SlowStart,
)

_FIRST_LINE = (
    "/usr/local/lib/python3.12/site-packages/sglang/launch_server.py:71: UserWarning: 'python -m sglang.launch_server' "
    "is still supported, but 'sglang serve' is the recommended entrypoint.\n"
)
_STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]*\]")
_BAR_STATES = 20
# How often it is looked whether a file is there that a start waits for.
_LOOK_S = 0.1
# Long enough for any test to see it, short enough not to stay on a machine.
_ORPHAN_S = 600


class StartStrike:
    """The start faults of one server."""

    def __init__(self, faults: Sequence[Fault], folder: Path, stream: PhaseStream, bed: Deathbed) -> None:
        self._faults = faults
        self._folder = folder
        self._stream = stream
        self._bed = bed
        self._held: list[object] = []
        self.child_died = False

    def reached(self, phase: str) -> None:
        """Let the faults of this phase strike, in the order of the script."""
        due = [fault for fault in self._faults if _phase_of(fault) == phase]
        if due and phase == "args":
            self._log.raw(_FIRST_LINE)
        for fault in due:
            self._strike(fault)
        if phase == "ready" and any(isinstance(fault, IgnoredSigterm) for fault in self._faults):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @property
    def slow_warm_ups(self) -> list[SlowStart]:
        """Those in which the port is open and answers meanwhile: only the request of the warm-up is slow."""
        slow = [fault for fault in self._faults if isinstance(fault, SlowStart)]
        return [fault for fault in slow if fault.slow == "warmup" and not fault.busy]

    @property
    def _log(self) -> LogWriter:
        return self._bed.log

    def _strike(self, fault: Fault) -> None:
        if isinstance(fault, LabelledEnd):
            self._end(fault)
        elif isinstance(fault, ReplayedLog):
            self._replay(fault)
        elif isinstance(fault, SilentEnd):
            end_with(fault.exit_code)
        elif isinstance(fault, HangingStart):
            hang_for_ever(ignore_sigterm=fault.ignore_sigterm, busy=fault.busy)
        elif isinstance(fault, SlowStart):
            if fault not in self.slow_warm_ups:
                self._dawdle(fault)
        elif isinstance(fault, FloodedStart):
            self._flood(fault)
        elif isinstance(fault, IgnoredSigterm):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif isinstance(fault, Orphan):
            _leave_orphan()

    def _end(self, fault: LabelledEnd) -> None:
        words = words_of(fault.label, serving=False)
        if words.ending == "bind":
            self._held.append(self._bed.take_port())
            return
        self._bed.speak(words, fault.rank)
        if words.ending == "child" and self._bed.tree is not None:
            self._bed.tree.end_rank(fault.rank, -words.code)
            if _phase_of(fault) == "warmup":
                self.child_died = True  # the server's own watch over its children ends it
                return
        if words.ending != "goes_on":
            self._bed.die_starting(words, fault.rank)

    def _replay(self, fault: ReplayedLog) -> NoReturn:
        before: datetime | None = None
        for line in (self._folder / fault.replay).read_bytes().splitlines(keepends=True):
            stamp = _STAMP.match(line) if fault.pace else None
            if stamp is not None:
                now = datetime.fromisoformat(stamp[1].decode())
                time.sleep(max(0.0, (now - (before or now)).total_seconds()) / self._bed.speedup)
                before = now
            if line.strip() != b"[[gap]]":
                self._stream.write_bytes(line)
        if fault.exit_code is None:
            hang_for_ever()
        end_with(fault.exit_code)

    def _dawdle(self, fault: SlowStart) -> None:
        each = _LOOK_S if fault.seconds is None else fault.seconds / _BAR_STATES
        for done in itertools.count():
            if done == _BAR_STATES if fault.until is None else (self._folder / fault.until).exists():
                break
            if fault.bars:
                label = "Loading safetensors checkpoint shards"
                shown = min(done, _BAR_STATES - 1)
                self._log.raw("\r" + progress_bar(label, shown, _BAR_STATES, done * each, each))
            (spin if fault.busy else time.sleep)(each)
        if fault.bars:
            self._log.raw("\n")

    def _flood(self, fault: FloodedStart) -> None:
        left = fault.mib * (1 << 20)
        for block in flood(fault.lines):
            self._stream.write_bytes(block)
            left -= len(block)
            if left <= 0:
                break
        self._log.raw("\n")


def _phase_of(fault: Fault) -> str:
    if isinstance(fault, LabelledEnd):
        return fault.phase or words_of(fault.label, serving=False).phase
    for name in ("exit", "hang", "slow", "flood"):
        if (phase := getattr(fault, name, None)) is not None:
            return str(phase)
    return "launch"


def _leave_orphan() -> None:
    """By way of a child that ends at once, so that it is nobody's child."""
    sleeper = [sys.executable, "-S", "-s", "-c", f"import time; time.sleep({_ORPHAN_S})"]
    daemonise = f"import subprocess; subprocess.Popen({sleeper!r}, start_new_session=True)"
    null = subprocess.DEVNULL
    command = [sys.executable, "-S", "-s", "-c", daemonise]
    subprocess.run(command, check=True, start_new_session=True, stdin=null, stdout=null, stderr=null)
