"""Whether a scenario is the one that a run was asked."""

from __future__ import annotations

from orchestrator.redaction import storable
from orchestrator.run_files.run_manifest import differing_keys
from orchestrator.scenarios.scenario import Scenario
from tests.orchestrator.scenario_samples import small_scenario


def stored(scenario: Scenario) -> Scenario:
    return Scenario.model_validate(storable(scenario))


def test_a_scenario_is_the_one_that_was_asked_but_for_its_secrets() -> None:
    engine = {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}}
    asked = small_scenario(engine={**engine, "env": {"HF_TOKEN": "hf_one"}})
    again = small_scenario(engine={**engine, "env": {"HF_TOKEN": "hf_two"}})

    assert stored(asked).engine.env != asked.engine.env
    assert differing_keys(again, stored(asked)) == ()


def test_another_one_is_told_by_the_keys_that_differ() -> None:
    other = small_scenario(seed=7, timeouts={"stop_s": 90.0})

    assert differing_keys(other, stored(small_scenario())) == ("seed", "timeouts")
