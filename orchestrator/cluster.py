"""A joined Ray cluster as the driver uses it: find hosts, reserve slots, reach them, let them go."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from orchestrator.errors import ClusterRefusal
from orchestrator.host_match import LOOPBACK, GpuPlace, HostFacts, SlotPlace, bundle_of, place_slots, spread_hosts
from orchestrator.load_spread import process_bound
from orchestrator.ray_slot import CALL_S, RaySlot
from orchestrator.scenario import Slots
from orchestrator.slot_port import SlotFacts

HEARTBEAT_S = 15.0


class Cluster:
    """A joined cluster. `close` lets everything of this run go."""

    def __init__(self, run_id: str, address: str) -> None:
        self._run_id = run_id
        self._address = address
        self._slots: list[RaySlot] = []
        self._nodes: set[str] = set()
        self._group: Any = None
        self._closing = threading.Event()
        # What hosts had of dead runs when the slots were granted, and was ended; a line for each.
        self.leftovers: list[str] = []

    def hosts(self) -> list[HostFacts]:
        """Living hosts with their resources and labels."""
        import ray

        return [
            HostFacts(
                node_id=node["NodeID"],
                address=node["NodeManagerAddress"],
                hostname=node.get("NodeManagerHostname", ""),
                gpus=int(node["Resources"].get("GPU", 0)),
                cpus=float(node["Resources"].get("CPU", 0)),
                memory_gib=float(node["Resources"].get("memory", 0)) / 2**30,
                labels=dict(node.get("Labels") or {}),
            )
            for node in ray.nodes()
            if node["Alive"]
        ]

    def gpu_states(self, host: HostFacts) -> list[dict[str, Any]] | None:
        """GPUs of a host and the processes on them, asked there; None where no NVIDIA driver answers."""
        from actors.host_cleanup import gpu_states_json

        states: list[dict[str, Any]] | None = self._ask_one(host.node_id, gpu_states_json)
        return states

    def grant_slots(self, slots: Slots, engine: str, timeout_s: float, runtime: tuple[str, ...] = ()) -> list[RaySlot]:
        """Reserve the slots in one placement group pinned to hosts, and start their actors.

        `runtime` calls the container runtime, if servers run in one: containers of an earlier start are removed.
        ClusterRefusal, with wanted and available, if the cluster cannot hold them or is busy.
        """
        import ray
        from ray.util.placement_group import placement_group

        places = place_slots(slots, self.hosts())
        bundles = [bundle_of(slots) for _ in places] + [{"CPU": 1.0} for _ in places]
        nodes = [p.host.node_id for p in places] + [p.load_host.node_id for p in places]
        self._group = placement_group(
            bundles, strategy="PACK", bundle_label_selector=[{"ray.io/node-id": node} for node in nodes]
        )
        try:
            ray.get(self._group.ready(), timeout=timeout_s)
        except ray.exceptions.GetTimeoutError:
            raise ClusterRefusal(self._busy(slots, places, timeout_s)) from None
        self._nodes = set(nodes)
        self.leftovers = self._prepare_hosts(runtime)
        actors = [self._start_actor(slots, place, i) for i, place in enumerate(places)]
        self._slots = [
            self._slot(place, actor, len(places) + i, engine)
            for i, (place, actor) in enumerate(zip(places, actors, strict=True))
        ]
        threading.Thread(target=self._beat, daemon=True).start()
        return self._slots

    def host_places(self) -> list[GpuPlace]:
        """Every living host with all its GPUs."""
        return [GpuPlace(h.hostname or h.address, None, partial(self._ask_one, h.node_id)) for h in self.hosts()]

    def slot_places(self) -> list[GpuPlace]:
        """The GPUs of the granted slots, host by host."""
        gpus: dict[str, list[str]] = {}
        for slot in self._slots:
            gpus.setdefault(slot.facts.host, []).extend(slot.facts.gpu_ids)
        return [replace(p, gpu_ids=gpus[p.host]) for p in self.host_places() if gpus.get(p.host)]

    def _ask_one(self, node: str, task: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        ((_, answer),) = self.ask_hosts(task, *arguments, nodes={node}, **named)
        return answer

    def _busy(self, slots: Slots, places: list[SlotPlace], timeout_s: float) -> str:
        import ray

        free = ray.available_resources()
        return (
            f"the cluster did not grant the slots within {timeout_s:g} s. Wanted: {len(places)} slots of {slots.gpus} "
            f"GPUs and {slots.cpus:g} CPUs, and a CPU for the load of each. Free now: {free.get('GPU', 0):g} GPUs, "
            f"{free.get('CPU', 0):g} CPUs (others may hold the rest; `specsweep hosts` shows who)."
        )

    def _prepare_hosts(self, runtime: tuple[str, ...]) -> list[str]:
        """Before the first launch: no process of an earlier start of this run, nor of a dead one, may hold a GPU."""
        from actors.host_cleanup import prepare_host

        answers = self.ask_hosts(prepare_host, self._run_id, runtime, nodes=self._nodes)
        return [f"{host.hostname or host.address}: {line}" for host, lines in answers for line in lines or ()]

    def _remove_scratch(self) -> None:
        import ray

        from actors.run_lease import remove_scratch

        with contextlib.suppress(ray.exceptions.RayError):
            self.ask_hosts(remove_scratch, self._run_id, nodes=self._nodes)

    def ask_hosts(
        self, task: Callable[..., Any], *arguments: Any, nodes: Collection[str] | None = None, **named: Any
    ) -> list[tuple[HostFacts, Any]]:
        """Run a function on these hosts (None: all) at the same time; what each answered."""
        import ray

        remote = ray.remote(task)
        asked = [host for host in self.hosts() if nodes is None or host.node_id in nodes]
        calls = [
            remote.options(num_cpus=0, label_selector={"ray.io/node-id": host.node_id}).remote(*arguments, **named)
            for host in asked
        ]
        return list(zip(asked, ray.get(calls, timeout=CALL_S * 4), strict=True))

    def _start_actor(self, slots: Slots, place: SlotPlace, bundle: int) -> Any:
        """The actor of a slot, on its way: a Ray worker takes seconds to come up, and none waits for another."""
        import ray

        from actors.slot_actor import SlotActor

        options = {"num_gpus": slots.gpus, "num_cpus": slots.cpus, "max_restarts": 0, "max_concurrency": 32}
        actor = ray.remote(SlotActor).options(scheduling_strategy=self._inside(bundle), **options)
        return actor.remote(self._run_id, place.number, place.bind_address)

    def _slot(self, place: SlotPlace, actor: Any, load_bundle: int, engine: str) -> RaySlot:
        """The slot of an actor, once that is up."""
        import ray

        from actors.load_host import LoadHost

        helpers = spread_hosts(place, self.hosts())

        def new_load(member: int) -> tuple[Any, str]:
            """The first has a CPU of the slot's own; others share what there is, on all hosts that can help."""
            host, actor = helpers[member % len(helpers)], ray.remote(LoadHost)
            self._nodes.add(host.node_id)
            own = {"num_cpus": 1, "scheduling_strategy": self._inside(load_bundle)}
            shared = {"num_cpus": 0, "label_selector": {"ray.io/node-id": host.node_id}}
            placed = actor.options(max_concurrency=32, **(shared if member else own))
            return placed.remote(self._run_id, engine), host.node_id

        gpu_ids = tuple(ray.get(actor.gpu_ids.remote(), timeout=CALL_S * 2))
        name = f"{place.host.hostname or place.host.address}/{place.number}"
        processes = process_bound(sum(host.cpus for host in helpers))
        facts = SlotFacts(name, place.host.hostname or place.host.address, gpu_ids, processes)
        return RaySlot(facts, actor, new_load, self._run_id, exposed=place.bind_address != LOOPBACK)

    def _inside(self, bundle: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_S):
            for slot in self._slots:
                slot.heartbeat()

    def close(self) -> None:
        """Stop every server in order, then let actors, group and (if embedded) the cluster go."""
        import ray

        self._closing.set()
        for slot in self._slots:
            slot.begin_close()
        for slot in self._slots:
            slot.end_close()
        self._remove_scratch()
        if self._group is not None:
            with contextlib.suppress(ray.exceptions.RayError, ValueError):
                ray.util.remove_placement_group(self._group)
        ray.shutdown()
