"""`specsweep nightly`: two builds in pairs, a verdict, and a night in the history; a gap where it could not be done."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from orchestrator.error_text import first_line
from orchestrator.errors import BadInput, NoSlotLeft, RunInterrupted, SpecsweepError, TrialsFailed
from orchestrator.history.change_alarms import NO_GATE, ChangeGate, change_alarms
from orchestrator.history.history_command import read_expected
from orchestrator.history.history_lines import SeriesLine, history_lines
from orchestrator.history.history_store import HistoryStore
from orchestrator.history.history_text import history_news
from orchestrator.history.night_history import History
from orchestrator.nightly.night_end import NightMade, Swept, began_at, night_found
from orchestrator.nightly.night_json import NightTold
from orchestrator.nightly.night_run import NightJudge, in_doubt, unknown_software
from orchestrator.nightly.nightly_output import NightFiles, show_night, write_night
from orchestrator.nights.night import Night
from orchestrator.nights.night_terms import rules_of
from orchestrator.nights.night_text import GAP_EXIT_CODE, headline
from orchestrator.previews.scenario_files import check_named_files
from orchestrator.provenance import utc_now
from orchestrator.reports.report_command import leave_report
from orchestrator.run_files.run_notes import engine_notes
from orchestrator.run_files.run_result import Ending, ending_of
from orchestrator.scenarios.night_scenario import (
    is_night,
    is_self_test,
    night_name,
    night_scenario,
    resume_command,
    set_aside,
)
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.stop_signals import EarlyInterrupt
from orchestrator.sweeps.run_account import RunAccount
from orchestrator.sweeps.run_command import NightUse, RunRequest, fresh_root, run, scenario_to_resume
from orchestrator.sweeps.run_conductor import PairGuide


@dataclass(frozen=True)
class NightRequest:
    """The arguments of `nightly`, parsed. `history`: a folder or a URI; `wait_s`: for the cluster to grant a slot."""

    scenario: Path | None
    history: str | None
    files: NightFiles
    overrides: tuple[str, ...] = ()
    reference_image: str | None = None
    candidate_image: str | None = None
    address: str | None = None
    run_dir: Path | None = None
    resume: Path | None = None
    wait_s: float | None = None
    self_test: bool = False
    changes: Path | None = None
    fail_on_change: bool = False


def nightly(request: NightRequest, console: Console) -> int:
    """Measure, judge, keep, tell; the exit code, which is 1 for a regression and for nothing else. BadInput before
    anything starts.
    """
    try:
        return _nightly(request, console)
    except (BadInput, RunInterrupted):
        raise
    except SpecsweepError as error:
        sys.stderr.write(f"specsweep: {error}\n")
    except Exception:  # noqa: BLE001 - Python would end with 1, which means that the candidate regressed
        traceback.print_exc()
    return GAP_EXIT_CODE


def _nightly(request: NightRequest, console: Console) -> int:
    began_s = time.monotonic()
    early = EarlyInterrupt()
    # Ray is left last: a SIGTERM within `ray.shutdown` ends us at once (Cluster.leave).
    with early.listening(), contextlib.ExitStack() as connected:
        scenario = _scenario(request, console)
        store = _store(request)
        history = store.read().of_scenario(night_name(scenario)) if store else None
        root, now = _root(request, scenario), utc_now()
        earlier = _before(history.nights if history else (), root, now)
        made = NightMade(scenario, NightJudge(rules_of(scenario), earlier, read_expected(request.changes)), root, now)
        night = _Night(request, made, store, history, console, began_s)
        with early.held():  # but for the run, which hears them itself: what took hours is kept in a second
            code = night.end(_swept(night, connected))
        try:
            leave_report(root, console)
        except KeyboardInterrupt:
            console.print(f"Stopped before its report was made: specsweep report {root}", soft_wrap=True, markup=False)
        with early.held():
            connected.close()
        return code


class _Night:
    """One night: what it is made with, and its end, which comes once."""

    def __init__(
        self, request: NightRequest, made: NightMade, store: HistoryStore | None, history: History | None,
        console: Console, began_s: float,
    ) -> None:  # fmt: skip
        self.request, self.made, self.console = request, made, console
        self.account = RunAccount(None, console)
        self._store, self._history, self._began_s = store, history, began_s
        self._ending = threading.Lock()
        self._code: int | None = None

    def end(self, swept: Swept) -> int:
        """Judge, keep and tell; the exit code. Also from the thread that finds the head lost: who comes second gets
        the code of the first.
        """
        with self._ending:
            if self._code is None:
                self._code = self._kept_and_told(night_found(self.made, swept, self.console))
        return self._code

    def is_late(self) -> bool:
        """Whether no further pair may begin."""
        nightly = self.made.scenario.nightly
        hours = nightly.max_hours if nightly else None
        return hours is not None and time.monotonic() - self._began_s > hours * 3600

    def _kept_and_told(self, night: Night) -> int:
        made, faults = self.made, list[str]()
        kept = "A self-test is not kept in the history."
        if self._store and not is_self_test(made.scenario):
            try:
                kept = f"History: {self._store.place} ({self._store.append(night)})"
            except SpecsweepError as error:
                how = resume_command(made.scenario, made.root)
                faults.append(f"{error}\nKeep it when that is repaired: {how}")
                kept = ""
        told = self._told(night)
        faults += write_night(told, made.root, self.request.files)
        show_night(told, self.console)
        for fault in faults:
            sys.stderr.write(f"specsweep: {fault}\n")
        if kept:
            self.console.print(kept, soft_wrap=True, markup=False, highlight=False)
        code = told.gate.exit_code(night)
        code = code if code or not faults else GAP_EXIT_CODE
        verdict = "gap" if night.verdict is None else night.verdict.value
        lacks = bool(night.gap or night.cut)
        self.account.tell(Ending(code, verdict, headline(night)), resumable=lacks)
        return code

    def _told(self, night: Night) -> NightTold:
        """With what the history shows, tonight's night in it."""
        made = self.made
        whole = self._history.with_night(night) if self._history else None
        lines = history_lines(whole, made.judge.changes) if whole else ()
        gate = self._gate(whole, lines)
        told_above = gate.fails and night.gap is None
        news = () if told_above else history_news(lines)
        unknown = unknown_software(made.root, made.scenario) if night.gap is None else ()
        engine = engine_notes(made.scenario, emulated=False)
        notes = (*(whole.skipped if whole else ()), *news, *unknown, *engine)
        return NightTold(night, made.judge.rules, time.monotonic() - self._began_s, notes, gate)

    def _gate(self, history: History | None, lines: Sequence[SeriesLine]) -> ChangeGate:
        """Change points, where they are to decide the exit code; a self-test is in no history."""
        nightly = self.made.scenario.nightly
        is_on = self.request.fail_on_change or (nightly is not None and nightly.fail_on_change)
        if not is_on or history is None or is_self_test(self.made.scenario):
            return NO_GATE
        return ChangeGate(True, change_alarms(lines, history))


