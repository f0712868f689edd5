"""The part of a run that needs a cluster: connect, take slots, sweep, and let everything go however it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType

from rich.console import Console

from actors.servers.container import container_runtime
from orchestrator.errors import ClusterRefusal, SpecsweepError
from orchestrator.hosts.host_match import matches
from orchestrator.planning.planner import Plan
from orchestrator.planning.search_plan import search_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.plural import plural
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_hosts import keep_hosts
from orchestrator.scenarios.engine_build import BUILDS
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import LaunchSpec
from orchestrator.slots.cluster import Cluster
from orchestrator.slots.head_watch import watching_head
from orchestrator.slots.ray_connection import Connection, connect, resolve_address
from orchestrator.slots.slot_port import SlotPort
from orchestrator.stop_signals import EarlyInterrupt, StopWish, stop_handled_by, stop_ignored
from orchestrator.sweeps.foresight import run_foresight
from orchestrator.sweeps.grid_leaders import GridLeaders
from orchestrator.sweeps.run_conductor import run_references
from orchestrator.sweeps.search_conductor import SearchConductor
from orchestrator.sweeps.start_memory import StartMemory
from orchestrator.sweeps.sweep import Sweep, SweepResult
from orchestrator.trial import Trial
from orchestrator.upkeep.eviction_command import evict_strangers
from orchestrator.watching.live_file import LiveFile
from orchestrator.watching.progress import Progress
from orchestrator.watching.time_left import SearchBounds

# For servers to end, when the head is lost; what is left then is ended by the guards.
_LEAVE_S = 5.0


@dataclass(frozen=True)
class ClusterUse:
    """Which cluster a run uses, and whether strangers are ended on its GPUs (`yes`: without asking). `conductor`: who
    decides what the plan does not, told all that was measured before; `leave`: what is done before the process ends for
    want of the head (told why), for the exit code.

    Ray is left when `connected` is: not before all that was found is on disk (see Cluster.leave).
    """

    address: str | None
    connected: contextlib.ExitStack
    evict: bool = False
    yes: bool = False
    conductor: SearchConductor | None = None
    leave: Callable[[str], int] | None = None


def sweep_on_cluster(
    scenario: Scenario, directory: RunDirectory, done: frozenset[str], wanted: ClusterUse, console: Console,
    early: EarlyInterrupt,
) -> SweepResult:  # fmt: skip
    """Join or embed a cluster, take slots there, run what is not done yet, let the slots go. Raises ClusterRefusal."""
    address = resolve_address(wanted.address)
    if scenario.slots.emulated_gpus and address != "local":
        console.print("slots.emulated_gpus is for --address local; the cluster's own GPUs are used")
    console.print(f"Run {directory.paths.root.name}: connecting to Ray ({address})")
    with early.held():  # nobody is stopped with a cluster that is not going to be left
        cluster = connect(_connection(scenario, address), directory.run_id)
        lost = partial(_leave_without_head, cluster, directory, console, wanted.leave)
        # Also while the cluster is let go and left, which waits for the head too.
        wanted.connected.enter_context(watching_head(cluster.head_address, lost))
        wanted.connected.callback(_quietly, cluster.leave)
    return _on_cluster(scenario, directory, done, wanted, cluster, console, early)


def _on_cluster(
    scenario: Scenario, directory: RunDirectory, done: frozenset[str], wanted: ClusterUse, cluster: Cluster,
    console: Console, early: EarlyInterrupt,
) -> SweepResult:  # fmt: skip
    try:
        early.check()
        slots = cluster.grant_slots(
            scenario.slots,
            scenario.engine.kind,
            scenario.timeouts.cluster_s,
            container_runtime(scenario.engine.command),
            stored_classes=directory.host_classes,
            has_results=bool(directory.state.done_points),
        )
        directory.keep_classes(cluster.classes)
        keep_hosts(directory.paths.root, cluster.host_reports())
        for line in cluster.told:
            console.print(line, soft_wrap=True, markup=False)
        if wanted.evict:
            evict_strangers(cluster.slot_places(), directory.run_id, yes=wanted.yes, console=console)
        early.check()
        with early.held():  # the end of live.json is written, too
            return _sweep(scenario, directory, done, wanted, cluster, slots, console, early)
    finally:
        _quietly(cluster.let_go)  # servers must not outlive us


def _sweep(  # noqa: PLR0913, PLR0917 - what a run is, where it is shown, and who may stop it
    scenario: Scenario, directory: RunDirectory, done: frozenset[str], wanted: ClusterUse, cluster: Cluster,
    slots: Sequence[SlotPort], console: Console, early: EarlyInterrupt,
) -> SweepResult:  # fmt: skip
    """The loop on slots that are granted, shown on the console and in live.json."""
    plan = directory.plan(scenario, [slot.facts.host_class for slot in slots], done)
    if wanted.conductor is not None:
        wanted.conductor.take_classes()
    console.print(plan_line(plan, len(slots), cluster.classes, scenario.search.method), markup=False)
    names = [slot.facts.name for slot in slots]
    progress = Progress(plan, names, console, bounds=_search_bounds(scenario, directory, plan))
    leaders = GridLeaders(scenario, directory, progress, progress.leads)
    with progress, LiveFile(directory.paths.live, progress.view, leaders.look):
        memory = StartMemory.beside(directory.paths.root, scenario, leaders)
        foresight = run_foresight(
            scenario, lambda c: smallest_gpu_gib(cluster, scenario, c), console.print, directory.trial_classes
        )

        def spec(trial: Trial) -> LaunchSpec:
            asked = launch_spec(scenario, directory.run_id, trial)
            # Points that were taken over from another run stand beside none of another release.
            version = asked.version or directory.reused_version
            return replace(asked, phase_budgets=memory.budgets(trial), version=version)

        sweep = Sweep(plan, list(slots), directory, spec, memory, foresight, source=cluster.source)
        sweep.follow(wanted.conductor, run_references(scenario, directory, plan))
        with _orderly_interrupt(sweep):
            early.check()
            result = sweep.run()
            keep_hosts(directory.paths.root, cluster.host_reports())  # some joined later
            return result


def _leave_without_head(
    cluster: Cluster, directory: RunDirectory, console: Console, leave: Callable[[str], int] | None, silent_s: float
) -> None:
    """End the process from a thread: the main one may wait for the head. Ray would end it all the same, silently."""
    root = directory.paths.root
    if console.is_terminal:
        console.show_cursor(True)
    why = f"the cluster's head ({cluster.head_address}) has not answered for {silent_s:.0f} s"
    how = "" if leave else f"\nStart the cluster again, then continue: specsweep run --resume {root}"
    print(  # noqa: T201
        f"\nspecsweep: {why}; Ray goes on nowhere without it. The servers are stopped, and everything measured so far "
        f"is kept.{how}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    code = SpecsweepError.exit_code
    try:
        if leave is not None:  # first: what follows may wait for Ray until Ray ends us
            code = ClusterRefusal.exit_code
            code = leave(why)
            sys.stdout.flush()
        cluster.stop_servers(_LEAVE_S)
    except Exception:  # noqa: BLE001 - nobody else would tell it
        traceback.print_exc()
    finally:
        os._exit(code)


def smallest_gpu_gib(cluster: Cluster, scenario: Scenario, host_class: str = "") -> float | None:
    """GiB of the smallest GPU of the hosts that the scenario may use, or of a class of them, by their drivers; None
    where none answers.
    """
    hosts = [host for host in cluster.hosts() if host.gpus and matches(host, scenario.slots)]
    of_class = [host for host in hosts if not host_class or cluster.class_of(host) == host_class]
    sizes = [gpu["total_gib"] for host in of_class for gpu in cluster.gpu_states(host) or ()]
    return min(sizes, default=None)


def _search_bounds(scenario: Scenario, directory: RunDirectory, plan: Plan) -> SearchBounds | None:
    """How many starts a search may make on all classes of hosts; None for a grid."""
    bounds, classes = search_plan(scenario, plan.configs), len(directory.trial_classes)
    if bounds is None:
        return None
    each_void = len(BUILDS) if scenario.search.method == "pairs" else 0
    before = len(directory.state.outcomes)
    return SearchBounds(bounds.least_starts * classes, bounds.most_starts * classes, before, each_void)


def _quietly(end: Callable[[], None]) -> None:
    """Even while the user keeps pressing Ctrl-C or stopping us."""
    with stop_ignored():
        end()


def _connection(scenario: Scenario, address: str) -> Connection:
    slots = scenario.slots
    if slots.gpus:
        count = slots.count or max(1, slots.emulated_gpus // slots.gpus)
    else:
        count = min(slots.count or slots.per_host or 1, slots.per_host or 1)
    return Connection(address, slots.emulated_gpus, cpus_wanted=count * (slots.cpus + 1))


def plan_line(plan: Plan, slots: int, classes: Sequence[str] = (), method: str = "grid") -> str:
    """One line about what is going to be done."""
    apart = f" (every config on each of {len(classes)} classes of hosts)" if len(classes) > 1 else ""
    configs, where = plural(len(plan.configs), "config"), f"on {plural(slots, 'slot')}{apart}"
    if method != "grid":
        return f"search: {method}, {configs} in question, {where}"
    trials, points = plural(len(plan.trials), "trial"), plural(plan.points, "point")
    return f"{configs}, {trials}, {points} {where}; about {plan.makespan_s / 60:.1f} min by estimate"


def _orderly_interrupt(sweep: Sweep) -> contextlib.AbstractContextManager[None]:
    """First Ctrl-C (or SIGTERM): stop in order. Second: stop now. Set after ray.init, which sets its own handlers."""
    wish = StopWish()

    def stop(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        if wish.is_echo():
            return
        if sweep.cancelled:
            raise KeyboardInterrupt
        sweep.cancel()
        print("\nStopping the servers; what was measured is kept. Again to stop at once.", file=sys.stderr)  # noqa: T201

    return stop_handled_by(stop)
