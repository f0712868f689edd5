"""GPUs of one slot are neighbours where the host tells how its GPUs are connected."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.host_report import GpuReport, HostReport
from orchestrator.hosts.gpu_neighbourhood import PAIR_COST, deal_gpus, numa_nodes, pair_costs

Links = tuple[tuple[int, int, str], ...]


def report(nodes: list[int | None], links: Links = ()) -> HostReport:
    gpus = tuple(GpuReport(i, "B200", 183.0, f"0000:{i:02x}:00.0", node) for i, node in enumerate(nodes))
    return HostReport("h", "cpu", 64, 512.0, "6.1", gpus, links)


def cost(slots: list[tuple[str, ...]], told: HostReport) -> int:
    ids = [gpu for slot in slots for gpu in slot]
    costs = pair_costs(ids, told)
    assert costs is not None
    return sum(costs[pair] for slot in slots for pair in combinations(slot, 2))


def least_cost(ids: list[str], size: int, told: HostReport) -> int:
    """Over every order of the ids: slow, and sure."""
    parts = ([tuple(order[i : i + size]) for i in range(0, len(order), size)] for order in permutations(ids))
    return min(cost(part, told) for part in parts)


def test_slots_that_ray_split_over_the_sockets_get_the_gpus_of_one_socket_each() -> None:
    told = report([0, 1, 0, 1, 0, 1, 0, 1])

    assert deal_gpus([("0", "1", "2", "3"), ("4", "5", "6", "7")], told) == [
        ("0", "2", "4", "6"), ("1", "3", "5", "7"),
    ]  # fmt: skip
    assert numa_nodes(("0", "2"), told) == (0,)
    assert numa_nodes(("0", "1"), told) == (0, 1)


def test_a_pair_behind_one_switch_is_preferred_to_one_on_the_same_node() -> None:
    links: Links = ((0, 2, "single"), (1, 3, "single"), (0, 1, "node"), (2, 3, "node"), (0, 3, "node"), (1, 2, "node"))

    assert deal_gpus([("0", "1"), ("2", "3")], report([0, 0, 0, 0], links)) == [("0", "2"), ("1", "3")]


def test_only_what_our_slots_hold_is_dealt() -> None:
    told = report([0, 0, 1, 1, 0, 0, 1, 1])

    assert deal_gpus([("1", "2"), ("4", "7")], told) == [("1", "4"), ("2", "7")]


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ([("0", "1"), ("2", "3")], report([0, 0, 1, 1])),  # best as it is
        ([("2", "3"), ("0", "1")], report([0, 0, 1, 1])),
        ([("0", "2"), ("1", "3")], report([None] * 4)),  # nothing known
        ([("0", "2"), ("1", "3")], None),
        ([("0", "2"), ("1", "9")], report([0, 0, 1, 1])),  # one that the driver does not list
        ([("GPU-a", "GPU-b"), ("GPU-c", "GPU-d")], report([0, 0, 1, 1])),
        ([("0", "2")], report([0, 0, 1])),  # nobody to swap with
        ([("0",), ("2",)], report([0, 0, 1])),
        ([(), ()], report([0])),
        ([], report([0])),
    ],
)
def test_nothing_changes_where_nothing_is_known_or_nothing_is_better(
    held: list[tuple[str, ...]], told: HostReport | None
) -> None:
    assert deal_gpus(held, told) == held


@given(
    nodes=st.lists(st.sampled_from([0, 1, None]), min_size=6, max_size=6),
    kinds=st.lists(st.sampled_from([*PAIR_COST, "unknown"]), min_size=15, max_size=15),
    size=st.sampled_from([2, 3]),
    order=st.permutations([str(i) for i in range(6)]),
)
@settings(max_examples=12, deadline=None)
def test_no_way_to_deal_them_is_better(nodes: list[int | None], kinds: list[str], size: int, order: list[str]) -> None:
    links = tuple((a, b, kind) for (a, b), kind in zip(combinations(range(6), 2), kinds, strict=True))
    told = report(nodes, links)
    held = [tuple(order[i : i + size]) for i in range(0, 6, size)]
    dealt = deal_gpus(held, told)

    assert sorted(gpu for slot in dealt for gpu in slot) == sorted(order)
    assert [len(slot) for slot in dealt] == [len(slot) for slot in held]
    assert cost(dealt, told) == least_cost(order, size, told)


def test_sixteen_gpus_are_dealt_too() -> None:
    told = report([i % 4 for i in range(16)])
    held = [tuple(str(i) for i in range(first, first + 4)) for first in range(0, 16, 4)]

    assert deal_gpus(held, told) == [tuple(str(i) for i in range(first, 16, 4)) for first in range(4)]