def _swept(night: _Night, connected: contextlib.ExitStack) -> Swept:
    """Measure, and how that ended."""
    request, made, console = night.request, night.made, night.console
    guide = PairGuide(partial(in_doubt, made.scenario, made.judge, made.at), night.is_late)
    use = NightUse(guide, night.account, connected, lambda why: night.end(Swept(why)))
    fresh = request.resume is None
    wanted = RunRequest(
        None, request.address, run_dir=made.root if fresh else None, resume=request.resume, offers=False,
        given=made.scenario, night=use,
    )  # fmt: skip
    try:
        run(wanted, console)
    except TrialsFailed as error:  # their pairs were made anew
        console.print(first_line(error), markup=False, soft_wrap=True)
    except BadInput as error:
        night.account.tell(ending_of(error))
        raise
    except NoSlotLeft:
        return Swept("all hosts were lost")
    except (RunInterrupted, KeyboardInterrupt):  # the latter once the sweep is over
        return Swept("it was stopped")
    except SpecsweepError as error:
        console.print(str(error), markup=False, soft_wrap=True)
        return Swept(first_line(error))
    except Exception as error:  # noqa: BLE001 - Python would end with 1, which means that the candidate regressed
        traceback.print_exc()
        return Swept(fault=f"{type(error).__name__}: {first_line(error)}")
    return Swept(is_late=night.is_late())


def _scenario(request: NightRequest, console: Console) -> Scenario:
    """What is run; of a run that is resumed as it was begun."""
    overrides = list(request.overrides)
    for build, image in (("reference", request.reference_image), ("candidate", request.candidate_image)):
        if image is not None:
            overrides.append(f"nightly.{build}.image={json.dumps(image)}")
    if request.scenario is None:
        if request.resume is None:
            raise BadInput("give a scenario file, or --resume RUN")
        if overrides:
            raise BadInput("--set and images change a scenario file; a resumed night is continued as it was")
        stored = scenario_to_resume(request.resume.expanduser(), None)
        if not is_night(stored):
            raise BadInput(f"--resume {request.resume}: is not the run of a night; continue it by `specsweep run`")
        return stored
    given = load_scenario(request.scenario, tuple(overrides))
    check_named_files(given, request.scenario)
    if aside := set_aside(given):
        told = f"A night decides by itself what these keys of {request.scenario.name} say to `run`: {', '.join(aside)}"
        console.print(told, soft_wrap=True, markup=False, highlight=False)
    return night_scenario(given, self_test=request.self_test, wait_s=request.wait_s)


def _store(request: NightRequest) -> HistoryStore | None:
    """The history, sure to be writable before hours of measuring."""
    if request.history is None:
        if request.self_test:
            return None
        raise BadInput("give --history DIR (a folder or a URI), where nights are kept; only --self-test does without")
    store = HistoryStore.at(request.history)
    try:
        store.prepare()
    except BadInput:
        raise
    except SpecsweepError as error:
        raise BadInput(f"--history: {error}") from None
    return store


def _root(request: NightRequest, scenario: Scenario) -> Path:
    if request.resume is not None:
        return request.resume.expanduser()
    return fresh_root(request.run_dir, scenario)


def _before(nights: tuple[Night, ...], root: Path, now: str) -> tuple[Night, ...]:
    """Without this night's own, should it be resumed. Other nights may have had a directory of its name."""
    own = (root.resolve().name, began_at(root, now))
    return tuple(night for night in nights if (night.run, night.at) != own)
