"""GPU memory of an emulated server in the host's ledger: its schedulers take it phase by phase, and may not get it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from actors.emulator.memory import Death, out_of_memory
from actors.emulator.processes import ProcessTree
from actors.emulator.profiles import GpuMemory, Profile
from actors.emulator.resolution import Settings
from actors.gpus.gpu_ledger import GpuLedger, GpuMemoryFull, ledger_of

# SGLang refuses to start where a GPU of the group has less than this part of another's free memory.
BALANCE = 0.9


class OutOfGpuMemory(Exception):
    """A scheduler asked for memory that another process holds; `death` is what it dies of."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.message)
        self.death = death


class HeldMemory:
    """What each scheduler holds. `profile` is the profile with the GPUs as they were found."""

    def __init__(self, ledger: GpuLedger, profile: Profile, gpus: list[int], pids: list[int]) -> None:
        self._ledger = ledger
        self._gpus = gpus
        self._pids = pids
        self._context_gib = profile.gpu.total_gib - profile.gpu.free_gib
        self._free_gib = [self._enter(rank) for rank in range(len(gpus))]
        least = self._free_gib.index(min(self._free_gib))
        self.profile = replace(profile, gpu=self._gpu(least, self._free_gib[least]))
        self.least_gib = self._free_gib[least]

    def _enter(self, rank: int) -> float:
        """Take the CUDA context; free GiB of the rank's GPU afterwards, 0 where not even that fits."""
        gpu, pid = self._gpus[rank], self._pids[rank]
        try:
            self._ledger.hold(pid, gpu, self._context_gib)
        except GpuMemoryFull:
            return 0.0
        return self._ledger.gpus()[gpu].free_gib

    def _gpu(self, rank: int, free_gib: float) -> GpuMemory:
        state = self._ledger.gpus()[self._gpus[rank]]
        others = tuple((pid, gib) for pid, gib in state.holders.items() if pid != self._pids[rank])
        return GpuMemory(state.total_gib, free_gib, others)

    def agree(self, least_gib: float) -> None:
        """The least that is free on a GPU of all nodes, by which all of them plan."""
        self.least_gib = least_gib
        self.profile = replace(self.profile, gpu=replace(self.profile.gpu, free_gib=least_gib))

    def unbalanced(self) -> Death | None:
        """What SGLang dies of where its GPUs are not equally free."""
        least = self.least_gib
        for rank, free in enumerate(self._free_gib):
            if least < free * BALANCE:
                message = (
                    "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                    f"pre_model_load_memory={least}, local_gpu_memory={free}, local_gpu_memory * 0.9={free * BALANCE}"
                )
                return Death("init", "RuntimeError", message, rank)
        return None

    def hold(self, taken_gib: float, phase: str, graph: str | None = None) -> None:
        """Every scheduler holds so much besides its context; OutOfGpuMemory where another process has it."""
        for rank, (gpu, pid) in enumerate(zip(self._gpus, self._pids, strict=True)):
            try:
                self._ledger.hold(pid, gpu, self._context_gib + taken_gib)
            except GpuMemoryFull as full:
                found = replace(self.profile, gpu=self._gpu(rank, full.free_gib))
                message = out_of_memory(found, full.wanted_gib, full.free_gib, rank)
                raise OutOfGpuMemory(Death(phase, "torch.OutOfMemoryError", message, rank, graph)) from full


def held_memory(
    settings: Settings, profile: Profile, tree: ProcessTree, environment: Mapping[str, str]
) -> HeldMemory | None:
    """The schedulers' memory in the ledger that the environment names; None without one, and on a CPU."""
    ledger = ledger_of(environment)
    if ledger is None or settings.device == "cpu":
        return None
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = [int(i) for i in visible.split(",")] if visible else list(range(len(ledger.gpus())))
    first, step = int(settings.args.get("base_gpu_id") or 0), int(settings.args.get("gpu_id_step") or 1)
    wanted = settings.ranks.count
    mine = gpus[first : first + wanted * step : step]
    if len(mine) < wanted:
        raise SystemExit(f"RuntimeError: CUDA error: invalid device ordinal: {wanted} GPUs wanted, {gpus} visible")
    return HeldMemory(ledger, profile, mine, tree.scheduler_pids)
