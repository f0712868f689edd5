"""Whether a run lives on this host: its actors write down who they are and when they last heard of the driver.

A run lives as long as one of its actors does (the same process: pid, start time, boot) and is not silent, or one of its
guards is still ending a server. Nothing of a run that lives is ever touched by another.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from actors.host.own_folder import MARK, is_left_behind
from actors.processes.process_identity import ProcessIdentity, boot_id, identify, pid_namespace

# A slot stops its server after two minutes of silence by itself; one that is silent for so long does nothing more.
STALE_S = 900.0
# A folder without a lease is of an earlier release, or of an actor that is just starting.
ABANDONED_S = 86400.0


class RunLife(StrEnum):
    """`unknown`: nothing on this host says who owns it, so it is left alone."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RunLease:
    """One actor of a run. `seen_s` is the host's monotonic clock at the last sign of the driver; None if none is given.

    `runtime` calls the container runtime, if the slot used one.
    """

    owner: ProcessIdentity
    namespace: str
    seen_s: float | None
    runtime: tuple[str, ...] = ()

    @classmethod
    def of(cls, told: dict[str, Any]) -> Self:
        """From JSON; KeyError, TypeError or ValueError if it is none."""
        owner, seen = ProcessIdentity.of(told["owner"]), told["seen_s"]
        return cls(owner, str(told["namespace"]), None if seen is None else float(seen), tuple(told["runtime"]))

    def life(self, now_s: float, lives: Callable[[ProcessIdentity], bool]) -> RunLife:
        """By the process, where it can be seen, and by the silence."""
        if self.owner.boot_id != boot_id():
            return RunLife.DEAD
        silent = self.seen_s is not None and now_s - self.seen_s > STALE_S
        if self.namespace == pid_namespace():
            return RunLife.ALIVE if lives(self.owner) and not silent else RunLife.DEAD
        # Another container that shares the folder: its pids say nothing here.
        if self.seen_s is None:
            return RunLife.UNKNOWN
        return RunLife.DEAD if silent else RunLife.ALIVE


def run_life(
    leases: Iterable[RunLease], guards: int, now_s: float, lives: Callable[[ProcessIdentity], bool]
) -> RunLife:
    """Of a run with these leases, of which so many guards are still at work on this host."""
    found = {lease.life(now_s, lives) for lease in leases}
    if guards or RunLife.ALIVE in found:
        return RunLife.ALIVE
    return RunLife.UNKNOWN if not found or RunLife.UNKNOWN in found else RunLife.DEAD


def scratch_root() -> Path:
    """Where a host keeps what belongs to runs of this user."""
    return Path(tempfile.gettempdir()) / f"specsweep-{os.getuid()}"


def scratch_dir(run_id: str) -> Path:
    """Where a host keeps the logs and spools of a run; they are fetched by the driver and then removed."""
    return scratch_root() / run_id


def scratch_runs() -> list[str]:
    """Runs that have a folder on this host."""
    try:
        return sorted(folder.name for folder in scratch_root().iterdir() if folder.is_dir())
    except OSError:
        return []


def remove_scratch(run_id: str) -> None:
    """Remove what a run left in this host's temporary folder; the driver has fetched it."""
    shutil.rmtree(scratch_dir(run_id), ignore_errors=True)


def is_abandoned(run_id: str) -> bool:
    """Whether a folder that nobody claims has not been touched for a day."""
    folder = scratch_dir(run_id)
    try:
        newest = max(entry.stat().st_mtime for entry in (folder, *folder.rglob("*")))
    except OSError:
        return False
    return time.time() - newest > ABANDONED_S


def dead_ray_folders() -> list[Path]:
    """Folders of embedded Ray clusters (`specsweep-ray-<pid>-...`) of this user whose driver has ended: by the mark; of
    an earlier release by the number in the name.
    """
    found = []
    for folder in Path(tempfile.gettempdir()).glob("specsweep-ray-*"):
        owner = folder.name.split("-")[2]
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.getuid() or not owner.isdigit():
                continue
            if is_left_behind(folder) if (folder / MARK).exists() else identify(int(owner)) is None:
                found.append(folder)
    return found


def leases_of(run_id: str) -> Iterator[RunLease]:
    """All leases of a run on this host, also those of actors that have ended."""
    for file in sorted((scratch_dir(run_id) / "leases").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            yield RunLease.of(json.loads(file.read_text(encoding="utf-8")))


class LeaseHolder:
    """An actor's own lease. A disk that is full costs the lease, never the measurement."""

    def __init__(self, run_id: str, name: str) -> None:
        self._file = scratch_dir(run_id) / "leases" / f"{name}-{os.getpid()}.json"
        me = identify(os.getpid())
        self._lease = None if me is None else RunLease(me, pid_namespace(), None)

    def hold(self, *, seen: bool = False, runtime: tuple[str, ...] = ()) -> None:
        """We are here; `seen`: and have just heard of the driver."""
        if self._lease is None:
            return
        now_s = time.monotonic() if seen else self._lease.seen_s
        self._lease = replace(self._lease, seen_s=now_s, runtime=runtime or self._lease.runtime)
        fresh = self._file.with_suffix(".part")
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps(asdict(self._lease)), encoding="utf-8")
            fresh.replace(self._file)

    def release(self) -> None:
        """We are through."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
