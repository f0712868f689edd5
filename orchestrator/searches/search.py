"""What a search asks for and is told: trials out, results in. Pure.

A search is a table of what was told and what was asked; all it decides follows from these. So a run that is resumed
tells it everything that was measured before, recalls what was on its way, and goes on, whichever slots it has by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.outcome import PREDICTED
from orchestrator.trial import EngineConfig


@dataclass(frozen=True, slots=True)
class Ask:
    """One fresh server start that a search wants. `repeat` counts the starts of a config from 0; `why`: for progress.

    Config id and repeat together are its identity. `follows`: that of another ask, whose slot takes this at once when
    that has ended. Asks that are followed go to the host where they ran least often, and wait for it; so do those that
    want to be `elsewhere` than the starts of their config before.
    """

    config: EngineConfig
    repeat: int
    why: str = ""
    follows: tuple[str, int] | None = None
    elsewhere: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.config.config_id, self.repeat


@dataclass(frozen=True, slots=True)
class ObjectiveValue:
    """What one trial is worth to one objective. `value` in the objective's unit, None where nothing valid came of it;
    `ties` for its tie-breakers in turn. `passes`: all its limits hold.
    """

    value: float | None
    passes: bool = True
    ties: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Scored:
    """The trial was measured on `host`: its value by the name of each objective."""

    host: str
    values: Mapping[str, ObjectiveValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dead:
    """The config cannot run, by nature and by this evidence, nor after any repair. A result like any other. `host`:
    where it was started last, empty if nowhere.
    """

    label: str
    evidence: str
    host: str = ""

    @property
    def is_foreseen(self) -> bool:
        """Whether no server was started, since it was sure to die."""
        return self.evidence.startswith(PREDICTED)


@dataclass(frozen=True, slots=True)
class Broken:
    """Something broke, also when it was tried again: says nothing about the config."""

    reason: str


Told = Scored | Dead | Broken


# The name of the last step of a race; what a later one says holds.
RACE_OVER = "race"


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of a search, for the journal, progress and report. `dropped`: config id -> why it is out; of the
    race for one `objective`, if it is named. `facts`: what the text says, for programs and for later starts.
    """

    name: str
    text: str
    dropped: Mapping[str, str] = field(default_factory=dict)
    objective: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class Search(Protocol):
    """Asks for trials on hosts of one class until it knows enough."""

    def ask(self, slots: int) -> tuple[Ask, ...]:
        """What may be started now and was neither asked nor told before, most useful first; `slots` work for it.

        Empty while it waits for results, and when it is done.
        """

    def tell(self, config: EngineConfig, repeat: int, told: Told) -> None:
        """A result, also one that was not asked for (of an earlier start of the run). The last of a trial counts."""

    def recall(self, config: EngineConfig, repeat: int, *, broke: bool = False) -> None:
        """An earlier start of the run asked for this trial, and it has no end; it is asked first of all, so that the
        search stands where it stood. `broke`: it ended, but says nothing: it is asked again if it is still wanted.
        """

    @property
    def done(self) -> bool:
        """Whether nothing more will be asked."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """What was decided so far, in order."""
