"""The slot on its GPU host: one server at a time, guarded, under a lease from the driver. No Ray in here."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from actors.gpus.gpu_account import ACCOUNT_VARIABLE
from actors.gpus.gpu_energy import SlotPower
from actors.gpus.gpu_ledger import ledger_of
from actors.gpus.gpu_sample import SlotGpuLook
from actors.host.run_lease import LeaseHolder, scratch_dir
from actors.processes.process_identity import ticks_now
from actors.samples.slot_telemetry import SlotTelemetry
from actors.servers.container import container_runtime
from actors.servers.launch import free_port, shown_command
from actors.servers.server import NOTHING_SEEN, Server, label_of
from actors.servers.slot_gpus import SlotGpus
from actors.servers.span_network import rendezvous
from orchestrator.errors import ClusterRefusal
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, StartEvent
from orchestrator.telemetry import Sampled

# Without a sign of the driver for this long the server is ended (a partition, or a driver that hangs). Ray as it comes
# takes a host for lost after some 63 s, and a driver says something every 15 s: after two minutes nobody wants it.
LEASE_S = 120.0
# A slot's own HTTP ports are a few more than this.
_MOST_SKIP = 64


class SlotHost:
    """One slot. `number` is its place among the slots of this run on this host.

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
        self._claim = LeaseHolder(run_id, f"slot-{number}")
        self._gpus: SlotGpus | None = None
        self._power: SlotPower | None = None
        self._telemetry: SlotTelemetry | None = None
        self._began_ticks = 0
        # Why this slot takes no more servers; its GPUs are not given back.
        self._refused: str | None = None
        self._stopping = asyncio.Lock()
        self._stopped = _stopped(None, 0.0, None, (), [], None)

    @property
    def port_number(self) -> int:
        """Spaces the ports of servers on this host: by the first GPU, since slots of other runs count from 0 too."""
        indices = [int(gpu) for gpu in self._gpu_ids if gpu.isdigit()]
        return min(indices, default=self._number)

    async def hostname(self) -> str:
        return socket.gethostname()

    async def stay(self) -> None:
        """Never returns: a caller learns from it that we are gone, or cannot be reached."""
        await asyncio.Event().wait()

    async def heartbeat(self) -> None:
        """The driver is alive."""
        self._driver_seen = time.monotonic()
        await asyncio.to_thread(self._claim.hold, seen=True)

    async def rendezvous(self) -> str:
        """HOST:PORT where the ranks of a server on several hosts can meet, if rank 0 is here. ClusterRefusal without
        free ports.
        """
        return await asyncio.to_thread(rendezvous, self._address, self.port_number, self._skip)

    @property
    def _skip(self) -> int:
        """Ports that this run leaves out at first."""
        return crc32(self._run_id.encode()) % _MOST_SKIP

    async def launch(self, spec: LaunchSpec) -> AsyncIterator[StartEvent]:
        """Start a server; the last event is ServerReady or ServerDied."""
        self._driver_seen = began_s = time.monotonic()
        if self._lease is None:
            self._lease = asyncio.create_task(self._watch_lease())
        await asyncio.to_thread(self._claim.hold, seen=True, runtime=container_runtime(spec.command))
        await self.stop(spec.stop_grace_s)
        await self._end_telemetry()
        self._log, self._telemetry = b"", None
        self._stopped = _stopped(None, 0.0, None, (), [], self._refused)
        if self._refused is not None:
            yield ServerDied(spec.trial_id, Diagnosis(Label.GPU_OCCUPIED, Phase.LAUNCH, self._refused), (), 0.0)
            return
        self._gpus, self._began_ticks = SlotGpus(spec, self._gpu_ids), ticks_now()
        server = self._server = Server()
        log = self._scratch / spec.trial_id / "server.log"
        refused: Diagnosis | None = None
        try:
            await asyncio.to_thread(_make_way, log)
            port = await asyncio.to_thread(free_port, self.port_number, skip=self._skip)
        except ClusterRefusal as error:
            refused = Diagnosis(Label.PORT_IN_USE, Phase.LAUNCH, str(error))
        except OSError as error:
            refused = Diagnosis(label_of(error), Phase.LAUNCH, f"the launch could not be prepared: {error}")
        if refused is not None:
            self._server = None if self._server is server else self._server
            yield ServerDied(spec.trial_id, refused, (), 0.0)
            return
        if self._gpus.watched:
            self._power = SlotPower(self._gpu_ids)
            self._power.begin()
        spec = self._begin_telemetry(spec, server, began_s, log.parent)
        async for event in server.start(spec, gpu_ids=self._gpu_ids, host=self._address, port=port, log_path=log):
            if isinstance(event, ServerDied) and _is_refusal(event.diagnosis):
                self._refused = event.diagnosis.evidence
            yield event

    def _begin_telemetry(self, spec: LaunchSpec, server: Server, began_s: float, folder: Path) -> LaunchSpec:
        """Sample from now on; the launch, with where an emulated server tells its memory if no ledger is kept."""
        account = None
        if not spec.telemetry_s:
            return spec
        if spec.engine == "emulator" and ledger_of(os.environ) is None:
            account = folder / "gpu_account.json"
            account.unlink(missing_ok=True)
            spec = replace(spec, env=(*spec.env, (ACCOUNT_VARIABLE, str(account))))
        watched = self._gpus is not None and self._gpus.watched
        look = SlotGpuLook(self._gpu_ids, watched=watched, account=account)
        self._telemetry = SlotTelemetry(look, server.watched, spec.telemetry_s, began_s)
        self._telemetry.begin()
        return spec

    async def _end_telemetry(self) -> None:
        if self._telemetry is not None:
            await self._telemetry.end()

    async def telemetry(self, after: int) -> Sampled:
        """What was sampled of the last server after the first `after` samples, which the caller has."""
        return self._telemetry.after(after) if self._telemetry is not None else Sampled((), 0)

    async def throttled(self, began_unix_s: float, ended_unix_s: float) -> tuple[str, ...]:
        """Which of the slot's GPUs were held back between two times, and why."""
        return self._telemetry.throttled(began_unix_s, ended_unix_s) if self._telemetry is not None else ()

    async def died(self, load: LoadSeen = NOTHING_SEEN) -> ServerDied | None:
        """Whether the server that was ready has ended since, or hangs, and why."""
        return await self._server.died(load) if self._server is not None else None

    async def gpu_power_w(self, began_unix_s: float, ended_unix_s: float) -> float | None:
        """Mean power of the slot's GPUs between two times at which a server ran; None where it is not known."""
        return await self._power.mean_w(began_unix_s, ended_unix_s) if self._power is not None else None

    async def stop(self, grace_s: float) -> dict[str, object]:
        """End the server and all it started; keeps its log for `server_log`. Without one, what was told of the last.

        `gpus`: [index, GiB before, GiB after] of each GPU, where that can be seen. `refused`: why the slot takes no
        more servers, None if it does. Who has lost the answer, asks again: it waits for the same end.
        """
        async with self._stopping:
            server, self._server = self._server, None
            if server is not None:
                self._stopped = await self._end(server, grace_s)
            return self._stopped

    async def _end(self, server: Server, grace_s: float) -> dict[str, object]:
        gpus, power, self._power = self._gpus, self._power, None
        if power is not None:
            power.end()
        before = await gpus.used_gib() if gpus else {}
        late = await gpus.newcomers(self._began_ticks) if gpus and server.is_ready else ()
        report = await server.stop(grace_s)
        after = await gpus.used_gib() if gpus else {}
        await self._end_telemetry()
        notes = (*report.notes, *late)
        if report.gpu_free is False and gpus is not None:
            self._refused = _not_back(before, after, await gpus.why_held())
        self._log = await asyncio.to_thread(server.log_bytes)
        memory = [[index, gib, after[index]] for index, gib in before.items() if index in after]
        return _stopped(report.exit_code, report.seconds, report.gpu_free, notes, memory, self._refused)

    async def server_log(self) -> bytes:
        """The log of the server that was stopped last, zstd-compressed; until the next launch."""
        return self._log

    async def close(self, grace_s: float) -> None:
        """Stop the server; the slot is not used again."""
        await self.stop(grace_s)
        if self._lease is not None:
            self._lease.cancel()
        await asyncio.to_thread(self._claim.release)

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


def _stopped(
    exit_code: int | None,
    seconds: float,
    gpu_free: bool | None,
    notes: tuple[str, ...],
    gpus: list[list[float]],
    refused: str | None,
) -> dict[str, object]:
    return {
        "exit_code": exit_code,
        "seconds": seconds,
        "gpu_free": gpu_free,
        "notes": notes,
        "gpus": gpus,
        "refused": refused,
    }


def _is_refusal(diagnosis: Diagnosis) -> bool:
    """Whether the GPUs were not free before anything was started on them."""
    return diagnosis.label is Label.GPU_OCCUPIED and diagnosis.phase is Phase.LAUNCH


def _not_back(before: dict[int, float], after: dict[int, float], held: tuple[str, ...]) -> str:
    """Why a slot is not used again, GPU by GPU."""
    gpus = ", ".join(
        f"GPU {i}: {gib:.1f} GiB before the stop, {after.get(i, gib):.1f} after" for i, gib in before.items()
    )
    return shown_command(f"GPU memory did not come back ({gpus}); {'; '.join(held)}")
