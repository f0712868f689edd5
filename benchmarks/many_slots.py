"""The driver with many slots and trials, simulated in one process: makespan against the best order, and what it costs.

Virtual: the makespan, the same each time and on any machine. Real: CPU of the driver's loop by kind of happening,
memory, files open, planning, ranking and resuming what was stored. One variant loses slots and whole hosts at random
times, and gets a few slots while it runs.

    python -m benchmarks.many_slots [--quick] [--dir FOLDER]
"""

from __future__ import annotations

import argparse
import io
import json
import math
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.list_schedule import list_schedule_s, longest_first_s, lower_bound_s
from benchmarks.simulated_slot import TrialTimes, true_times
from benchmarks.simulated_sweep import (
    Losses,
    Simulated,
    Stage,
    cpu_seconds,
    rss_mib,
    simulate,
    slots_on_hosts,
    swept_scenario,
)
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import Plan, make_plan
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files.journal import finished_work, read_events
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.sweeps.run_command import RunRequest
from orchestrator.sweeps.run_command import run as run_command

LEVELS = [1, 8, 32]
AIM = 0.03


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated; a trial has three points."""

    slots: int
    hosts: int
    configs: int
    repeats: int


FULL, QUICK = Size(200, 50, 1000, 5), Size(200, 50, 96, 5)


def scenario_of(size: Size) -> Scenario:
    """Four depths by as many batch sizes as it takes."""
    sizes = [8 * (i + 1) for i in range(size.configs // 4)]
    return swept_scenario({"speculative_num_steps": [0, 1, 2, 3], "max_running_requests": sizes}, size.repeats, LEVELS)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


@contextmanager
def told(what: str) -> Iterator[None]:
    """Print the CPU and wall seconds of what is done inside."""
    began_s, began_cpu_s = time.perf_counter(), cpu_seconds()
    yield
    say(f"{what}: {cpu_seconds() - began_cpu_s:.2f} s CPU, {time.perf_counter() - began_s:.2f} s wall")


def show_makespan(done: Simulated, times: dict[str, TrialTimes], slots: int) -> None:
    """Against the bound that no schedule beats, and against longest-first with all durations known beforehand."""
    durations = [taken.total_s for taken in times.values()]
    bound_s, ideal_s = lower_bound_s(durations, slots), longest_first_s(durations, slots)
    over = done.makespan_s / ideal_s - 1
    say(
        f"makespan {done.makespan_s:.0f} s; lower bound {bound_s:.0f} s ({done.makespan_s / bound_s - 1:+.1%}), "
        f"ideal list schedule {ideal_s:.0f} s ({over:+.1%}; aim {AIM:.0%}: {'met' if over <= AIM else 'MISSED'})"
    )


def show_cost(done: Simulated) -> None:
    """What the driver's loop spent."""
    cost = done.cost
    for kind in sorted(cost.events, key=lambda kind: -cost.cpu_ns[kind]):
        say(f"  {kind:14s} {cost.events[kind]:7d}   {cost.cpu_ns[kind] / 1e3 / cost.events[kind]:7.0f} us CPU each")
    loop_s = sum(cost.cpu_ns.values()) / 1e9
    most = cost.total_events / loop_s
    say(
        f"loop: {cost.total_events} events, {cost.us_per_event:.0f} us CPU each, at most {most:.0f}/s; "
        f"this run has {cost.total_events / done.makespan_s:.1f}/s, {loop_s / done.makespan_s:.2%} of a core"
    )
    say(
        f"whole process {done.cpu_s:.1f} s CPU, {done.wall_s:.1f} s wall; RSS {cost.rss_mib[0]:.0f} MiB at first, "
        f"{cost.rss_mib[-1]:.0f} at the end, {max(cost.rss_mib):.0f} at most; at most {cost.most_fds} files open"
    )


