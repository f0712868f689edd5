"""Slots find their hosts, or the refusal names wanted and available."""

from __future__ import annotations

import pytest

from orchestrator.errors import ClusterRefusal
from orchestrator.host_match import HostFacts, place_slots
from orchestrator.scenario import Slots


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
    assert "Wanted: 2 slot(s) of 8 GPUs. Available: 1 slot(s)." in text
    assert "a: 4 GPUs, 64 CPUs (matches)" in text


def test_a_label_that_no_host_has_is_refused() -> None:
    with pytest.raises(ClusterRefusal, match="on hosts with role=gpu"):
        place_slots(slots(gpus=1, labels={"role": "gpu"}), [host("a", 4)])


def test_slots_without_gpus_are_counted_per_host() -> None:
    assert len(place_slots(slots(gpus=0, per_host=2), [host("a"), host("b")])) == 4
