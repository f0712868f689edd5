"""`specsweep run`: from a scenario to a ranking, with an orderly end however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from orchestrator.errors import BadInput, ClusterRefusal, NoSlotLeft, RunInterrupted, SpecsweepError, TrialsFailed
from orchestrator.job_place import in_job, lasting, runs_parent
from orchestrator.jobs.job_log import RUN_DIRECTORY_LINE
from orchestrator.jobs.sealed_scenario import open_sealed
from orchestrator.plural import plural
from orchestrator.previews.scenario_files import check_named_files
from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.redaction import holds_secrets
from orchestrator.reports.report_command import leave_reports
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.reuse_command import offer_reuse, runs_to_reuse, take_over_all
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_manifest import differing_keys, new_run_root, read_manifest, stored_scenario
from orchestrator.scenarios.night_scenario import is_night, resume_command
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.scenarios.sweep_space import expand
from orchestrator.sglang.options import SettingsFault
from orchestrator.stop_signals import EarlyInterrupt
from orchestrator.sweeps.run_account import RunAccount
from orchestrator.sweeps.run_conductor import PairGuide, missing_work, run_conductor
from orchestrator.sweeps.run_sweep import ClusterUse, sweep_on_cluster
from orchestrator.sweeps.sweep import SweepResult

# Ctrl-C, SIGTERM as ours, and SIGTERM as Ray handles it while it starts.
STOPPED = (KeyboardInterrupt, SystemExit)
# A file system that is full, over quota, gone read-only or broken, or takes no file as long as ours.
_NO_STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}


@dataclass(frozen=True)
class NightUse:
    """What a night has a run done for: its pairs, which nobody ranks. It judges, tells and keeps what they brought, and
    only then leaves Ray (`connected`). `leave`: what it does before the process ends for want of the head.
    """

    guide: PairGuide
    account: RunAccount
    connected: contextlib.ExitStack
    leave: Callable[[str], int]


@dataclass(frozen=True)
class RunRequest:
    """The arguments of `run`, parsed. `offers`: earlier measurements of the same are told. `given`: the scenario itself
    instead of its file; `night`: this run is that of a night.
    """

    scenario: Path | None
    address: str | None
    overrides: tuple[str, ...] = ()
    run_dir: Path | None = None
    resume: Path | None = None
    evict: bool = False
    yes: bool = False
    result: Path | None = None
    sealed: str | None = None
    reuse: tuple[Path, ...] = ()
    offers: bool = True
    given: Scenario | None = None
    night: NightUse | None = None


def run(request: RunRequest, console: Console) -> Path:
    """Sweep, rank, print. Returns the run directory; raises SpecsweepError with the exit code for any bad end."""
    early = EarlyInterrupt()
    if request.night is not None:
        with early.listening():
            return _run(request, console, request.night.account, early, request.night.connected)
    account = RunAccount(lasting(request.result, "--result") if request.result else None, console)
    with early.listening(), contextlib.ExitStack() as connected, account.told_at_the_end():
        return _run(request, console, account, early, connected)


def _run(
    request: RunRequest, console: Console, account: RunAccount, early: EarlyInterrupt, connected: contextlib.ExitStack
) -> Path:
    scenario = account.scenario = _scenario_of(request)
    if is_night(scenario) and request.night is None:
        raise BadInput(_no_run(request.resume))
    check_named_files(scenario, request.scenario)
    taken = runs_to_reuse(scenario, request.reuse)
    directory = account.directory = _open_run(request, scenario)
    if in_job():
        console.print(RUN_DIRECTORY_LINE + str(directory.paths.root), soft_wrap=True, markup=False, highlight=False)
    with _storage_told(directory, resume_command(scenario, directory.paths.root)):
        if taken:
            take_over_all(directory, taken, console)
        elif request.resume is None and request.offers:
            offer_reuse(scenario, directory, console)
        night = request.night
        leave = night.leave if night else None
        use = ClusterUse(request.address, connected, request.evict, request.yes, leave=leave)
        _measure(scenario, directory, use, console, account, early, night.guide if night else None)
        if request.night is None:
            account.ranking = rank_run(directory.paths.root)
            print_rankings(account.ranking, console)
            if account.ranking.unkept is not None:
                raise account.ranking.unkept.why
        console.print(f"\nRun: {directory.paths.root}", soft_wrap=True)
        if account.ranking is not None:
            leave_reports(directory.paths.root, account.ranking, console)
        _judge(account.swept or SweepResult(), scenario, directory)
        return directory.paths.root


def _measure(
    scenario: Scenario, directory: RunDirectory, use: ClusterUse, console: Console, account: RunAccount,
    early: EarlyInterrupt, guide: PairGuide | None,
) -> None:  # fmt: skip
    """Whatever is missing in the run; its directory is closed by then, and whole whenever somebody asked for an end."""
    done = finished_work(directory.state)
    try:
        conductor = run_conductor(scenario, directory, guide)
        if missing_work(scenario, directory, conductor):
            use = replace(use, conductor=conductor)
            account.swept = sweep_on_cluster(scenario, directory, done, use, console, early)
        else:
            console.print(f"Nothing is missing in {directory.paths.root}")
            account.swept = SweepResult()
    except (ClusterRefusal, *STOPPED) as error:
        with early.held():
            _end_early(scenario, directory, error)
        raise
    finally:
        with early.held():
            directory.close(complete=account.swept is not None and account.swept.complete)
    early.check()


@contextlib.contextmanager
def _storage_told(directory: RunDirectory, resume: str) -> Iterator[None]:
    """SpecsweepError where the run directory takes no more; by then the servers are stopped."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_STORAGE:
            raise
        root = directory.paths.root
        raise SpecsweepError(
            f"{root}: cannot be written any more: {os.strerror(error.errno)}. The servers are stopped, and every point "
            f"that was finished is kept.\nRepair that (`df -h {root}`), then continue: {resume}"
        ) from error


