"""What the best order could do: a lower bound, and list schedules of jobs on machines. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that is there from a time until a time. Seconds."""

    from_s: float = 0.0
    until_s: float = math.inf


def lower_bound_s(durations_s: Sequence[float], machines: int) -> float:
    """No schedule is shorter: all machines always busy, and the longest job is done by one of them."""
    return max(sum(durations_s) / machines, max(durations_s, default=0.0))


def longest_first_s(durations_s: Sequence[float], machines: int) -> float:
    """Makespan of the list schedule that begins with the longest (LPT): at most 4/3 of the optimum."""
    return list_schedule_s(sorted(durations_s, reverse=True), [Machine()] * machines)


def list_schedule_s(durations_s: Sequence[float], machines: Sequence[Machine]) -> float:
    """Makespan if each job, in this order, goes to the machine that is free first.

    A job whose machine goes is begun anew before all that wait; infinite if no machine is left for it.
    """
    waiting = [(i, duration_s) for i, duration_s in enumerate(durations_s)]
    free = [(machine.from_s, i) for i, machine in enumerate(machines)]
    heapq.heapify(waiting)
    heapq.heapify(free)
    again: list[tuple[float, int, float]] = []  # when a job is there once more, its place, its seconds
    latest = 0.0
    while waiting or again:
        if not free:
            return math.inf
        now_s, i = heapq.heappop(free)
        while again and again[0][0] <= now_s:
            _, place, duration_s = heapq.heappop(again)
            heapq.heappush(waiting, (place, duration_s))
        if not waiting:  # it waits for what may come back
            now_s, place, duration_s = heapq.heappop(again)
            heapq.heappush(waiting, (place, duration_s))
        until_s = machines[i].until_s
        if until_s <= now_s:
            continue
        place, duration_s = heapq.heappop(waiting)
        if now_s + duration_s > until_s:
            heapq.heappush(again, (until_s, place, duration_s))
            continue
        latest = max(latest, now_s + duration_s)
        heapq.heappush(free, (now_s + duration_s, i))
    return latest
