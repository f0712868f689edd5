"""How many requests a phase of a point sends, of which sessions, and until when: the share of one shard. Pure.

The sessions of all shards together are those that one process alone would send: session s belongs to shard s modulo
their count. Where there are fewer slots than shards, the shards beyond them send nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from actors.load.arrival import RateCurve, due_times, slot_starts, trace_times
from actors.workloads.request_source import RequestSource
from orchestrator.trial import PointSpec, Shard


@dataclass(frozen=True, slots=True)
class Start:
    """A session that begins: its number, how many requests it may send, when (ns from the start of the phase)."""

    number: int
    turns: int
    due_ns: int = 0


class Phase:
    """Warm-up or measured load. `closed_ns` is when sending ended, 0 while it goes on; times on the monotonic clock.

    `starts` are the sessions of an open loop, which has `scheduled` requests in all shards; `slots` when the slots of a
    closed one begin. `room` is how many requests may be in flight at once, None without a limit. A warm-up wants both
    `requests` and `seconds`.
    """

    def __init__(
        self, source: RequestSource, stage: str, shard: Shard, *, requests: int | None, seconds: float | None,
        scheduled: int = 0,
    ) -> None:  # fmt: skip
        self._source = source
        self.stage = stage
        self.warmup = stage != "measured"
        self.open_loop = source.spec.level.open_loop
        self.room: int | None = None
        self.starts: list[Start] = []
        self.slots: list[int] = []
        self.issued = self.began_ns = self.closed_ns = 0
        # Of a closed loop: sessions taken, requests that they may send. Of all: requests that running ones still want.
        self._taken = self._reserved = self._awaited = 0
        self._bound = requests
        self._seconds = seconds
        self._sessions: int | None = None
        self._shard = _with_work(shard, source.spec)
        if self._shard is None:
            self._bound, self._seconds = 0, 0.0
        else:
            self._share(self._shard, scheduled)

    def _share(self, shard: Shard, scheduled: int) -> None:
        spec = self._source.spec
        if self.open_loop:
            total = spec.max_concurrency
            self.room = None if total is None else len(range(shard.index, total, shard.count))
            self.starts = schedule(self._source, self.stage, scheduled)[shard.index :: shard.count]
            self._sessions = len(self.starts)
            if self._bound is not None:
                self._bound = len(range(shard.index, self._bound, shard.count))
            return
        self.slots = slot_starts(spec.arrival.ramp_s, int(spec.level.value))[shard.index :: shard.count]
        self.room = len(self.slots)
        if self._bound is not None:
            turns = self._source.sessions_of(self._bound, self.stage)[shard.index :: shard.count]
            self._bound = sum(turns)
            self._sessions = None if self.warmup and self._seconds else len(turns)

    @property
    def bound(self) -> int | None:
        """How many requests of ours the phase sends if none of a session fails; None if only time bounds it."""
        return sum(start.turns for start in self.starts) if self.open_loop else self._bound

    def begin(self, now: int) -> None:
        self.began_ns = now

    def take(self, now: int) -> Start | None:
        """The next session to begin, None if no more are wanted. Its first request counts as sent."""
        if self.over(now) or not self._wants_session(now) or self._shard is None:
            return None
        if self.open_loop:
            start = self.starts[self._taken]
        else:
            number = self._shard.index + self._shard.count * self._taken
            turns = self._source.turns(number, self.stage)
            if not self.warmup and self._bound is not None:
                turns = min(turns, self._bound - self._reserved)
            start = Start(number, turns)
        self._taken += 1
        self._reserved += start.turns
        self._awaited += start.turns - 1
        self.issued += 1
        return start

    def take_turn(self, now: int) -> bool:
        """Whether a session that runs may send its next request, which then counts as sent."""
        if self.closed_ns or not self._wants_turn(now):
            return False
        self.issued += 1
        self._awaited -= 1
        return True

    def give_back(self, turns: int) -> None:
        """A session ended with so many requests unsent; in a closed loop others are sent instead."""
        self._reserved -= turns
        self._awaited -= turns

    def next_after(self, number: int) -> int | None:
        """The number of the session that is to begin after this one (-1: of the next one), as far as is known."""
        if self._shard is None:
            return None
        place = max(self._taken, (number - self._shard.index) // self._shard.count + 1)
        if self._sessions is not None and place >= self._sessions:
            return None
        return self._shard.index + self._shard.count * place

    def close(self, now: int) -> None:
        """Sending has ended; the first call counts."""
        self.closed_ns = self.closed_ns or now

    def over(self, now: int) -> bool:
        """Whether no more request will be sent; closes a phase whose time is up although nobody asked for more."""
        if not self.closed_ns and not self._wants_session(now) and not (self._awaited and self._wants_turn(now)):
            self.close(now)
        return bool(self.closed_ns)

    def _wants_session(self, now: int) -> bool:
        """A closed warm-up goes on until it has both the requests and the seconds, a closed measured phase until the
        first of its bounds. In an open loop the schedule was made for that.
        """
        if self.open_loop:
            return self._taken < len(self.starts)
        if not self.warmup and self._bound is not None and self._reserved >= self._bound:
            return False
        return self._wants_turn(now)

    def _wants_turn(self, now: int) -> bool:
        elapsed_s = (now - self.began_ns) / 1e9
        if self.warmup:
            return self.issued < (self._bound or 0) or elapsed_s < (self._seconds or 0.0)
        return self._seconds is None or elapsed_s < self._seconds


def warmup_phase(source: RequestSource, shard: Shard) -> Phase:
    """At the point's own load level; may be empty."""
    spec = source.spec
    due = max(spec.warmup_requests, due_within(source, spec.warmup_s)) if spec.level.open_loop else 0
    return Phase(source, "warmup", shard, requests=spec.warmup_requests, seconds=spec.warmup_s, scheduled=due)


