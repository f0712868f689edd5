"""Settings become the command line of a server that is described by a template."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.planning.planner import make_plan, point_specs
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.scenarios.command_template import command_settings, render, speculation_depth
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_engine import Engine, Model
from orchestrator.scenarios.sweep_space import expand
from orchestrator.sglang.options import SettingsFault
from tests.orchestrator.scenario_samples import small_scenario

COMMAND = ["srv", "-m", "{model}", "--port={port}", "{flags}", "--last"]
FLAGS: dict[str, Any] = {
    "slots": "-np",
    "eager": "--eager",
    "ratio": "--ratio={value}",
    "sizes": ["--sizes", "{value}"],
    "depth": ["--spec", '{"method": "{method}", "n": {value}, "draft": "{draft}"}'],
    "method": [],
}
MODEL = Model.model_validate({"path": "org/m", "draft_path": "org/d"})


def engine(**changes: Any) -> Engine:
    return Engine.model_validate({"kind": "command", "command": COMMAND, "flags": FLAGS, "depth": "depth", **changes})


def line(**settings: Any) -> list[str]:
    """The words that settings put between the fixed ones."""
    words = list(render(engine(), MODEL, command_settings(engine(), settings)))
    assert (words[:4], words[-1]) == (["srv", "-m", "org/m", "--port={port}"], "--last")
    return words[4:-1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, []),
        ({"slots": 8}, ["-np", "8"]),
        ({"eager": True}, ["--eager"]),
        ({"eager": False, "slots": False}, []),
        ({"ratio": 0.85}, ["--ratio=0.85"]),
        ({"sizes": [1, 2]}, ["--sizes", "1", "2"]),
        ({"ratio": [1, 2]}, ["--ratio=1,2"]),
        ({"slots": 0}, ["-np", "0"]),
        ({"method": "ngram"}, []),
        ({"depth": 0, "method": "ngram"}, []),
        ({"depth": 3, "method": "eagle"}, ["--spec", '{"method": "eagle", "n": 3, "draft": "org/d"}']),
        ({"sizes": 1, "slots": 2}, ["-np", "2", "--sizes", "1"]),  # in the order of the template
    ],
)
def test_each_setting_becomes_its_words(settings: dict[str, Any], words: list[str]) -> None:
    assert line(**settings) == words


def test_a_value_in_braces_is_not_replaced_again() -> None:
    assert line(slots="{model}") == ["-np", "{model}"]


def test_flags_come_last_where_the_command_does_not_place_them() -> None:
    plain = engine(command=["srv", "{slots}", "{host}:{port}"])

    assert render(plain, MODEL, {"slots": 2, "eager": True}) == ("srv", "2", "{host}:{port}", "-np", "2", "--eager")


def test_words_that_name_a_setting_which_is_off_are_refused() -> None:
    with pytest.raises(SettingsFault, match="has 'method' in its words, which a config leaves out"):
        line(depth=2)
    with pytest.raises(SettingsFault, match=r"is named in engine\.command, so every config must have it"):
        render(engine(command=["srv", "{slots}"]), MODEL, {})


def test_the_depth_that_a_config_asks_for_is_known() -> None:
    two = engine(depth=["depth", "slots"])

    assert speculation_depth(engine(), command_settings(engine(), {"slots": 8})) == 0
    assert speculation_depth(engine(), {"depth": 3}) == 3
    assert speculation_depth(two, {"depth": 0, "slots": 5}) == 5
    assert speculation_depth(engine(depth=None), {"depth": 3}) == 0


def scenario(**changes: Any) -> Scenario:
    parts: dict[str, Any] = {
        "model": {"path": "org/m", "draft_path": "org/d"},
        "engine": {"kind": "command", "command": COMMAND, "flags": FLAGS, "depth": "depth",
                   "settings": {"method": "ngram", "slots": 4}, "counters": {"accepted": "a"}},
        "sweep": {"axes": {"depth": [0, 1]}},
        "slots": {"gpus": 1},
        "workloads": [{"name": "chat", "api": "chat", "concurrency": [2], "extra_body": {"b": 1, "a": [2]}}],
        "objectives": [{"name": "f", "maximize": "output_throughput_tok_s", "at": {"concurrency": 2}}],
    }  # fmt: skip
    return small_scenario(**{**parts, **changes})


def test_configs_have_their_own_settings_and_none_of_sglang() -> None:
    assert [c.as_dict() for c in expand(scenario())] == [
        {"depth": 0, "method": "ngram", "slots": 4},
        {"depth": 1, "method": "ngram", "slots": 4},
    ]


def test_configs_that_start_alike_are_one() -> None:
    many = scenario(sweep={"configs": [{}, {"depth": 0}, {"depth": False}, {"eager": False}, {"eager": True}]})

    assert [c.as_dict().get("eager") for c in expand(many)] == [None, True]


def test_a_launch_carries_the_whole_line_but_for_address() -> None:
    asked = scenario(model={"path": "org/m", "draft_path": "org/d", "served_name": "short"})
    trial = next(t for t in make_plan(asked, 1).trials if dict(t.config.settings)["depth"] == 1)
    spec = launch_spec(asked, "run", trial)

    assert spec.command == (
        "srv", "-m", "org/m", "--port={port}", "-np", "4", "--spec", '{"method": "ngram", "n": 1, "draft": "org/d"}',
        "--last",
    )  # fmt: skip
    assert (spec.engine, spec.ready_path, spec.served_name) == ("command", "/health", "short")


def test_a_point_knows_body_counters_and_model() -> None:
    (spec,) = point_specs(scenario())

    assert (spec.extra_body, spec.counters, spec.model) == ('{"a":[2],"b":1}', (("accepted", "a"),), "")


def test_the_body_and_the_flags_are_part_of_the_identity_of_a_point() -> None:
    def ids(**changes: Any) -> set[str]:
        return {p.point_id for t in make_plan(scenario(**changes), 1).trials for p in t.points}

    workload = {"name": "chat", "api": "chat", "concurrency": [2]}
    other_flags = {**scenario().engine.model_dump(exclude={"counters"}), "flags": {**FLAGS, "slots": "--slots"}}
    assert len(ids() | ids(workloads=[workload]) | ids(workloads=[{**workload, "extra_body": {"a": 1}}])) == 6
    assert not ids() & ids(engine=other_flags)


def test_the_identity_of_other_points_is_what_it_was() -> None:
    """Runs of earlier releases can be resumed."""
    first = make_plan(small_scenario(), 1).trials[0].points[0]

    assert first.spec.extra_body == ""
    assert sorted(p.point_id for t in make_plan(small_scenario(), 1).trials for p in t.points)[0] == "290010807d6f"
