"""The only module of the driver that knows Ray: connect, find hosts, reserve slots, reach them, let them go."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from actors.run_lease import dead_ray_folders
from orchestrator.errors import BadInput, ClusterRefusal
from orchestrator.host_match import GpuPlace, HostFacts, SlotPlace, bundle_of, place_slots, spread_hosts
from orchestrator.load_spread import process_bound
from orchestrator.ray_slot import CALL_S, RaySlot
from orchestrator.scenario import Slots
from orchestrator.slot_port import SlotFacts

HEARTBEAT_S = 15.0
PROBE_S = 10.0


@dataclass(frozen=True)
class Connection:
    """How to reach the cluster: `local` embeds one, `auto` joins the one that runs here, else HOST:PORT."""

    address: str
    emulated_gpus: int = 0
    cpus_wanted: float = 0.0


def connect(connection: Connection, run_id: str) -> Cluster:
    """Join or embed a cluster; ClusterRefusal if there is none at the address."""
    quiet = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_BACKEND_LOG_LEVEL": "error",
        # Ray would run every worker, and so every server, at nice 15 and first in line for the OOM killer.
        "RAY_worker_niceness": "0",
        "RAY_worker_oom_score_adjustment": "0",
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    _probe(connection.address)
    if connection.address == "local":
        folder = _own_folder()
        _own_token(folder)
        os.environ.pop("RAY_ADDRESS", None)
    import ray  # reads RAY_AUTH_MODE now, not at init

    options: dict[str, Any] = {
        "namespace": run_id,
        "log_to_driver": False,
        "logging_level": "ERROR",
        "configure_logging": False,
    }
    if connection.address == "local":
        options |= {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": max(os.cpu_count() or 1, int(connection.cpus_wanted + 1)),
            "object_store_memory": 256 * 2**20,
            "_temp_dir": str(folder),
        }
        if connection.emulated_gpus:
            options["num_gpus"] = connection.emulated_gpus
    else:
        options["address"] = connection.address
        if "RAY_JOB_ID" not in os.environ:
            options["runtime_env"] = {"py_modules": [str(p) for p in _own_packages()]}
    with _stderr_kept() as said:
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            told = said() or str(error)
            raise ClusterRefusal(_no_cluster(connection.address, told)) from error
    return Cluster(run_id, connection.address)


def _probe(address: str) -> None:
    """Ray retries for ever where nothing listens; ask first. ClusterRefusal if nothing answers at HOST:PORT."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        if address not in {"local", "auto"}:
            raise BadInput(f"--address {address}: write auto, local or HOST:PORT")
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except OSError as error:
        raise ClusterRefusal(_no_cluster(address, f"{type(error).__name__}: {error}")) from None


def _own_folder() -> Path:
    """Logs, sockets and token of an embedded cluster; removed at our end, where Ray would leave them for good."""
    for left in dead_ray_folders():
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"specsweep-ray-{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _own_token(folder: Path) -> None:
    """An embedded cluster gets a token of its own; Ray would otherwise write one into the user's home."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(32), encoding="ascii")
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(file))


def _own_packages() -> list[Path]:
    root = Path(__file__).resolve().parent.parent
    return [root / "orchestrator", root / "actors"]


def _no_cluster(address: str, told: str) -> str:
    last = told.strip().splitlines()[-1] if told.strip() else "no answer"
    return (
        f"no Ray cluster at --address {address}: {last}\n"
        "Start one with `ray up ray_cluster.yaml`, or use --address local to embed one on this machine."
    )


@contextlib.contextmanager
def _stderr_kept() -> Iterator[Any]:
    """Ray's C++ parts write to fd 2 whatever the logging settings; keep it, to be told only on failure."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as sink:

        def said() -> str:
            sink.seek(0)
            return sink.read().decode(errors="replace")

        os.dup2(sink.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(saved, 2)
            os.close(saved)


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
        return RaySlot(facts, actor, new_load, self._run_id)

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
