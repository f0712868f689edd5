"""Command lines, environments, ports, and what of them may be shown."""

from __future__ import annotations

import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.servers.launch import conceal, free_port, redact, request_key, scrub, secret_values, server_argv, server_env
from actors.slot_host import SlotHost
from orchestrator.errors import ClusterRefusal
from orchestrator.server_start import LaunchSpec
from orchestrator.trial import freeze_settings

SPEC = LaunchSpec("run-7", "trial-3", "sglang", (), "/models/m", freeze_settings({}), ())
HEAD = (sys.executable, "-m", "sglang.launch_server", "--model-path", "/models/m")
TAIL = ("--host", "10.0.0.5", "--port", "31000", "--enable-metrics")


def flags(settings: dict[str, Any], **changes: Any) -> tuple[str, ...]:
    """The flags between model path and address."""
    argv = server_argv(replace(SPEC, settings=freeze_settings(settings), **changes), "10.0.0.5", 31000)
    assert argv[:5] == HEAD
    return argv[5 : argv.index("--host")]


def test_a_spec_without_settings_is_model_address_and_metrics() -> None:
    assert server_argv(SPEC, "10.0.0.5", 31000) == HEAD + TAIL


def test_the_emulator_is_one_of_our_modules() -> None:
    argv = server_argv(replace(SPEC, engine="emulator"), "10.0.0.5", 31000)
    assert argv == (sys.executable, "-m", "actors.emulator", "--model-path", "/models/m", *TAIL)


def test_a_rank_of_a_server_on_several_hosts_is_told_which_it_is_and_where_they_meet() -> None:
    spec = replace(SPEC, nnodes=2, node_rank=1, dist_init_addr="10.0.0.4:20300", extra_args=("--log-level", "debug"))
    span = ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.4:20300")
    assert server_argv(spec, "10.0.0.5", 31000) == (*HEAD, *TAIL, *span, "--log-level", "debug")
    assert (spec.is_follower, replace(spec, node_rank=0).is_follower) == (True, False)


def test_a_command_prefix_replaces_ours_and_extra_arguments_come_last() -> None:
    spec = replace(SPEC, command=("docker", "run", "img"), extra_args=("--log-level", "debug"))
    argv = server_argv(spec, "10.0.0.5", 31000)
    assert argv == ("docker", "run", "img", "--model-path", "/models/m", *TAIL, "--log-level", "debug")


def test_an_old_spelling_becomes_that_of_the_installed_parser() -> None:
    assert flags({"cuda_graph_max_bs": 16}) == ("--cuda-graph-max-bs-decode", "16")


def test_values_switches_and_lists() -> None:
    assert flags({"mem_fraction_static": 0.85}) == ("--mem-fraction-static", "0.85")
    assert flags({"enable_mixed_chunk": True}) == ("--enable-mixed-chunk",)
    assert flags({"enable_mixed_chunk": False}) == ()
    assert flags({"enable_tf32_matmul": True}) == ("--enable-tf32-matmul",)
    assert flags({"enable_tf32_matmul": False}) == ("--no-enable-tf32-matmul",)
    assert flags({"cuda_graph_bs_decode": [1, 2, 4]}) == ("--cuda-graph-bs-decode", "1", "2", "4")


def test_metrics_are_asked_for_once() -> None:
    assert flags({"enable_metrics": True}) == ()


def test_speculation_of_depth_0_leaves_out_every_speculative_setting() -> None:
    settings = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 0, "speculative_eagle_topk": 1, "tp_size": 4}
    assert flags(settings) == ("--tp-size", "4")
    assert flags({**settings, "speculative_num_steps": 3}) == (
        *("--speculative-algorithm", "EAGLE", "--speculative-eagle-topk", "1"),
        *("--speculative-num-steps", "3", "--tp-size", "4"),
    )


def test_the_environment_is_ours_without_rays_with_the_gpus_and_under_our_mark() -> None:
    base = {
        "PATH": "/bin",
        "RAY_JOB_ID": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": "/ray",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "",
    }
    spec = replace(SPEC, env=(("NCCL_DEBUG", "INFO"), ("SPECSWEEP_RUN_ID", "forged")))
    assert server_env(spec, ("2", "3"), base) == {
        "PATH": "/bin",
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NCCL_DEBUG": "INFO",
        "SPECSWEEP_RUN_ID": "run-7",
        "SPECSWEEP_TRIAL_ID": "trial-3",
        "SPT_NOENV": "1",
    }


def test_the_specs_environment_wins_over_ours() -> None:
    spec = replace(SPEC, env=(("CUDA_VISIBLE_DEVICES", "7"), ("PYTHONPATH", "/mine")))
    env = server_env(spec, ("2",), {})
    assert (env["CUDA_VISIBLE_DEVICES"], env["PYTHONPATH"]) == ("7", "/mine")


def test_an_emulator_finds_our_modules_and_a_slot_without_gpus_sets_none() -> None:
    env = server_env(replace(SPEC, engine="emulator"), (), {})
    assert "CUDA_VISIBLE_DEVICES" not in env
    assert (Path(env["PYTHONPATH"]) / "actors/servers/launch.py").exists()


def test_a_taken_http_port_or_internal_port_moves_the_choice_on() -> None:
    first = free_port(0, base=21000)
    assert 21000 <= first < 21081
    assert free_port(2, base=21000) >= 21640
    for taken, expected in ((first, first + 1), (first + 233, first + 1), (first + 239, first + 1)):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", taken))
            holder.listen(1)
            assert free_port(0, base=21000) >= expected


