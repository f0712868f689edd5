"""A joined Ray cluster as the driver uses it: find hosts, reserve slots, reach them, let them go."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from orchestrator.error_text import first_line
from orchestrator.errors import ClusterRefusal
from orchestrator.host_report import HostReport
from orchestrator.hosts.host_class import class_lines, classes_of_run, foreign_class
from orchestrator.hosts.host_match import GpuPlace, HostFacts, SlotPlace, told_apart
from orchestrator.plural import plural
from orchestrator.scenarios.scenario import Slots
from orchestrator.slots.ray_slot import CALL_S, RaySlot
from orchestrator.slots.slot_grant import GROUP_PREFIX, SlotGrant
from orchestrator.slots.slot_making import SlotMaker
from orchestrator.slots.slot_port import SlotPort
from orchestrator.slots.slot_source import ClusterSlots, Grant, Made
from orchestrator.slots.span_slot import SpanSlot

HEARTBEAT_S = 15.0


class Cluster:
    """A joined cluster. `close` lets everything of this run go."""

    def __init__(self, run_id: str, address: str) -> None:
        self._run_id = run_id
        self._address = address
        self._nodes: set[str] = set()
        self._wanted: Slots | None = None
        self._maker: SlotMaker | None = None
        self.source: ClusterSlots | None = None
        self.classes: tuple[str, ...] = ()
        self.told: list[str] = []
        self._closing = threading.Event()

    def hosts(self) -> list[HostFacts]:
        """Living hosts with their resources and labels."""
        import ray

        living = [
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
        return told_apart(living)

    def gpu_states(self, host: HostFacts) -> list[dict[str, Any]] | None:
        """GPUs of a host and who holds their memory, asked there; None where no NVIDIA driver answers, nor the host."""
        from actors.host.host_cleanup import gpus_told

        states: list[dict[str, Any]] | None = None
        with contextlib.suppress(ClusterRefusal):
            states = self._ask_one(host, gpus_told)
        return states

    def living(self) -> list[HostFacts] | None:
        """As `hosts`; None while the cluster cannot be asked."""
        import ray

        try:
            return self.hosts()
        except (ray.exceptions.RayError, RuntimeError, ConnectionError):
            return None

    def _unlost_hosts(self) -> list[HostFacts]:
        """Living hosts without those that were lost too often: no load goes there either."""
        source = self.source
        return [h for h in self.living() or [] if source is None or not source.is_quarantined(h)]

    def death_of(self, node_id: str) -> str:
        """What ended a node, as Ray tells it."""
        import ray

        told = ""
        with contextlib.suppress(ray.exceptions.RayError, RuntimeError, ConnectionError):
            told = "".join(str(n.get("DeathReasonMessage") or "") for n in ray.nodes() if n["NodeID"] == node_id)
        return told.strip() or "its raylet does not answer any more"

    def grant_slots(
        self, slots: Slots, engine: str, timeout_s: float, runtime: tuple[str, ...] = (), *,
        stored_classes: Sequence[str] = (), has_results: bool = False,
    ) -> list[SlotPort]:  # fmt: skip
        """Reserve a place for every slot at once, and start the actors of those that are granted in time; `source` has
        the rest. Afterwards `classes` are those of the run, `told` is what a user should know.

        `runtime` calls the container runtime, if servers run in one: containers of an earlier start are removed.
        `stored_classes`: those that a resumed run was measured on; empty with `has_results` if it kept none.
        ClusterRefusal, with wanted and available, if the cluster cannot hold them, is busy, or has no fitting host.
        """
        self._wanted = slots
        self._maker = maker = SlotMaker(self._run_id, slots, engine, runtime, self.ask_each, self._unlost_hosts)
        self.source = source = ClusterSlots(self, slots, timeout_s, may_join=self._address != "local")
        made, failed, waiting = source.first()
        if not made:
            wanted = len(source.places)
            raise ClusterRefusal("\n".join(failed) if failed else self._busy(slots, wanted, timeout_s))
        found = [slot.facts.host_class for slot in made]
        self.classes = maker.classes = classes_of_run(found, stored_classes, has_results=has_results)
        for host in {host.node_id: host for place in source.places for host in place.hosts}.values():
            if (of := maker.known_class(host)) is not None and of not in self.classes:
                source.put_aside(host, foreign_class(of, self.classes))
        kept = [slot for slot in made if slot.facts.host_class in self.classes]
        self.told = [*maker.leftovers, *failed, *class_lines(self.classes, found)]
        if waiting:
            self.told.append(
                f"{waiting} of {waiting + len(made)} slots are not free yet: they join when they are.{self._holders()}"
            )
        threading.Thread(target=self._beat, daemon=True).start()
        return kept

    def class_of(self, host: HostFacts) -> str | None:
        """The class of a host on which the run has, or had, a slot."""
        return self._maker.known_class(host) if self._maker else None

    def host_reports(self) -> dict[str, HostReport]:
        """By name, what the hosts said of themselves that the run used so far."""
        return dict(self._maker.reports) if self._maker else {}

    def ask_for(self, place: SlotPlace) -> Grant:
        """Ask Ray for what a slot needs."""
        assert self._wanted is not None
        self._nodes |= {host.node_id for host in (*place.hosts, place.load_host)}
        return SlotGrant(self._run_id, self._wanted, place, self._unlost_hosts)

    def make(self, grants: Sequence[Grant]) -> list[Made]:
        """Slots in what was granted."""
        assert self._maker is not None
        return self._maker.make([grant for grant in grants if isinstance(grant, SlotGrant)])

    @property
    def _slots(self) -> list[SlotPort]:
        return self.source.serving if self.source else []

    def host_places(self) -> list[GpuPlace]:
        """Every living host with all its GPUs."""
        return [GpuPlace(h.name, None, partial(self._ask_one, h)) for h in self.hosts()]

    def slot_places(self) -> list[GpuPlace]:
        """The GPUs of the granted slots, host by host."""
        gpus: dict[str, list[str]] = {}
        for slot in self._ray_slots():
            gpus.setdefault(slot.facts.host, []).extend(slot.facts.gpu_ids)
        return [replace(p, gpu_ids=gpus[p.host]) for p in self.host_places() if gpus.get(p.host)]

    def _ask_one(self, host: HostFacts, task: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        answers = self.ask_each(task, *arguments, nodes={host.node_id}, **named)
        answer = answers[0][1] if answers else ConnectionError("it is gone")
        if isinstance(answer, Exception):
            why = first_line(answer)
            raise ClusterRefusal(f"{host.name} does not answer: {why}. See `specsweep hosts`.") from answer
        return answer

    def _busy(self, slots: Slots, wanted: int, timeout_s: float) -> str:
        import ray

        free = ray.available_resources()
        return (
            f"the cluster did not grant a slot within {timeout_s:g} s. Wanted: {plural(wanted, 'slot')} of "
            f"{slots.size} and {slots.cpus:g} CPUs, and a CPU for the load of each. "
            f"Free now: {free.get('GPU', 0):g} GPUs, {free.get('CPU', 0):g} CPUs.{self._holders()} "
            "Wait for their end, or raise timeouts.cluster_s to wait longer (`specsweep hosts` shows what is used)."
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
        return f" Held: {', '.join(told)}." if told else " No other run of ours holds any now."

    def _remove_scratch(self) -> None:
        import ray

        from actors.host.run_lease import remove_scratch

        with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
            self.ask_each(remove_scratch, self._run_id, nodes=self._nodes)

    def ask_each(
        self, task: Callable[..., Any], *arguments: Any, nodes: Collection[str] | None = None, **named: Any
    ) -> list[tuple[HostFacts, Any]]:
        """Run a function on these hosts (None: all) at the same time; what each answered, or why it did not in time."""
        import ray

        remote = ray.remote(task)
        asked = [host for host in self.hosts() if nodes is None or host.node_id in nodes]
        calls = [
            remote.options(num_cpus=0, label_selector={"ray.io/node-id": host.node_id}).remote(*arguments, **named)
            for host in asked
        ]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=CALL_S * 4)
        answers: list[tuple[HostFacts, Any]] = []
        for host, call in zip(asked, calls, strict=True):
            try:
                answers.append((host, ray.get(call, timeout=1.0)))
            except ray.exceptions.RayError as error:
                answers.append((host, error))
        return answers

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_S):
            for slot in self._ray_slots():
                slot.heartbeat()

    def _ray_slots(self) -> list[RaySlot]:
        """One for each host of each slot."""
        parts = [part for slot in self._slots for part in (slot.ranks if isinstance(slot, SpanSlot) else (slot,))]
        return [part for part in parts if isinstance(part, RaySlot)]

    @property
    def head_address(self) -> str:
        """Where the head's Ray answers."""
        import ray

        return str(ray.get_runtime_context().gcs_address)

    def stop_servers(self, wait_s: float) -> None:
        """Have every server stopped without the head's help, and wait so long for it; then only leave."""
        import ray

        self._closing.set()
        ends = [slot.begin_close() for slot in self._ray_slots()]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=wait_s)

    def close(self) -> None:
        """Let everything go, then leave."""
        self.let_go()
        self.leave()

    def let_go(self) -> None:
        """Stop every server in order, then let actors, groups and files on the hosts go: others can use the GPUs."""
        self._closing.set()
        if self.source is not None:
            self.source.stop()
        slots = self._ray_slots()
        for slot in slots:
            slot.begin_close()
        for slot in slots:
            slot.end_close()
        self._remove_scratch()
        if self.source is not None:
            self.source.release()

    def leave(self) -> None:
        """Leave Ray, and end it if it was embedded. What must be on disk is on disk by now: within `ray.shutdown`, when
        its core worker is gone, C++ sets SIGTERM to its default without Python's knowledge (UninstallSignalAction of
        Ray's logging.cc), and who is told to end ends at once, ignored or not.
        """
        import ray

        ray.shutdown()
