"""How many load processes a slot's points get: one, until one was too slow for a load. Pure.

A point whose client was the bottleneck is measured again, once, with twice as many; later points of the slot that offer
at least as much begin with that number.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.points.point_validity import SCHEDULE_DELAY_FLOOR_MS, client_excess, delay_allowed_ms
from orchestrator.trial import ClientReport, LoadLevel, PointSpec

MOST_PROCESSES = 16
# More processes than this leave too few requests to each: the cost of a process is then more than its help.
_FEWEST_IN_FLIGHT = 2
# How late sends may be where the median TTFT, against which that is judged, is not known.
_LATE_MS = 20 * SCHEDULE_DELAY_FLOOR_MS


def process_bound(cpus: float) -> int:
    """Most load processes of a slot whose load hosts have so many CPUs."""
    return min(max(int(cpus), 2), MOST_PROCESSES)


def client_fault(report: ClientReport, median_ttft_ms: float | None = None) -> str | None:
    """Why the load processes were the bottleneck, by what makes a point void; None if they were not."""
    if report.stopped_by in {"hung", "cancelled"}:
        return None
    for told in client_excess(report).values():
        return told
    allowed_ms = _LATE_MS if median_ttft_ms is None else delay_allowed_ms(median_ttft_ms)
    if report.schedule_delay_p99_ms > allowed_ms:
        return f"requests sent late, p99 {report.schedule_delay_p99_ms:.1f} ms, at most {allowed_ms:.0f} allowed"
    return None


@dataclass(frozen=True, slots=True)
class Again:
    """A point is to be measured again with so many processes, since `fault` with the number that it had."""

    processes: int
    had: int
    fault: str

    @property
    def text(self) -> str:
        return (
            f"the client was the bottleneck with {self.had} load process{'es' if self.had > 1 else ''} ({self.fault}): "
            f"measured again with {self.processes}; the first measurement is in partial/"
        )


class LoadSpread:
    """Remembers for one slot what its loads needed. `most`: load processes that its hosts can hold."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._needed: list[tuple[LoadLevel, int]] = []

    def processes_for(self, spec: PointSpec) -> int:
        """For a point that has not been measured yet."""
        known = [n for level, n in self._needed if level.kind == spec.level.kind and level.value <= spec.level.value]
        return min(max(known, default=1), self._useful(spec))

    def again(self, spec: PointSpec, report: ClientReport, median_ttft_ms: float | None = None) -> Again | None:
        """What follows a point's first measurement; None if it stands, or if more processes cannot be had."""
        fault = client_fault(report, median_ttft_ms)
        more = min(report.processes * 2, self._useful(spec))
        if fault is None or more <= report.processes:
            return None
        self._needed.append((spec.level, more))
        return Again(more, report.processes, fault)

    def repeated(self, report: ClientReport, median_ttft_ms: float | None = None) -> None:
        """How a second measurement went. Processes that lag although their CPUs have time wait for the host itself."""
        if client_fault(report, median_ttft_ms) is not None and "cpu" not in client_excess(report):
            self._most = report.processes

    def _useful(self, spec: PointSpec) -> int:
        at_once = spec.level.value if spec.level.kind == "concurrency" else spec.max_concurrency
        return self._most if at_once is None else max(min(self._most, int(at_once / _FEWEST_IN_FLIGHT)), 1)
