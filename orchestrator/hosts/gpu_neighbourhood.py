"""Which GPUs of a host go together: those of one slot should be neighbours. Pure.

Ray hands out the lowest free ids, whatever lies between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations

from orchestrator.host_report import HostReport

# What a pair inside one slot costs, by what lies between the two: through the sockets is far worse than anything else.
PAIR_COST = {"nvlink": 0, "internal": 1, "single": 2, "multiple": 3, "hostbridge": 4, "node": 8, "system": 16}
# Beyond this the number of ways is too large to look at all of them; hosts have 8, some 16.
MOST_GPUS = 16


def deal_gpus(held: Sequence[tuple[str, ...]], report: HostReport | None) -> list[tuple[str, ...]]:
    """The GPUs of all slots of a host, dealt anew: slots keep their sizes and the sum of all pair costs is least.

    `held` has the ids (indices) of each slot. They stay as they are where nothing is known of their places, where slots
    differ in size, or where another deal is no better.
    """
    ids = [gpu for slot in held for gpu in slot]
    sizes = {len(slot) for slot in held}
    costs = pair_costs(ids, report)
    if costs is None or len(held) < 2 or len(sizes) != 1 or sizes <= {0, 1} or len(ids) > MOST_GPUS:
        return list(held)
    order = sorted(ids, key=int)
    best, groups = _best_deal(order, sizes.pop(), costs)
    if best >= sum(_group_cost(slot, costs) for slot in held):
        return list(held)
    return groups


def pair_costs(ids: Sequence[str], report: HostReport | None) -> Mapping[tuple[str, str], int] | None:
    """The cost of each pair, either way round; None if nothing is known, or a GPU is not one that the driver lists."""
    if report is None or not report.gpus:
        return None
    nodes = {str(gpu.index): gpu.numa_node for gpu in report.gpus}
    links = {frozenset((str(a), str(b))): kind for a, b, kind in report.gpu_links}
    if len(set(ids)) != len(ids) or not set(ids) <= set(nodes):
        return None
    if not links and all(nodes[gpu] is None for gpu in ids):
        return None
    costs: dict[tuple[str, str], int] = {}
    for a, b in combinations(ids, 2):
        beside = "node" if nodes[a] is not None and nodes[a] == nodes[b] else "system"
        costs[a, b] = costs[b, a] = PAIR_COST.get(links.get(frozenset((a, b)), beside), PAIR_COST["system"])
    return costs


def numa_nodes(ids: Sequence[str], report: HostReport | None) -> tuple[int, ...]:
    """The NUMA nodes that these GPUs are on, in order; none where that is not known."""
    gpus = report.gpus if report is not None and report.gpus else ()
    return tuple(sorted({g.numa_node for g in gpus if str(g.index) in ids and g.numa_node is not None}))


def _group_cost(group: Sequence[str], costs: Mapping[tuple[str, str], int]) -> int:
    return sum(costs[pair] for pair in combinations(group, 2))


def _best_deal(order: list[str], size: int, costs: Mapping[tuple[str, str], int]) -> tuple[int, list[tuple[str, ...]]]:
    """The cheapest way to part GPUs into groups of a size, the first in order of ids among equals."""
    group_cost = {g: _group_cost([order[i] for i in g], costs) for g in combinations(range(len(order)), size)}

    @cache
    def rest(left: frozenset[int]) -> tuple[int, tuple[tuple[int, ...], ...]]:
        if not left:
            return 0, ()
        first = min(left)
        found: tuple[int, tuple[tuple[int, ...], ...]] | None = None
        for others in combinations(sorted(left - {first}), size - 1):
            group = (first, *others)
            if found is not None and group_cost[group] >= found[0]:
                continue
            cost, groups = rest(left - set(group))
            if found is None or group_cost[group] + cost < found[0]:
                found = group_cost[group] + cost, (group, *groups)
        assert found is not None
        return found

    cost, groups = rest(frozenset(range(len(order))))
    return cost, [tuple(order[i] for i in group) for group in groups]
