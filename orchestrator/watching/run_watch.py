"""Looks at a run directory, again and again. Reads only; the run may go on elsewhere, on a shared directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from orchestrator.errors import SpecsweepError
from orchestrator.nightly.night_pairs import counts_line, ended_pairs
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.run_files.journal import read_events, replay
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.run_files.run_result import RunResult
from orchestrator.scenarios.night_scenario import is_night
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import build_pairs
from orchestrator.sglang.options import SettingsFault
from orchestrator.watching.live_file import read_live
from orchestrator.watching.live_view import LiveView
from orchestrator.watching.watch_state import Beats, WatchedRun, status_of, view_of_journal, view_of_result

# How often a run is looked at: it tells anew every second.
LOOK_S = 1.0


class RunWatch:
    """One run. BadInput if the directory is none."""

    def __init__(
        self, root: Path, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        manifest = read_manifest(root)
        self.root = root.absolute()
        self._paths = RunPaths(self.root)
        self._scenario: dict[str, Any] = manifest["scenario"]
        self._run_id = str(manifest["run_id"])
        self._clock, self._wall_clock = clock, wall_clock
        self._beats = Beats()
        self._journal: tuple[Any, tuple[LiveView, bool]] | None = None
        self._night = _night_of(self._scenario)
        self._pairs: tuple[Any, str] | None = None

    def look(self) -> WatchedRun:
        """The run as it is now. SpecsweepError if its directory is gone."""
        if not self._paths.manifest.exists():
            raise SpecsweepError(f"{self.root}: is gone: the run was removed, or its disk cannot be reached")
        live, result = read_live(self._paths.live), self._result()
        silent_s = self._beats.silent_s(live, self._clock(), self._wall_clock()) if live else None
        name, scenario = self.root.name, str(self._scenario.get("name", ""))
        if result is not None:
            end, view = result.ending, view_of_result(result, live)
            view = view if self._night is None else replace(view, best=())  # an earlier release chose a build
            return WatchedRun(
                name, self._run_id, scenario, "ended", view, None, end.verdict, end.message, end.exit_code
            )
        pairs = self._of_pairs()
        if live is not None:
            status = status_of(live, silent_s)
            return WatchedRun(name, self._run_id, scenario, status, live, silent_s, pairs=pairs)
        view, is_complete = self._of_journal()  # of a release that told nothing else, or nothing has begun
        if is_complete and not pairs:
            return WatchedRun(name, self._run_id, scenario, "ended", view, verdict="complete")
        return WatchedRun(name, self._run_id, scenario, "starting", view, pairs=pairs)

    def look_twice(self, sleep: Callable[[float], None] = time.sleep) -> WatchedRun:
        """As `look`; what seems silent is looked at once more, since only the clocks of two hosts may differ."""
        run = self.look()
        if run.status != "silent":
            return run
        sleep(2.5 * LOOK_S)
        return self.look()

    def mark(self) -> tuple[Any, ...]:
        """Differs where the results of the run have changed."""
        return tuple(map(_mark, (self._paths.journal, self._paths.result, self._paths.manifest, self._paths.night)))

    def _result(self) -> RunResult | None:
        try:
            return RunResult.from_json(orjson.loads(self._paths.result.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _of_journal(self) -> tuple[LiveView, bool]:
        """The run by its journal, and whether that says that it came to its end."""
        mark = _mark(self._paths.journal)
        if self._journal is None or self._journal[0] != mark:
            state = replay(read_events(self._paths.journal, without="server_ready"))
            view = view_of_journal(state, self._planned(len(state.of_search.asked)))
            self._journal = (mark, (replace(view, ended=state.ended), state.ended))
        return self._journal[1]

    def _of_pairs(self) -> str:
        """How far the pairs of a night have come; empty for any other run."""
        if self._night is None:
            return ""
        mark = _mark(self._paths.journal)
        if self._pairs is None or self._pairs[0] != mark:
            state = replay(read_events(self._paths.journal, without="server_ready"))
            self._pairs = (mark, counts_line(ended_pairs(self._night, state.outcomes.values())))
        return self._pairs[1]

    def _planned(self, asked: int) -> tuple[int, int]:
        try:
            scenario = Scenario.model_validate(self._scenario)
            if scenario.search.method != "grid":
                return asked, 0
            plan = make_plan(scenario, 1)
        except (ValidationError, SettingsFault, SpecsweepError):  # of another release
            return 0, 0
        return len(plan.trials), plan.points


def _night_of(told: dict[str, Any]) -> Scenario | None:
    """The scenario of a night; None of any other run, and of one of another release."""
    try:
        scenario = Scenario.model_validate(told)
        return scenario if is_night(scenario) and build_pairs(scenario) else None
    except (ValidationError, SettingsFault, SpecsweepError):
        return None


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        seen = file.stat()
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ino
