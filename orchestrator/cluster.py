"""A joined Ray cluster as the driver uses it: find hosts, reserve slots, reach them, let them go."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from orchestrator.errors import ClusterRefusal
from orchestrator.host_match import GpuPlace, HostFacts, place_slots
from orchestrator.ray_slot import CALL_S, RaySlot
from orchestrator.scenario import Slots
from orchestrator.slot_grant import GROUP_PREFIX, SlotGrant

HEARTBEAT_S = 15.0


class Cluster:
    """A joined cluster. `close` lets everything of this run go."""

    def __init__(self, run_id: str, address: str) -> None:
        self._run_id = run_id
        self._address = address
        self._slots: list[RaySlot] = []
        self._nodes: set[str] = set()
        self._grants: list[SlotGrant] = []
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
        """Reserve a place for every slot at once, and start the actors of those that are granted in time.

        `runtime` calls the container runtime, if servers run in one: containers of an earlier start are removed.
        ClusterRefusal, with wanted and available, if the cluster cannot hold them or is busy.
        """
        self._grants = [SlotGrant(self._run_id, slots, place, self.hosts) for place in place_slots(slots, self.hosts())]
        granted = self._wait_for_grants(timeout_s)
        if not granted:
            raise ClusterRefusal(self._busy(slots, len(self._grants), timeout_s))
        self._nodes = {host.node_id for g in granted for host in (g.place.host, g.place.load_host)}
        self.leftovers = self._prepare_hosts(runtime)
        for grant in granted:
            grant.start()
        self._slots = [grant.slot(engine) for grant in granted]
        threading.Thread(target=self._beat, daemon=True).start()
        return self._slots

    def _wait_for_grants(self, timeout_s: float) -> list[SlotGrant]:
        """Those that are granted when all are, or when the time is up."""
        deadline = time.monotonic() + timeout_s
        while True:
            granted = [grant for grant in self._grants if grant.is_granted]
            if len(granted) == len(self._grants) or time.monotonic() >= deadline:
                return granted
            time.sleep(0.1)

    def host_places(self) -> list[GpuPlace]:
        """Every living host with all its GPUs."""
        return [GpuPlace(h.name, None, partial(self._ask_one, h.node_id)) for h in self.hosts()]

    def slot_places(self) -> list[GpuPlace]:
        """The GPUs of the granted slots, host by host."""
        gpus: dict[str, list[str]] = {}
        for slot in self._slots:
            gpus.setdefault(slot.facts.host, []).extend(slot.facts.gpu_ids)
        return [replace(p, gpu_ids=gpus[p.host]) for p in self.host_places() if gpus.get(p.host)]

    def _ask_one(self, node: str, task: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        ((_, answer),) = self.ask_hosts(task, *arguments, nodes={node}, **named)
        return answer

    def _busy(self, slots: Slots, wanted: int, timeout_s: float) -> str:
        import ray

        free = ray.available_resources()
        return (
            f"the cluster did not grant a slot within {timeout_s:g} s. Wanted: {wanted} slots of {slots.gpus} "
            f"GPUs and {slots.cpus:g} CPUs, and a CPU for the load of each. Free now: {free.get('GPU', 0):g} GPUs, "
            f"{free.get('CPU', 0):g} CPUs.{self._holders()} Wait for their end, or raise timeouts.cluster_s to wait "
            "longer (`specsweep hosts` shows what is used)."
        )

    def _holders(self) -> str:
        """Which runs of ours hold GPUs, and how many others do; placement groups of runs have the run in their name."""
        from ray.util.placement_group import placement_group_table

        held: dict[str, float] = {}
        for group in placement_group_table().values():
            if group.get("state") != "CREATED":
                continue
            name = str(group.get("name", ""))
            run = name.removeprefix(GROUP_PREFIX).rpartition(":")[0] if name.startswith(GROUP_PREFIX) else ""
            whose = f"run {run}" if run else "another job"
            gpus = sum(float(bundle.get("GPU", 0)) for bundle in group.get("bundles", {}).values())
            held[whose] = held.get(whose, 0.0) + gpus
        told = [f"{whose} {gpus:g} GPUs" for whose, gpus in sorted(held.items()) if self._run_id not in whose]
        return f" Held: {', '.join(told)}." if told else " What holds the rest is no run of ours."

    def _prepare_hosts(self, runtime: tuple[str, ...]) -> list[str]:
        """Before the first launch: no process of an earlier start of this run, nor of a dead one, may hold a GPU."""
        from actors.host_cleanup import prepare_host

        answers = self.ask_hosts(prepare_host, self._run_id, runtime, nodes=self._nodes)
        return [f"{host.name}: {line}" for host, lines in answers for line in lines or ()]

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
        for grant in self._grants:
            grant.release()
        ray.shutdown()
