"""How many requests a phase of a point sends, and until when. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from actors.workload import arrival_offsets
from orchestrator.trial import PointSpec


class Phase:
    """Warm-up or measured load. `closed_ns` is when sending ended, 0 while it goes on; times on the monotonic clock.

    `issued` is the number of the next request of the phase, counted over all load processes.
    """

    def __init__(self, spec: PointSpec, *, warmup: bool, offsets: Sequence[int]) -> None:
        self._spec = spec
        self.warmup = warmup
        self.offsets = offsets
        self.issued = 0
        self.began_ns = 0
        self.closed_ns = 0

    def begin(self, now: int) -> None:
        self.began_ns = now

    def wants_more(self, now: int) -> bool:
        """Whether a request is to be sent at `now`.

        A closed warm-up goes on until it has both the requests and the seconds, a closed measured phase until the
        first of its bounds. In an open loop the schedule was made for that.
        """
        spec, elapsed_s = self._spec, (now - self.began_ns) / 1e9
        if self.closed_ns:
            return False
        if spec.level.open_loop:
            return self.issued < len(self.offsets)
        if self.warmup:
            return self.issued < spec.warmup_requests or elapsed_s < spec.warmup_s
        if spec.requests is not None and self.issued >= spec.requests:
            return False
        return spec.duration_s is None or elapsed_s < spec.duration_s

    def close(self, now: int) -> None:
        """Sending has ended; the first call counts."""
        self.closed_ns = self.closed_ns or now

    def over(self, now: int) -> bool:
        """Whether no more request will be sent; closes a phase whose time is up although nobody asked for more."""
        if not self.closed_ns and not self.wants_more(now):
            self.close(now)
        return bool(self.closed_ns)


def warmup_phase(spec: PointSpec, seed: str) -> Phase:
    """At the point's own load level; may be empty."""
    count = max(spec.warmup_requests, _due_within(spec, spec.warmup_s))
    return Phase(spec, warmup=True, offsets=_offsets(spec, count, f"{seed}-warmup"))


def measured_phase(spec: PointSpec, seed: str) -> Phase:
    """What counts."""
    bounds = [] if spec.requests is None else [spec.requests]
    if spec.duration_s is not None:
        bounds.append(max(_due_within(spec, spec.duration_s), 1))
    return Phase(spec, warmup=False, offsets=_offsets(spec, min(bounds, default=0), seed))


def profile_phase(spec: PointSpec, duration_s: float, seed: str) -> Phase:
    """Load at the point's own level that is traced, and so does not count."""
    traced = replace(spec, warmup_s=duration_s, warmup_requests=1)
    return Phase(traced, warmup=True, offsets=_offsets(spec, max(_due_within(spec, duration_s), 1), f"{seed}-profile"))


def _due_within(spec: PointSpec, seconds: float) -> int:
    return round(spec.level.value * seconds) if math.isfinite(spec.level.value) else 1


def _offsets(spec: PointSpec, count: int, seed: str) -> list[int]:
    """Due times of an open loop; a closed loop has none."""
    return arrival_offsets(spec.level.value, count, seed) if spec.level.open_loop else []
