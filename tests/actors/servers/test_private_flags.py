"""Secret flags leave the command line for a file, and mean the same to SGLang's own reader of such files."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from actors.emulator.flags import parse_flags
from actors.servers.launch import key_for
from actors.servers.private_flags import config_text, split_secrets
from actors.servers.server_command import ServerPlace, boot, server_command
from orchestrator.server_start import LaunchSpec
from orchestrator.trial import freeze_settings

SPEC = LaunchSpec(
    "run-7",
    "trial-3",
    "sglang",
    ("serve",),
    "/m",
    freeze_settings({}),
    (),
    extra_args=("--api-key", "sk-1", "--log-level", "info"),
)
KEYS = [
    "sk-plain", "0123456", "1e5", "true", "null", "2026-11-29", "-starts-with-dash", "--like-a-flag", "a: b # c",
    "quote\"and\\slash", "spaced key", "ünïcode-\U0001f511", "~", "[x]", "{y}", "=",
]  # fmt: skip


def merged(text: str, argv: list[str]) -> list[str]:
    """What SGLang 0.5.9 to 0.5.23 make of a config file: `--key`, `str(value)` or the items of a list, then argv."""
    words: list[str] = []
    for key, value in yaml.safe_load(text).items():
        assert not isinstance(value, bool)
        words += [f"--{key}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return [*words, *argv]


@pytest.mark.parametrize("key", KEYS)
def test_any_key_survives_the_file(key: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--api-key")
    parser.add_argument("--admin-api-key")
    parser.add_argument("--enable-metrics", action="store_true")
    text = config_text({"--api-key": key, "--admin-api-key": key})
    parsed = parser.parse_args(merged(text, ["--enable-metrics"]))
    assert (parsed.api_key, parsed.admin_api_key, parsed.enable_metrics) == (key, key, True)


@pytest.mark.parametrize("key", KEYS)
def test_the_emulator_reads_the_file_as_sglang_does(key: str, tmp_path: Path) -> None:
    file = tmp_path / "flags.yaml"
    file.write_text(config_text({"--api-key": key}), encoding="utf-8")
    _, values = parse_flags(["--model-path", "m", "--port", "31000", "--config", str(file), "--enable-metrics"])
    assert (values["api_key"], values["port"], values["enable_metrics"]) == (key, 31000, True)


@pytest.mark.parametrize(
    ("argv", "kept", "secrets"),
    [
        (("s", "--api-key", "k", "--port", "1"), ("s", "--port", "1"), {"--api-key": "k"}),
        (("s", "--api-key=k=", "--admin-api-key", "a"), ("s",), {"--api-key": "k=", "--admin-api-key": "a"}),
        (("s", "--api-key", "old", "--api-key", "new"), ("s",), {"--api-key": "new"}),
        (("s", "--api-key", "k", "--config", "f.yaml"), ("s", "--api-key", "k", "--config", "f.yaml"), {}),
        (("s", "--api-key"), ("s", "--api-key"), {}),
        (("s", "--tokenizer-path", "t"), ("s", "--tokenizer-path", "t"), {}),
    ],
)
def test_secret_flags_are_taken_out_of_the_words(
    argv: tuple[str, ...], kept: tuple[str, ...], secrets: dict[str, str]
) -> None:
    assert split_secrets(argv) == (kept, secrets)


def test_words_of_the_container_runtime_are_left_alone() -> None:
    argv = ("docker", "run", "--token", "t", "image", "--token", "u")
    assert split_secrets(argv, 5) == (("docker", "run", "--token", "t", "image"), {"--token": "u"})


def place(tmp_path: Path) -> ServerPlace:
    return ServerPlace("host", (), "127.0.0.1", 31000, tmp_path / "server.log")


def test_a_key_is_in_a_file_for_the_server_alone_and_not_in_its_words(tmp_path: Path) -> None:
    command = server_command(SPEC, place(tmp_path), {})
    file = tmp_path / "flags.yaml"
    assert command.argv[-4:] == ("--log-level", "info", "--config", str(file))
    assert command.files == {file: '"api-key": "sk-1"\n'}
    assert command.around.private_files == (file,)
    ended = boot(replace(command, argv=("sh", "-c", f"stat -c %a {file}")), SPEC, tmp_path / "server.log", 1.0).poll(60)
    assert ended is not None
    assert ended.code == 0
    assert (tmp_path / "server.log").read_text(encoding="utf-8") == "600\n"
    assert not file.exists()


def test_a_container_gets_the_file_mounted_where_root_of_this_host_reads_it(tmp_path: Path) -> None:
    def argv(*options: str) -> tuple[str, ...]:
        return server_command(replace(SPEC, command=("docker", *options, "image")), place(tmp_path), {}).argv

    file = tmp_path / "flags.yaml"
    assert f"{file}:{file}:ro" in argv("run")
    assert "sk-1" not in argv("run")
    for options in (("run", "--user", "1000"), ("--context", "far", "run"), ("run", "-u1000")):
        assert argv(*options)[-4:] == ("--api-key", "sk-1", "--log-level", "info")


def test_a_server_on_the_network_gets_a_key_where_that_can_be_kept_from_the_process_list(tmp_path: Path) -> None:
    spec = replace(SPEC, extra_args=("--log-level", "info"), network_key="key-of-the-run")
    command = server_command(spec, place(tmp_path), {})
    assert command.files == {tmp_path / "flags.yaml": '"api-key": "key-of-the-run"\n'}
    assert "key-of-the-run" in command.secrets
    assert key_for(spec, {}) == "key-of-the-run"
    for extra, prefix in ((("--config", "own.yaml"), ("serve",)), ((), ("docker", "run", "--user", "1000", "image"))):
        command = server_command(replace(spec, command=prefix, extra_args=extra), place(tmp_path), {})
        assert not [word for word in command.argv if "key-of-the-run" in word or "api-key" in word]
        assert command.remarks == (
            "the server has no API key: here one could only be given on its command line, for all to read",
        )


def test_several_lines_cannot_pass_through_sudo(tmp_path: Path) -> None:
    from actors.servers.server_command import LaunchRefused

    spec = replace(SPEC, command=("sudo", "docker", "run", "image"), env=(("A", "1"), ("B", "two\nlines")))
    with pytest.raises(LaunchRefused, match="the value of B has several lines"):
        server_command(spec, place(tmp_path), {})
