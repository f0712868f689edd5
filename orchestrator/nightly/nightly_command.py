"""`specsweep nightly`: two builds in pairs, a verdict, and a night in the history; a gap where it could not be done."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from orchestrator.error_text import first_line
from orchestrator.errors import BadInput, NoSlotLeft, RunInterrupted, SpecsweepError, TrialsFailed
from orchestrator.history.change_alarms import NO_GATE, ChangeGate, change_alarms
from orchestrator.history.history_command import read_expected
from orchestrator.history.history_lines import history_lines
from orchestrator.history.history_store import HistoryStore
from orchestrator.history.history_text import history_news
from orchestrator.history.night_history import History
from orchestrator.nightly.night_run import NightJudge, empty_night, in_doubt, night_of, unknown_software
from orchestrator.nightly.night_scenario import is_self_test, night_name, night_scenario, rules_of, set_aside
from orchestrator.nightly.nightly_output import NightFiles, NightTold, show_night, write_night
from orchestrator.nights.night import End, Gap, Night, Verdict
from orchestrator.nights.night_text import GAP_EXIT_CODE
from orchestrator.paths import RunPaths
from orchestrator.planning.scenario_files import check_named_files
from orchestrator.provenance import utc_now
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.stop_signals import stop_ignored
from orchestrator.sweeps.run_command import RunRequest, fresh_root, run, scenario_to_resume
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


@dataclass(frozen=True, slots=True)
class _Night:
    """What a night is made with."""

    scenario: Scenario
    judge: NightJudge
    root: Path
    at: str


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
    scenario = _scenario(request, console)
    store = _store(request)
    history = store.read().of_scenario(night_name(scenario)) if store else None
    root, now = _root(request, scenario), utc_now()
    earlier = _before(history.nights if history else (), root, now)
    judge = NightJudge(rules_of(scenario), earlier, read_expected(request.changes))
    made = _Night(scenario, judge, root, now)

    def end(night: Night) -> int:
        return _kept_and_told(request, made, night, store, history, console, began_s)

    def leave(why: str) -> int:
        return end(_cut_short(made, why, console))

    night = _measured(request, made, console, began_s, leave)
    with stop_ignored():  # what was measured for hours is kept in a second
        return end(night)


def _kept_and_told(
    request: NightRequest, made: _Night, night: Night, store: HistoryStore | None, history: History | None,
    console: Console, began_s: float,
) -> int:  # fmt: skip
    judge, root, faults = made.judge, made.root, list[str]()
    kept = "A self-test is not kept in the history."
    if store and not is_self_test(made.scenario):
        try:
            kept = f"History: {store.place} ({store.append(night)})"
        except SpecsweepError as error:
            faults.append(f"{error}\nKeep it when that is repaired: specsweep nightly --resume {root} --history DIR")
    whole = history.with_night(night) if history else None
    gate = _gate(request, made, whole)
    news = history_news(whole, judge.changes) if whole and not (gate.fails and night.gap is None) else ()
    notes = (*(whole.skipped if whole else ()), *news)
    if night.gap is None:
        notes = (*notes, *unknown_software(root, made.scenario))
    told = NightTold(night, judge.rules, time.monotonic() - began_s, notes, gate)
    faults += write_night(told, root, request.files)
    show_night(told, console)
    for fault in faults:
        sys.stderr.write(f"specsweep: {fault}\n")
    if not faults:
        console.print(kept, soft_wrap=True, markup=False, highlight=False)
    code = gate.exit_code(night)
    return code if code or not faults else GAP_EXIT_CODE


def _gate(request: NightRequest, made: _Night, history: History | None) -> ChangeGate:
    """Change points with tonight's night, where they are to decide the exit code; a self-test is in no history."""
    nightly = made.scenario.nightly
    is_on = request.fail_on_change or (nightly is not None and nightly.fail_on_change)
    if not is_on or history is None or is_self_test(made.scenario):
        return NO_GATE
    return ChangeGate(True, change_alarms(history_lines(history, made.judge.changes), history))


