"""A run's report as it changes: what is served of a watched run, each part with the number of its last change."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from orchestrator.documents.report_document import Paragraph, ReportDocument, Section
from orchestrator.documents.report_page import head_event, section_event
from orchestrator.provenance import utc_now
from orchestrator.watching.live_section import LIVE_ID, live_section
from orchestrator.watching.run_watch import LOOK_S
from orchestrator.watching.watch_state import WatchedRun

# The report is made anew at most so often, and never takes more than this share of one CPU.
REBUILD_S = 5.0
_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. `number` grows over all parts."""

    number: int
    kind: str
    data: str


class Watch(Protocol):
    """A run that can be looked at, as a RunWatch does."""

    def look(self) -> WatchedRun:
        """The run as it is now."""

    def mark(self) -> object:
        """Differs where its results have changed."""


class WatchFeed:
    """Looks at the run every second. `build` makes its report, as the run was seen, in a thread; what it raises leaves
    the last one.

    Whoever listens asks for what is newer than a number: one who is slow gets the newest state, not all that were.
    """

    def __init__(
        self, watch: Watch, build: Callable[[WatchedRun], ReportDocument], rebuild_s: float = REBUILD_S
    ) -> None:
        self._watch, self._build, self._rebuild_s = watch, build, rebuild_s
        self.run: WatchedRun = watch.look()
        self._report: ReportDocument | None = None
        self._fault, self._since = "", utc_now()
        self._unseen = ""  # why the run could not be looked at just now
        self._built: object = None  # the mark of what it was made of, and whether the run was over
        self._next_build_s = 0.0
        self._building: asyncio.Task[None] | None = None
        # Not from 0: a page that stays open while the viewer is started anew must get all.
        self.number = time.time_ns() // 1_000_000
        self._events: dict[str, Event] = {}
        self._order: tuple[str, ...] = ()
        self._renderer = _Renderer()
        self._news = asyncio.Condition()
        self.is_done = False
        self.closed = False

    @property
    def document(self) -> ReportDocument:
        """The report with the state of the run before it."""
        return watched_document(self.run, self._report, self._unseen or self._fault, self._since)

    async def keep_up(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(LOOK_S)

    async def step(self) -> None:
        """Look once, and begin to make the report anew where it is due. What cannot be looked at is told so."""
        try:
            self.run = await asyncio.to_thread(self._watch.look)
            state = await asyncio.to_thread(self._watch.mark), self.run.is_over
        except Exception as error:  # noqa: BLE001 - of files of strangers; a page that stands still would lie
            self._unseen = f"What is shown is old: {error}"
            await self._publish(is_done=False)
            return
        self._unseen = ""
        if self._building is not None and self._building.done():
            self._building = None
        is_time = self.run.is_over or time.monotonic() >= self._next_build_s
        if self._building is None and state != self._built and is_time:
            self._building = asyncio.create_task(self._rebuild(self.run, state))
        await self._publish(is_done=self.run.is_over and self._building is None and state == self._built)

    async def built(self) -> None:
        """Until the report that is being made is there."""
        if self._building is not None:
            await self._building

    async def _rebuild(self, run: WatchedRun, state: object) -> None:
        began_s = time.monotonic()
        try:
            self._report, cpu_s = await asyncio.to_thread(_timed, partial(self._build, run))
            self._fault = ""
        except Exception as error:  # noqa: BLE001 - of a run that is being written; the next one may do
            self._fault, cpu_s = f"The report cannot be made yet: {error}", 0.0
        took_s = time.monotonic() - began_s
        pause_s = max(self._rebuild_s, took_s, cpu_s / _SHARE) if self._rebuild_s else 0.0
        self._built, self._next_build_s = state, time.monotonic() + pause_s

    async def _publish(self, *, is_done: bool) -> None:
        """Number what has changed, and wake those who listen."""
        document = self.document
        # Rendering a large report takes a while; the event loop serves others meanwhile.
        events = await asyncio.to_thread(self._renderer.events, document)
        async with self._news:
            was = self.number, self.is_done
            for name, (kind, data) in events.items():
                known = self._events.get(name)
                if known is None or known.data != data:
                    self.number += 1
                    self._events[name] = Event(self.number, kind, data)
            for name in set(self._events) - set(events):
                del self._events[name]
            self._order, self.is_done = tuple(events), is_done
            if was != (self.number, self.is_done):
                self._news.notify_all()

    async def close(self) -> None:
        """Whoever listens goes."""
        async with self._news:
            self.closed = True
            self._news.notify_all()

    async def newer(self, number: int, wait_s: float) -> list[Event]:
        """What changed after that number, the head first; empty if nothing did for so long."""
        async with self._news:
            if not (found := self._newer(number)) and not self.is_done and not self.closed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), wait_s)
                found = self._newer(number)
        return found

    def _newer(self, number: int) -> list[Event]:
        return [event for name in self._order if (event := self._events[name]).number > number]


def _timed(build: Callable[[], ReportDocument]) -> tuple[ReportDocument, float]:
    """The report, and the CPU seconds of this thread that it took."""
    began_s = time.thread_time()
    return build(), time.thread_time() - began_s


class _Renderer:
    """Renders documents one after the other; what is the same in the next one is not rendered again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, str]] = {}

    def events(self, document: ReportDocument) -> dict[str, tuple[str, str]]:
        """Kind and data of an event for each part, the head first."""
        d = document
        head = (d.title, d.subtitle, d.made_at, d.warnings, d.headlines, d.is_live, *(s.title for s in d.sections))
        fresh: dict[str, tuple[object, str]] = {"head": (head, self._data("head", head, lambda: head_event(document)))}
        for section in d.sections:
            name = f"section {section.section_id}"
            fresh[name] = (section, self._data(name, section, partial(section_event, section)))
        self._known = fresh
        return {name: (name.partition(" ")[0], data) for name, (_, data) in fresh.items()}

    def _data(self, name: str, made_of: object, render: Callable[[], str]) -> str:
        known = self._known.get(name)
        return known[1] if known is not None and known[0] == made_of else render()


def watched_document(
    run: WatchedRun, report: ReportDocument | None, fault: str = "", since: str = ""
) -> ReportDocument:
    """The report of a run that is watched: its state is the first section. Without a report, all there is.

    `fault`: why the report is not newer. `since`: when watching began, as an ISO time.
    """
    now = live_section(run)
    if report is None:
        waits = Paragraph(fault, "warn") if fault else Paragraph("The report is being made.", "muted")
        rest: tuple[Section, ...] = (Section("report", "Report", (waits,)),)
        return ReportDocument(f"Run {run.name}", run.scenario, (), (now, *rest), since, is_live=not run.is_over)
    sections = tuple(section for section in report.sections if section.section_id != LIVE_ID)
    warnings = (*report.warnings, *((fault,) if fault else ()))
    return replace(report, sections=(now, *sections), warnings=warnings, is_live=not run.is_over)