def random_losses(facts: list[SlotFacts], makespan_s: float, seed: int) -> Losses:
    """A tenth of the hosts and a twentieth of the slots go at some time before three quarters of the run."""
    chance = random.Random(f"losses-{seed}")
    hosts = sorted({slot.host for slot in facts})
    gone = {host: chance.uniform(0.05, 0.75) * makespan_s for host in chance.sample(hosts, max(1, len(hosts) // 10))}
    single = chance.sample([slot.name for slot in facts], max(1, len(facts) // 20))
    return Losses(gone, {name: chance.uniform(0.05, 0.75) * makespan_s for name in single})


def show_doubles(root: Path, plan: Plan) -> None:
    """Whether every point was measured, and counted once."""
    counted = [event["point_id"] for event in read_events(RunPaths(root).journal) if event["event"] == "point_done"]
    say(f"{len(counted)} points counted, {len(set(counted))} different, {plan.points} planned")


def cut_in_half(finished: Path, half: Path) -> None:
    """A copy as if the driver had been killed in the middle: half the journal, and the files that it speaks of."""
    shutil.copytree(finished, half)
    paths = RunPaths(half)
    lines = paths.journal.read_bytes().splitlines(keepends=True)
    kept = lines[: len(lines) // 2]
    paths.journal.write_bytes(b"".join(kept))
    events = [json.loads(line) for line in kept]
    names = {f"{e['point_id']}-{e['attempt']}" for e in events if e["event"] == "point_done"}
    names |= {f"{e['trial_id']}-{e['attempt']}" for e in events if e["event"] == "trial_ended"}
    for table in ("requests", "loads", "trials"):
        for file in paths.table(table).iterdir():
            if file.stem not in names:
                file.unlink()


def measure_resumption(finished: Path, scenario: Scenario, size: Size) -> None:
    """Ranking, and going on with what is finished, and with what is half finished."""
    with told(f"rank of {size.configs * size.repeats} trials"):
        rank_run(finished)
    with told("--resume of the finished run, ranking included"):
        run_command(RunRequest(None, "local", resume=finished), Console(file=io.StringIO()))
    half = finished.with_name("half")
    cut_in_half(finished, half)
    with told("--resume of the half-finished run, until it is planned"):
        run = RunDirectory.reopen(half, scenario)
        plan = make_plan(scenario, size.slots, finished_work(run.state), run.lineages_of().stand_ins)
    say(f"  {len(plan.trials)} trials with {plan.points} points are left")
    run.close(complete=False)


def main() -> None:
    """Simulate, print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="480 trials")
    arguments.add_argument("--dir", type=Path, help="where the run directories go (default: a folder in memory)")
    arguments.add_argument("--seed", type=int, default=1)
    asked = arguments.parse_args()
    size = QUICK if asked.quick else FULL
    in_memory = Path("/dev/shm")
    parent = asked.dir or (in_memory if in_memory.is_dir() else None)
    scenario, facts = scenario_of(size), slots_on_hosts(size.slots, size.hosts)
    say(f"load of the machine {Path('/proc/loadavg').read_text(encoding='utf-8').split()[0]}; RSS {rss_mib():.0f} MiB")
    with told(f"make_plan of {size.configs * size.repeats} trials for {size.slots} slots"):
        plan = make_plan(scenario, size.slots)
    times = true_times(scenario, plan.trials, asked.seed)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        root = Path(folder) / "run"
        run = RunDirectory.create(root, scenario)
        done = simulate(plan, scenario, run, Stage(facts, times))
        run.close(complete=done.result.complete)
        show_makespan(done, times, size.slots)
        show_cost(done)
        show_doubles(root, plan)
        measure_resumption(root, scenario, size)
        shutil.rmtree(root)
        lossy(plan, scenario, facts, times, Path(folder) / "lossy", done.makespan_s)


def lossy(
    plan: Plan, scenario: Scenario, facts: list[SlotFacts], times: dict[str, TrialTimes], root: Path, makespan_s: float
) -> None:
    """The same with losses, and with slots that join at a third of the run."""
    losses = random_losses(facts, makespan_s, 1)
    joining = slots_on_hosts(len(facts) // 20, 1)
    joined = [SlotFacts(f"new/{slot.name.rpartition('/')[2]}", "new", slot.gpu_ids) for slot in joining]
    run = RunDirectory.create(root, scenario)
    stage = Stage(facts, times, losses=losses, joining=joined, join_at_s=makespan_s / 3)
    done = simulate(plan, scenario, run, stage)
    run.close(complete=done.result.complete)
    ideal_s = list_schedule_s(sorted((taken.total_s for taken in times.values()), reverse=True), stage.machines)
    lost = sum(not math.isinf(losses.at_s(slot)) for slot in facts)
    say(
        f"{len(losses.hosts)} hosts and {len(losses.slots)} slots lost ({lost} slots in all), {len(joined)} joined: "
        f"makespan {done.makespan_s:.0f} s, ideal list schedule of what was there {ideal_s:.0f} s "
        f"({done.makespan_s / ideal_s - 1:+.1%})"
    )
    show_doubles(root, plan)


if __name__ == "__main__":
    main()
