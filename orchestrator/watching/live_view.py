"""How far a run is, at one moment: what terminals, pages and metrics show of it, and `live.json` on disk. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

LIVE_SCHEMA = 1
SlotState = Literal["waiting", "starting", "ready", "measuring", "lost", "unused"]


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot. `doing` is for people; `done` of `total` are graph captures or weight files of the phase it is in.

    `tok_s`: output tokens a second. `running`, `queued`: requests at the server; `kv_usage`: share of its KV pool in
    use. What nobody knows is None.
    """

    name: str
    state: SlotState = "waiting"
    config: str = ""
    doing: str = "waiting"
    for_s: float = 0.0
    trial_id: str = ""
    phase: str | None = None
    done: int | None = None
    total: int | None = None
    point: str = ""
    tok_s: float | None = None
    running: float | None = None
    queued: float | None = None
    free_gib: float | None = None
    kv_usage: float | None = None


@dataclass(frozen=True, slots=True)
class BestView:
    """What leads an objective, as far as single trials tell. `text` is its value with the unit."""

    objective: str
    config: str
    text: str
    value: float | None = None
    host_class: str = ""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Seconds, by estimate: at least and at most. They are the same where a plan says all."""

    low_s: float
    high_s: float

    def after(self, seconds: float) -> TimeLeft:
        """The same, so much later."""
        return TimeLeft(max(self.low_s - seconds, 0.0), max(self.high_s - seconds, 0.0))


@dataclass(frozen=True, slots=True)
class Counts:
    """Trials and points of this start of the run. `all_trials` of a search are those that it has asked for so far.

    `again` counts ends that were followed by another try; they are in no other count.
    """

    trials: int = 0
    all_trials: int = 0
    points: int = 0
    all_points: int = 0
    measured: int = 0
    infeasible: int = 0
    failed: int = 0
    again: int = 0


@dataclass(frozen=True, slots=True)
class LiveView:
    """A run at one moment. `elapsed_s` counts from when its slots began. `ended`: they are through, or were let go.

    `beat` grows with every view that is written, `told_unix_s` is the writer's wall clock: where they stay the same,
    nobody writes any more. `recent` are the last lines that the run told, oldest first. `most_starts` of a search, and
    how many more there are for each pair that breaks.
    """

    counts: Counts
    slots: tuple[SlotView, ...] = ()
    best: tuple[BestView, ...] = ()
    elapsed_s: float = 0.0
    left: TimeLeft | None = None
    is_search: bool = False
    most_starts: int | None = None
    starts_each_void: int = 0
    recent: tuple[str, ...] = ()
    ended: bool = False
    beat: int = 0
    told_unix_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The documented form of `live.json` (docs/watch.md)."""
        return {"schema": LIVE_SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, told: Any) -> LiveView:
        """What `as_json` made, also of a later release that says more. ValueError for anything else."""
        if not isinstance(told, dict) or told.get("schema") != LIVE_SCHEMA:
            raise ValueError("no state of a run that this specsweep reads")
        try:
            return _adapter().validate_python(told)
        except ValidationError as error:
            raise ValueError(f"no state of a run: {error}") from None


@cache
def _adapter() -> TypeAdapter[LiveView]:
    """Made late: most who tell views read none."""
    return TypeAdapter(LiveView)


def duration_text(seconds: float) -> str:
    """`48 s`, `12 min`, `3.4 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def slot_cells(slot: SlotView) -> dict[str, str]:
    """What tables say of a slot, by the column of the terminal's; `-` where nothing is known."""
    requests = "-" if slot.running is None else f"{slot.running:.0f}"
    requests += f" +{slot.queued:.0f}" if slot.queued else ""
    return {
        "slot": slot.name,
        "config": slot.config or "-",
        "doing": slot.doing,
        "for": duration_text(slot.for_s),
        "tok/s": "-" if slot.tok_s is None else f"{slot.tok_s:.0f}",
        "requests": requests,
        "free GiB": "-" if slot.free_gib is None else f"{slot.free_gib:.1f}",
    }


def left_text(left: TimeLeft | None) -> str:
    """`about 12 min left`, `12 min to 2.0 h left`; empty where nothing is known."""
    if left is None:
        return ""
    low, high = duration_text(left.low_s), duration_text(left.high_s)
    return f"about {low} left" if low == high else f"{low} to {high} left"


def counts_text(view: LiveView) -> str:
    """`3 of 12 trials, 5 of 24 points, ...`: the line that people and `specsweep status` read."""
    counts = view.counts
    again = f", {counts.again} tried again" if counts.again else ""
    points = counts.all_points or counts.points  # rates that are searched are in no plan
    text = (
        f"{counts.trials} of {counts.all_trials} trials, {counts.points} of {points} points, "
        f"{counts.infeasible} infeasible, {counts.failed} failed{again}, {view.elapsed_s:.0f} s"
    )
    if view.ended:
        return text
    left = left_text(view.left)
    if view.is_search:
        most = f" of at most {view.most_starts} starts" if view.most_starts else ""
        more = view.starts_each_void
        most += f" (and {more} more for each pair that breaks)" if most and more else ""
        return f"{text}, a search{most} goes on{f', {left}' if left else ''}"
    return f"{text}, {left}" if left else text
