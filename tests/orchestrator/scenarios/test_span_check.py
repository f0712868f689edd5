"""A server over several hosts: what a scenario may say about it, and what its settings become."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import BadInput
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.scenarios.sweep_space import expand
from tests.orchestrator.scenario_samples import small_scenario


def spanning(engine: dict[str, Any] | None = None, **slots: Any) -> dict[str, Any]:
    return {
        "engine": {"kind": "sglang", **(engine or {})},
        "slots": {"gpus": 8, "nnodes": 2, **slots},
        "sweep": {"axes": {"mem_fraction_static": [0.8]}},
    }


def settings_of(**parts: Any) -> dict[str, Any]:
    (config,) = expand(small_scenario(**parts))
    return config.as_dict()


def test_the_gpus_of_all_hosts_are_one_tensor_parallel_group_unless_said_otherwise() -> None:
    assert settings_of(**spanning())["tp_size"] == 16
    assert settings_of(**spanning({"settings": {"pp_size": 2}}))["tp_size"] == 8
    assert settings_of(**spanning({"settings": {"device": "cpu"}}, gpus=0))["tp_size"] == 2
    assert "nnodes" not in settings_of(**spanning())


REFUSED = [
    ({"settings": {"tp_size": 8}}, {}, "engine.settings.tp_size: makes a server of 8 GPUs (tp x pp x dp), but "
     "slots.gpus x slots.nnodes is 8 x 2 = 16"),
    ({"settings": {"nnodes": 2}}, {}, "engine.settings.nnodes: is not a setting to sweep: give it as slots.nnodes"),
    ({"settings": {"node_rank": 1}}, {}, "engine.settings.node_rank: is not a setting to sweep"),
    ({"settings": {"nccl_init_addr": "a:1"}}, {}, "engine.settings.nccl_init_addr: "),
    ({"settings": {"dist_init_addr": "a:1"}}, {}, "chooses where the ranks of a server meet; give slots.nnodes"),
    ({"extra_args": ["--log-level", "info", "--node-rank=1"]}, {}, "engine.extra_args[2]: is --node-rank, which "
     "Specsweep gives each host itself: set slots.nnodes"),
    ({"extra_args": ["--nnodes", "2"]}, {"nnodes": 1}, "engine.extra_args[0]: is --nnodes"),
    ({"command": ["python", "-m", "x", "--dist-init-addr", "a:1"]}, {}, "engine.command[3]: is --dist-init-addr"),
    ({"settings": {"dp_size": 2, "tp_size": 8}}, {}, "is 2 over 2 nodes; replicas run on one node"),
    ({"settings": {"device": "cpu", "tp_size": 3}}, {"gpus": 0}, "makes 3 ranks (tp x pp), which slots.nnodes 2 does "
     "not divide"),
    ({"kind": "emulator"}, {"emulated_gpus": 16}, "slots.emulated_gpus: are on one host"),
    ({"settings": {"device": "cpu"}}, {"gpus": 0, "per_host": 2}, "slots.per_host: is for servers on one host"),
    ({"command": ["docker", "run", "-p", "{port}:{port}", "img", "python3"]}, {}, "engine.command: has a network of "
     "its own; the ranks"),
    ({"kind": "attach", "url": "http://h:1"}, {}, "slots.nnodes: is for kinds `sglang` and `emulator`; `attach` loads"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "slots", "told"), REFUSED, ids=[told[-40:] for *_, told in REFUSED])
def test_what_cannot_be_is_refused_with_what_to_do(engine: dict[str, Any], slots: dict[str, Any], told: str) -> None:
    parts = spanning(engine, **slots)
    if engine.get("kind") == "attach":
        parts["sweep"] = {}
    with pytest.raises(BadInput) as refusal:
        small_scenario(**parts)
    assert told in str(refusal.value)


def test_a_container_on_the_hosts_network_may_span_hosts() -> None:
    small_scenario(**spanning({"command": ["docker", "run", "--ipc", "host", "img", "python3"]}))


def test_points_of_one_and_of_two_hosts_are_not_the_same_and_those_of_earlier_runs_are_kept() -> None:
    two = small_scenario(**spanning({"settings": {"tp_size": 8}}, gpus=4))
    one = small_scenario(**spanning({"settings": {"tp_size": 8}}, nnodes=1))
    (of_two,), (of_one,) = make_plan(two, 1).trials, make_plan(one, 1).trials

    assert of_two.config.config_id == of_one.config.config_id
    assert not {p.point_id for p in of_two.points} & {p.point_id for p in of_one.points}
    assert launch_spec(two, "run", of_two).nnodes == 2
    assert launch_spec(one, "run", of_one).nnodes == 1
