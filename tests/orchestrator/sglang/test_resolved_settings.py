"""What was asked against what a server says that it runs, on the accounts of real servers."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.sglang.resolved_settings import (
    SettingChange,
    identity_of,
    left_open,
    server_content,
    setting_changes,
    telling_values,
)

CAPTURES = Path(__file__).parents[2] / "data/captures"


def account(capture: str) -> dict[str, Any]:
    """The body of `/server_info` as a real server sent it."""
    text = (CAPTURES / capture / "server_info.txt").read_text(encoding="utf-8")
    told: dict[str, Any] = json.loads(text[text.index("{") :])
    return told


BASE, SPECULATIVE, OLD = account("0.5.23-base"), account("0.5.23-spec-standalone3"), account("0.5.6.post2-base")

# What the command lines of these servers asked for, by their launch_command.
ASKED = {
    "load_format": "dummy",
    "device": "cpu",
    "attention_backend": "intel_amx",
    "cuda_graph_backend_decode": "disabled",
    "cuda_graph_backend_prefill": "disabled",
    "max_total_tokens": 4096,
    "max_running_requests": 4,
    "decode_log_interval": 10,
    "speculative_algorithm": "STANDALONE",
    "speculative_draft_model_path": "somewhere/draft",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


def server_identity(asked: dict[str, Any], env: dict[str, str], resolved: dict[str, Any]) -> str | None:
    return identity_of(server_content(asked, resolved), env)


def with_state(told: dict[str, Any], **state: Any) -> dict[str, Any]:
    changed = copy.deepcopy(told)
    changed["internal_states"][0].update(state)
    return changed


def test_a_server_that_runs_what_it_was_asked_for_shows_no_change() -> None:
    assert setting_changes(ASKED, SPECULATIVE) == ()


def test_draft_tokens_that_sglang_adjusted_are_a_change() -> None:
    (change,) = setting_changes({**ASKED, "speculative_num_draft_tokens": 6}, SPECULATIVE)

    assert change == SettingChange("speculative_num_draft_tokens", 6, 4)
    assert str(change) == "speculative_num_draft_tokens 6 asked, 4 run"


def test_a_backend_that_was_switched_is_a_change() -> None:
    (change,) = setting_changes({**ASKED, "attention_backend": "triton"}, SPECULATIVE)

    assert str(change) == "attention_backend triton asked, intel_amx run"


def test_running_requests_that_the_kv_cache_capped_are_a_change_with_the_reason() -> None:
    told = {**with_state(BASE, effective_max_running_requests_per_dp=2048), "max_running_requests": 3000}
    (change,) = setting_changes({"max_running_requests": 3000}, told)

    assert str(change) == "max_running_requests 3000 asked, 2048 run (the KV cache holds 4096 tokens)"


def test_running_requests_of_all_data_parallel_ranks_count_together() -> None:
    told = {**with_state(BASE, effective_max_running_requests_per_dp=16), "max_running_requests": 32}
    told["internal_states"] *= 2

    assert setting_changes({"max_running_requests": 32}, told) == ()


def test_a_mamba_model_is_capped_by_its_state_cache() -> None:
    told = {**with_state(BASE, effective_max_running_requests_per_dp=8), "max_running_requests": 16}
    told["max_mamba_cache_size"] = 24
    (change,) = setting_changes({"max_running_requests": 16}, told)

    assert str(change) == "max_running_requests 16 asked, 8 run (capped by the mamba state cache)"


def test_kv_tokens_that_do_not_fit_are_a_change() -> None:
    (change,) = setting_changes({"max_total_tokens": 100_000}, {**BASE, "max_total_tokens": 100_000})

    assert str(change) == "max_total_tokens 100000 asked, 4096 run (the KV cache holds no more)"


def test_graphs_that_are_off_on_a_gpu_without_being_asked_are_a_change() -> None:
    told = {**BASE, "device": "cuda", "cuda_graph_backend_decode": "disabled"}

    (change,) = setting_changes({}, told)
    assert (change.name, change.resolved) == ("cuda_graph_backend_decode", "disabled")
    assert setting_changes({"disable_cuda_graph": True}, {**told, "disable_cuda_graph": False}) == ()
    assert setting_changes({}, {**told, "device": "cpu"}) == ()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"speculative_algorithm": "NEXTN"}, {"speculative_algorithm": "EAGLE"}),
        ({"attention_backend": "nsa"}, {"attention_backend": "dsa"}),
        ({"attention_backend": "auto"}, {"attention_backend": "flashinfer"}),
        ({"mem_fraction_static": 0.85}, {"mem_fraction_static": 0.8500000000001}),
        ({"enable_dp_attention": True}, {"enable_dp_attention": False, "attn_dp_size": 4}),
        ({"cuda_graph_bs_decode": [1, 2]}, {"cuda_graph_bs_decode": ["1", "2"]}),
        ({"enable_mixed_chunk": False}, {"enable_mixed_chunk": None}),
        ({"tp_size": 4}, {}),
    ],
)
def test_other_words_for_the_same_choice_are_no_change(asked: dict[str, Any], told: dict[str, Any]) -> None:
    assert setting_changes(asked, told) == ()


def test_the_account_of_an_older_release_is_read_by_its_own_names() -> None:
    asked = {"cuda_graph_max_bs_decode": 16, "max_running_requests": 4, "attention_backend": "torch_native"}

    assert [str(c) for c in setting_changes({**asked, "device": "cpu"}, OLD)] == [
        "cuda_graph_max_bs_decode 16 asked, 24 run"
    ]


def test_no_account_means_no_change_and_no_identity() -> None:
    assert setting_changes(ASKED, {}) == ()
    assert server_identity(ASKED, {}, {}) is None
    assert server_identity(ASKED, {}, {"version": "9", "max_model_len": 4096}) is None


def test_two_starts_of_one_config_are_the_same_server_whatever_memory_and_ports_they_found() -> None:
    first = {**SPECULATIVE, "max_total_tokens": None}
    again = {**first, "port": 31999, "random_seed": 5, "startup_time": {}, "max_total_num_tokens": 4000}

    assert server_identity(ASKED, {}, again) == server_identity(ASKED, {}, first)


def test_what_was_asked_in_other_words_or_left_open_is_the_same_server_if_it_came_out_so() -> None:
    explicit = {**ASKED, "page_size": SPECULATIVE["page_size"], "chunked_prefill_size": 4096}

    assert server_identity(explicit, {}, SPECULATIVE) == server_identity(ASKED, {}, SPECULATIVE)


def test_limits_count_as_they_are_in_effect() -> None:
    capped = [
        {**with_state(BASE, effective_max_running_requests_per_dp=64), "max_running_requests": asked}
        for asked in (100, 200)
    ]
    other = {**with_state(BASE, effective_max_running_requests_per_dp=48), "max_running_requests": 100}

    assert server_identity({}, {}, capped[0]) == server_identity({}, {}, capped[1])
    assert server_identity({}, {}, capped[0]) != server_identity({}, {}, other)


def test_graphs_beyond_the_request_pool_are_not_another_server() -> None:
    captured = [1, 2, 4, 8]
    asked = [
        {**with_state(BASE, decode_cuda_graph_bs=captured), "cuda_graph_max_bs_decode": most} for most in (64, 128)
    ]
    fewer = {**with_state(BASE, decode_cuda_graph_bs=[1, 2, 4]), "cuda_graph_max_bs_decode": 64}

    assert server_identity({}, {}, asked[0]) == server_identity({}, {}, asked[1])
    assert server_identity({}, {}, asked[0]) != server_identity({}, {}, fewer)


@pytest.mark.parametrize(
    "changed", [{"page_size": 64}, {"speculative_num_steps": 2}, {"version": "0.5.21"}, {"attention_backend": "triton"}]
)
def test_whatever_changes_how_a_server_computes_makes_it_another(changed: dict[str, Any]) -> None:
    assert server_identity(ASKED, {}, {**SPECULATIVE, **changed}) != server_identity(ASKED, {}, SPECULATIVE)


def test_the_environment_makes_another_server_since_no_account_shows_what_it_does() -> None:
    assert server_identity(ASKED, {"SGLANG_X": "1"}, SPECULATIVE) != server_identity(ASKED, {}, SPECULATIVE)


def test_what_nobody_set_and_came_out_differently_is_told_with_its_configs() -> None:
    asked = {"a": {"speculative_eagle_topk": 1}, "b": {}, "c": {"page_size": 1}}
    told = {
        "a": [telling_values({"attention_backend": "trtllm_mha", "page_size": 64, "max_total_num_tokens": 1})],
        "b": [telling_values({"attention_backend": "flashinfer", "page_size": 1})],
        "c": [telling_values({"attention_backend": "flashinfer", "page_size": 1})],
    }

    assert left_open(asked, told) == {"attention_backend": {"trtllm_mha": ["a"], "flashinfer": ["b", "c"]}}


def test_configs_of_a_value_are_told_in_the_order_of_the_run_whatever_else_differs() -> None:
    told = {
        "a": [{"attention_backend": "triton", "page_size": "1"}],
        "b": [{"attention_backend": "fa3", "page_size": "64"}],
        "c": [{"attention_backend": "triton", "page_size": "64"}, {"attention_backend": "fa3", "page_size": "64"}],
        "d": [{"attention_backend": "triton", "page_size": "1"}],
    }
    asked: dict[str, dict[str, Any]] = {name: {} for name in told}

    assert left_open(asked, told) == {
        "attention_backend": {"triton": ["a", "c", "d"], "fa3": ["b", "c"]},
        "page_size": {"1": ["a", "d"], "64": ["b", "c"]},
    }
    assert left_open({**asked, "b": {"page_size": 64}}, told).keys() == {"attention_backend"}
