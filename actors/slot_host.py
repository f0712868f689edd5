"""The slot on its GPU host: one server at a time, guarded, under a lease from the driver. No Ray in here."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from actors.container_end import sweep_containers
from actors.gpu import GpuState, gpu_states
from actors.guard import sweep_leftovers
from actors.launch import free_port, redact
from actors.server import NOTHING_SEEN, Server
from orchestrator.errors import ClusterRefusal
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, StartEvent

# Without a sign of the driver for this long the server is ended (a partition, or a driver that hangs).
LEASE_S = 180.0


def scratch_dir(run_id: str) -> Path:
    """Where a host keeps the logs and spools of a run; they are fetched by the driver and then removed."""
    return Path(tempfile.gettempdir()) / f"specsweep-{os.getuid()}" / run_id


def end_leftovers(run_id: str, runtime: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    """End what an earlier start of this run left on this host; (pid, command) of each process ended.

    `runtime` are the words that call the container runtime, if the run uses one; a container counts as pid 0.
    """
    ended = [(process.pid, _shown(process.command)) for process in sweep_leftovers(run_id)]
    return ended + [(0, name) for name in (sweep_containers(runtime, run_id) if runtime else ())]


def remove_scratch(run_id: str) -> None:
    """Remove what a run left in this host's temporary folder; the driver has fetched it."""
    shutil.rmtree(scratch_dir(run_id), ignore_errors=True)


def gpu_states_json() -> list[dict[str, Any]] | None:
    """This host's GPUs and who holds their memory; None where no NVIDIA driver answers."""
    states = gpu_states()
    return None if states is None else [asdict(_showable(state)) for state in states]


def _showable(state: GpuState) -> GpuState:
    return replace(state, processes=tuple(replace(p, command=_shown(p.command)) for p in state.processes))


def _shown(command: str) -> str:
    """A command line in one line, the values of secret flags hidden."""
    return " ".join(redact(command.split()))


class SlotHost:
    """One slot. `number` is its place among the slots of this host and spaces the ports.

    `lease_s`: without a sign of the driver for this long the server is ended.
    """

    def __init__(
        self, run_id: str, number: int, gpu_ids: tuple[str, ...], address: str, *, lease_s: float = LEASE_S
    ) -> None:
        self._run_id = run_id
        self._number = number
        self._gpu_ids = gpu_ids
        self._address = address
        self._lease_s = lease_s
        self._scratch = scratch_dir(run_id) / f"slot-{number}"
        self._server: Server | None = None
        self._log = b""
        self._driver_seen = time.monotonic()
        self._lease: asyncio.Task[None] | None = None

    async def hostname(self) -> str:
        return socket.gethostname()

    async def heartbeat(self) -> None:
        """The driver is alive."""
        self._driver_seen = time.monotonic()

    async def launch(self, spec: LaunchSpec) -> AsyncIterator[StartEvent]:
        """Start a server; the last event is ServerReady or ServerDied."""
        self._driver_seen = time.monotonic()
        if self._lease is None:
            self._lease = asyncio.create_task(self._watch_lease())
        await self.stop(spec.stop_grace_s)
        self._log = b""
        server = self._server = Server()
        log = self._scratch / spec.trial_id / "server.log"
        refused: Diagnosis | None = None
        try:
            await asyncio.to_thread(_make_way, log)
            port = await asyncio.to_thread(free_port, self._number)
        except ClusterRefusal as error:
            refused = Diagnosis(Label.PORT_IN_USE, Phase.LAUNCH, str(error))
        except OSError as error:
            refused = Diagnosis(Label.UNKNOWN, Phase.LAUNCH, f"the launch could not be prepared: {error}")
        if refused is not None:
            self._server = None if self._server is server else self._server
            yield ServerDied(spec.trial_id, refused, (), 0.0)
            return
        async for event in server.start(spec, gpu_ids=self._gpu_ids, host=self._address, port=port, log_path=log):
            yield event

    async def died(self, load: LoadSeen = NOTHING_SEEN) -> ServerDied | None:
        """Whether the server that was ready has ended since, or hangs, and why."""
        return await self._server.died(load) if self._server is not None else None

    async def stop(self, grace_s: float) -> dict[str, object]:
        """End the server and all it started; keeps its log for `server_log`. Does nothing if there is none."""
        server, self._server = self._server, None
        if server is None:
            return {"exit_code": None, "seconds": 0.0, "gpu_free": None, "notes": ()}
        report = await server.stop(grace_s)
        self._log = await asyncio.to_thread(server.log_bytes)
        return {
            "exit_code": report.exit_code,
            "seconds": report.seconds,
            "gpu_free": report.gpu_free,
            "notes": report.notes,
        }

    async def server_log(self) -> bytes:
        """The log of the server that was stopped last, zstd-compressed."""
        log, self._log = self._log, b""
        return log

    async def close(self, grace_s: float) -> None:
        """Stop the server; the slot is not used again."""
        await self.stop(grace_s)
        if self._lease is not None:
            self._lease.cancel()

    async def _watch_lease(self) -> None:
        while True:
            left = self._lease_s - (time.monotonic() - self._driver_seen)
            if left <= 0:
                await self.stop(10.0)
                left = self._lease_s  # the driver may come back, and fall silent again
            await asyncio.sleep(left)


def _make_way(log: Path) -> None:
    """The folder of a log, without an earlier log of that name."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
