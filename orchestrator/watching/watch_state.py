"""What a run directory tells those who watch it: its state, what it does, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.run_files.journal import RunState
from orchestrator.run_files.run_result import RunResult
from orchestrator.supported_digits import plain
from orchestrator.watching.live_view import BestView, Counts, LiveView, SlotView, duration_text

# starting: nothing has told what it does yet. silent: somebody did, and has not for a while. ending: its slots are
# through, it is being ranked.
Status = Literal["starting", "running", "silent", "ending", "ended"]
# A shared file system may show a file half a minute late.
SILENT_S = 40.0
# Nobody beats while a run is ranked, which may take minutes.
RANKED_S = 600.0


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """A run as its directory has it at one moment. `silent_s`: since its driver last said something; None if never.

    `verdict` and `message` are those of a run that has ended, with its exit code; empty and None before. `pairs`: of a
    night, how far its pairs have come; it has no verdict before it has ended.
    """

    name: str
    run_id: str
    scenario: str
    status: Status
    view: LiveView
    silent_s: float | None = None
    verdict: str = ""
    message: str = ""
    exit_code: int | None = None
    pairs: str = ""

    @property
    def is_over(self) -> bool:
        return self.status == "ended"

    @property
    def goes_on(self) -> bool:
        """Whether its driver is at work, as far as anybody can tell."""
        return self.status in ("running", "ending")

    @property
    def text(self) -> str:
        """The state in a sentence."""
        silent = duration_text(self.silent_s or 0.0)
        open_ = f"; no verdict yet, {self.pairs} measured" if self.pairs else ""
        match self.status:
            case "starting":
                return "its driver tells nothing: it waits for the cluster, or has ended"
            case "running":
                return f"running{open_}"
            case "silent":
                return f"no sign of its driver for {silent}: it has ended, or its host cannot be reached{open_}"
            case "ending":
                late = f" (no sign of its driver for {silent})" if (self.silent_s or 0.0) > SILENT_S else ""
                return f"its slots are through, it is being {'judged' if self.pairs else 'ranked'}{late}"
            case "ended":
                return f"ended: {self.verdict}"

    def as_json(self) -> dict[str, Any]:
        """The documented form of `watch --json` (docs/watch.md)."""
        told = {name: getattr(self, name) for name in self.__slots__ if name != "view"}
        return {**told, "text": self.text, "live": self.view.as_json()}


def status_of(view: LiveView, silent_s: float | None) -> Status:
    """Of a run that has no result yet: a driver that was killed leaves its last view behind."""
    if view.ended and (silent_s is None or silent_s <= RANKED_S):
        return "ending"
    return "silent" if silent_s is not None and silent_s > SILENT_S else "running"


class Beats:
    """Tells for how long a driver has said nothing, though its clock may differ from ours."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._changed_s = 0.0

    def silent_s(self, view: LiveView, now_s: float, unix_s: float) -> float:
        """Seconds since its last sign. `now_s` is monotonic; wall clocks are compared only until a beat was seen."""
        beat = (view.beat, view.told_unix_s)
        if self._last is None:
            self._changed_s = now_s - max(0.0, unix_s - view.told_unix_s)
        elif beat != self._last:
            self._changed_s = now_s
        self._last = beat
        return now_s - self._changed_s


def view_of_result(result: RunResult, live: LiveView | None) -> LiveView:
    """How a run that has ended stood, over all its starts."""
    trials, points = result.trials, result.points
    ended = sum(trials.get(name, 0) for name in ("measured", "infeasible", "failed"))
    counts = Counts(
        trials=ended,
        all_trials=ended + trials.get("cancelled", 0) + trials.get("not_run", 0),
        points=points.get("measured", 0),
        all_points=points.get("measured", 0) + points.get("missing", 0),
        measured=trials.get("measured", 0),
        infeasible=trials.get("infeasible", 0),
        failed=trials.get("failed", 0),
    )
    best = tuple(
        BestView(pick.objective, pick.label, f"{plain(pick.value)} {pick.unit} at {pick.at}", pick.value)
        for pick in result.picks
    )
    recent = live.recent if live else ()
    return LiveView(counts, best=best, elapsed_s=result.elapsed_s, recent=recent, ended=True)


def view_of_journal(state: RunState, planned: tuple[int, int]) -> LiveView:
    """A run of which nothing but the journal tells. `planned`: its trials and points, 0 where they are not known."""
    outcomes = [str(end.get("outcome")) for end in state.outcomes.values()]
    counts = Counts(
        trials=sum(outcome != "cancelled" for outcome in outcomes),
        all_trials=max(planned[0], len(state.outcomes)),
        points=len(state.done_points),
        all_points=max(planned[1], len(state.done_points)),
        measured=outcomes.count("measured"),
        infeasible=outcomes.count("infeasible"),
        failed=outcomes.count("failed"),
    )
    slots: dict[str, SlotView] = {}
    for trial_id, begun in state.begun.items():
        name = str(_named(begun.place, "slot"))
        if not begun.ended and name:
            slots[name] = SlotView(name, "starting", trial_id, "a trial that has not ended", trial_id=trial_id)
    return LiveView(counts, slots=tuple(slots.values()))


def _named(place: Mapping[str, Any], name: str) -> Any:
    return place.get(name) or ""
