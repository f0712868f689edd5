"""A search that is resumed stands where it stood: each trial is scored and told once, the questions are the same."""

from __future__ import annotations

import io
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.planning.trial_launch import launch_spec
from orchestrator.reports.report_search import asked_once
from orchestrator.run_files.point_table import measured_points
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.searches.halving_search import HalvingSearch
from orchestrator.searches.search import Ask, Broken, Dead, ObjectiveValue, Scored, Search, Step, Told
from orchestrator.searches.search_of import search_of
from orchestrator.sweeps import run_command, trial_score
from orchestrator.sweeps.run_command import RunRequest
from orchestrator.sweeps.run_conductor import missing_work, run_conductor, run_references
from orchestrator.sweeps.sweep import Sweep, SweepResult
from tests.fakes.killable_sweep import Silent
from tests.fakes.playoff import deeper_is_faster
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import conducted_on

AXES = {"speculative_num_steps": [1, 2, 3, 5], "max_running_requests": [16, 32, 64, 128]}
SCENARIOS: dict[str, Scenario] = {
    "halving": small_scenario(search={"method": "halving", "finalists": 2, "max_repeats": 4}, sweep={"axes": AXES}),
    "ceiling": small_scenario(
        search={"method": "ceiling", "knobs": ["max_running_requests"], "verify": 2}, sweep={"axes": AXES}
    ),
    "boundary": small_scenario(
        search={"method": "ceiling", "knobs": ["max_running_requests", "speculative_num_steps"]}, sweep={"axes": AXES}
    ),
    "optuna": small_scenario(
        search={"method": "optuna", "budget_trials": 16, "best": 2, "best_repeats": 2},
        sweep={"axes": AXES, "exclude": [{"max_running_requests": 128, "speculative_num_steps": [2, 5]}]},
    ),
}


def fate(seed: int, key: tuple[str, int], ask: Ask) -> Told:
    """What a start comes to in one truth: by its own number only, whenever it is made."""
    at = ask.config.as_dict()
    draw = random.Random(f"{seed} {key}")
    most = 2 ** random.Random(seed).randint(5, 10)
    if at["speculative_num_steps"] * at["max_running_requests"] > most or draw.random() < 0.03:
        return Dead("oom_graph_target", f"out of memory at start {key[1]}")
    value = 100 * math.exp(draw.gauss(0, 0.02) - 0.02 * abs(at["speculative_num_steps"] - 3))
    return Scored(f"host{draw.randint(0, 1)}", {"fast": ObjectiveValue(value)})


def resumed(scenario: Scenario, asked: list[Ask], told: dict[tuple[str, int], Told], before: Search) -> Search:
    """As a new driver finds the run: what was asked, in that order, with its result if it has one."""
    again = search_of(scenario, before=before.steps)
    for ask in asked:
        if ask.key in told:
            again.tell(ask.config, ask.repeat, told[ask.key])
        else:
            again.recall(ask.config, ask.repeat)
    return again


def compare_with_resumed(scenario: Scenario, seed: int, slots: int, moments: int) -> int:
    """Run a search to its end; at so many moments a resumed one is asked the same. Returns how many starts it took."""
    search, order = search_of(scenario), random.Random(f"order {seed}")
    asked: list[Ask] = [*search.ask(slots)]
    told: dict[tuple[str, int], Told] = {}
    stops = set(random.Random(f"stops {seed}").sample(range(1, 40), moments))
    while not search.done:
        ended = order.choice([ask for ask in asked if ask.key not in told])
        told[ended.key] = fate(seed, ended.key, ended)
        search.tell(ended.config, ended.repeat, told[ended.key])
        under_way = [ask.key for ask in asked if ask.key not in told]
        again = resumed(scenario, asked, told, search) if len(told) in stops else None
        fresh = search.ask(slots)
        if again is not None:
            assert [ask.key for ask in again.ask(slots)] == under_way + [ask.key for ask in fresh]
            assert again.done == search.done
        asked += fresh
    assert len({ask.key for ask in asked}) == len(asked) == len(told)
    whole = resumed(scenario, asked, told, search)
    assert whole.done
    assert whole.ask(slots) == ()
    return len(asked)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(["ceiling", "boundary"]))
def test_a_resumed_ceiling_asks_what_it_would_have_asked(seed: int, slots: int, name: str) -> None:
    compare_with_resumed(SCENARIOS[name], seed, slots, moments=12)


@pytest.mark.parametrize(
    ("name", "seed", "slots"), [("halving", 1, 1), ("halving", 2, 4), ("optuna", 3, 1), ("optuna", 4, 3)]
)
def test_a_resumed_search_asks_what_it_would_have_asked(name: str, seed: int, slots: int) -> None:
    assert compare_with_resumed(SCENARIOS[name], seed, slots, moments=14) >= 10


