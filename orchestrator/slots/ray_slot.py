"""A slot behind Ray: a slot actor and its load actors, as the sweep wants them."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from orchestrator.error_text import cause_of, first_line
from orchestrator.loads.load_clocks import clock_note
from orchestrator.server_start import GPU_RETURN_S, LaunchSpec, LoadSeen, ServerDied, StartEvent
from orchestrator.slots.actor_watch import DRAIN_S, ActorWatch
from orchestrator.slots.cut_network import CutNetwork
from orchestrator.slots.ray_ensemble import RayEnsemble, clock_offset_ns
from orchestrator.slots.slot_port import SlotFacts, SlotLost, StopFacts, TrialBroken
from orchestrator.telemetry import Sample, Sampled
from orchestrator.trial import ClientReport, Point, Shard

CALL_S = 30.0
# A server that may hang is asked for a token, twice.
DIED_S = 90.0
# A load actor says something every ten seconds while it lives, whatever its server does.
QUIET_S = 60.0
# A slot that was cut off is asked again as often.
_AGAIN_S = 1.0
# When a load actor is lost, its slot may be with it: what is known of that comes within this time.
_TOGETHER_S = 3.0


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
        self._watch = ActorWatch(facts.name, slot)
        self._new_load = new_load or _no_load
        self._loads = [new_load(0)] if new_load is not None else []
        self._run_id = run_id
        self._exposed = exposed
        self._grace_s = 30.0
        self._aside_s = 0.0
        self._api_key: str | None = None
        self._closing: Any = None
        self._notes: dict[str, None] = {}
        self._sampled, self._samples = 0, False

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        import ray

        from actors.servers.launch import key_for

        self._grace_s, self._aside_s, self._notes = spec.stop_grace_s, spec.aside_s, {}
        self._sampled, self._samples = 0, spec.telemetry_s > 0
        self._api_key = key_for(spec, os.environ)
        if self._exposed and self._api_key is None and spec.engine in {"sglang", "emulator"}:
            self._api_key = secrets.token_hex(16)
            spec = replace(spec, network_key=self._api_key)
        stream = self._slot.launch.options(num_returns="streaming").remote(spec)
        limit_s = spec.start_timeout_s + spec.stop_grace_s + spec.aside_s + GPU_RETURN_S + CALL_S
        try:
            yield from self._items(stream, limit_s)
        except SlotLost as error:
            # The stream of a start that is cut off is lost, though its server may come up: it is stopped as others are.
            if isinstance(error.__cause__, ray.exceptions.ActorUnavailableError):
                raise TrialBroken(f"{error}; cut off during the start") from error
            raise

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        if processes > 1:
            yield from self._run_together(url, point, attempt, processes)
            return
        self._watch.renew()
        stream = self._stream(0, url, point, attempt, None)
        taken, cut = 0, CutNetwork(self.facts.name)
        try:
            for item in self._items(stream, QUIET_S, watched=True):
                if item is not None:
                    taken += 1
                    cut.count(item)
                    yield self._with_power(item)
        except SlotLost as error:
            yield from self._from_spool(point, attempt, 0, taken)
            self._replace_load(0)
            raise TrialBroken(f"the load actor was lost: {error}") from error
        except _SlotFault as fault:
            yield from self._rest_of(stream)
            raise fault.told from None
        self._loads[0][0].forget.remote(point.point_id, attempt)
        cut.check()

    def _rest_of(self, stream: Any) -> Iterator[Any]:
        """What a load still has to tell when its server is out of reach; it ends by itself a little later."""
        self._loads[0][0].interrupt.remote()
        with contextlib.suppress(SlotLost, TrialBroken):
            for item in self._items(stream, DRAIN_S):
                if item is not None and not isinstance(item, ClientReport):
                    yield item

    def _run_together(self, url: str, point: Point, attempt: int, processes: int) -> Iterator[Any]:
        while len(self._loads) < processes:
            self._loads.append(self._new_load(len(self._loads)))
        actors = [actor for actor, _ in self._loads[:processes]]
        offsets_ns = [clock_offset_ns(actor) for actor in actors]
        self._notes |= dict.fromkeys(clock_note(str(i + 1), ns) for i, ns in enumerate(offsets_ns) if ns)
        origin = time.time_ns()
        shards = [Shard(i, processes, origin + offsets_ns[i]) for i in range(processes)]
        streams = [self._stream(i, url, point, attempt, shard) for i, shard in enumerate(shards)]
        self._watch.renew()
        ensemble = RayEnsemble(actors, streams, self._watch, offsets_ns)
        cut = CutNetwork(self.facts.name)
        for item in ensemble.items(point.spec):
            cut.count(item)
            yield self._with_power(item)
        for member in ensemble.lost:
            yield from self._from_spool(point, attempt, member, ensemble.taken[member])
            self._replace_load(member)
        if ensemble.fault is not None:
            raise ensemble.fault
        if ensemble.lost:
            member, why = next(iter(ensemble.lost.items()))
            raise TrialBroken(f"load actor {member + 1} of {processes} was lost: {self.facts.name}: {why}")
        for member in range(processes):
            self._loads[member][0].forget.remote(point.point_id, attempt, member)
        cut.check()

    def _with_power(self, item: Any) -> Any:
        """A report with what the slot's GPUs drew; a slot that cannot say is looked at when its server is asked for."""
        if not isinstance(item, ClientReport) or item.began_unix_s is None or not self.facts.gpu_ids:
            return item
        window = (item.began_unix_s, item.began_unix_s + item.duration_s)
        with contextlib.suppress(SlotLost, TrialBroken):
            item = replace(item, gpu_power_w=self.gpu_power_w(*window))
            return replace(item, notes=(*item.notes, *self.throttled(*window)))
        return item

    def gpu_power_w(self, began_unix_s: float, ended_unix_s: float) -> float | None:
        """Mean power of the slot's GPUs between two times."""
        found: float | None = self._ask("gpu_power_w", began_unix_s, ended_unix_s, timeout_s=CALL_S)
        return found

    def throttled(self, began_unix_s: float, ended_unix_s: float) -> tuple[str, ...]:
        """Which of the slot's GPUs were held back between two times, and why."""
        return tuple(self._ask("throttled", began_unix_s, ended_unix_s, timeout_s=CALL_S)) if self._samples else ()

    def telemetry(self) -> tuple[Sample, ...]:
        """What was sampled since the last call."""
        found: Sampled = self._ask("telemetry", self._sampled, timeout_s=CALL_S)
        self._sampled = found.told
        return found.samples

    def _stream(self, member: int, url: str, point: Point, attempt: int, shard: Shard | None) -> Any:
        method = self._loads[member][0].run_point
        return method.options(num_returns="streaming", _generator_backpressure_num_objects=64).remote(
            url, point, attempt, self._api_key, shard
        )

    def _replace_load(self, member: int) -> None:
        """Another load actor, unless the slot is lost as well, which is raised."""
        import ray

        fault = self._watch.fault(_TOGETHER_S)
        if isinstance(fault, SlotLost):
            raise fault
        ray.kill(self._loads[member][0])  # it may live, but silent
        self._loads[member] = self._new_load(member)

    def _from_spool(self, point: Point, attempt: int, member: int, taken: int) -> Iterator[Any]:
        """What the load actor yielded but we had not read when it died, from the spool on its host, if that is up."""
        import ray

        from actors.load_host import spooled_batches

        node = self._loads[member][1]
        if not any(n["Alive"] and n["NodeID"] == node for n in ray.nodes()):
            return
        task = ray.remote(spooled_batches).options(num_cpus=0, label_selector={"ray.io/node-id": node})
        call = task.remote(self._run_id, point.point_id, attempt, taken, member)
        try:
            yield from ray.get(call, timeout=CALL_S)
        except ray.exceptions.RayError:
            ray.cancel(call)  # it would wait for its host for ever

    def _items(self, stream: Any, quiet_s: float, *, watched: bool = False) -> Iterator[Any]:
        """The items of a streaming call; SlotLost if its actor is gone or silent for too long.

        `watched`: it is not the slot's; _SlotFault if that is gone or cut off meanwhile.
        """
        import ray

        while True:
            awaited = [stream, self._watch.call] if watched else [stream]
            try:
                ready, _ = ray.wait(awaited, timeout=quiet_s, fetch_local=False)
                if not ready:
                    raise SlotLost(f"{self.facts.name}: no sign of life for {quiet_s:g} s")
                if ready[0] is not stream:
                    if (fault := self._watch.fault(_AGAIN_S)) is not None:
                        raise _SlotFault(fault)
                    continue
                item = ray.get(next(stream), timeout=CALL_S)
            except StopIteration:
                return
            except ray.exceptions.RayTaskError as error:
                raise TrialBroken(cause_of(error)) from error
            except ray.exceptions.RayError as error:  # also what was lost with the object store of its host
                raise SlotLost(f"{self.facts.name}: {first_line(error)}") from error
            yield item

    def _ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """A call of the slot's that may be repeated: one that a cut of the network has swallowed is."""
        import ray

        deadline = time.monotonic() + timeout_s
        while True:
            call = getattr(self._slot, method).remote(*arguments)
            try:
                return ray.get(call, timeout=max(deadline - time.monotonic(), _AGAIN_S))
            except ray.exceptions.ActorUnavailableError as error:
                if time.monotonic() > deadline:
                    raise SlotLost(f"{self.facts.name}: {first_line(error)}") from error
                time.sleep(_AGAIN_S)
            except ray.exceptions.RayTaskError as error:
                raise TrialBroken(cause_of(error)) from error
            except ray.exceptions.RayError as error:
                raise SlotLost(f"{self.facts.name}: {first_line(error)}") from error

    def died(self, load: LoadSeen) -> ServerDied | None:
        found: ServerDied | None = self._ask("died", load, timeout_s=CALL_S + DIED_S)
        return found

    def interrupt(self) -> None:
        for actor, _ in list(self._loads):
            actor.interrupt.remote()
        self._slot.interrupt.remote(self._grace_s)

    def stop(self) -> StopFacts:
        limit_s = self._grace_s * 2 + self._aside_s + GPU_RETURN_S + CALL_S * 2
        report = self._ask("stop", self._grace_s, timeout_s=limit_s)
        gpus = tuple((int(index), before, after) for index, before, after in report["gpus"])
        return StopFacts(
            report["exit_code"],
            report["seconds"],
            report["gpu_free"],
            (*report["notes"], *self._notes),
            gpus,
            report["refused"],
        )

    def server_log(self) -> bytes:
        log: bytes = self._ask("server_log", timeout_s=CALL_S)
        return log

    def rendezvous(self) -> str:
        """HOST:PORT on the slot's host where the ranks of a server on several hosts can meet."""
        address: str = self._ask("rendezvous", timeout_s=CALL_S)
        return address

    def watch(self) -> None:
        """From now on `fault` tells when the slot is gone or was cut off."""
        self._watch.renew()

    def fault(self) -> SlotLost | TrialBroken | None:
        return self._watch.fault()

    def heartbeat(self) -> None:
        self._slot.heartbeat.remote()

    def begin_close(self) -> Any:
        """Ask for the end of the server and the slot; what is returned is ready when it has come."""
        self._closing = self._slot.close.remote(self._grace_s)
        return self._closing

    def end_close(self) -> None:
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._closing, timeout=self._grace_s + self._aside_s + GPU_RETURN_S + CALL_S)


def _no_load(member: int) -> tuple[Any, str]:
    raise AssertionError(f"load {member} of a rank that serves no requests")


class _SlotFault(Exception):
    """The slot, not the load, is gone or was cut off; `told` is what the sweep is told."""

    def __init__(self, told: SlotLost | TrialBroken) -> None:
        super().__init__(str(told))
        self.told = told
