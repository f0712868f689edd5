"""What one slot holds of the cluster: a placement group with its GPUs, its CPUs, a CPU for its load; and the actors.

Whatever becomes of the actors, GPUs stay ours until `release`: a slot whose GPU memory did not come back keeps them
from everybody, and one that is made anew finds the same ones.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.error_text import first_line
from orchestrator.hosts.host_match import LOOPBACK, HostFacts, SlotPlace, bundle_of, load_candidates, spread_hosts
from orchestrator.scenarios.scenario import Slots
from orchestrator.slots.ray_slot import CALL_S, RaySlot
from orchestrator.slots.slot_port import SlotFacts, SlotLost, SlotPort
from orchestrator.slots.span_slot import SpanSlot

# A Ray worker takes seconds to come up, on a busy host many.
START_S = CALL_S * 2
# Whether a host that may be gone still answers.
PING_S = 5.0
# By this others see whose the GPUs are.
GROUP_PREFIX = "specsweep:"
_numbers = itertools.count()


class SlotSeat:
    """One host's part of the slot at `place`; it starts its actors in `bundle` of the slot's placement group.

    `bind_address` is where the server listens there.
    """

    def __init__(self, run_id: str, slots: Slots, place: SlotPlace, host: HostFacts, bundle: Any) -> None:
        self.host = host
        self.actor: Any = None
        self.bind_address = host.address if place.others else place.bind_address
        self.name = f"{host.name}/{place.number}"
        self._run_id = run_id
        self._slots = slots
        self._number = place.number
        self._bundle = bundle
        self._dealt: tuple[str, ...] | None = None

    def start(self) -> None:
        """Start the actor, or another one in place of an earlier one, which ends. Does not wait for it."""
        import ray

        from actors.slot_actor import SlotActor

        if self.actor is not None:
            ray.kill(self.actor)  # it may live, but silent: its GPUs are needed
        slots = self._slots
        options = {"num_gpus": slots.gpus, "num_cpus": slots.cpus, "max_restarts": 0, "max_concurrency": 32}
        actor = ray.remote(SlotActor).options(scheduling_strategy=self._bundle, **options)
        self.actor = actor.remote(self._run_id, self._number, self.bind_address)

    def gpu_ids(self) -> tuple[str, ...]:
        """The GPUs that the actor has, once it is up: as dealt to the slot, else as Ray gave them. SlotLost if it does
        not come up.
        """
        given = tuple(self._get(self.actor.gpu_ids.remote()))
        if self._dealt is None:
            return given
        self.use_gpus(self._dealt)
        return self._dealt

    @property
    def is_dealt(self) -> bool:
        """Whether it was said which GPUs the slot uses."""
        return self._dealt is not None

    def use_gpus(self, gpu_ids: tuple[str, ...]) -> None:
        """Let the slot use these, of those that Ray gave to our slots of this host. Also when it is made anew."""
        self._dealt = gpu_ids
        self._get(self.actor.use_gpus.remote(gpu_ids))

    def _get(self, ref: Any) -> Any:
        import ray

        try:
            return ray.get(ref, timeout=START_S)
        except ray.exceptions.RayError as error:
            raise SlotLost(f"{self.name}: its actor did not come up: {first_line(error)}") from error


class SlotGrant:
    """Asks for what a slot at `place` needs; `is_granted` once the cluster has reserved it.

    `living` tells the hosts of the cluster at that moment.
    """

    def __init__(self, run_id: str, slots: Slots, place: SlotPlace, living: Callable[[], list[HostFacts]]) -> None:
        from ray.util.placement_group import placement_group

        self.place = place
        self._run_id = run_id
        self._living = living
        self._own_load: Any = None
        nodes = [*(host.node_id for host in place.hosts), place.load_host.node_id]
        self._group = placement_group(
            [*(bundle_of(slots) for _ in place.hosts), {"CPU": 1.0}],
            strategy="PACK",
            bundle_label_selector=[{"ray.io/node-id": node} for node in nodes],
            name=f"{GROUP_PREFIX}{run_id}:{next(_numbers)}",
        )
        # A bundle for each rank, all granted together; the last one is that of the load.
        bundles = enumerate(place.hosts)
        self.seats = [SlotSeat(run_id, slots, place, host, self._inside(bundle)) for bundle, host in bundles]

    @property
    def is_granted(self) -> bool:
        """Whether everything is reserved, and no host of it has gone since."""
        from ray.util.placement_group import placement_group_table

        return bool(placement_group_table(self._group).get("state") == "CREATED")

    def start(self) -> None:
        """Start the slot's actors, or others in place of earlier ones, which end. Does not wait for them."""
        for seat in self.seats:
            seat.start()

    def slot(self, engine: str, facts: SlotFacts, of_ranks: Sequence[SlotFacts]) -> SlotPort:
        """The slot of the actors that were started. `of_ranks`: where each rank is, for a server on several hosts."""
        loads = LoadPlaces(self.place, self._living)
        head = self._rank(0, of_ranks[0] if self.place.others else facts, lambda m: self._new_load(loads, m, engine))
        if not self.place.others:
            return head
        return SpanSlot(facts, [head, *(self._rank(rank, of_ranks[rank], None) for rank in range(1, len(of_ranks)))])

    def _rank(self, rank: int, facts: SlotFacts, new_load: Callable[[int], tuple[Any, str]] | None) -> RaySlot:
        seat = self.seats[rank]
        exposed = seat.bind_address != LOOPBACK and rank == 0
        return RaySlot(facts, seat.actor, new_load, self._run_id, exposed=exposed)

    def _new_load(self, loads: LoadPlaces, member: int, engine: str) -> tuple[Any, str]:
        """The first has a CPU of the slot's own while its host lives; others share what there is there."""
        import ray

        from actors.load_host import LoadHost

        host, is_first = loads.next_for(member)
        own = {"num_cpus": 1, "scheduling_strategy": self._inside(len(self.seats))}
        shared = {"num_cpus": 0, "label_selector": {"ray.io/node-id": host.node_id}}
        if is_first and self._own_load is not None:
            ray.kill(self._own_load)  # that of a slot that was lost: it would keep the CPU
        actor = ray.remote(LoadHost).options(max_concurrency=32, **(own if is_first else shared))
        load = actor.remote(self._run_id, engine)
        self._own_load = load if is_first else self._own_load
        return load, host.node_id

    def _inside(self, bundle: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)

    def release(self) -> None:
        """Give everything back; what still runs in there is killed."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.util.remove_placement_group(self._group)


class LoadPlaces:
    """Where the load actors of a slot go, member by member; again when one was lost: to hosts that live and answer."""

    def __init__(self, place: SlotPlace, living: Callable[[], list[HostFacts]]) -> None:
        self._place = place
        self._living = living
        self._given: dict[int, str] = {}

    def next_for(self, member: int) -> tuple[HostFacts, bool]:
        """The host of a member's next load actor, and whether that is the CPU that the slot has reserved."""
        hosts = self._living()
        helpers = spread_hosts(self._place, hosts)
        host = helpers[member % len(helpers)]
        if self._given.get(member) == host.node_id and not answers(host):
            others = [h for h in load_candidates(self._place, hosts) if h.node_id != host.node_id]
            host = next((h for h in others if answers(h)), self._place.host)
        self._given[member] = host.node_id
        return host, member == 0 and host.node_id == self._place.load_host.node_id


def answers(host: HostFacts) -> bool:
    """Whether a host runs a task within seconds; one that is cut off is listed as alive for a while."""
    import ray

    task = ray.remote(_here).options(num_cpus=0, label_selector={"ray.io/node-id": host.node_id})
    try:
        ray.get(task.remote(), timeout=PING_S)
    except ray.exceptions.RayError:
        return False
    return True


def _here() -> bool:
    return True
