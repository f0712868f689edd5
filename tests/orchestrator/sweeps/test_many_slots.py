"""Simulations of a whole sweep: the virtual clock, what the best order could do, and how near the driver comes."""

from __future__ import annotations

import itertools
import math
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.list_schedule import Machine, list_schedule_s, longest_first_s, lower_bound_s
from benchmarks.simulated_slot import true_times
from benchmarks.simulated_sweep import Losses, Stage, simulate, slots_on_hosts, swept_scenario
from benchmarks.virtual_clock import VirtualClock
from orchestrator.planning.planner import make_plan
from orchestrator.run_files.journal import read_events
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.slots.slot_port import SlotFacts


def in_threads(clock: VirtualClock, works: dict[str, list[float]]) -> list[tuple[float, str]]:
    """Each thread sleeps so long again and again; when each woke, in the order of waking."""
    woke: list[tuple[float, str]] = []

    def work(name: str) -> None:
        clock.enter()
        for seconds in works[name]:
            clock.sleep(seconds)
            woke.append((clock.now_s, name))
        clock.leave(name)

    for name in works:
        clock.expect(name)
    threads = [threading.Thread(target=work, args=(name,), name=name) for name in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return woke


def test_threads_wake_in_the_order_of_virtual_time_and_at_once_in_the_order_in_which_they_were_expected() -> None:
    woke = in_threads(VirtualClock(), {"b": [5.0, 1.0], "a": [2.0, 3.0], "c": [5.0]})

    assert woke == [(2.0, "a"), (5.0, "b"), (5.0, "a"), (5.0, "c"), (6.0, "b")]


def test_a_waiter_runs_when_it_is_notified_or_when_its_time_is_over_and_no_sooner() -> None:
    clock = VirtualClock()
    condition = clock.condition()
    woke: list[tuple[str, float]] = []

    def wait(name: str, timeout: float | None) -> None:
        with condition:
            condition.wait(timeout)
            woke.append((name, clock.now_s))
        clock.leave(name)

    def notify() -> None:
        clock.enter()
        clock.sleep(10.0)
        with condition:
            condition.notify_all()
        clock.leave("notifier")

    for name in ("long", "short", "notifier"):
        clock.expect(name)
    threads = [
        threading.Thread(target=wait, args=("long", None), name="long"),
        threading.Thread(target=wait, args=("short", 3.0), name="short"),
        threading.Thread(target=notify, name="notifier"),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert woke == [("short", 3.0), ("long", 10.0)]


durations = st.lists(st.integers(1, 20).map(float), min_size=1, max_size=6)


def optimum_s(jobs: list[float], machines: int) -> float:
    """By trying every assignment."""
    return min(
        max(sum(job for job, on in zip(jobs, chosen, strict=True) if on == machine) for machine in range(machines))
        for chosen in itertools.product(range(machines), repeat=len(jobs))
    )


@settings(max_examples=60, deadline=None)
@given(durations, st.integers(1, 3))
def test_no_schedule_is_below_the_bound_and_longest_first_is_within_a_third_of_the_best(
    jobs: list[float], machines: int
) -> None:
    best = optimum_s(jobs, machines)

    assert lower_bound_s(jobs, machines) <= best <= longest_first_s(jobs, machines)
    assert longest_first_s(jobs, machines) <= best * (4 / 3) + 1e-9


@pytest.mark.parametrize(
    ("machines", "makespan_s"),
    [
        ([Machine(), Machine()], 7.0),  # 5 | 3 + 4
        ([Machine(), Machine(until_s=4.0)], 9.0),  # 5, then 4 once more | 3
        ([Machine(), Machine(from_s=6.0)], 10.0),  # 5 + 3 | 4 from 6 on
        ([Machine(until_s=4.0)], math.inf),
    ],
)
def test_a_list_schedule_uses_machines_while_they_are_there(machines: list[Machine], makespan_s: float) -> None:
    assert list_schedule_s([5.0, 3.0, 4.0], machines) == makespan_s


SCENARIO = swept_scenario(
    {"speculative_num_steps": [0, 1, 2, 3], "max_running_requests": [8, 64, 128, 192, 256]}, repeats=4, levels=[1]
)
PLAN = make_plan(SCENARIO, 12)
FACTS = slots_on_hosts(12, 4)
TIMES = true_times(SCENARIO, PLAN.trials, 1)


def test_the_end_of_a_sweep_is_at_most_three_percent_after_the_ideal_list_schedule_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    done = simulate(PLAN, SCENARIO, run, Stage(FACTS, TIMES))
    run.close(complete=done.result.complete)

    durations_s = [taken.total_s for taken in TIMES.values()]
    assert done.result.complete
    assert lower_bound_s(durations_s, 12) <= done.makespan_s <= 1.03 * longest_first_s(durations_s, 12)
    launched = Counter(trial for slot in done.slots for trial in slot.launched)
    assert launched == dict.fromkeys((trial.trial_id for trial in PLAN.trials), 1)
    assert len(launched) == 80
    assert sum(slot.busy_s for slot in done.slots) == pytest.approx(sum(durations_s))


def test_lost_hosts_cost_their_running_trials_only_and_slots_that_join_help(tmp_path: Path) -> None:
    losses = Losses(hosts={"h1": 500.0}, slots={"h0/0": 300.0})
    stage = Stage(FACTS, TIMES, losses=losses, joining=[SlotFacts("new/0", "new", ("0",))], join_at_s=400.0)
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    done = simulate(PLAN, SCENARIO, run, stage)
    run.close(complete=done.result.complete)

    counted = Counter(e["point_id"] for e in read_events(run.paths.journal) if e["event"] == "point_done")
    assert done.result.complete
    assert counted == dict.fromkeys((p.point_id for t in PLAN.trials for p in t.points), 1)
    launched = Counter(trial for slot in done.slots for trial in slot.launched)
    assert sum(launched.values()) == 80 + 4  # what ran on the four slots that went
    assert len(done.slots[-1].launched) > 3