def _end_early(scenario: Scenario, directory: RunDirectory, error: BaseException) -> None:
    """Stopped or refused: a run in which nothing was started leaves no directory, any other says how to resume."""
    if not directory.state.attempts:
        directory.discard()
        if isinstance(error, STOPPED):
            raise RunInterrupted("Stopped before anything was started; nothing is left of the run.") from error
    elif isinstance(error, STOPPED):
        raise RunInterrupted(_how_to_resume(scenario, directory)) from error


def _how_to_resume(scenario: Scenario, directory: RunDirectory) -> str:
    how = resume_command(scenario, directory.paths.root)
    return f"The run is not complete; everything measured so far is kept.\nContinue it: {how}"


def _no_run(resumed: Path | None) -> str:
    """Pairs that nobody judges would be measured, and the night's gap would stay in the history."""
    if resumed is not None:
        return f"--resume {resumed}: is a night; continue it: specsweep nightly --resume {resumed} --history DIR"
    return "search.method: pairs are what `specsweep nightly` measures; leave it out, and use that command"


def _scenario_of(request: RunRequest) -> Scenario:
    if request.scenario is None and request.resume is None and request.sealed is None and request.given is None:
        raise BadInput("give a scenario file, or --resume RUN")
    if request.scenario is None and request.overrides:
        raise BadInput("--set changes a scenario file; a resumed run is continued as it was")
    if request.resume is not None and request.reuse:
        raise BadInput("--reuse begins a run; a resumed run is continued as it was")
    given = load_scenario(request.scenario, request.overrides) if request.scenario else request.given
    if request.sealed is not None:
        given = open_sealed(request.sealed)
    if request.resume is None:
        assert given is not None
        return given
    return scenario_to_resume(request.resume.expanduser(), given)


def scenario_to_resume(root: Path, given: Scenario | None) -> Scenario:
    """The stored scenario; the given one if it is the same but for secrets, which are not stored."""
    manifest = read_manifest(root)
    stored = stored_scenario(root, manifest)
    if given is None:
        _refuse_what_rules_refuse_by_now(root, stored)
        if holds_secrets(manifest["scenario"]):
            raise BadInput(
                f"--resume {root}: its scenario has secrets, which are not stored; give the scenario as well"
            )
        return stored
    if changed := differing_keys(given, stored):
        raise BadInput(
            f"--resume {root}: that run asked another question (differs in: {', '.join(changed)}); "
            "leave the scenario out to continue it as it was, or start a new run"
        )
    return given


def _refuse_what_rules_refuse_by_now(root: Path, stored: Scenario) -> None:
    """A run of an earlier release may have configs that this one does not start any more."""
    try:
        for _ in expand(stored):
            pass
    except SettingsFault as fault:
        raise BadInput(
            f"--resume {root}: {fault.name}: {fault.message} (refused by now); continue it with the release that began "
            "it, or start a new run without that config"
        ) from None


def _open_run(request: RunRequest, scenario: Scenario) -> RunDirectory:
    if request.resume is not None:
        directory = RunDirectory.reopen(request.resume.expanduser(), scenario)
        paths = directory.paths
        for file in (paths.result, paths.live, paths.night):  # of an earlier end, which is none any more
            file.unlink(missing_ok=True)
        return directory
    return RunDirectory.create(fresh_root(request.run_dir, scenario), scenario)


def fresh_root(run_dir: Path | None, scenario: Scenario) -> Path:
    """Where a run that begins goes: `--run-dir`, or runs/<name>-<time>/."""
    if run_dir is not None:
        return lasting(run_dir, "--run-dir")
    return new_run_root(scenario.name, time.strftime("%Y%m%d-%H%M%S"), runs_parent())


def _judge(result: SweepResult, scenario: Scenario, directory: RunDirectory) -> None:
    """Raise for a run that is not whole, with what to do."""
    root = directory.paths.root
    if result.cancelled:
        raise RunInterrupted(_how_to_resume(scenario, directory))
    if not result.complete:
        raise NoSlotLeft(f"No slot is left to go on with.\n{_how_to_resume(scenario, directory)}")
    failed = [t for t, outcome in result.outcomes.items() if outcome.kind == "failed"]
    if failed:
        raise TrialsFailed(
            f"{plural(len(failed), 'trial')} failed; their logs are in {root}/logs/.\n"
            f"Try them again: {resume_command(scenario, root)}"
        )
