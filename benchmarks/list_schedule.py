"""What the best order could do: lower bounds and list schedules of jobs on equal machines. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def lower_bound_s(durations_s: Sequence[float], machines: int) -> float:
    """No schedule is shorter: all machines always busy, and the longest job is done by one of them."""
    return max(sum(durations_s) / machines, max(durations_s, default=0.0))


def list_schedule_s(durations_s: Sequence[float], machines: int) -> float:
    """Makespan if each job, in this order, goes to the machine that is free first."""
    return resumed_schedule_s(durations_s, [0.0] * machines)


def longest_first_s(durations_s: Sequence[float], machines: int) -> float:
    """Makespan of the list schedule that begins with the longest (LPT): at most 4/3 of the optimum."""
    return list_schedule_s(sorted(durations_s, reverse=True), machines)


def resumed_schedule_s(durations_s: Sequence[float], free_at_s: Sequence[float]) -> float:
    """List schedule on machines that are free at these times; what ends last, the machines' own times included."""
    free = list(free_at_s)
    heapq.heapify(free)
    latest = max(free, default=0.0)
    for duration_s in durations_s:
        ends = heapq.heappop(free) + duration_s
        latest = max(latest, ends)
        heapq.heappush(free, ends)
    return latest
