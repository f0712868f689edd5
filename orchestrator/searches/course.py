"""The points of a trial that are decided while it runs: how a slot's thread asks for the next one and is answered."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.trial import Point, Trial


class Answer:
    """What comes next, said once by the thread that stores and scores."""

    def __init__(self) -> None:
        self._said = threading.Event()
        self._point: Point | None = None

    def say(self, point: Point | None) -> None:
        """None: the trial is through."""
        self._point = point
        self._said.set()

    def wait(self, cancelled: threading.Event) -> Point | None:
        """The next point; None also where the run was stopped, or its main thread ended, before there was an answer."""
        while not self._said.wait(timeout=0.5):
            if cancelled.is_set():
                return None
        return self._point


@dataclass(frozen=True, slots=True)
class NextPoint:
    """A happening: all that the trial has measured is told, and its slot waits for the answer."""

    trial: Trial
    answer: Answer = field(default_factory=Answer)


@dataclass(frozen=True, slots=True)
class PointSpared:
    """A happening: the point is not measured; what it would show is known or does not matter."""

    point: Point
    reason: str


class Course(Protocol):
    """Decides, on the thread that stores, what a running trial measures next."""

    def decides(self, trial: Trial) -> bool:
        """Whether results decide the points of this trial; else it measures those that it has, in order. Any thread."""

    def next_point(self, trial: Trial) -> tuple[Point | None, tuple[PointSpared, ...]]:
        """The next point, None if the trial is through, and what is not measured from now on."""
