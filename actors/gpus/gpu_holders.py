"""Who holds memory on GPUs: ours by their mark, strangers with user, command and what restarts them, or nobody seen."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from actors.gpus.gpu import IDLE_GIB, GpuProcess, GpuState, gpu_states
from actors.guards.guard import RUN_MARK
from actors.processes.crash_loop import Sighting
from actors.processes.process_facts import command_of, environment_of, server_root, uid_of, unit_holding, user_of
from actors.processes.process_identity import ProcessIdentity, identify
from actors.processes.process_unit import Unit

Read = Callable[[], tuple[GpuState, ...] | None]

_DEVICE = re.compile(r"^/dev/nvidia(?P<number>\d+)$")
# They keep the devices open and hold next to nothing; to end them frees no GPU and may cost a host its driver.
_WATCHERS = re.compile(
    r"nvidia-(?:persistenced|smi|fabricmanager)|nv-(?:hostengine|fabricmanager)|dcgm|Xorg|nvitop|nvtop"
)


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A process on GPUs, in one piece. `gib` is 0 where the driver does not tell it.

    `run_id` is the mark of a run of ours. `by_device`: only known since it has the device file open.
    """

    process: ProcessIdentity | None
    pid: int
    user: str
    command: str
    gib: float
    gpus: tuple[int, ...]
    server: str = ""
    unit: Unit | None = None
    run_id: str | None = None
    by_device: bool = False

    @property
    def permitted(self) -> bool:
        """Whether this user may end it."""
        return self.process is not None and os.geteuid() in {0, uid_of(self.pid)}

    @property
    def sighting(self) -> Sighting | None:
        """As the search for crash loops takes it."""
        if self.process is None:
            return None
        unit = self.unit
        return Sighting(
            self.process, self.command, self.server, unit.name if unit else None, unit.stop if unit else None
        )

    def __str__(self) -> str:
        held = "the device open" if self.by_device else f"{self.gib:.1f} GiB" if self.gib else "an unknown amount"
        told = f"pid {self.pid} of {self.user}, {held}: {self.command[:120]}"
        if self.run_id:
            told += f" (run {self.run_id} of specsweep)"
        return f"{told} ({self.unit})" if self.unit else told


@dataclass(frozen=True, slots=True)
class GpuUse:
    """A GPU with its holders. `hidden_gib` is used by no process that can be seen."""

    state: GpuState
    holders: tuple[GpuHolder, ...]
    hidden_gib: float

    def strangers(self, run_id: str, limit_gib: float = IDLE_GIB) -> list[GpuHolder]:
        """Holders without the mark of this run that are worth a word; small ones are tools that watch the GPU."""
        return [h for h in self.holders if h.run_id != run_id and (h.gib >= limit_gib or self._suspect(h, limit_gib))]

    def _suspect(self, holder: GpuHolder, limit_gib: float) -> bool:
        """Whether it may be what the driver does not tell the amount of."""
        if holder.process is None:
            return False
        return not holder.gib and self.hidden_gib >= limit_gib and not _WATCHERS.search(holder.command)


def gpu_uses(gpu_ids: Sequence[str] | None = None, *, read: Read = gpu_states) -> tuple[GpuUse, ...] | None:
    """The GPUs with these indices or UUIDs, None for all of the host; None where no driver answers."""
    states = read()
    if states is None:
        return None
    chosen = [state for state in states if gpu_ids is None or state.is_one_of(gpu_ids)]
    places: dict[int, list[int]] = {}
    for state in states:
        for process in state.processes:
            places.setdefault(process.pid, []).append(state.index)
    return tuple(_use(state, places) for state in chosen)


def _use(state: GpuState, places: dict[int, list[int]]) -> GpuUse:
    holders = [_holder(process, places[process.pid]) for process in state.processes]
    hidden_gib = max(0.0, state.used_gib - sum(process.gib for process in state.processes))
    if hidden_gib >= IDLE_GIB:
        known = {process.pid for process in state.processes}
        for pid in device_openers().get(state.index, ()):
            if pid not in known:
                opened = GpuProcess(pid, user_of(pid), command_of(pid), 0.0)
                holders.append(_holder(opened, [state.index], by_device=True))
    return GpuUse(state, tuple(holders), hidden_gib)


def _holder(process: GpuProcess, gpus: list[int], *, by_device: bool = False) -> GpuHolder:
    found = identify(process.pid)
    if found is None:  # of another PID namespace, or gone since
        return GpuHolder(
            None, process.pid, process.user, process.command, process.gib, tuple(gpus), by_device=by_device
        )
    return GpuHolder(
        process=found,
        pid=process.pid,
        user=process.user,
        command=process.command,
        gib=process.gib,
        gpus=tuple(gpus),
        server=command_of(server_root(process.pid)),
        unit=unit_holding(process.pid),
        run_id=environment_of(process.pid).get(RUN_MARK) or None,
        by_device=by_device,
    )


def device_openers(proc: Path = Path("/proc")) -> dict[int, tuple[int, ...]]:
    """Device number -> pids that have `/dev/nvidia<number>` open, as far as we may look: a second evidence."""
    found: dict[int, set[int]] = {}
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        try:
            links = [str(link.readlink()) for link in (process / "fd").iterdir()]
        except OSError:
            continue
        for link in links:
            if device := _DEVICE.match(link):
                found.setdefault(int(device["number"]), set()).add(int(process.name))
    return {number: tuple(sorted(pids)) for number, pids in found.items()}


def occupant_sentences(uses: Iterable[GpuUse], run_id: str, limit_gib: float = IDLE_GIB) -> tuple[str, ...]:
    """One sentence for each stranger, and for memory that no visible process explains."""
    told: list[str] = []
    for use in uses:
        strangers = use.strangers(run_id, limit_gib)
        where = f"GPU {use.state.index} ({use.state.name})"
        told += [f"{where}: {holder}" for holder in strangers]
        if use.hidden_gib >= limit_gib and not strangers:
            told.append(f"{where}: {use.hidden_gib:.1f} GiB used by no process that can be seen; {where_to_look()}")
    return tuple(told)


def where_to_look() -> str:
    """Where to look for a holder that nobody sees from here."""
    if is_contained():
        return "this is a container, look on the container host: nvidia-smi, fuser -v /dev/nvidia*"
    return "look in other containers and as root: nvidia-smi, fuser -v /dev/nvidia*; else the driver did not free it"


def is_contained(proc: Path = Path("/proc")) -> bool:
    """Whether we seem to be in a container, where the driver's pids are not ours."""
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return True
    try:
        environment = (proc / "1" / "environ").read_bytes()
    except OSError:
        return False
    return b"container=" in environment


def foreign_occupants(
    gpu_ids: Sequence[str], run_id: str, *, limit_gib: float = IDLE_GIB, read: Read = gpu_states
) -> tuple[str, ...]:
    """One sentence for each process without the run's mark, of `limit_gib` or more, on these GPUs.

    A GPU whose used memory no visible process explains (a container, another PID namespace) gets a sentence too.
    """
    return occupant_sentences(gpu_uses(gpu_ids, read=read) or (), run_id, limit_gib)
