"""One scenario, four dialects: what a release calls otherwise, and what it cannot be told."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.scenarios.settings import ServerSize, canonical_settings, resolve_settings
from orchestrator.sglang.dialect import (
    EXPRESSIONS,
    GONE_VARIABLES,
    dialect_of,
    ignored_variables,
    is_since,
    release_numbers,
    setting_fault,
    spell,
)
from orchestrator.sglang.options import RELEASES, SettingsFault, canonical_name, known_options, options_of

FOUR = ("0.5.9", "0.5.15", "0.5.19", "0.5.23")


def flags(settings: dict[str, Any], version: str | None) -> list[str]:
    return list(spell(canonical_settings(settings), dialect_of(version)))


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.5.15", "0.5.15"), ("0.5.15.post1", "0.5.15"), ("0.5.16", "0.5.15"), ("0.5.22rc0", "0.5.21"),
        ("0.5.10", "0.5.9"), ("0.4.6", "0.5.9"), ("0.5.24", "0.5.23"), ("1.0", "0.5.23"), ("0.0.0.dev1+g1", "0.5.23"),
        (None, "0.5.23"), ("main", "0.5.23"),
    ],
)  # fmt: skip
def test_a_version_speaks_the_newest_dialect_that_is_not_newer(version: str | None, release: str) -> None:
    assert dialect_of(version).release == release


@pytest.mark.parametrize(
    ("version", "flag"),
    [("0.5.9", "--cuda-graph-max-bs"), ("0.5.13", "--cuda-graph-max-bs"), ("0.5.15", "--cuda-graph-max-bs-decode"),
     ("0.5.19", "--cuda-graph-max-bs-decode"), ("0.5.23", "--cuda-graph-max-bs-decode")],
)  # fmt: skip
def test_the_old_spelling_of_a_scenario_works_on_every_release(version: str, flag: str) -> None:
    assert flags({"cuda_graph_max_bs": 16}, version) == [flag, "16"]
    assert flags({"cuda_graph_max_bs_decode": 16}, version) == [flag, "16"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"cuda_graph_backend_prefill": "disabled"},
            {
                "0.5.9": [],
                "0.5.12": ["--disable-piecewise-cuda-graph"],
                "0.5.15": ["--cuda-graph-backend-prefill", "disabled"],
                "0.5.23": ["--cuda-graph-backend-prefill", "disabled"],
            },
        ),
        (
            {"disable_piecewise_cuda_graph": True},
            {
                "0.5.12": ["--disable-piecewise-cuda-graph"],
                "0.5.23": ["--cuda-graph-backend-prefill", "disabled"],
            },
        ),
        ({"disable_piecewise_cuda_graph": False}, {"0.5.12": [], "0.5.23": []}),
        (
            {"disable_cuda_graph": True},
            {
                "0.5.9": ["--disable-cuda-graph"],
                "0.5.13": ["--disable-cuda-graph", "--disable-piecewise-cuda-graph"],
                "0.5.23": ["--disable-cuda-graph"],
            },
        ),
        (
            {"attn_dp_size": 4},
            {
                "0.5.9": ["--enable-dp-attention", "--dp-size", "4"],
                "0.5.21": ["--enable-dp-attention", "--dp-size", "4"],
                "0.5.23": ["--attn-dp-size", "4"],
            },
        ),
        ({"attn_dp_size": 4, "dp_size": 4}, {"0.5.15": ["--enable-dp-attention", "--dp-size", "4"]}),
        (
            {"mamba_scheduler_strategy": "extra_buffer"},
            {
                "0.5.12": ["--mamba-scheduler-strategy", "extra_buffer"],
                "0.5.23": ["--mamba-radix-cache-strategy", "extra_buffer"],
            },
        ),
        (
            {"stream_output": True},
            {"0.5.9": ["--stream-output"], "0.5.23": ["--incremental-streaming-output"]},
        ),
        (
            {"dsa_prefill_backend": "flashmla_sparse"},
            {
                "0.5.9": ["--nsa-prefill-backend", "flashmla_sparse"],
                "0.5.23": ["--dsa-prefill-backend", "flashmla_sparse"],
            },
        ),
        (
            {"attention_backend": "dsa"},
            {"0.5.9": ["--attention-backend", "nsa"], "0.5.23": ["--attention-backend", "dsa"]},
        ),
        (
            {"kv_cache_dtype": "fp4_e2m1"},
            {"0.5.15": ["--kv-cache-dtype", "fp4_e2m1"], "0.5.23": ["--kv-cache-dtype", "fp4_mx_block16"]},
        ),
        ({"attention_backend": "tokenspeed_mla"}, {"0.5.12": ["--attention-backend", "tokenspeed_mla"]}),
        ({"tensor_parallel_size": 4}, {"0.5.9": ["--tp-size", "4"], "0.5.23": ["--tp-size", "4"]}),
        (
            {"piecewise_cuda_graph_max_tokens": 2048},
            {
                "0.5.12": ["--piecewise-cuda-graph-max-tokens", "2048"],
                "0.5.23": ["--cuda-graph-max-bs-prefill", "2048"],
            },
        ),
    ],
)
def test_a_meaning_is_told_in_the_words_of_the_release(
    settings: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    assert {version: flags(settings, version) for version in expected} == expected


@pytest.mark.parametrize(
    ("settings", "version", "message"),
    [
        (
            {"speculative_adaptive": True},
            "0.5.9",
            "is no option of SGLang 0.5.9 (there from 0.5.12 to 0.5.23; rule: release-lacks-option)",
        ),
        (
            {"kv_cache_dtype": "nvfp4"},
            "0.5.15",
            "is 'nvfp4', allowed: auto, fp8_e5m2, fp8_e4m3, bf16, bfloat16, fp4_e2m1, "
            "by SGLang 0.5.15 (rule: release-lacks-value)",
        ),
        (
            {"cuda_graph_backend_prefill": "breakable"},
            "0.5.9",
            "is no option of SGLang 0.5.9 (there from 0.5.14 to 0.5.23; rule: release-lacks-option)",
        ),
        (
            {"attn_dp_size": 4, "dp_size": 2},
            "0.5.15",
            "is 4 with dp_size 2: SGLang 0.5.15 has one number for both (rule: one-dp-size)",
        ),
    ],
)
def test_what_a_release_cannot_be_told_is_refused_with_release_and_rule(
    settings: dict[str, Any], version: str, message: str
) -> None:
    with pytest.raises(SettingsFault) as fault:
        flags(settings, version)

    assert (fault.value.name, fault.value.message) == (next(iter(settings)), message)


def test_a_switch_that_a_release_does_not_have_may_be_off() -> None:
    assert flags({"speculative_adaptive": False}, "0.5.9") == []


@pytest.mark.parametrize(
    ("name", "value", "version", "message"),
    [
        ("speculative_num_step", 3, None, "is not an SGLang 0.5.23 server option; did you mean "
                                          "'speculative_num_steps'?"),
        ("mem_frac", 0.8, None, "is an abbreviation, which argparse may find ambiguous: write 'mem_fraction_static'"),
        ("cuda_graph", 3, "0.5.23", "is an abbreviation, which argparse may find ambiguous: write one of "
                                    "cuda_graph_backend_decode, cuda_graph_backend_prefill, cuda_graph_bs_decode, "
                                    "cuda_graph_bs_prefill, cuda_graph_config, cuda_graph_max_bs_decode"),
        ("mem_fraction_stattic", 1, None, "is not an SGLang 0.5.23 server option; did you mean 'mem_fraction_static'?"),
        ("enable_double_sparsity", True, None, "is no option of SGLang 0.5.23 (there from 0.5.9; "
                                               "rule: release-lacks-option)"),
        ("disable_piecewise_cuda_graph", "yes", None, "is a switch: true or false, not 'yes'"),
    ],
)  # fmt: skip
def test_a_name_that_is_no_option_is_refused_with_what_was_meant(
    name: str, value: Any, version: str | None, message: str
) -> None:
    told = setting_fault(name, value, version)

    assert told == message


def test_an_option_that_only_an_older_release_has_may_be_set_for_that_release() -> None:
    assert setting_fault("enable_double_sparsity", True, "0.5.9") is None
    assert flags_of_release("enable_double_sparsity", "0.5.9") == ["--enable-double-sparsity"]


def flags_of_release(name: str, version: str) -> list[str]:
    return list(spell(canonical_settings({name: True}, version), dialect_of(version)))


def test_every_expression_uses_options_that_its_releases_have_and_says_what_they_lack_otherwise() -> None:
    for expression in EXPRESSIONS:
        assert expression.name in known_options()
        covered = RELEASES[RELEASES.index(expression.since) : RELEASES.index(expression.until) + 1]
        for release in covered:
            spelled = {s for option in options_of(release).values() for s in option.spellings}
            assert {f for f in expression.flags if f.startswith("--")} <= spelled, (expression, release)
            if expression.name != "disable_cuda_graph":
                assert expression.name not in options_of(release)


@pytest.mark.parametrize("release", RELEASES)
def test_every_flag_that_is_written_stands_in_the_table_of_the_release(release: str) -> None:
    spelled = {s for option in options_of(release).values() for s in option.spellings}
    told = 0
    for name, option in known_options().items():
        value = True if option.takes == "flag" else option.choices[0] if option.choices else 3
        try:
            words = spell({name: [value] if option.takes == "many" else value}, dialect_of(release))
        except SettingsFault:
            continue
        told += 1
        assert {w for w in words if w.startswith("--")} <= spelled
    assert told > 280


@pytest.mark.parametrize("release", RELEASES)
def test_what_users_of_the_release_could_set_about_speculation_and_memory_can_still_be_set(release: str) -> None:
    """Every option of the release that decides speed or memory has a name today, or is known for that release."""
    words = ("speculative", "cuda_graph", "mamba", "mem_", "max_", "attention", "moe_", "gemm", "schedule", "kv_cache")
    for name, option in options_of(release).items():
        if any(word in name for word in words) and not option.action.startswith("Deprecated"):
            value: Any = True if option.takes == "flag" else option.choices[0] if option.choices else 3
            value = [value] if option.takes == "many" else value
            if option.kind == "str" and not option.choices:
                value = ["text"] if option.takes == "many" else "text"
            if name == "max_loras_per_batch":
                continue
            assert setting_fault(name, value, release) is None, (name, release)


def test_names_that_were_one_option_in_some_release_have_one_name_today() -> None:
    assert {
        old: canonical_name(old) for old in ("cuda_graph_bs", "tensor_parallel_size", "nsa_decode_backend", "ep")
    } == {
        "cuda_graph_bs": "cuda_graph_bs_decode",
        "tensor_parallel_size": "tp_size",
        "nsa_decode_backend": "dsa_decode_backend",
        "ep": "ep_size",
    }


def test_a_variable_that_a_version_does_not_read_is_told() -> None:
    env = {"SGLANG_ENABLE_SPEC_V2": "1", "OTHER": "1"}

    assert ignored_variables(env, "0.5.12") == []
    assert ignored_variables(env, None) == []
    assert ignored_variables(env, "0.5.23") == [
        "SGLANG_ENABLE_SPEC_V2 is not read by SGLang 0.5.23 (it was from 0.5.9 to 0.5.13)"
    ]
    assert all(release_numbers(first) <= release_numbers(last) for first, last in GONE_VARIABLES.values())


def test_an_old_switch_that_is_off_in_a_config_overrides_the_base() -> None:
    base = {"disable_piecewise_cuda_graph": True, "max_running_requests": 8}
    given: dict[str, Any] = {"draft_path": None, "bundled_draft": True, "size": ServerSize(1)}

    on = resolve_settings(base, {}, **given)
    off = resolve_settings(base, {"disable_piecewise_cuda_graph": False}, **given)
    assert on["cuda_graph_backend_prefill"] == "disabled"
    assert "cuda_graph_backend_prefill" not in off


@pytest.mark.parametrize(
    ("version", "told"),
    [("0.5.15", True), ("v0.5.15.post1", True), ("0.6.0", True), ("0.5.14", False), ("0.0.0.dev1+g1", True),
     (None, False), ("main", False)],
)  # fmt: skip
def test_a_version_is_since_a_release_and_an_unknown_one_is_not(version: str | None, told: bool) -> None:
    assert is_since(version, "0.5.15") is told
