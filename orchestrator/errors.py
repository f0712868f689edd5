"""Every error that a user can meet.

SpecsweepError                 exit code 1
├── BadInput                   exit code 2: refused before anything starts
│   └── ScenarioError          has file, line and key
├── ClusterRefusal             exit code 3: the cluster cannot give what the scenario wants
└── RunInterrupted             exit code 130: stopped by the user; what was measured is kept
"""

from __future__ import annotations


class SpecsweepError(Exception):
    """Anything we stop for; its text says what, where, and what to do."""

    exit_code = 1


class BadInput(SpecsweepError):
    """A command line, a scenario or a run directory that cannot be used as it is."""

    exit_code = 2


class ScenarioError(BadInput):
    """One fault in a scenario file, at a place that an editor can jump to. `line` counts from 1."""

    def __init__(self, file: str, line: int | None, key: str, message: str) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {key}: {message}" if key else f"{place}: {message}")
        self.file = file
        self.line = line
        self.key = key
        self.message = message


class ClusterRefusal(SpecsweepError):
    """The cluster lacks hosts, GPUs or labels; the text names wanted and available."""

    exit_code = 3


class RunInterrupted(SpecsweepError):
    """The user stopped the run; its text says how to resume."""

    exit_code = 130
