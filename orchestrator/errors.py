"""Every error that a user can meet.

SpecsweepError                 exit code 1
├── BadInput                   exit code 2: refused before anything starts
│   └── ScenarioError          has file, line and key
├── OutputFault                exit code 74: what was printed could not be written
├── ClusterRefusal             exit code 3: the cluster cannot give what the scenario wants
├── NoSlotLeft, TrialsFailed   exit code 1: a run that is not whole
└── RunInterrupted             exit code 130: stopped by the user; what was measured is kept
"""

from __future__ import annotations


class SpecsweepError(Exception):
    """Anything we stop for; its text says what, where, and what to do."""

    exit_code = 1
    # What `result.json` calls such an end of a run.
    verdict = "failed"


class BadInput(SpecsweepError):
    """A command line, a scenario or a run directory that cannot be used as it is."""

    exit_code = 2
    verdict = "bad_input"


class ScenarioError(BadInput):
    """One fault in a scenario file, at a place that an editor can jump to. `line` counts from 1."""

    def __init__(self, file: str, line: int | None, key: str, message: str) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {key}: {message}" if key else f"{place}: {message}")
        self.file = file
        self.line = line
        self.key = key
        self.message = message


class OutputFault(SpecsweepError):
    """Standard output takes no more, though it is read: a full disk. 74 is EX_IOERR of sysexits.h, and no verdict."""

    exit_code = 74


class ClusterRefusal(SpecsweepError):
    """The cluster lacks hosts, GPUs or labels; the text names wanted and available."""

    exit_code = 3
    verdict = "refused"


class NoSlotLeft(SpecsweepError):
    """Every slot was lost before all trials had run."""

    verdict = "no_slot_left"


class TrialsFailed(SpecsweepError):
    """The run went through, and some of its trials broke."""

    verdict = "trials_failed"


class RunInterrupted(SpecsweepError):
    """The user stopped the run; its text says how to resume."""

    exit_code = 130
    verdict = "interrupted"
