"""Slots find their hosts, or the refusal names wanted and available."""

from __future__ import annotations

import pytest

from orchestrator.errors import ClusterRefusal
from orchestrator.hosts.host_match import HostFacts, SlotPlace, load_candidates, more_places, place_slots, spread_hosts
from orchestrator.scenarios.scenario import Slots


def host(name: str, gpus: int = 0, labels: dict[str, str] | None = None) -> HostFacts:
    return HostFacts(f"node-{name}", f"10.0.0.{len(name)}", name, gpus, 64, 256, labels or {})


def slots(**keys: object) -> Slots:
    return Slots.model_validate(keys)


def test_slots_are_dealt_to_the_hosts_in_turn() -> None:
    places = place_slots(slots(gpus=4), [host("a", 8), host("bb", 4)])

    assert [(p.host.hostname, p.number) for p in places] == [("a", 0), ("bb", 0), ("a", 1)]


def test_load_comes_from_hosts_without_gpus_and_then_the_server_binds_the_cluster_address() -> None:
    with_loader = place_slots(slots(gpus=4), [host("gpu", 4), host("loader")])
    alone = place_slots(slots(gpus=4), [host("gpu", 4)])

    assert (with_loader[0].load_host.hostname, with_loader[0].bind_address) == ("loader", "10.0.0.3")
    assert (alone[0].load_host.hostname, alone[0].bind_address) == ("gpu", "127.0.0.1")


def test_labels_and_accelerators_choose_hosts() -> None:
    b200 = host("b", 8, {"ray.io/accelerator-type": "B200", "role": "gpu"})
    rtx = host("r", 8, {"ray.io/accelerator-type": "RTX-PRO-6000", "role": "spare"})

    assert {p.host.hostname for p in place_slots(slots(gpus=8, accelerator="B200"), [b200, rtx])} == {"b"}
    assert {p.host.hostname for p in place_slots(slots(gpus=8, labels={"role": "!gpu"}), [b200, rtx])} == {"r"}


def test_a_slot_larger_than_any_host_is_refused_with_wanted_and_available() -> None:
    with pytest.raises(ClusterRefusal) as refusal:
        place_slots(slots(gpus=8, count=2), [host("a", 4), host("b", 8)])

    text = str(refusal.value)
    assert "Wanted: 2 slots of 8 GPUs. Available: 1 slot." in text
    assert "a: 4 GPUs, 64 CPUs (too few GPUs)" in text
    assert "b: 8 GPUs, 64 CPUs (matches)" in text


def test_a_label_that_no_host_has_is_refused() -> None:
    with pytest.raises(ClusterRefusal, match="on hosts with role=gpu"):
        place_slots(slots(gpus=1, labels={"role": "gpu"}), [host("a", 4)])


def test_a_refusal_tells_what_each_host_has_in_place_of_what_is_wanted() -> None:
    hosts = [
        host("a", 4, {"role": "spare"}),
        host("b", 8, {"ray.io/accelerator-type": "L4", "role": "gpu"}),
        host("c", 8),
        host("d"),
    ]

    with pytest.raises(ClusterRefusal) as refusal:
        place_slots(slots(gpus=1, labels={"role": "gpu"}, accelerator="B200"), hosts)

    assert str(refusal.value).splitlines()[1:] == [
        "  a: 4 GPUs, 64 CPUs (does not match: role=spare, an accelerator that Ray does not know)",
        "  b: 8 GPUs L4, 64 CPUs (does not match: L4)",
        "  c: 8 GPUs, 64 CPUs (does not match: no label role, an accelerator that Ray does not know)",
        "  d: 0 GPUs, 64 CPUs (does not match: no label role, no GPU)",
        "Change slots.labels or slots.accelerator, or add hosts (`specsweep hosts` lists them).",
    ]


def test_slots_without_gpus_are_counted_per_host() -> None:
    assert len(place_slots(slots(gpus=0, per_host=2), [host("a"), host("b")])) == 4


def test_a_host_with_gpus_that_serves_nothing_is_loaded_from_before_a_serving_one() -> None:
    b200 = host("serving", 8, {"role": "gpu"})
    idle = host("idle", 8)

    (place,) = place_slots(slots(gpus=8, labels={"role": "gpu"}), [b200, idle])

    assert place.load_host.hostname == "idle"
    (cpu_only,) = place_slots(slots(gpus=0, count=1), [host("a"), host("bb")])
    assert (cpu_only.host.hostname, cpu_only.load_host.hostname) == ("a", "bb")


def test_a_load_host_takes_as_many_loads_as_it_has_cpus_and_the_rest_stay_beside_their_servers() -> None:
    small = HostFacts("node-l", "10.0.0.9", "loader", 0, 2, 8, {})
    places = place_slots(slots(gpus=2), [host("gpu", 8), small])

    assert [p.load_host.hostname for p in places] == ["loader", "loader", "gpu", "gpu"]


def test_a_host_that_comes_later_gets_the_slots_that_are_missing_and_none_is_given_twice() -> None:
    first, later = host("a", 4), host("bb", 8)
    held = place_slots(slots(gpus=2), [first])

    assert [(p.host.hostname, p.number) for p in held] == [("a", 0), ("a", 1)]
    more = more_places(slots(gpus=2), [first, later], held)
    assert [(p.host.hostname, p.number) for p in more] == [("bb", 0), ("bb", 1), ("bb", 2), ("bb", 3)]
    assert len(more_places(slots(gpus=2, count=3), [first, later], held)) == 1
    assert more_places(slots(gpus=2), [first], held) == []
    assert [p.number for p in more_places(slots(gpus=2), [first], held[1:])] == [0]


