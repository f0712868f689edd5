"""Every error that a user can meet.

SpecsweepError                 exit code 1
├── BadInput                   exit code 2: refused before anything starts
│   └── ScenarioError          has file, line and key
├── ClusterRefusal             exit code 3: the cluster cannot give what the scenario wants
└── RunInterrupted             exit code 130: stopped by the user; what was measured is kept
"""

from __future__ import annotations

from dataclasses import dataclass


class SpecsweepError(Exception):
    """Anything we stop for; its text says what, where, and what to do."""

    exit_code = 1


class BadInput(SpecsweepError):
    """A command line, a scenario or a run directory that cannot be used as it is."""

    exit_code = 2


@dataclass(frozen=True)
class ScenarioError(BadInput):
    """One fault in a scenario file, at a place that an editor can jump to."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class ClusterRefusal(SpecsweepError):
    """The cluster lacks hosts, GPUs or labels; the text names wanted and available."""

    exit_code = 3


class RunInterrupted(SpecsweepError):
    """The user stopped the run; its text says how to resume."""

    exit_code = 130
