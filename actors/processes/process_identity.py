"""A process that cannot be mistaken for a later one with its number: pid, start time, and the boot both belong to."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

# Of /proc/PID/stat, behind the name in brackets: state, parent, and 17 further on the start in ticks since boot.
_STATE, _PARENT, _STARTED = 0, 1, 19
_DEAD = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`started_ticks` is field 22 of /proc/PID/stat. Equal identities are one process, also across reboots."""

    pid: int
    started_ticks: int
    boot_id: str

    @classmethod
    def of(cls, told: dict[str, Any]) -> Self:
        """From JSON; KeyError, TypeError or ValueError if it is none."""
        return cls(int(told["pid"]), int(told["started_ticks"]), str(told["boot_id"]))

    @property
    def lives(self) -> bool:
        """Whether it runs still. A zombie does not: its memory is given back."""
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Signal exactly this process; False if we are not permitted to. One that is gone needs no signal."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        except OSError:  # a kernel or a sandbox without pidfds
            return self._send_by_number(number)
        try:
            # With the handle held the number cannot be given to another process between this look and the signal.
            if self.lives:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        finally:
            os.close(handle)
        return True

    def _send_by_number(self, number: signal.Signals) -> bool:
        try:
            if self.lives:
                os.kill(self.pid, number)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return True


@cache
def boot_id() -> str:
    """What is new after every boot of the host; the same in all its containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


@cache
def pid_namespace() -> str:
    """In which numbering our pids are; two that differ cannot see each other's processes by the same number."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "unknown"


def ticks_now() -> int:
    """Now, as starts of processes are counted: ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this number now; None if none runs under it."""
    fields = stat_fields(pid)
    if fields is None or fields[_STATE] in _DEAD:
        return None
    return ProcessIdentity(pid, int(fields[_STARTED]), boot_id())


def parent_of(pid: int) -> int | None:
    """The parent's pid, 0 for what the kernel or another namespace started; None if it is gone."""
    fields = stat_fields(pid)
    return None if fields is None else int(fields[_PARENT])


def stat_fields(pid: int) -> list[str] | None:
    """Those of /proc/PID/stat behind the name, from 0; None if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()
