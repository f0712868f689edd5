"""Variables that make results up are found wherever they are set, and refused unless named."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.scenarios.faked_check import check_faked
from orchestrator.sglang.faked_results import faked_in_account, faked_in_env, faked_in_words, is_faking
from tests.orchestrator.scenario_samples import small_scenario

LENGTH = "SGLANG_SIMULATE_ACC_LEN"


@pytest.mark.parametrize(
    "words",
    [
        ("env", f"{LENGTH}=3.5", "python"),
        ("docker", f"-e{LENGTH}=3"),
        ("docker", "-e", f"{LENGTH}=3"),
        ("docker", "--env", f"{LENGTH}=3"),
        ("docker", f"--env={LENGTH}=3"),
        ("sh", "-c", f"export {LENGTH}='3'; exec python -m sglang.launch_server"),
    ],
)
def test_a_command_that_sets_one_is_found(words: tuple[str, ...]) -> None:
    found = faked_in_words(words)

    assert found is not None
    assert LENGTH in words[found[0]]
    assert found[1] == LENGTH
    assert faked_in_words(words, {LENGTH}) is None


def test_words_that_only_look_like_one_are_not() -> None:
    assert faked_in_words((f"MY_{LENGTH}=3", LENGTH, f"{LENGTH}=-1", f"--note={LENGTH}")) is None


def test_one_that_is_switched_off_makes_nothing_up() -> None:
    assert not is_faking(LENGTH, "-1")
    assert not is_faking("SGLANG_SIMULATE_UNIFORM_EXPERTS", "false")
    assert is_faking("SGLANG_SIMULATE_UNIFORM_EXPERTS", "1")
    assert is_faking(LENGTH, "2.5")
    assert not is_faking("SGLANG_LOG_MS", "1")


def test_an_environment_and_an_account_tell_the_first_that_is_not_allowed() -> None:
    env = {"PATH": "/bin", LENGTH: "3", "SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS": "true"}
    account = {"version": "0.5.23", "internal_states": [{"memory_usage": {}}, {"env_vars": env}]}

    assert faked_in_env(env) == LENGTH
    assert faked_in_env(env, {LENGTH}) == "SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS"
    assert faked_in_account(account) == LENGTH
    assert faked_in_account(account, set(env)) is None
    assert faked_in_account({"version": "0.5.23"}) is None


ENGINE: dict[str, Any] = {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}}


def test_a_setting_that_is_a_variable_is_found_with_its_place() -> None:
    scenario = small_scenario()
    settings = {**scenario.engine.settings, f"env.{LENGTH}": 3}
    engine = scenario.engine.model_copy(update={"settings": settings})
    found = check_faked(scenario.model_copy(update={"engine": engine}))
    axes = {f"env.{LENGTH}": ["-1", "4"]}
    varied = check_faked(scenario.model_copy(update={"sweep": scenario.sweep.model_copy(update={"axes": axes})}))

    assert found is not None
    assert found[0] == ("engine", "settings", f"env.{LENGTH}")
    assert varied is not None
    assert varied[0] == ("sweep", "axes", f"env.{LENGTH}")


def test_what_is_allowed_reaches_the_host() -> None:
    scenario = small_scenario(engine={**ENGINE, "env": {LENGTH: "3"}, "allow_faked": [LENGTH]})
    trial = make_plan(scenario, 1).trials[0]

    assert launch_spec(scenario, "run-7", trial).allow_faked == (LENGTH,)
