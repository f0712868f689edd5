"""The end of a run, told: `result.json` in its directory, in a file of the user's choice, in the log of a job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.hosts.host_event import HostChange
from orchestrator.job_place import in_job, job_id
from orchestrator.provenance import utc_now
from orchestrator.rankings.ranking_row import Ranking
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.result_file import write_result
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_result import Ending, Pick, RunResult, ending_of, trial_counts
from orchestrator.scenarios.night_scenario import resume_command
from orchestrator.scenarios.scenario import Scenario
from orchestrator.stop_signals import stop_ignored
from orchestrator.sweeps.sweep import SweepResult


class RunAccount:
    """Learns of a run as far as it comes, and writes its result however it ends.

    `wanted` is a file of the user's, written besides the one in the run directory.
    """

    def __init__(self, wanted: Path | None, console: Console) -> None:
        self.scenario: Scenario | None = None
        self.directory: RunDirectory | None = None
        self.swept: SweepResult | None = None
        self.ranking: RunRanking | None = None
        self._wanted, self._console = wanted, console
        self._started_at, self._started = utc_now(), time.monotonic()

    @contextlib.contextmanager
    def told_at_the_end(self) -> Iterator[None]:
        """Around the run: its result is written last, whatever comes out of it; a signal does not keep it from that."""
        try:
            yield
        except BaseException as error:
            self.tell(ending_of(error), resumable=True)
            raise
        self.tell(ending_of(None))

    def tell(self, ending: Ending, *, resumable: bool = False) -> None:
        """Write the result, of a run that has ended like this. `resumable`: something is missing in it."""
        with stop_ignored():
            result = self.result(ending, resumable=resumable)
            kept = self.directory is not None and not self.directory.is_discarded
            files = [self.directory.paths.result] if self.directory is not None and kept else []
            for file in (*files, *([self._wanted] if self._wanted else ())):
                write_result(file, result)
            if in_job():
                self._console.file.write(result.line() + "\n")
                self._console.file.flush()

    def result(self, ending: Ending, *, resumable: bool = False) -> RunResult:
        """The run as far as it came, with this ending."""
        told: dict[str, Any] = {
            "ending": ending, "job_id": job_id(), "started_at": self._started_at, "ended_at": utc_now(),
            "elapsed_s": round(time.monotonic() - self._started, 3),
        }  # fmt: skip
        if self.scenario is not None:
            told |= {"scenario": self.scenario.name, "engine": self.scenario.engine.kind}
        if self.scenario is not None and self.directory is not None and not self.directory.is_discarded:
            told |= self._measured(self.scenario, self.directory, resumable=resumable)
        if self.ranking is not None:
            told["picks"] = _picks(self.ranking.rankings, self.ranking.labels)
        return RunResult(**told)

    def _measured(self, scenario: Scenario, directory: RunDirectory, *, resumable: bool) -> dict[str, Any]:
        state, root = directory.state, directory.paths.root
        outcomes = {trial: str(end["outcome"]) for trial, end in state.outcomes.items()}
        done, trials = finished_work(state), directory.plan(scenario, ()).trials
        missing = sum(p.point_id not in done for t in trials if t.trial_id not in done for p in t.points)
        put_aside = (e["host"] for e in state.of_hosts if e["event"] == HostChange.QUARANTINED)
        return {
            "run_id": directory.run_id,
            "run_dir": str(root),
            "trials": trial_counts((t.trial_id for t in trials), outcomes),
            "points": {"measured": len(state.done_points), "missing": missing, "spared": len(state.of_search.spared)},
            "hosts_quarantined": tuple(dict.fromkeys(put_aside)),
            "resume": resume_command(scenario, root) if resumable else None,
        }


def _picks(rankings: Iterable[Ranking], labels: Mapping[str, str]) -> tuple[Pick, ...]:
    """The winner of every objective that has one."""
    found = []
    for ranking in rankings:
        row = ranking.winner
        if row is not None and row.value is not None:
            label = labels.get(row.config_id, row.config_id)
            at = str(ranking.level)
            found.append(
                Pick(
                    ranking.objective, row.config_id, label, dict(row.settings), ranking.metric, at, row.value, row.unit
                )
            )
    return tuple(found)
