"""The keys of `nightly`: what a build is, and what is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import BadInput, ScenarioError
from orchestrator.nights.night_terms import night_build
from orchestrator.planning.planner import make_plan, trial_of
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.redaction import holds_secrets, storable
from orchestrator.scenarios.engine_build import engine_of, image_of
from orchestrator.scenarios.night_scenario import is_self_test, night_scenario
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import build_pairs, expand
from tests.orchestrator.night_samples import nightly_scenario
from tests.orchestrator.scenario_samples import small_scenario

DOCKER = ["docker", "run", "--ipc", "host", "--shm-size", "32g", "lmsysorg/sglang:v0.5.15", "python3", "-m",
          "sglang.launch_server"]  # fmt: skip
REAL: dict[str, Any] = {"slots": {"gpus": 1}}


def real(nightly: dict[str, Any], **engine: Any) -> Scenario:
    settings = {"speculative_algorithm": "NEXTN"}
    return small_scenario(
        **REAL, engine={"kind": "sglang", "settings": settings, **engine}, nightly={"reference": {}, **nightly}
    )


def refused(nightly: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(ScenarioError) as told:
        nightly_scenario(nightly, **changes)
    return f"{told.value.key}: {told.value.message}"


def test_a_config_without_a_build_has_the_id_that_it_always_had() -> None:
    scenario = small_scenario()

    assert [config.config_id for config in expand(scenario)] == ["e8f8280e478c", "c31c92fce43f", "f705b2cbab14"]
    assert "build" not in next(iter(expand(scenario))).as_dict()


def test_both_builds_of_a_config_are_configs_of_one_run_and_none_of_them_is_the_one_without() -> None:
    scenario = night_scenario(nightly_scenario())

    reference, candidate = expand(scenario)
    (pair,) = build_pairs(scenario)
    assert (reference.build, candidate.build) == ("reference", "candidate")
    assert reference.settings == candidate.settings
    assert pair.config_id == "f705b2cbab14"
    assert len({pair.config_id, reference.config_id, candidate.config_id}) == 3


def test_a_build_adds_to_the_engine_and_the_launch_of_each_config_is_that_of_its_build() -> None:
    given = nightly_scenario(
        {"candidate": {"env": {"A": "2", "B": "3"}, "settings": {"page_size": 16}, "extra_args": ["--x"]}},
        engine={"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}, "env": {"A": "1"},
                "extra_args": ["--y"]},
    )  # fmt: skip
    scenario = night_scenario(given)
    (pair,) = build_pairs(scenario)
    specs = {config.build: launch_spec(scenario, "run", trial_of(scenario, config, None, 0)) for config in pair.members}

    assert specs["reference"].extra_args[:2] == ("--y", "--reference")
    assert specs["candidate"].extra_args[:2] == ("--y", "--x")
    assert specs["reference"].env == (("A", "1"),)
    assert specs["candidate"].env == (("A", "2"), ("B", "3"))
    assert dict(specs["candidate"].settings)["page_size"] == 16
    assert "page_size" not in dict(specs["reference"].settings)


def test_an_image_takes_the_place_of_the_one_in_the_command_and_nothing_else_changes() -> None:
    scenario = real({"candidate": {"image": "registry/sglang@sha256:abc"}}, command=DOCKER, version="0.5.15")

    engine = engine_of(scenario, "candidate")
    assert engine.command == [*DOCKER[:6], "registry/sglang@sha256:abc", *DOCKER[7:]]
    assert image_of(engine.command) == "registry/sglang@sha256:abc"
    assert engine.version is None  # that of another image says nothing
    assert engine_of(scenario, "reference") == scenario.engine


def test_a_build_is_kept_with_all_that_is_its_own_and_without_secrets() -> None:
    own = {"extra_args": ["--api-key", "sk-secret", "--log-level", "warning"], "settings": {"page_size": 16},
           "env": {"HF_TOKEN": "hf-secret", "X": "1"}}  # fmt: skip
    scenario = real({"reference": {}, "candidate": {"image": "sglang:b", **own}}, command=DOCKER, version="0.5.15")

    assert dict(night_build(scenario, "candidate", {"sglang": "0.5.16", "torch": "2.10.0"}).facts) == {
        "sglang": "0.5.16",
        "torch": "2.10.0",
        "engine": "sglang",
        "image": "sglang:b",
        "command": " ".join([*DOCKER[:6], "IMAGE", *DOCKER[7:]]),
        "arguments": "--api-key *** --log-level warning",
        "settings": "page_size=16",
        "environment": "HF_TOKEN=*** X=1",
    }
    reference = dict(night_build(scenario, "reference", {}).facts)
    assert (reference["arguments"], reference["settings"], reference["environment"]) == ("none", "none", "none")


def test_measurements_of_two_images_are_never_taken_for_each_other() -> None:
    def ids(image: str) -> set[str]:
        scenario = night_scenario(real({"candidate": {"image": image}}, command=DOCKER))
        trials = [trial_of(scenario, config, None, 0) for config in expand(scenario)]
        return {point.point_id for trial in trials for point in trial.points}

    assert len(ids("a:1") | ids("a:2")) == 6  # of 2 points each: the reference, which is the same, and two candidates
    assert len(ids("a:1")) == 4


def test_each_build_is_checked_against_its_own_release() -> None:
    axes = {"axes": {"speculative_dspark_block_size": [4]}}
    with pytest.raises(ScenarioError) as told:
        small_scenario(
            **REAL,
            engine={"kind": "sglang", "settings": {}},
            sweep=axes,
            nightly={"reference": {"version": "0.5.9"}, "candidate": {}},
        )

    assert "is no option of SGLang 0.5.9 (there from 0.5.19" in told.value.message
    assert "(as nightly.reference has it)" in told.value.message


def test_a_setting_of_a_build_is_told_where_the_build_gives_it() -> None:
    told = refused({"candidate": {"settings": {"no_such_option": 1}}})

    assert told.startswith("nightly.candidate.settings.no_such_option: is not an SGLang")


@pytest.mark.parametrize(
    ("nightly", "message"),
    [
        ({"pairs": 4, "most_pairs": 3}, "nightly.most_pairs: is 3, below pairs (4)"),
        ({"metrics": ["output_throughput"]}, "nightly.metrics[0]: 'output_throughput' is not a metric; did you mean"),
        ({"metrics": ["window_s"]}, "nightly.metrics[0]: 'window_s' has no better side"),
        ({"metrics": ["goodput_rps"]}, "nightly.metrics[0]: 'goodput_rps' needs the `slo` of a workload"),
        ({"floors": {"kv_token": 0.1}}, "nightly.floors.kv_token: is no metric that is compared"),
        ({"configs": []}, "nightly.configs: is empty"),
        ({"configs": [{"speculative_num_stepz": 1}]}, "nightly.configs[0].speculative_num_stepz: "),
        ({"candidate": {"image": "a:1"}}, "nightly.candidate.image: replaces the image of engine.command, which runs"),
        ({"candidate": {"image": "a", "command": ["b"]}}, "nightly.candidate.image: and command are given"),
        ({"candidate": {"env": {"SGLANG_SIMULATE_ACC_LEN": "3"}}}, "nightly.candidate.env.SGLANG_SIMULATE_ACC_LEN: "),
    ],
)
def test_what_cannot_be_right_is_refused_with_its_place(nightly: dict[str, Any], message: str) -> None:
    assert refused(nightly).startswith(message)


def test_a_fault_script_is_for_the_emulator_only() -> None:
    with pytest.raises(ScenarioError, match=r"nightly\.candidate\.faults: is for the emulator"):
        real({"candidate": {"faults": "x.yaml"}})


def test_pairs_without_builds_are_refused() -> None:
    with pytest.raises(ScenarioError, match="measures the two builds of `nightly`"):
        small_scenario(search="pairs")


def test_a_night_without_the_key_or_with_one_build_only_says_what_to_give() -> None:
    with pytest.raises(BadInput, match="scenario small has no `nightly`: give the key"):
        night_scenario(small_scenario())
    with pytest.raises(BadInput, match="--self-test to see that no difference is found"):
        night_scenario(nightly_scenario({"candidate": {"extra_args": ["--reference"]}}))


def test_a_self_test_compares_the_reference_with_itself() -> None:
    scenario = night_scenario(nightly_scenario(), self_test=True)

    assert is_self_test(scenario)
    assert not is_self_test(nightly_scenario())


def test_an_ordinary_run_takes_no_notice_of_nightly() -> None:
    with_key = nightly_scenario()
    without = with_key.model_copy(update={"nightly": None})

    assert make_plan(with_key, 1).trials == make_plan(without, 1).trials


def test_in_a_night_deaths_are_neither_repaired_nor_foretold_and_no_reference_trials_are_made() -> None:
    scenario = night_scenario(nightly_scenario(), wait_s=900)

    assert (scenario.recovery.mode, scenario.sweep.skip_hopeless, scenario.measure.reference) == ("off", False, "off")
    assert (scenario.name, scenario.timeouts.cluster_s) == ("small-night", 900)


@pytest.mark.parametrize("configs", ["all", [{"speculative_num_steps": 2}, {"speculative_num_steps": 0}]])
def test_configs_are_all_of_the_sweep_or_those_that_are_given(configs: Any) -> None:
    pairs = build_pairs(night_scenario(nightly_scenario({"configs": configs})))

    depths = [pair.base.speculation_depth for pair in pairs]
    assert depths == ([0, 1, 2] if configs == "all" else [2, 0])


def test_secrets_of_a_build_are_not_stored() -> None:
    scenario = nightly_scenario(
        {"candidate": {"env": {"HF_TOKEN": "hf_secret_value"}, "extra_args": ["--api-key", "sk-another-secret"]}}
    )

    stored = storable(scenario)
    assert "secret" not in str(stored["nightly"])
    assert holds_secrets(stored)
    assert not holds_secrets(storable(nightly_scenario()))
