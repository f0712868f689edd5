"""The slot as a Ray actor: the one place on the hosts that asks Ray anything."""

from __future__ import annotations

from collections.abc import AsyncIterator

from actors.slot_host import SlotHost
from orchestrator.server_start import LaunchSpec, StartEvent


class SlotActor(SlotHost):
    """A SlotHost whose GPUs are those that Ray gave to this actor."""

    def __init__(self, run_id: str, number: int, address: str) -> None:
        super().__init__(run_id, number, _granted_gpus(), address)

    async def gpu_ids(self) -> tuple[str, ...]:
        return self._gpu_ids

    async def use_gpus(self, gpu_ids: tuple[str, ...]) -> None:
        """Use these of the GPUs that Ray gave to the slots of this host. Called before the first launch."""
        self._gpu_ids = gpu_ids

    async def launch(self, spec: LaunchSpec) -> AsyncIterator[StartEvent]:
        async for event in super().launch(spec):
            yield event

    async def interrupt(self, grace_s: float) -> None:
        """End a launch that is under way (its stream then ends with ServerDied); a serving server is left to `stop`."""
        server = self._server
        if server is not None and not server.is_ready:
            await server.stop(grace_s)


def _granted_gpus() -> tuple[str, ...]:
    import ray

    return tuple(ray.get_runtime_context().get_accelerator_ids().get("GPU", ()))
