"""A whole sweep in one process and in virtual time; all but the slots is the product's own code."""

from __future__ import annotations

import contextlib
import io
import math
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from rich.console import Console

from benchmarks.list_schedule import Machine
from benchmarks.simulated_slot import SimulatedSlot, Traffic, TrialTimes
from benchmarks.virtual_clock import VirtualClock
from orchestrator.happening import Happening, SlotEnded
from orchestrator.planning.planner import Plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import scenario_from_tree
from orchestrator.scenarios.yaml_tree import YamlTree
from orchestrator.server_start import LaunchSpec
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.sweeps import sweep as sweep_module
from orchestrator.sweeps import trial_queue
from orchestrator.sweeps.start_memory import StartMemory
from orchestrator.sweeps.sweep import Sweep, SweepResult, Watcher
from orchestrator.trial import Trial
from orchestrator.watching.progress import Progress

_SAMPLE_EVERY = 500
_JOINER = "those that join"


def swept_scenario(axes: Mapping[str, list[Any]], repeats: int, levels: list[int]) -> Scenario:
    """A scenario of an emulated model with these axes; a trial has a point for each level."""
    tree = {
        "name": "many-slots",
        "model": {"path": "org/model", "bundled_draft": True},
        "engine": {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}},
        "sweep": {"axes": dict(axes)},
        "slots": {"gpus": 1, "emulated_gpus": 8},
        "workloads": [{"name": "chat", "concurrency": levels}],
        "measure": {"duration_s": 30, "repeats": repeats},
        "objectives": [{"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": levels[0]}}],
    }
    return scenario_from_tree(YamlTree("many_slots.yaml", tree))


@dataclass(frozen=True, slots=True)
class Losses:
    """When hosts and single slots go, by name; a host takes all its slots with it. Seconds."""

    hosts: Mapping[str, float] = field(default_factory=dict)
    slots: Mapping[str, float] = field(default_factory=dict)

    def at_s(self, facts: SlotFacts) -> float:
        return min(self.hosts.get(facts.host, math.inf), self.slots.get(facts.name, math.inf))


NO_LOSSES, FEW_ROWS = Losses(), Traffic()


def slots_on_hosts(count: int, hosts: int) -> list[SlotFacts]:
    """`count` slots, spread evenly over so many hosts."""
    per_host = -(-count // hosts)
    return [
        SlotFacts(f"h{i // per_host}/{i % per_host}", f"h{i // per_host}", (str(i % per_host),)) for i in range(count)
    ]


@dataclass
class Cost:
    """What the driver's loop spent by kind of happening: CPU ns of its one thread, and how many there were."""

    cpu_ns: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    rss_mib: list[float] = field(default_factory=list)
    most_fds: int = 0

    @property
    def total_events(self) -> int:
        return sum(self.events.values())

    @property
    def us_per_event(self) -> float:
        return sum(self.cpu_ns.values()) / 1e3 / max(self.total_events, 1)


class CostMeter:
    """The outermost Watcher: what the loop's thread spent since the last happening goes to this one."""

    def __init__(self, watcher: Watcher, clock: VirtualClock) -> None:
        self.cost = Cost()
        self.makespan_s = 0.0
        self._watcher = watcher
        self._clock = clock
        self._before_ns = time.thread_time_ns()

    def saw(self, slot: str, happening: Happening) -> None:
        self._watcher.saw(slot, happening)
        if isinstance(happening, SlotEnded):
            self.makespan_s = max(self.makespan_s, self._clock.now_s)
            self._clock.leave(slot)
        kind, cost, now_ns = type(happening).__name__, self.cost, time.thread_time_ns()
        cost.cpu_ns[kind] += now_ns - self._before_ns
        cost.events[kind] += 1
        if cost.total_events % _SAMPLE_EVERY == 1:
            cost.rss_mib.append(rss_mib())
            cost.most_fds = max(cost.most_fds, sum(1 for _ in Path("/proc/self/fd").iterdir()))
        self._before_ns = time.thread_time_ns()


@dataclass(frozen=True)
class Simulated:
    """How a simulated sweep went. `cpu_s` and `wall_s` are real, `makespan_s` is virtual."""

    result: SweepResult
    makespan_s: float
    cost: Cost
    cpu_s: float
    wall_s: float
    slots: list[SimulatedSlot]


class _Instead:
    """A module of the standard library of which some names are others."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self._module = module
        self.__dict__ |= names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextlib.contextmanager
def in_virtual_time(clock: VirtualClock) -> Iterator[None]:
    """The product waits for conditions and reads the time by this clock."""
    with (
        patch.object(trial_queue, "threading", _Instead(threading, Condition=clock.condition)),
        patch.object(sweep_module, "time", _Instead(time, monotonic=lambda: clock.now_s)),
    ):
        yield


@dataclass(frozen=True, slots=True)
class Stage:
    """The slots of a simulation, what trials really take there, and what becomes of slots. Some join at `join_at_s`."""

    facts: Sequence[SlotFacts]
    times: Mapping[str, TrialTimes]
    traffic: Traffic = FEW_ROWS
    losses: Losses = NO_LOSSES
    joining: Sequence[SlotFacts] = ()
    join_at_s: float = 0.0

    def slots(self, clock: VirtualClock, facts: Sequence[SlotFacts]) -> list[SimulatedSlot]:
        return [SimulatedSlot(f, clock, self.times, self.traffic, self.losses.at_s(f)) for f in facts]

    @property
    def machines(self) -> list[Machine]:
        """For a list schedule of the same."""
        there = [Machine(0.0, self.losses.at_s(f)) for f in self.facts]
        return there + [Machine(self.join_at_s, self.losses.at_s(f)) for f in self.joining]


def simulate(plan: Plan, scenario: Scenario, run: RunDirectory, stage: Stage) -> Simulated:
    """Run the plan to its end on simulated slots; the same makespan each time."""
    clock = VirtualClock()
    for slot in stage.facts:
        clock.expect(slot.name)
    slots, late = stage.slots(clock, stage.facts), stage.slots(clock, stage.joining)
    progress = Progress(plan, [f.name for f in stage.facts], Console(file=io.StringIO()))
    memory = StartMemory(scenario, (), progress)
    meter = CostMeter(memory, clock)
    began_s, began_cpu_s = time.perf_counter(), cpu_seconds()
    with in_virtual_time(clock):
        sweep = Sweep(plan, list(slots), run, lambda t: _spec(scenario, run, memory, t), meter)
        if late:
            _join_later(clock, sweep, late, stage.join_at_s)
        result = sweep.run()
    slots += late
    return Simulated(
        result, meter.makespan_s, meter.cost, cpu_seconds() - began_cpu_s, time.perf_counter() - began_s, slots
    )


def _join_later(clock: VirtualClock, sweep: Sweep, late: Sequence[SimulatedSlot], at_s: float) -> None:
    """A thread of the simulation that does what a watcher of hosts does."""

    def work() -> None:
        clock.enter()
        clock.sleep_until(at_s)
        for slot in late:
            clock.expect(slot.facts.name)
            if not sweep.join(slot):
                clock.leave(slot.facts.name)
        clock.leave(_JOINER)

    clock.expect(_JOINER)
    threading.Thread(target=work, name=_JOINER, daemon=True).start()


def _spec(scenario: Scenario, run: RunDirectory, memory: StartMemory, trial: Trial) -> LaunchSpec:
    return replace(launch_spec(scenario, run.run_id, trial), phase_budgets=memory.budgets(trial))


def cpu_seconds() -> float:
    """CPU seconds of this process so far, kernel included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_mib() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
