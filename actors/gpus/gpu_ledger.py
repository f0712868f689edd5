"""A stand-in for the GPUs of a host: a folder in which processes write how much GPU memory they hold.

As with a driver, memory is held exactly as long as its process lives, and may come back some time after that. So all
that has to do with who holds a GPU runs, and is tested, on hosts without one. `SPECSWEEP_GPU_LEDGER=FOLDER` in the
environment puts it in the place of NVML.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from actors.processes.process_identity import ProcessIdentity, identify

LEDGER_VARIABLE = "SPECSWEEP_GPU_LEDGER"


@dataclass(frozen=True, slots=True)
class LedgerTraits:
    """What kind of host it is.

    `release_lag_s`: memory of a process that ended comes back so much later; None: never. `lists_pids` is False for a
    container, where the driver lists no processes at all; with `tells_gib` False they are listed without their memory.
    `numa_nodes` and `links` say where the GPUs sit, as HostReport tells it; empty: the host does not tell.
    """

    total_gib: tuple[float, ...]
    name: str = "Emulated GPU"
    release_lag_s: float | None = 0.0
    lists_pids: bool = True
    tells_gib: bool = True
    capability: tuple[int, int] | None = None
    numa_nodes: tuple[int | None, ...] = ()
    links: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerGpu:
    """One GPU now. `holders` are the processes that hold memory there, living ones only: pid -> GiB."""

    index: int
    total_gib: float
    used_gib: float
    holders: dict[int, float]

    @property
    def free_gib(self) -> float:
        return self.total_gib - self.used_gib


class GpuMemoryFull(Exception):
    """GPU `gpu` has only `free_gib` left; `others` hold memory there: (pid, GiB)."""

    def __init__(self, gpu: int, wanted_gib: float, free_gib: float, others: tuple[tuple[int, float], ...]) -> None:
        super().__init__(f"GPU {gpu}: {wanted_gib:.2f} GiB wanted, {free_gib:.2f} GiB free")
        self.gpu = gpu
        self.wanted_gib = wanted_gib
        self.free_gib = free_gib
        self.others = others


@dataclass(frozen=True, slots=True)
class _Holding:
    """What one process holds, by GPU index; `lag_s` as LedgerTraits.release_lag_s, -1 where the host's holds."""

    process: ProcessIdentity
    gib: dict[int, float] = field(default_factory=dict)
    lag_s: float | None = -1.0


class GpuLedger:
    """The GPUs of the folder. Any number of processes may use one at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, gib: Sequence[float], **traits: Any) -> GpuLedger:
        """A new ledger with these GPUs (GiB of each), or the same folder with other traits; holders stay."""
        (folder / "holders").mkdir(parents=True, exist_ok=True)
        _write(folder / "gpus.json", asdict(LedgerTraits(tuple(gib), **traits)))
        return cls(folder)

    @property
    def traits(self) -> LedgerTraits:
        """The host as it is scripted now; OSError or ValueError if the folder is no ledger."""
        told = json.loads((self.folder / "gpus.json").read_text(encoding="utf-8"))
        capability = told.get("capability")
        pair = (int(capability[0]), int(capability[1])) if capability else None
        places = {"numa_nodes": tuple(told.get("numa_nodes", ())), "links": tuple(map(tuple, told.get("links", ())))}
        return LedgerTraits(**{**told, **places, "total_gib": tuple(told["total_gib"]), "capability": pair})

    def hold(self, pid: int, gpu: int, gib: float, *, release_lag_s: float | None = -1.0) -> None:
        """A process now holds so much of a GPU in all, more or less than before; GpuMemoryFull if it is not there.

        ProcessLookupError if the process does not live; IndexError if there is no such GPU.
        """
        process = identify(pid)
        if process is None:
            raise ProcessLookupError(f"pid {pid} does not live, it cannot hold memory")
        with self._locked():
            state = self.gpus()[gpu]
            held = self._held_by(process)
            grows_gib = gib - held.gib.get(gpu, 0.0)
            if grows_gib > state.free_gib + 1e-9:
                others = tuple((p, amount) for p, amount in state.holders.items() if p != pid)
                raise GpuMemoryFull(gpu, grows_gib, state.free_gib, others)
            lag_s = held.lag_s if release_lag_s == -1.0 else release_lag_s
            self._keep(_Holding(process, {**held.gib, gpu: gib}, lag_s))

    def gpus(self) -> tuple[LedgerGpu, ...]:
        """All GPUs with what is held there now."""
        traits = self.traits
        used = [0.0] * len(traits.total_gib)
        living: list[dict[int, float]] = [{} for _ in used]
        for file, holding in self._holdings():
            lives = holding.process.lives
            if not lives and _is_released(file, traits.release_lag_s if holding.lag_s == -1.0 else holding.lag_s):
                continue
            for gpu, gib in holding.gib.items():
                used[gpu] += gib
                if lives:
                    living[gpu][holding.process.pid] = gib
        return tuple(LedgerGpu(i, total, used[i], living[i]) for i, total in enumerate(traits.total_gib))

    def _holdings(self) -> Iterator[tuple[Path, _Holding]]:
        for file in sorted((self.folder / "holders").glob("*.json")):
            with contextlib.suppress(FileNotFoundError):  # released by another reader meanwhile
                yield file, _read(file)

    def _held_by(self, process: ProcessIdentity) -> _Holding:
        file = self._file(process)
        return _read(file) if file.exists() else _Holding(process)

    def _keep(self, holding: _Holding) -> None:
        told = {**asdict(holding.process), "gib": holding.gib, "lag_s": holding.lag_s}
        _write(self._file(holding.process), told)

    def _file(self, process: ProcessIdentity) -> Path:
        return self.folder / "holders" / f"{process.pid}-{process.started_ticks}-{process.boot_id[:8]}.json"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One taker at a time: what was free when it looked is free when it takes."""
        with (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def ledger_of(environment: Mapping[str, str]) -> GpuLedger | None:
    """The ledger that an environment names, if it names one."""
    folder = environment.get(LEDGER_VARIABLE)
    return GpuLedger(Path(folder)) if folder else None


def _is_released(file: Path, lag_s: float | None) -> bool:
    """Whether the memory of a process that ended is back; it counts from when its end was first seen."""
    if lag_s is None:
        return False
    ended = file.with_suffix(".ended")
    if lag_s > 0:
        with contextlib.suppress(FileExistsError), ended.open("x", encoding="ascii") as first:
            first.write(str(time.monotonic()))
        with contextlib.suppress(FileNotFoundError):
            seen = ended.read_text(encoding="ascii")
            if not seen or time.monotonic() - float(seen) < lag_s:
                return False
    for gone in (file, ended):
        gone.unlink(missing_ok=True)
    return True


def _read(file: Path) -> _Holding:
    told = json.loads(file.read_text(encoding="utf-8"))
    return _Holding(ProcessIdentity.of(told), {int(gpu): float(g) for gpu, g in told["gib"].items()}, told["lag_s"])


def _write(file: Path, told: dict[str, Any]) -> None:
    """Whole or not at all, for readers that come in between."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}.{time.monotonic_ns()}")
    fresh.write_text(json.dumps(told), encoding="utf-8")
    fresh.replace(file)
