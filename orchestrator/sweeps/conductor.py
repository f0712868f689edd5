"""What the loop of a run asks whoever decides more than the plan."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from orchestrator.happening import Happening
from orchestrator.searches.course import Course
from orchestrator.sweeps.trial_queue import TrialQueue
from orchestrator.trial import Trial


class Conductor(Course, Protocol):
    """Says while a run goes on what it does further; asked on the thread that stores."""

    def begin(self, queue: TrialQueue, deciding: AbstractContextManager[object]) -> Iterable[Happening]:
        """Offer the first trials. `deciding`: to be held while one looks at what stands for what."""

    def ask(self) -> Iterable[Happening]:
        """Slots have joined or gone: offer what is wanted of those that are there."""

    def settled(self, trial: Trial) -> Iterable[Happening]:
        """A trial has come to its end for good: offer what follows. Returns what is to be shown."""
