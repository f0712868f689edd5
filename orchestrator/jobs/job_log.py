"""What the log of a job tells those who read it by machine: directory, progress and result of its run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.run_files.run_result import RESULT_MARK, RunResult, result_of_line

RUN_DIRECTORY_LINE = "Run directory: "
_PROGRESS = re.compile(
    r"(?P<trials>\d+) of (?P<all_trials>\d+) trials, (?P<points>\d+) of (?P<all_points>\d+) points, \d+ infeasible"
)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a run is, as it last said."""

    trials: int
    all_trials: int
    points: int
    all_points: int


@dataclass(frozen=True, slots=True)
class JobTold:
    """What a log has told so far."""

    run_dir: str | None = None
    progress: JobProgress | None = None
    result: RunResult | None = None


def heard(told: JobTold, line: str) -> JobTold:
    """What is known after one more line."""
    if line.startswith(RUN_DIRECTORY_LINE):
        return replace(told, run_dir=line.removeprefix(RUN_DIRECTORY_LINE).strip())
    result = result_of_line(line)
    if result is not None:
        return replace(told, result=result)
    match = _PROGRESS.search(line)
    return replace(told, progress=JobProgress(*map(int, match.groups()))) if match else told


def told_by(log: str) -> JobTold:
    """What a whole log tells."""
    told = JobTold()
    for line in log.splitlines():
        told = heard(told, line)
    return told


class LogLines:
    """A log that comes in pieces, also again from its beginning, as lines that were not there before.

    `begin` before each reading from the start; `feed` gives the new whole lines.
    """

    def __init__(self) -> None:
        self._seen = self._position = 0
        self._held = ""

    def begin(self) -> None:
        """The log is read from its start once more."""
        self._position = 0

    def feed(self, text: str) -> Iterator[str]:
        """Whole lines that this piece finishes, without those that were told before."""
        known = max(0, min(len(text), self._seen - self._position))
        self._position += len(text)
        self._seen = max(self._seen, self._position)
        *whole, self._held = (self._held + text[known:]).split("\n")
        yield from whole

    @property
    def unfinished(self) -> bool:
        """Whether the last line has no end yet."""
        return bool(self._held)


def is_for_machines(line: str) -> bool:
    """Whether a reader is spared this line."""
    return line.startswith(RESULT_MARK)
