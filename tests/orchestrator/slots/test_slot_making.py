"""Granted slots become slots: hosts are prepared once, GPUs dealt, hosts of other classes left alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from orchestrator.host_report import GpuReport, HostReport
from orchestrator.hosts.host_match import HostFacts, SlotPlace
from orchestrator.scenarios.scenario import Slots
from orchestrator.slots.slot_grant import SlotGrant
from orchestrator.slots.slot_making import SlotMaker
from orchestrator.slots.slot_port import SlotFacts, SlotLost
from tests.fakes.slot_cluster import gpu_host

# GPUs of the two sockets alternate.
REPORT = HostReport(
    "h", "cpu", 64, 512.0, "6.1", tuple(GpuReport(i, "B200", 179.0, str(i), numa_node=i % 2) for i in range(4))
)


class Grant:
    """Ray gave it these GPUs, all on one host: it is its own only seat."""

    def __init__(self, host: HostFacts, number: int, *gpus: str) -> None:
        self.place = SlotPlace(host, number, host)
        self.host = host
        self.name = f"{host.name}/{number}"
        self.seats = [self]
        self.given = gpus
        self.dealt: tuple[str, ...] | None = None
        self.starts = 0
        self.is_silent = False

    def start(self) -> None:
        self.starts += 1

    def gpu_ids(self) -> tuple[str, ...]:
        if self.is_silent:
            raise SlotLost("its actor did not come up")
        return self.dealt or self.given

    @property
    def is_dealt(self) -> bool:
        return self.dealt is not None

    def use_gpus(self, gpu_ids: tuple[str, ...]) -> None:
        self.dealt = gpu_ids

    def slot(self, engine: str, facts: SlotFacts, of_ranks: Sequence[SlotFacts]) -> Any:
        return facts


class Hosts:
    """Answers what is asked of hosts; `asked` has (function, node)."""

    def __init__(self, *hosts: HostFacts) -> None:
        self.hosts = list(hosts)
        self.asked: list[tuple[str, str]] = []
        self.silent: set[str] = set()
        self.unreported: list[str] = []  # one answer that is none for each

    def ask_each(
        self, task: Callable[..., Any], *arguments: Any, nodes: Collection[str] = ()
    ) -> list[tuple[HostFacts, Any]]:
        answers: list[tuple[HostFacts, Any]] = []
        for host in (h for h in self.hosts if h.node_id in nodes):
            self.asked.append((task.__name__, host.node_id))
            known = ["ended a process"] if task.__name__ == "prepare_host" else REPORT
            is_silent = host.name in self.silent
            if task.__name__ == "host_report" and host.name in self.unreported:
                self.unreported.remove(host.name)
                is_silent = True
            answers.append((host, TimeoutError("no answer") if is_silent else known))
        return answers


def maker(hosts: Hosts) -> SlotMaker:
    wanted = Slots.model_validate({"gpus": 2})
    return SlotMaker("run", wanted, "sglang", (), hosts.ask_each, lambda: hosts.hosts)


def make(of: SlotMaker, *grants: Grant) -> list[SlotFacts | str]:
    return [
        cast("SlotFacts", m.slot) if m.slot is not None else m.why for m in of.make(cast("list[SlotGrant]", grants))
    ]


def test_slots_of_a_host_get_neighbouring_gpus_and_say_where_they_are() -> None:
    host = gpu_host("a", 4)
    one, two = Grant(host, 0, "0", "1"), Grant(host, 1, "2", "3")
    facts = make(maker(Hosts(host)), one, two)

    assert [(f.gpu_ids, f.numa_nodes) for f in facts if isinstance(f, SlotFacts)] == [
        (("0", "2"), (0,)), (("1", "3"), (1,)),
    ]  # fmt: skip
    assert (one.dealt, two.dealt) == (("0", "2"), ("1", "3"))
    assert {f.host_class for f in facts if isinstance(f, SlotFacts)} == {"4x B200 179 GiB"}


def test_a_slot_made_anew_keeps_the_gpus_that_it_was_dealt() -> None:
    host = gpu_host("a", 4)
    one, two = Grant(host, 0, "0", "1"), Grant(host, 1, "2", "3")
    making = maker(Hosts(host))
    make(making, one, two)
    (again,) = make(making, one)

    assert isinstance(again, SlotFacts)
    assert (again.gpu_ids, one.starts, two.starts) == (("0", "2"), 2, 1)


def test_a_host_is_prepared_once_and_another_ray_node_of_its_machine_is_not_swept() -> None:
    host, twin = gpu_host("a", 4), gpu_host("a", 4, node="node-twin")
    hosts = Hosts(host, twin)
    making = maker(hosts)
    make(making, Grant(host, 0, "0", "1"))
    make(making, Grant(host, 1, "2", "3"))
    make(making, Grant(twin, 0, "0", "1"))

    assert hosts.asked == [("prepare_host", "node-a"), ("host_report", "node-a"), ("host_report", "node-twin")]
    assert making.leftovers == ["a: ended a process"]


def test_a_host_that_does_not_answer_costs_only_its_own_slots() -> None:
    hosts = Hosts(gpu_host("a", 4), gpu_host("bb", 4))
    hosts.silent = {"a"}
    lost, fine = Grant(hosts.hosts[0], 0, "0", "1"), Grant(hosts.hosts[1], 0, "0", "1")
    why, facts = make(maker(hosts), lost, fine)

    assert why == "it does not answer: no answer"
    assert isinstance(facts, SlotFacts)
    assert lost.starts == 0


def test_a_host_that_does_not_tell_at_once_what_it_is_is_asked_again_and_gets_no_class_of_its_own() -> None:
    hosts = Hosts(gpu_host("a", 4))
    hosts.unreported = ["a"]
    making, grant = maker(hosts), Grant(hosts.hosts[0], 0, "0", "1")
    assert make(making, grant) == ["it does not tell what it is: no answer"]
    (facts,) = make(making, grant)
    assert isinstance(facts, SlotFacts)
    assert facts.host_class == "4x B200 179 GiB"


def test_a_host_that_never_tells_what_it_is_is_used_by_what_ray_knows_of_it() -> None:
    hosts = Hosts(gpu_host("a", 4))
    hosts.unreported = ["a", "a"]
    making, grant = maker(hosts), Grant(hosts.hosts[0], 0, "0", "1")
    make(making, grant)
    (facts,) = make(making, grant)
    assert isinstance(facts, SlotFacts)
    assert facts.host_class == "4x GPU"


def test_an_actor_that_does_not_come_up_costs_its_slot_and_the_others_are_dealt_without_it() -> None:
    host = gpu_host("a", 4)
    one, two = Grant(host, 0, "0", "1"), Grant(host, 1, "2", "3")
    one.is_silent = True
    why, facts = make(maker(Hosts(host)), one, two)

    assert why == "its actor did not come up"
    assert isinstance(facts, SlotFacts)
    assert facts.gpu_ids == ("2", "3")


def test_nothing_is_started_on_a_host_of_a_class_that_the_run_does_not_compare() -> None:
    host = gpu_host("a", 4)
    making, grant = maker(Hosts(host)), Grant(host, 0, "0", "1")
    making.classes = ("8x H100 80 GiB",)
    (made,) = making.make(cast("list[SlotGrant]", [grant]))

    assert (made.slot, made.unfit, grant.starts) == (None, True, 0)
    assert made.why == ("its class is `4x B200 179 GiB`, this run's is `8x H100 80 GiB`; classes are never mixed")