def test_what_was_on_its_way_is_asked_again_once_and_what_broke_only_if_it_is_wanted() -> None:
    search = search_of(SCENARIOS["ceiling"])
    first, second = search_of(SCENARIOS["ceiling"]).ask(2)
    search.recall(first.config, 0)
    search.recall(second.config, 0, broke=True)

    assert [ask.why for ask in search.ask(1)] == ["asked before"]
    assert [ask.why for ask in search.ask(2)] == ["probe max_running_requests=64"]

    search.recall(first.config, 1)
    search.tell(first.config, 1, Broken("told meanwhile"))
    assert search.ask(2) == ()


def sweep_with(run: RunDirectory, scenario: Scenario, conductor: Any, slot: FakeSlot) -> SweepResult:
    plan = run.plan(scenario, [""])
    sweep = Sweep(plan, [slot], run, lambda t: launch_spec(scenario, "run", t), Silent())
    sweep.follow(conductor, run_references(scenario, run, plan))
    return sweep.run()


def test_a_resumed_run_scores_and_tells_each_trial_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = small_scenario(search="halving", sweep={"axes": {"speculative_num_steps": [0, 1, 2, 3]}})
    run = RunDirectory.create(tmp_path / "run", scenario)
    first = FakeSlot("a", slowness=deeper_is_faster, pause_s=0.002)

    def stop_at_sixth(sweep: Sweep) -> None:
        first.on_point = lambda _: sweep.cancel() if len(first.measured) == 6 else None

    assert conducted_on(run, scenario, [first], before=stop_at_sixth).cancelled
    run.close(complete=False)

    scored, told, best = Counter[str](), Counter[tuple[str, int]](), list[float]()
    of_search = HalvingSearch.tell

    def counted(paths: Any, of: Any, configs: Any, rows: Any, attempts: Any) -> Any:
        scored.update(attempts.keys())
        return measured_points(paths, of, configs, rows, attempts)

    def heard(search: HalvingSearch, config: Any, repeat: int, what: Told) -> None:
        told[config.config_id, repeat] += 1
        of_search(search, config, repeat, what)

    def on_cluster(scenario: Any, directory: RunDirectory, done: Any, use: Any, *_: Any) -> SweepResult:
        use.conductor.take_classes()  # as when slots are granted
        (race,) = use.conductor._races.values()
        best.append(race.leaders["fast"][1])
        return sweep_with(directory, scenario, use.conductor, FakeSlot("b", slowness=deeper_is_faster))

    monkeypatch.setattr(trial_score, "measured_points", counted)
    monkeypatch.setattr(HalvingSearch, "tell", heard)
    monkeypatch.setattr(run_command, "sweep_on_cluster", on_cluster)
    run_command.run(RunRequest(None, None, resume=tmp_path / "run"), Console(file=io.StringIO()))

    finished = RunDirectory.reopen(tmp_path / "run", scenario)
    asked = {(one.config.config_id, one.repeat) for one in finished.asked.all}
    assert told == Counter(asked)
    assert best == [pytest.approx(160, rel=0.1)]  # of what the first start of the run measured
    assert scored == Counter(finished.state.done_points.keys())
    assert not missing_work(scenario, finished, run_conductor(scenario, finished))
    finished.close(complete=True)


def test_what_a_search_decided_is_there_for_the_next_start_with_the_draw_that_it_speaks_of(tmp_path: Path) -> None:
    steps = (
        Step("refused", "a=1 is not started: is excluded", facts={"draw": {"a": 1}}),
        Step("screen", "1 not started", {"c": "why"}),
    )
    run = RunDirectory.create(tmp_path / "run", SCENARIOS["optuna"])
    for step in steps:
        run.asked.step(step, "")
    run.asked.step(Step("exhausted", "elsewhere"), "8x B200")
    run.close(complete=False)
    again = RunDirectory.reopen(tmp_path / "run", SCENARIOS["optuna"])

    assert again.asked.steps_of("") == steps
    again.close(complete=False)


def test_a_run_that_learns_of_classes_with_its_slots_has_a_search_for_each_and_keeps_those_it_has(
    tmp_path: Path,
) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIOS["ceiling"])
    conductor = run_conductor(SCENARIOS["ceiling"], run)
    assert conductor is not None
    run.keep_classes(["4x L4", "8x B200"])
    conductor.take_classes()
    (of_l4, of_b200) = conductor._races.values()
    conductor.take_classes()

    assert list(conductor._races) == ["4x L4", "8x B200"]
    assert list(conductor._races.values()) == [of_l4, of_b200]
    run.close(complete=False)


def test_a_start_that_was_asked_for_again_is_one_start_in_the_report() -> None:
    first: dict[str, Any] = {"event": "trial_asked", "config_id": "c", "repeat": 0, "why": "first start"}
    events: list[dict[str, Any]] = [
        first,
        {"event": "run_resumed"},
        {**first, "why": "asked before"},
        {**first, "repeat": 1},
    ]

    assert [(event["repeat"], event["why"]) for event in asked_once(events)] == [(0, "first start"), (1, "first start")]
    assert len(asked_once([first, {**first, "host_class": "8x B200"}])) == 2