def test_a_load_goes_to_another_living_host_when_its_own_is_gone_and_beside_the_server_at_last() -> None:
    gpu, idle, one, two = host("gpu", 4), host("idlegpu", 4), host("one"), host("twoo")
    place = SlotPlace(gpu, 0, one)

    assert [h.hostname for h in spread_hosts(place, [gpu, idle, one, two])] == ["one", "twoo"]
    assert [h.hostname for h in spread_hosts(place, [gpu, idle, two])] == ["twoo"]
    assert [h.hostname for h in spread_hosts(place, [gpu, idle])] == ["gpu"]
    assert [h.hostname for h in load_candidates(place, [gpu, idle, two])] == ["twoo", "idlegpu", "gpu"]
    alone = SlotPlace(gpu, 0, gpu)  # its server listens on loopback
    assert [h.hostname for h in load_candidates(alone, [gpu, idle, two])] == ["gpu"]


def test_labels_are_said_as_ray_says_them_and_accelerators_may_be_several() -> None:
    a, b, c = (
        host(name, 8, {"ray.io/accelerator-type": kind, "zone": zone})
        for name, kind, zone in (("a", "B200", "x"), ("bb", "B300", "y"), ("ccc", "H100", "z"))
    )
    bare = host("bare", 8)

    def chosen(**keys: object) -> set[str]:
        return {p.host.hostname for p in place_slots(slots(gpus=8, **keys), [a, b, c, bare])}

    assert chosen(accelerator=["B200", "B300"]) == {"a", "bb"}
    assert chosen(labels={"zone": "in(x, z)"}) == {"a", "ccc"}
    assert chosen(labels={"zone": "!in(x,z)"}) == {"bb", "bare"}
    assert chosen(labels={"zone": "!x"}) == {"bb", "ccc", "bare"}
    with pytest.raises(ClusterRefusal, match=r"\(A100 or L4\)"):
        chosen(accelerator=["A100", "L4"])


def test_hosts_of_different_size_each_give_as_many_slots_as_they_hold() -> None:
    places = place_slots(slots(gpus=2), [host("a", 8), host("bb", 4), host("ccc", 1)])

    assert [(p.host.hostname, p.number) for p in places] == [
        ("a", 0), ("bb", 0), ("a", 1), ("bb", 1), ("a", 2), ("a", 3),
    ]  # fmt: skip


def kind(name: str, gpus: int, accelerator: str | None = None) -> HostFacts:
    return host(name, gpus, {"ray.io/accelerator-type": accelerator} if accelerator else {})


def test_a_server_over_two_hosts_takes_hosts_of_one_kind_by_name_with_the_same_number_on_both() -> None:
    hosts = [kind("b2", 8, "B200"), kind("r1", 8, "RTX-PRO-6000"), kind("b1", 8, "B200"), kind("b3", 8, "B200")]
    places = place_slots(slots(gpus=4, nnodes=2), hosts)

    assert [(p.name, [h.name for h in p.hosts]) for p in places] == [
        ("b1+b2/0", ["b1", "b2"]),
        ("b1+b2/1", ["b1", "b2"]),
    ]


def test_hosts_with_another_number_of_gpus_are_another_kind() -> None:
    assert len(place_slots(slots(gpus=4, nnodes=2), [kind("a", 4), kind("bb", 4), kind("c", 8), kind("d", 8)])) == 3
    with pytest.raises(ClusterRefusal, match=r"Wanted: at least one slot of 2 hosts x 4 GPUs of one kind"):
        place_slots(slots(gpus=4, nnodes=2), [kind("a", 4), kind("c", 8)])


def test_a_server_over_two_hosts_is_never_on_loopback_and_loaded_from_elsewhere_where_there_is_a_host() -> None:
    alone = place_slots(slots(gpus=4, nnodes=2), [kind("a", 4), kind("bb", 4)])[0]
    assert (alone.load_host.name, alone.bind_address) == ("a", "10.0.0.1")
    helped = place_slots(slots(gpus=4, nnodes=2), [kind("a", 4), kind("bb", 4), host("loader")])[0]
    assert (helped.load_host.name, helped.bind_address) == ("loader", "10.0.0.1")
    assert [h.name for h in load_candidates(helped, [kind("a", 4), kind("bb", 4)])] == ["a"]


def test_further_places_leave_out_every_host_of_what_is_held() -> None:
    hosts = [kind("a", 4), kind("bb", 4)]
    held = place_slots(slots(gpus=4, nnodes=2), hosts)
    assert more_places(slots(gpus=4, nnodes=2), [*hosts, kind("ccc", 4)], held) == []
    (more,) = more_places(slots(gpus=4, nnodes=2), [*hosts, kind("ccc", 4), kind("dddd", 4)], held)
    assert more.name == "ccc+dddd/0"
    assert [p.name for p in place_slots(slots(gpus=4, nnodes=2, count=1), [*hosts, kind("cc", 4), kind("dd", 4)])] == [
        "a+bb/0"
    ]
