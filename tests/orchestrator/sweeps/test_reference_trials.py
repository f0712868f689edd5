"""One config on every host, at the beginning and at the end of long blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sweeps.reference_trials import ReferenceTrials, reference_config
from orchestrator.sweeps.run_conductor import missing_work, run_conductor
from orchestrator.trial import Trial
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import conducted_on

EIGHT = small_scenario(sweep={"axes": {"speculative_num_steps": list(range(8))}})


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def references(scenario: Scenario, trials: int, done: frozenset[str] = frozenset(), **numbers: int) -> ReferenceTrials:
    return ReferenceTrials(scenario, {"": trials}, numbers, lambda trial: trial.trial_id in done)


def repeats(*trials: Trial | None) -> list[int | None]:
    return [None if trial is None else trial.repeat for trial in trials]


def test_auto_wants_two_hosts_with_four_trials_each() -> None:
    assert references(EIGHT, 8).first("a", "", ["a", "b"]) is not None
    assert references(EIGHT, 8).first("a", "", ["a"]) is None
    assert references(EIGHT, 7).first("a", "", ["a", "b"]) is None


def test_every_host_gets_one_of_its_own_number_and_only_once() -> None:
    of = references(EIGHT, 8)

    asked = [of.first(host, "", ["a", "b"]) for host in ("a", "b", "a", "late")]
    assert repeats(*asked) == [1000, 1002, None, 1004]
    assert {trial.config.speculation_depth for trial in asked if trial} == {0}


def test_only_a_block_longer_than_two_hours_is_ended_with_another() -> None:
    clock = Clock()
    of = ReferenceTrials(EIGHT, {"": 8}, {}, lambda trial: False, clock)
    of.first("a", "", ["a", "b"])
    clock.now_s = 7199.0
    assert of.last("a", "") is None
    clock.now_s = 7200.0
    assert repeats(of.last("a", ""), of.last("a", ""), of.last("b", "")) == [1001, None, None]


def test_a_resumed_run_keeps_the_numbers_of_hosts_and_measures_no_reference_twice() -> None:
    first = references(EIGHT, 8).first("b", "", ["a", "b"])
    assert first is not None
    again = references(EIGHT, 1, frozenset({first.trial_id}), b=0)

    assert repeats(again.first("b", "", ["b"]), again.first("c", "", ["b", "c"])) == [None, 1002]


def test_settings_name_the_reference_and_off_turns_it_off() -> None:
    of_four = small_scenario(measure={"duration_s": 5, "reference": {"speculative_num_steps": 4}})
    off = small_scenario(measure={"duration_s": 5, "reference": False})
    config = reference_config(of_four)

    assert config is not None
    assert config.speculation_depth == 4
    assert references(of_four, 1).first("a", "", ["a"]) is not None
    assert reference_config(off) is None
    assert references(off, 99).first("a", "", ["a", "b"]) is None


def test_a_reference_that_cannot_be_served_is_refused_at_its_key() -> None:
    with pytest.raises(BadInput, match=r"measure\.reference\.speculative_num_steps"):
        small_scenario(measure={"duration_s": 5, "reference": {"speculative_num_steps": "many"}})


def slots(*hosts: str) -> list[FakeSlot]:
    return [FakeSlot(f"{host}/{i}", host=host, pause_s=0.005) for host in hosts for i in range(2)]


def test_a_run_on_two_hosts_measures_the_reference_on_each_and_one_on_a_single_host_does_not(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "two", EIGHT)
    result = conducted_on(run, EIGHT, slots("east", "west"))
    run.close(complete=result.complete)

    assert result.complete
    trials = dataset.read_rows(run.paths, "trials")
    found = {(t["host"], t["repeat"]) for t in trials if t["repeat"] >= 1000}
    assert {host for host, _ in found} == {"east", "west"}
    assert {repeat for _, repeat in found} == {1000, 1002}
    assert len(trials) == 8 + 2
    again = RunDirectory.reopen(run.paths.root, EIGHT)
    assert again.state.of_search.blocks == {host: (repeat - 1000) // 2 for host, repeat in found}
    assert not missing_work(EIGHT, again, run_conductor(EIGHT, again))
    again.close(complete=True)

    single = RunDirectory.create(tmp_path / "one", EIGHT)
    conducted_on(single, EIGHT, slots("east"))
    assert len(dataset.read_rows(single.paths, "trials")) == 8