def _measured(
    request: NightRequest, made: _Night, console: Console, began_s: float, leave: Callable[[str], int]
) -> Night:
    """The night as far as it came, or a gap with its reason, also where what it left cannot be read."""
    try:
        return _found(request, made, console, began_s, leave)
    except BadInput:
        raise
    except Exception as error:  # noqa: BLE001 - as in `_found`
        traceback.print_exc()
        night = replace(empty_night(made.scenario, made.at), run=made.root.resolve().name)
        return _gap(made, f"what was measured cannot be judged: {type(error).__name__}: {first_line(error)}", night)


def _found(request: NightRequest, made: _Night, console: Console, began_s: float, leave: Callable[[str], int]) -> Night:
    """The same, of a run whose files can be read; also by what nobody foresaw."""
    hours = made.scenario.nightly.max_hours if made.scenario.nightly else None

    def is_late() -> bool:
        return hours is not None and time.monotonic() - began_s > hours * 3600

    guide = PairGuide(partial(in_doubt, made.scenario, made.judge, made.at), is_late)
    fresh = request.resume is None
    wanted = RunRequest(
        None, request.address, run_dir=made.root if fresh else None, resume=request.resume, offers=False,
        given=made.scenario, guide=guide, leave=leave,
    )  # fmt: skip
    try:
        run(wanted, console)
    except TrialsFailed as error:  # their pairs were made anew
        console.print(first_line(error), markup=False, soft_wrap=True)
    except BadInput:
        raise
    except NoSlotLeft:
        return _cut_short(made, "all hosts were lost", console)
    except (RunInterrupted, KeyboardInterrupt):  # the latter once the sweep is over
        return _cut_short(made, "it was stopped", console)
    except SpecsweepError as error:
        console.print(str(error), markup=False, soft_wrap=True)
        return _gap(made, first_line(error))
    except Exception as error:  # noqa: BLE001 - Python would end with 1, which means that the candidate regressed
        traceback.print_exc()
        return _gap(made, f"{type(error).__name__}: {first_line(error)}")
    night = _judged(made)
    if _is_measured(night):
        return night
    why = "max_hours were over before any pair was measured" if is_late() else _why_nothing(night)
    return _gap(made, why, night)


def _cut_short(made: _Night, reason: str, console: Console) -> Night:
    """What was found does not go away with the hosts; that nothing was found by then says nothing."""
    night = _judged(made)
    if made.root.exists():
        how = f"Continue it: specsweep nightly --resume {made.root} --history DIR"
        console.print(f"The night is not complete. {how}", markup=False, soft_wrap=True, highlight=False)
    return night if night.verdict is Verdict.REGRESSED else _gap(made, reason, night)


def _judged(made: _Night) -> Night:
    if not RunPaths(made.root).manifest.exists():
        return empty_night(made.scenario, made.at)
    return night_of(made.root, made.scenario, _began_at(made.root, made.at), made.judge)


def _gap(made: _Night, reason: str, night: Night | None = None) -> Night:
    night = night or _judged(made)
    return replace(night, series=(), gap=Gap(reason))


def _is_measured(night: Night) -> bool:
    """Whether of any pair both members served or died."""
    known = {End.SERVED, End.DIED}
    starts = [start for one in night.series for start in one.measured.starts]
    return night.verdict is Verdict.REGRESSED or any({s.reference, s.candidate} <= known for s in starts)


def _why_nothing(night: Night) -> str:
    starts = [start for one in night.series for start in one.measured.starts]
    broke = [start.diagnosis for start in starts if start.diagnosis]
    told = list(dict.fromkeys([*broke, *(one.measured.missing for one in night.series if one.measured.missing)]))
    return f"no pair was measured{': ' if told else ''}{', '.join(told)}"


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
        if stored.search.method != "pairs":
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


def _began_at(root: Path, now: str) -> str:
    """When the night began; a resumed one so takes the place of what the history kept of it before."""
    if not RunPaths(root).manifest.exists():
        return now
    return str(read_manifest(root)["starts"][0]["started_at"])


def _before(nights: tuple[Night, ...], root: Path, now: str) -> tuple[Night, ...]:
    """Without this night's own, should it be resumed. Other nights may have had a directory of its name."""
    own = (root.resolve().name, _began_at(root, now))
    return tuple(night for night in nights if (night.run, night.at) != own)
