"""What a running sweep shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from orchestrator.happening import BatchArrived, BestSoFar, Happening
from orchestrator.planning.planner import Plan
from orchestrator.plural import plural
from orchestrator.terminal import redraws
from orchestrator.watching.line_allowance import LineAllowance
from orchestrator.watching.live_state import LiveState
from orchestrator.watching.live_table import live_table
from orchestrator.watching.live_view import LiveView, counts_text
from orchestrator.watching.progress_lines import Line, ProgressLines
from orchestrator.watching.time_left import SearchBounds

# Without a terminal, a summary at least so often.
SUMMARY_S = 60.0
MOST_SLOTS = 4
# The last lines, for those who watch from elsewhere.
MOST_RECENT = 20


class Progress:
    """A Watcher. Use as a context manager; `live` is on for terminals. `view` may be asked from any thread."""

    def __init__(
        self, plan: Plan, slots: list[str], console: Console, clock: Callable[[], float] = time.monotonic,
        bounds: SearchBounds | None = None,
    ) -> None:  # fmt: skip
        self._console = console
        self._clock = clock
        self._began_s = clock()
        self._state = LiveState(plan, slots, self._began_s, bounds)
        self._lines = ProgressLines(self._state)
        self._lock = threading.Lock()
        self._recent: deque[str] = deque(maxlen=MOST_RECENT)
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=2, transient=True)
        self._is_live = redraws(console)
        self._allowance, self._ended = LineAllowance(self._began_s), threading.Event()

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        else:
            threading.Thread(target=self._say_summaries, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._is_live:
            self._live.stop()
        else:
            self._ended.set()
            self.say_summary()

    def saw(self, slot: str, happening: Happening) -> None:
        if isinstance(happening, BatchArrived):
            tokens = _output_tokens(happening.batch)
            with self._lock:
                self._state.produced(slot, tokens)
            return
        with self._lock:
            self._state.saw(slot, happening, self._clock())
            lines = list(self._lines.of(slot, happening))
        for line in lines:
            self._tell(line)

    def leads(self, best: BestSoFar) -> None:
        """A config leads an objective of a grid: shown in tables, not told in a line. From any thread."""
        with self._lock:
            self._state.saw("", best, self._clock())

    def view(self) -> LiveView:
        """The run at this moment, and the last lines that it told."""
        with self._lock:
            return replace(self._state.view(self._clock()), recent=tuple(self._recent))

    def say_summary(self) -> None:
        """One line on how far the run is; `specsweep status` reads it."""
        held, self._allowance.held_back = self._allowance.held_back, 0
        view = replace(self.view(), ended=self._ended.is_set())
        if not view.counts.trials and not view.is_search:  # the plan said it
            view = replace(view, left=None)
        told = [counts_text(view), *([f"{plural(held, 'line')} not shown"] if held else [])]
        at_work = [slot for slot in view.slots if slot.config]
        told += [f"{slot.name} {slot.config}: {slot.doing}" for slot in at_work[:MOST_SLOTS]]
        told += [f"and {plural(len(at_work) - MOST_SLOTS, 'more slot')}"] if len(at_work) > MOST_SLOTS else []
        self._print(self._stamped("progress", "; ".join(told)))

    def _say_summaries(self) -> None:
        """Also while nothing happens: weights may load for half an hour."""
        while not self._ended.wait(SUMMARY_S):
            self.say_summary()

    def _tell(self, line: Line) -> None:
        text = self._stamped(line.place, line.text)
        with self._lock:
            self._recent.append(text)
        if not line.is_routine or self._is_live or self._allowance.grants(self._clock()):
            self._print(text)

    def _stamped(self, place: str, text: str) -> str:
        minutes, seconds = divmod(int(self._clock() - self._began_s), 60)
        return f"{minutes:02d}:{seconds:02d} {place}  {text}"

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _render(self) -> Group:
        return live_table(self.view(), self._console.width, self._console.height)


def _output_tokens(batch: Any) -> int:
    import pyarrow.compute as pc

    total = pc.sum(batch.column("output_tokens")).as_py()
    return int(total or 0)