def test_runs_that_know_nothing_of_each_other_begin_their_search_at_different_ports_of_the_same_slot() -> None:
    assert 21040 <= free_port(0, base=21000, skip=40) < 21081
    with socket.socket() as holder:  # the last of them: it goes on with the first
        holder.bind(("127.0.0.1", 21080))
        holder.listen(1)
        assert 21000 <= free_port(0, base=21000, skip=80) < 21080


def test_slots_of_two_runs_on_one_host_are_told_apart_by_their_gpus() -> None:
    assert SlotHost("run-a", 0, ("4", "5"), "127.0.0.1").port_number == 4
    assert SlotHost("run-b", 0, ("0", "1"), "127.0.0.1").port_number == 0
    assert SlotHost("run-b", 1, (), "127.0.0.1").port_number == 1


def test_no_free_port_is_told_with_the_range() -> None:
    with pytest.raises(ClusterRefusal, match="no free port for slot 90 between 70000 and 70320"):
        free_port(90, base=41200)


def test_secret_flags_are_hidden_in_both_spellings() -> None:
    argv = (
        "serve",
        "--api-key",
        "abcdef",
        "--admin-api-key=ghijkl",
        "--tokenizer-path",
        "t",
        "--max-total-tokens",
        "9",
    )
    hidden = ("serve", "--api-key", "***", "--admin-api-key=***", "--tokenizer-path", "t", "--max-total-tokens", "9")
    assert redact(argv) == hidden


@pytest.mark.parametrize(
    ("extra_args", "env", "key"),
    [
        ((), {}, None),
        (("--tp", "2", "--api-key", "sk-1"), {}, "sk-1"),
        (("--api-key=sk-1",), {"SPECSWEEP_API_KEY": "sk-2"}, "sk-1"),
        (("--api-key", "sk-0", "--api-key", "sk-1"), {}, "sk-1"),
        (("--admin-api-key", "sk-admin"), {"SPECSWEEP_API_KEY": "sk-2"}, "sk-2"),
        ((), {"SPECSWEEP_API_KEY": ""}, None),
        (("--api-key",), {}, None),
    ],
)
def test_the_key_for_requests_is_that_of_the_server_else_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, extra_args: tuple[str, ...], env: dict[str, str], key: str | None
) -> None:
    monkeypatch.setenv("SPECSWEEP_API_KEY", "sk-of-this-process")  # the caller decides whether that counts
    assert request_key(extra_args, env) == key


def test_secret_values_are_those_of_secret_flags_and_of_variables_named_like_secrets() -> None:
    env = {
        "HF_TOKEN": "hf_0123456",
        "AWS_ACCESS_KEY_ID": "AKIA0123",
        "DB_PASSWORD": "hunter22",
        "TOKENIZERS_PARALLELISM": "falsefalse",
        "SHORT_KEY": "1",
        "PATH": "/usr/bin:/bin",
    }
    argv = ("serve", "--api-key", "sk-argument", "--admin-api-key=sk-equals")
    expected = {"hf_0123456", "AKIA0123", "hunter22", "sk-argument", "sk-equals"}
    assert secret_values(argv, env) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server_args={'api_key': 'sk-1', 'port': 1}", "server_args={'api_key': '***', 'port': 1}"),
        ("ServerArgs(api_key='sk-1', admin_api_key=None)", "ServerArgs(api_key='***', admin_api_key=None)"),
        ('{"api_key":"sk-1","admin_api_key":null}', '{"api_key":"***","admin_api_key":null}'),
        ("serve --api-key sk-1 --port 1", "serve --api-key *** --port 1"),
        ("serve --api-key=sk-1 --port 1", "serve --api-key=*** --port 1"),
        ("token hf_0123456 refused", "token *** refused"),
    ],
)
def test_a_text_is_stored_without_api_keys_and_secrets(text: str, expected: str) -> None:
    assert conceal(text, frozenset({"hf_0123456"})) == expected


def test_a_servers_account_of_itself_is_scrubbed_everywhere() -> None:
    info = {
        "version": "0.5.23",
        "api_key": "sk-secret",
        "admin_api_key": None,
        "max_total_num_tokens": 4096,
        "launch_command": "python -m sglang.launch_server --api-key sk-secret",
        "internal_states": [{"api_key": "sk-secret", "env_vars": {"HF_TOKEN": "hf_x", "LANG": "C"}}],
        "argv": ["--api-key", "sk-secret", "--port", "1"],
        "note": "sk-secret was given",
    }
    assert scrub(info) == {
        "version": "0.5.23",
        "api_key": "***",
        "admin_api_key": None,
        "max_total_num_tokens": 4096,
        "launch_command": "python -m sglang.launch_server --api-key ***",
        "internal_states": [{"api_key": "***", "env_vars": {"HF_TOKEN": "***", "LANG": "C"}}],
        "argv": ["--api-key", "***", "--port", "1"],
        "note": "*** was given",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pa-ss@example.com/x", "https://***@example.com/x"),
        ("cloning git+https://:tok@host:8080/a b@c", "cloning git+https://***@host:8080/a b@c"),
        ("ssh://git@host/a", "ssh://git@host/a"),
        ("http://127.0.0.1:8000/v1 me@x", "http://127.0.0.1:8000/v1 me@x"),
    ],
)
def test_passwords_in_addresses_are_hidden(text: str, shown: str) -> None:
    assert conceal(text) == shown
    assert scrub({"env": {"MIRROR": text}}) == {"env": {"MIRROR": shown}}
