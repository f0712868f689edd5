"""A slot behind Ray: a slot actor and its load actors, as the sweep wants them."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from orchestrator.ray_ensemble import RayEnsemble
from orchestrator.server_start import GPU_RETURN_S, LaunchSpec, LoadSeen, ServerDied, StartEvent
from orchestrator.slot_port import SlotFacts, SlotLost, StopFacts, TrialBroken
from orchestrator.trial import Point, Shard

CALL_S = 30.0
# A server that may hang is asked for a token, twice.
DIED_S = 90.0
# A load actor says something every ten seconds while it lives, whatever its server does.
QUIET_S = 60.0


class RaySlot:
    """A SlotPort over a slot actor and its load actors.

    `exposed`: servers listen on the network, and so get a key. `new_load` makes the load actor of a member, and tells
    the host that it is on; the first one lives from the beginning, others from when a point needs them. None for a rank
    that serves no requests.
    """

    def __init__(
        self, facts: SlotFacts, slot: Any, new_load: Callable[[int], tuple[Any, str]] | None, run_id: str, *,
        exposed: bool,
    ) -> None:  # fmt: skip
        self.facts = facts
        self._slot = slot
        self._new_load = new_load or _no_load
        self._loads = [new_load(0)] if new_load is not None else []
        self._run_id = run_id
        self._exposed = exposed
        self._grace_s = 30.0
        self._aside_s = 0.0
        self._api_key: str | None = None
        self._closing: Any = None

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        from actors.launch import key_for

        self._grace_s, self._aside_s = spec.stop_grace_s, spec.aside_s
        self._api_key = key_for(spec, os.environ)
        if self._exposed and self._api_key is None and spec.engine in {"sglang", "emulator"}:
            self._api_key = secrets.token_hex(16)
            spec = replace(spec, network_key=self._api_key)
        stream = self._slot.launch.options(num_returns="streaming").remote(spec)
        yield from self._items(stream, spec.start_timeout_s + spec.stop_grace_s + spec.aside_s + GPU_RETURN_S + CALL_S)

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        if processes > 1:
            yield from self._run_together(url, point, attempt, processes)
            return
        stream = self._stream(0, url, point, attempt, None)
        taken = 0
        try:
            for item in self._items(stream, QUIET_S):
                if item is not None:
                    taken += 1
                    yield item
        except SlotLost as error:
            yield from self._from_spool(point, attempt, 0, taken)
            self._replace_load(0)
            raise TrialBroken(f"the load actor was lost: {error}") from error
        self._loads[0][0].forget.remote(point.point_id, attempt)

    def _run_together(self, url: str, point: Point, attempt: int, processes: int) -> Iterator[Any]:
        while len(self._loads) < processes:
            self._loads.append(self._new_load(len(self._loads)))
        origin = time.time_ns()
        streams = [self._stream(i, url, point, attempt, Shard(i, processes, origin)) for i in range(processes)]
        ensemble = RayEnsemble([actor for actor, _ in self._loads[:processes]], streams)
        yield from ensemble.items(point.spec)
        for member in ensemble.lost:
            yield from self._from_spool(point, attempt, member, ensemble.taken[member])
            self._replace_load(member)
        if ensemble.lost:
            member, why = next(iter(ensemble.lost.items()))
            raise TrialBroken(f"load actor {member + 1} of {processes} was lost: {self.facts.name}: {why}")
        for member in range(processes):
            self._loads[member][0].forget.remote(point.point_id, attempt, member)

    def _stream(self, member: int, url: str, point: Point, attempt: int, shard: Shard | None) -> Any:
        method = self._loads[member][0].run_point
        return method.options(num_returns="streaming", _generator_backpressure_num_objects=64).remote(
            url, point, attempt, self._api_key, shard
        )

    def _replace_load(self, member: int) -> None:
        import ray

        ray.kill(self._loads[member][0])  # it may live, but silent
        self._loads[member] = self._new_load(member)

    def _from_spool(self, point: Point, attempt: int, member: int, taken: int) -> Iterator[Any]:
        """What the load actor yielded but we had not read when it died, from the spool on its host."""
        import ray

        from actors.load_host import spooled_batches

        node = {"ray.io/node-id": self._loads[member][1]}
        task = ray.remote(spooled_batches).options(num_cpus=0, label_selector=node)
        call = task.remote(self._run_id, point.point_id, attempt, taken, member)
        with contextlib.suppress(ray.exceptions.RayError):
            yield from ray.get(call, timeout=CALL_S)

    def _items(self, stream: Any, quiet_s: float) -> Iterator[Any]:
        """The items of a streaming call; SlotLost if the actor is gone or silent for too long."""
        import ray

        while True:
            try:
                ready, _ = ray.wait([stream], timeout=quiet_s, fetch_local=False)
                if not ready:
                    raise SlotLost(f"{self.facts.name}: no sign of life for {quiet_s:g} s")
                item = ray.get(next(stream), timeout=CALL_S)
            except StopIteration:
                return
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
                raise SlotLost(f"{self.facts.name}: {_first_line(error)}") from error
            except ray.exceptions.RayTaskError as error:
                raise TrialBroken(_cause(error)) from error
            yield item

    def _call(self, ref: Any, timeout_s: float) -> Any:
        import ray

        try:
            return ray.get(ref, timeout=timeout_s)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
            raise SlotLost(f"{self.facts.name}: {_first_line(error)}") from error
        except ray.exceptions.RayTaskError as error:
            raise TrialBroken(_cause(error)) from error

    def died(self, load: LoadSeen) -> ServerDied | None:
        found: ServerDied | None = self._call(self._slot.died.remote(load), CALL_S + DIED_S)
        return found

    def interrupt(self) -> None:
        for actor, _ in list(self._loads):
            actor.interrupt.remote()
        self._slot.interrupt.remote(self._grace_s)

    def stop(self) -> StopFacts:
        limit_s = self._grace_s * 2 + self._aside_s + GPU_RETURN_S + CALL_S * 2
        report = self._call(self._slot.stop.remote(self._grace_s), limit_s)
        gpus = tuple((int(index), before, after) for index, before, after in report["gpus"])
        return StopFacts(
            report["exit_code"],
            report["seconds"],
            report["gpu_free"],
            tuple(report["notes"]),
            gpus,
            report["refused"],
        )

    def server_log(self) -> bytes:
        log: bytes = self._call(self._slot.server_log.remote(), CALL_S)
        return log

    def rendezvous(self) -> str:
        """HOST:PORT on the slot's host where the ranks of a server on several hosts can meet."""
        address: str = self._call(self._slot.rendezvous.remote(), CALL_S)
        return address

    def heartbeat(self) -> None:
        self._slot.heartbeat.remote()

    def begin_close(self) -> None:
        self._closing = self._slot.close.remote(self._grace_s)

    def end_close(self) -> None:
        with contextlib.suppress(SlotLost, TrialBroken):
            self._call(self._closing, self._grace_s + self._aside_s + GPU_RETURN_S + CALL_S)


def _no_load(member: int) -> tuple[Any, str]:
    raise AssertionError(f"load {member} of a rank that serves no requests")


def _cause(error: Any) -> str:
    """What was raised in the actor, without its traceback."""
    cause = error.cause
    return f"{type(cause).__name__}: {cause}" if cause is not None else _first_line(error)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
