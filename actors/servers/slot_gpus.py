"""The GPUs of a slot around one server: free before it starts, whose memory it is while it fails, free again after."""

from __future__ import annotations

import asyncio
import os

from actors.gpus.gpu import gpu_states, wait_until_free
from actors.gpus.gpu_holders import foreign_occupants, gpu_uses
from actors.gpus.gpu_ledger import ledger_of
from actors.host.evictions import evictable, evicted_here
from actors.host.leftovers import end_processes, host_marks, orphans
from actors.processes.crash_loop import CrashLoops, Return
from actors.servers.container import container_runtime
from actors.servers.launch import shown_command
from orchestrator.server_start import LaunchSpec

# Memory of the server before comes back a little after its last process went.
_SETTLE_S = 20.0
_RETURN_S = 60.0
# What is left of ours and was ended now gets this long to give its memory back.
_ENDED_S = 20.0
_GRACE_S = 5.0


class SlotGpus:
    """`watched` is False where a server uses none of the host's GPUs, as an emulated one without a ledger."""

    def __init__(self, spec: LaunchSpec, gpu_ids: tuple[str, ...]) -> None:
        self._ids = gpu_ids
        self._run_id = spec.run_id
        self._contained = bool(container_runtime(spec.command))
        emulated = spec.engine == "emulator" and ledger_of(os.environ) is not None
        self.watched = bool(gpu_ids) and (emulated or spec.engine in {"sglang", "command"})

    async def foreign(self) -> tuple[str, ...]:
        """What holds memory there and is not of this run."""
        return await asyncio.to_thread(foreign_occupants, self._ids, self._run_id) if self.watched else ()

    async def occupants(self) -> tuple[str, ...]:
        """What holds the GPUs before a launch, if it does not go away soon and is not ours to end."""
        return () if await self._free_within(_SETTLE_S) is not False else await self.why_held()

    async def returned(self) -> bool | None:
        """Whether the memory came back; None where it cannot be seen."""
        return await self._free_within(_RETURN_S)

    async def _free_within(self, timeout_s: float) -> bool | None:
        """Whether the GPUs are empty in time, once more after what is left of ours there was ended."""
        if not self.watched:
            return None
        free = await wait_until_free(self._ids, timeout_s=timeout_s)
        if free is False and await asyncio.to_thread(self._end_ours):
            free = await wait_until_free(self._ids, timeout_s=_ENDED_S)
        return free

    def _end_ours(self) -> bool:
        """End processes on these GPUs that are of this run, or of one that is dead; whether there were any."""
        dead = {marked.process for marked in orphans(host_marks(), unclaimed=False)}
        ours = {
            holder.process
            for use in gpu_uses(self._ids) or ()
            for holder in use.holders
            if holder.process is not None and (holder.run_id == self._run_id or holder.process in dead)
        }
        return bool(ours) and bool(end_processes(ours, _GRACE_S).ended)

    async def why_held(self) -> tuple[str, ...]:
        """Why the GPUs are not free: strangers, ours that do not go, or memory that nobody holds. Never empty."""
        told = await self.foreign() or ("an earlier server of this run still holds GPU memory",)
        if returns := await asyncio.to_thread(self._returns):
            return (*told, *map(str, returns))
        others = await asyncio.to_thread(evictable, self._run_id, list(self._ids))
        can_go = any(holder.run_id is None for holder in others)
        return (*told, "end it, or let `specsweep run --evict` end it") if can_go else told

    def _returns(self) -> tuple[Return, ...]:
        """Strangers there that run the command of one that was evicted for this run, and began after that."""
        if not (gone := evicted_here(self._run_id)):
            return ()
        loops = CrashLoops()
        loops.saw([sighting for sighting, _ in gone])
        loops.evicted(sighting.process for sighting, _ in gone)
        first = min(at_ticks for _, at_ticks in gone)
        seen = {h.process: h.sighting for use in gpu_uses(self._ids) or () for h in use.holders}
        return loops.saw([s for s in seen.values() if s is not None and s.process.started_ticks >= first])

    async def used_gib(self) -> dict[int, float]:
        """GiB used of each of these GPUs now; nothing where that cannot be seen."""
        states = await asyncio.to_thread(gpu_states) if self.watched else None
        return {state.index: round(state.used_gib, 2) for state in states or () if state.is_one_of(self._ids)}

    async def newcomers(self, since_ticks: int) -> tuple[str, ...]:
        """Strangers on these GPUs that started after that moment (ticks since boot): our server was not alone."""
        if not self.watched or self._contained:  # whose a process in a container is cannot always be seen
            return ()
        uses = await asyncio.to_thread(gpu_uses, self._ids) or ()
        late = {
            holder.pid: f"GPU {use.state.index}: {holder}, began while the server of this trial ran"
            for use in uses
            for holder in use.strangers(self._run_id)
            if holder.process is not None and holder.process.started_ticks > since_ticks
        }
        return tuple(map(shown_command, late.values()))
