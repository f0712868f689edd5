"""Which hosts can be compared, and what a run does with others."""

from __future__ import annotations

import pytest

from orchestrator.errors import ClusterRefusal
from orchestrator.host_report import GpuReport, HostReport
from orchestrator.hosts.host_class import class_lines, class_of, classes_of_run
from orchestrator.hosts.host_match import HostFacts
from orchestrator.scenarios.scenario import Slots

GPUS = Slots.model_validate({"gpus": 1})
CPUS = Slots.model_validate({"gpus": 0})


def host(gpus: int, labels: dict[str, str] | None = None) -> HostFacts:
    return HostFacts("n", "10.0.0.1", "h", gpus, 64, 256, labels or {})


def told(gpus: int | None) -> HostReport:
    listed = None if gpus is None else tuple(GpuReport(i, "NVIDIA B200", 178.6, f"{i}") for i in range(gpus))
    return HostReport("h", "EPYC 9554", 128, 1500.0, "6.1", listed)


def test_hosts_with_four_and_eight_of_the_same_gpus_are_two_classes() -> None:
    assert class_of(host(8), told(8), GPUS) == "8x NVIDIA B200 179 GiB"
    assert class_of(host(4), told(4), GPUS) == "4x NVIDIA B200 179 GiB"


def test_gpus_without_a_driver_are_known_by_what_ray_says_and_the_cpus() -> None:
    assert class_of(host(2), told(None), GPUS) == "2x GPU, 128x EPYC 9554"
    assert class_of(host(2, {"ray.io/accelerator-type": "B200"}), told(None), GPUS) == "2x B200, 128x EPYC 9554"
    assert class_of(host(2), None, GPUS) == "2x GPU"


def test_servers_on_cpus_are_compared_by_cpus_whatever_gpus_a_host_has() -> None:
    assert class_of(host(8), told(8), CPUS) == class_of(host(0), told(None), CPUS) == "128x EPYC 9554"


def test_a_new_run_measures_on_every_class_that_it_finds() -> None:
    assert classes_of_run(["b", "a", "b"], (), has_results=False) == ("a", "b")


def test_a_resumed_run_keeps_to_its_classes_and_is_refused_where_none_is_there() -> None:
    assert classes_of_run(["b"], ("a", "b"), has_results=True) == ("a", "b")
    assert classes_of_run(["b", "c"], ("b",), has_results=True) == ("b",)
    with pytest.raises(ClusterRefusal, match=r"measured on hosts of class `a`; the slots .* are on `b`, `c`"):
        classes_of_run(["b", "c"], ("a",), has_results=True)


def test_results_of_a_release_without_classes_are_continued_on_one_class_only() -> None:
    assert classes_of_run(["b", "a", "b"], (), has_results=True) == ("b",)


def test_what_is_told_of_classes() -> None:
    assert class_lines(("a",), ["a", "a"]) == []
    assert class_lines(("a", "b"), ["a", "a"]) == [
        "2 classes of hosts, each measures everything and is ranked for itself:",
        "  a: 2 slots",
        "  b: 0 slots",
        "No slot is on a host of class b: its trials wait for one",
    ]
