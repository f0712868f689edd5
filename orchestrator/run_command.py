"""`specsweep run`: from a scenario to a ranking, with an orderly end however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from actors.container import container_runtime
from orchestrator.cluster import Cluster, Connection, connect
from orchestrator.errors import BadInput, ClusterRefusal, RunInterrupted, SpecsweepError
from orchestrator.eviction_command import evict_strangers
from orchestrator.foresight import run_foresight
from orchestrator.host_match import matches
from orchestrator.journal import finished_work
from orchestrator.options import SettingsFault
from orchestrator.planner import Plan, make_plan
from orchestrator.progress import Progress
from orchestrator.ranking_table import print_rankings
from orchestrator.redaction import holds_secrets, storable
from orchestrator.run_directory import RunDirectory, new_run_root, read_manifest
from orchestrator.run_ranking import rank_run
from orchestrator.scenario import Scenario
from orchestrator.scenario_file import load_scenario
from orchestrator.scenario_files import check_named_files
from orchestrator.server_start import LaunchSpec
from orchestrator.start_memory import StartMemory
from orchestrator.sweep import Sweep, SweepResult
from orchestrator.sweep_space import expand
from orchestrator.trial import Trial
from orchestrator.trial_launch import launch_spec

# Ctrl-C, SIGTERM as ours, and SIGTERM as Ray handles it while it starts.
STOPPED = (KeyboardInterrupt, SystemExit)


@dataclass(frozen=True)
class RunRequest:
    """The arguments of `run`, parsed."""

    scenario: Path | None
    address: str | None
    overrides: tuple[str, ...] = ()
    run_dir: Path | None = None
    resume: Path | None = None
    evict: bool = False
    yes: bool = False


def run(request: RunRequest, console: Console) -> Path:
    """Sweep, rank, print. Returns the run directory; raises SpecsweepError with the exit code for any bad end."""
    scenario = _scenario_of(request)
    check_named_files(scenario, request.scenario)
    directory = _open_run(request, scenario)
    done = finished_work(directory.state)
    result: SweepResult | None = None
    try:
        early = _EarlyInterrupt()
        with early.listening():
            if make_plan(scenario, 1, done, directory.lineages.stand_ins).trials:
                result = _sweep(scenario, directory, done, request, console, early)
            else:
                console.print(f"Nothing is missing in {directory.paths.root}")
                result = SweepResult()
    except (ClusterRefusal, *STOPPED) as error:
        _end_early(directory, error)
        raise
    finally:
        directory.close(complete=result is not None and result.complete)
    print_rankings(rank_run(directory.paths.root), console)
    console.print(f"\nRun: {directory.paths.root}", soft_wrap=True)
    _judge(result, directory)
    return directory.paths.root


def _end_early(directory: RunDirectory, error: BaseException) -> None:
    """Stopped or refused: a run in which nothing was started leaves no directory, any other says how to resume."""
    if not directory.state.attempts:
        directory.discard()
        if isinstance(error, STOPPED):
            raise RunInterrupted("Stopped before anything was started; nothing is left of the run.") from error
    elif isinstance(error, STOPPED):
        raise RunInterrupted(_how_to_resume(directory)) from error


def _how_to_resume(directory: RunDirectory) -> str:
    root = directory.paths.root
    return f"The run is not complete; everything measured so far is kept.\nContinue it: specsweep run --resume {root}"


class _EarlyInterrupt:
    """Ctrl-C and SIGTERM (what `ray job stop` sends) before the sweep has handlers of its own.

    What is raised while Ray starts may come up in a callback of its own, which swallows it: so it is also remembered.
    """

    def __init__(self) -> None:
        self._heard = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self.listen()
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def check(self) -> None:
        """KeyboardInterrupt if one of them came."""
        if self._heard:
            raise KeyboardInterrupt

    def _hear(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._heard = True
        raise KeyboardInterrupt


def _scenario_of(request: RunRequest) -> Scenario:
    if request.scenario is None and request.resume is None:
        raise BadInput("give a scenario file, or --resume RUN")
    if request.scenario is None and request.overrides:
        raise BadInput("--set changes a scenario file; a resumed run is continued as it was")
    given = load_scenario(request.scenario, request.overrides) if request.scenario else None
    if request.resume is None:
        assert given is not None
        return given
    return scenario_to_resume(request.resume, given)


def scenario_to_resume(root: Path, given: Scenario | None) -> Scenario:
    """The stored scenario; the given one if it is the same but for secrets, which are not stored."""
    told = read_manifest(root)["scenario"]
    stored = Scenario.model_validate(told)
    if given is None:
        _refuse_what_rules_refuse_by_now(root, stored)
        if holds_secrets(told):
            raise BadInput(
                f"--resume {root}: its scenario has secrets, which are not stored; give the scenario as well"
            )
        return stored
    shown = Scenario.model_validate(storable(given))
    if shown != stored:
        changed = [name for name in Scenario.model_fields if getattr(shown, name) != getattr(stored, name)]
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
        raise BadInput(f"--resume {root}: {fault.name}: {fault.message} (refused by now)") from None


def _open_run(request: RunRequest, scenario: Scenario) -> RunDirectory:
    if request.resume is not None:
        return RunDirectory.reopen(request.resume, scenario)
    root = request.run_dir or new_run_root(scenario.name, time.strftime("%Y%m%d-%H%M%S"))
    return RunDirectory.create(root, scenario)


def _sweep(
    scenario: Scenario, directory: RunDirectory, done: frozenset[str], request: RunRequest, console: Console,
    early: _EarlyInterrupt,
) -> SweepResult:  # fmt: skip
    address = resolve_address(request.address)
    if scenario.slots.emulated_gpus and address != "local":
        console.print("slots.emulated_gpus is for --address local; the cluster's own GPUs are used")
    console.print(f"Run {directory.paths.root.name}: connecting to Ray ({address})")
    cluster = connect(_connection(scenario, address), directory.run_id)
    early.listen()  # ray.init has put its own handlers there
    try:
        early.check()
        slots = cluster.grant_slots(
            scenario.slots,
            scenario.engine.kind,
            scenario.timeouts.cluster_s,
            container_runtime(scenario.engine.command),
        )
        for line in cluster.leftovers:
            console.print(line, soft_wrap=True, markup=False)
        if request.evict:
            evict_strangers(cluster.slot_places(), directory.run_id, yes=request.yes, console=console)
        early.check()
        plan = make_plan(scenario, len(slots), done, directory.lineages.stand_ins)
        console.print(plan_line(plan))
        with Progress(plan, [s.facts.name for s in slots], console) as progress:
            memory = StartMemory.beside(directory.paths.root, scenario, progress)
            foresight = run_foresight(scenario, lambda: smallest_gpu_gib(cluster, scenario), console.print)

            def spec(trial: Trial) -> LaunchSpec:
                return replace(launch_spec(scenario, directory.run_id, trial), phase_budgets=memory.budgets(trial))

            sweep = Sweep(plan, list(slots), directory, spec, memory, foresight)
            with _orderly_interrupt(sweep):
                return sweep.run()
    finally:
        _close_quietly(cluster)


def smallest_gpu_gib(cluster: Cluster, scenario: Scenario) -> float | None:
    """GiB of the smallest GPU of the hosts that the scenario may use, by their drivers; None where none answers."""
    hosts = [host for host in cluster.hosts() if host.gpus and matches(host, scenario.slots)]
    sizes = [gpu["total_gib"] for host in hosts for gpu in cluster.gpu_states(host) or ()]
    return min(sizes, default=None)


def _close_quietly(cluster: Cluster) -> None:
    """Let the cluster go even while the user keeps pressing Ctrl-C: servers must not outlive us."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cluster.close()
    finally:
        signal.signal(signal.SIGINT, previous)