def measured_phase(source: RequestSource, shard: Shard) -> Phase:
    """What counts."""
    spec = source.spec
    bounds = [] if spec.requests is None else [spec.requests]
    if spec.level.open_loop and spec.duration_s is not None:
        bounds.append(max(due_within(source, spec.duration_s), 1))
    due = min(bounds, default=0)
    return Phase(source, "measured", shard, requests=spec.requests, seconds=spec.duration_s, scheduled=due)


def profile_phase(source: RequestSource, duration_s: float, shard: Shard) -> Phase:
    """Load at the point's own level that is traced, and so does not count."""
    due = max(due_within(source, duration_s), 1) if source.spec.level.open_loop else 0
    return Phase(source, "profile", shard, requests=1, seconds=duration_s, scheduled=due)


def due_within(source: RequestSource, seconds: float) -> int:
    """How many requests of an open loop are due in so many seconds."""
    spec = source.spec
    if spec.level.kind == "trace":
        due = trace_times(source.trace_due_s, spec.level.value)
        return bisect_left(due, seconds * 1e9)
    return round(RateCurve(spec.level.value, spec.arrival).requests_within(seconds))


def schedule(source: RequestSource, stage: str, requests: int) -> list[Start]:
    """The sessions of an open loop that send so many requests together, and when they begin.

    They begin at such a pace that requests come at the asked rate on the whole, the later ones of sessions included.
    """
    spec = source.spec
    if spec.level.kind == "trace":
        due = trace_times(source.trace_due_s, spec.level.value)[:requests]
        return [Start(number, 1, at) for number, at in enumerate(due)]
    turns = source.sessions_of(requests, stage)
    pace = spec.level.value * len(turns) / max(requests, 1)
    seed = source.salt if stage == "measured" else f"{source.salt}-{stage}"
    due = due_times(spec.arrival, pace, len(turns), seed)
    return [Start(number, wanted, at) for number, (wanted, at) in enumerate(zip(turns, due, strict=True))]


def _with_work(shard: Shard, spec: PointSpec) -> Shard | None:
    """The shard among those that have a slot each; None if there is none for it."""
    slots = spec.max_concurrency if spec.level.open_loop else int(spec.level.value)
    workers = shard.count if slots is None else min(shard.count, slots)
    return Shard(shard.index, workers, shard.origin_unix_ns) if shard.index < workers else None
