"""The GPUs of a slot around one server: free before it starts, whose memory it is while it fails, free again after."""

from __future__ import annotations

import asyncio
import os

from actors.gpu import foreign_occupants, wait_until_free
from actors.gpu_ledger import ledger_of
from orchestrator.server_start import LaunchSpec

# Memory of the server before comes back a little after its last process went.
_SETTLE_S = 20.0
_RETURN_S = 60.0


class SlotGpus:
    """`watched` is False where a server uses none of the host's GPUs, as an emulated one."""

    def __init__(self, spec: LaunchSpec, gpu_ids: tuple[str, ...]) -> None:
        self._ids = gpu_ids
        self._run_id = spec.run_id
        on_gpus = spec.engine in {"sglang", "command"} or (
            spec.engine == "emulator" and ledger_of(os.environ) is not None
        )
        self.watched = bool(gpu_ids) and on_gpus

    async def foreign(self) -> tuple[str, ...]:
        """What holds memory there and is not of this run."""
        return await asyncio.to_thread(foreign_occupants, self._ids, self._run_id) if self.watched else ()

    async def occupants(self) -> tuple[str, ...]:
        """What holds the GPUs before a launch, if it does not go away soon."""
        if not self.watched or await wait_until_free(self._ids, timeout_s=_SETTLE_S) is not False:
            return ()
        return await self.foreign() or ("an earlier server of this run still holds GPU memory",)

    async def returned(self) -> bool | None:
        """Whether the memory came back; None where it cannot be seen."""
        return await wait_until_free(self._ids, timeout_s=_RETURN_S) if self.watched else None