def _connection(scenario: Scenario, address: str) -> Connection:
    slots = scenario.slots
    if slots.gpus:
        count = slots.count or max(1, slots.emulated_gpus // slots.gpus)
    else:
        count = min(slots.count or slots.per_host or 1, slots.per_host or 1)
    return Connection(address, slots.emulated_gpus, cpus_wanted=count * (slots.cpus + 1))


def resolve_address(address: str | None) -> str:
    """`--address`, else the cluster that RAY_ADDRESS names or that runs here, else an embedded one."""
    if address is not None:
        return address
    if os.environ.get("RAY_ADDRESS"):
        return "auto"
    return "auto" if Path("/tmp/ray/ray_current_cluster").exists() else "local"


def plan_line(plan: Plan) -> str:
    """One line about what is going to be done."""
    return (
        f"{len(plan.configs)} configs, {len(plan.trials)} trials, {plan.points} points on {len(plan.slots)} slots; "
        f"about {plan.makespan_s / 60:.1f} min by estimate"
    )


@contextlib.contextmanager
def _orderly_interrupt(sweep: Sweep) -> Iterator[None]:
    """First Ctrl-C (or SIGTERM): stop in order. Second: stop now. Set after ray.init, which sets its own handlers."""

    def stop(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        if sweep.cancelled:
            raise KeyboardInterrupt
        sweep.cancel()
        print("\nStopping the servers; what was measured is kept. Again to stop at once.", file=sys.stderr)  # noqa: T201

    previous: dict[int, Any] = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _judge(result: SweepResult, directory: RunDirectory) -> None:
    """Raise for a run that is not whole, with what to do."""
    root = directory.paths.root
    if result.cancelled:
        raise RunInterrupted(_how_to_resume(directory))
    if not result.complete:
        raise SpecsweepError(f"No slot is left to go on with.\n{_how_to_resume(directory)}")
    failed = [t for t, outcome in result.outcomes.items() if outcome.kind == "failed"]
    if failed:
        raise SpecsweepError(
            f"{len(failed)} trial(s) failed; their logs are in {root}/logs/.\n"
            f"Try them again: specsweep run --resume {root}"
        )
