"""`/server_info`: keys, types and values as a real server resolves them, and the state of its scheduler.

tests/data/contract/server_info.json holds what the real one answered: all of it for the plain variant, and what differs
from that for the others. Left out is what differs with the machine, the port or the moment.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.divergence import EMULATOR_MARKS, SERVER_INFO_KEYS
from tests.contract.servers import ROOT, Server, Variant

RESOLVED = json.loads((ROOT / "tests/data/contract/server_info.json").read_text(encoding="utf-8"))
# Not compared by value: the machine's memory, ports, seeds, and keys, which the emulator does not show.
VARYING = {"mem_fraction_static", "random_seed", "port", "api_key", "admin_api_key", "cuda_graph_config"}
ADDED = {
    "launch_command": str,
    "status": str,
    "max_total_num_tokens": int,
    "max_req_input_len": int,
    "startup_time": dict,
    "kv_events": type(None),
    "internal_states": list,
    "version": str,
    "frontend": str,
}
NOT_INTERNAL = {"frontend", "internal_states", "kv_events", "launch_command", "max_req_input_len"}
NOT_INTERNAL |= {"max_total_num_tokens", "status", "version"}
ONLY_INTERNAL = {"world_size", "effective_max_running_requests_per_dp", "last_gen_throughput", "memory_usage"}
ONLY_INTERNAL |= {"decode_cuda_graph_bs", "decode_cuda_graph_memory_gb"}
PHASES = ["prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend"]


@pytest.fixture
def info(server: Server) -> dict[str, Any]:
    answer: dict[str, Any] = server.call("GET", "/server_info").json
    return answer


def expected(variant: Variant) -> dict[str, Any]:
    return {**RESOLVED["plain"], **RESOLVED[variant.name]}


def test_the_keys_are_those_of_the_real_one(info: dict[str, Any], variant: Variant) -> None:
    keys = set(info) - SERVER_INFO_KEYS - EMULATOR_MARKS
    assert keys == set(expected(variant)) | VARYING | set(ADDED)


def test_every_setting_is_resolved_to_the_same_value(info: dict[str, Any], variant: Variant) -> None:
    wrong = {key: info[key] for key, value in expected(variant).items() if info[key] != value}
    assert wrong == {}


def test_what_is_added_to_the_settings_has_these_types(info: dict[str, Any]) -> None:
    assert {key: type(info[key]) for key in ADDED} == ADDED
    assert (info["status"], info["version"], info["frontend"]) == ("ready", "0.5.23", "python")
    assert (info["max_total_num_tokens"], info["max_req_input_len"]) == (4096, 4090)
    assert isinstance(info["mem_fraction_static"], float)


def test_the_launch_command_is_what_was_typed(info: dict[str, Any], server: Server, variant: Variant) -> None:
    command = info["launch_command"]
    assert command.startswith("--model-path .sglang-cpu/models/target --device cpu ")
    assert f"--port {server.port}" in command
    assert (variant.algorithm is None) or f"--speculative-algorithm {variant.algorithm}" in command


def test_graph_configs_name_the_same_backends(info: dict[str, Any]) -> None:
    assert {phase: graph["backend"] for phase, graph in info["cuda_graph_config"].items()} == {
        "decode": "disabled",
        "prefill": "disabled",
    }


def test_start_times_by_phase(info: dict[str, Any]) -> None:
    times = info["startup_time"]
    assert list(times) == ["load_weight", "kv_cache_allocation", "scheduler_e2e", "cuda_graph", "tokenizer_e2e"]
    assert times["cuda_graph"] == dict.fromkeys(PHASES, 0.0)
    assert times["load_weight"] + times["kv_cache_allocation"] < times["scheduler_e2e"] < times["tokenizer_e2e"]


def test_the_scheduler_repeats_the_settings_and_adds_its_state(info: dict[str, Any], variant: Variant) -> None:
    (state,) = info["internal_states"]
    settings = set(info) - NOT_INTERNAL - SERVER_INFO_KEYS - EMULATOR_MARKS
    found = set(state) - SERVER_INFO_KEYS - {"avg_spec_accept_length"}
    assert found == settings | ONLY_INTERNAL
    assert state["effective_max_running_requests_per_dp"] == variant.max_running
    assert (state["world_size"], state["decode_cuda_graph_bs"], state["decode_cuda_graph_memory_gb"]) == (1, [], 0.0)
    assert isinstance(state["last_gen_throughput"], float)
    assert set(state["startup_time"]) == {"load_weight", "kv_cache_allocation", "scheduler_e2e", "cuda_graph"}


def test_memory_usage(info: dict[str, Any]) -> None:
    memory = info["internal_states"][0]["memory_usage"]
    keys = ["weight", "kvcache", "startup_available", "token_capacity", "token_capacity_swa", "graph"]
    assert list(memory) == keys
    assert (memory["token_capacity"], memory["token_capacity_swa"]) == (4096, None)
    assert memory["graph"] == dict.fromkeys(PHASES, 0.0)
    assert all(isinstance(memory[key], float) for key in keys[:3])


def test_the_average_accept_length_begins_anew_with_a_flush(server: Server, variant: Variant) -> None:
    def average() -> float | None:
        state = server.call("GET", "/server_info").json["internal_states"][0]
        value: float | None = state.get("avg_spec_accept_length")
        return value

    server.flush()
    assert average() is None
    server.generate(input_ids=[61, 62, 63], sampling_params={"max_new_tokens": 130, "ignore_eos": True})
    if variant.algorithm is None:
        assert average() is None
    else:
        told = average()
        assert told is not None
        assert 1 <= told <= variant.draft_tokens
