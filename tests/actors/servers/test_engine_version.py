"""Which SGLang a command would start, asked before its first launch."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from actors.servers.engine_version import _PROBE, installed_version, version_conflict, version_probe
from orchestrator.server_start import LaunchSpec, ServerDied, StartEvent
from tests.fakes.scripted_server import started

RUN = ("-c", _PROBE)


@pytest.mark.parametrize(
    ("command", "probe"),
    [
        (("python", "-m", "sglang.launch_server"), ("python", *RUN)),
        (("/opt/v/bin/python3.11", "-u", "-m", "sglang.launch_server"), ("/opt/v/bin/python3.11", *RUN)),
        (("env", "A=b", "numactl", "-N", "0", "python3", "-m", "sglang.launch_server"),
         ("env", "A=b", "numactl", "-N", "0", "python3", *RUN)),
        (("docker", "run", "--gpus", "all", "--ipc=host", "lmsysorg/sglang:v0.5.15", "python3", "-m",
          "sglang.launch_server"),
         ("docker", "run", "--rm", "--entrypoint", "python3", "--ipc=host", "lmsysorg/sglang:v0.5.15", *RUN)),
        (("sudo", "podman", "run", "--rm", "--name=x", "-p", "1:1", "image", "sglang", "serve"),
         ("sudo", "podman", "run", "--rm", "--entrypoint", "python3", "image", *RUN)),
        (("docker", "run", "--entrypoint", "python3", "image", "-m", "sglang.launch_server"),
         ("docker", "run", "--rm", "--entrypoint", "python3", "image", *RUN)),
        (("docker", "run", "image"), None),
        (("./start.sh",), None),
        (("sglang", "generate"), None),
    ],
)  # fmt: skip
def test_the_same_interpreter_or_container_is_asked(command: tuple[str, ...], probe: tuple[str, ...] | None) -> None:
    assert version_probe(command, {"PATH": "/nowhere"}) == probe


def test_a_console_script_is_asked_by_the_interpreter_of_its_first_line(tmp_path: Path) -> None:
    script = tmp_path / "sglang"
    script.write_text(f"#!{sys.executable}\nimport sys\n")
    script.chmod(0o755)

    assert version_probe(("sglang", "serve"), {"PATH": str(tmp_path)}) == (sys.executable, *RUN)


def spec(*command: str, version: str | None = None, engine: str = "sglang") -> LaunchSpec:
    return LaunchSpec("run", "t", engine, command, "m", (), (), version=version)  # type: ignore[arg-type]


def fake_python(folder: Path, prints: str) -> str:
    """A program named like an interpreter, that counts how often it is asked."""
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\necho asked >> {folder}/asked\n{prints}\n")
    program.chmod(0o755)
    return str(program)


def ask(spec: LaunchSpec) -> str | None:
    return asyncio.run(installed_version(spec, {"PATH": "/usr/bin:/bin"}))


def test_the_version_is_what_the_interpreter_prints_and_is_asked_once(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "echo some warning; echo 0.5.19.post1")

    assert [ask(spec(python, "-m", "sglang.launch_server")) for _ in range(2)] == ["0.5.19.post1"] * 2
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.parametrize("prints", ["exit 1", "echo not a version", "true"])
def test_an_interpreter_without_sglang_has_no_version(tmp_path: Path, prints: str) -> None:
    assert ask(spec(fake_python(tmp_path, prints), "-m", "sglang.launch_server")) is None


def test_a_command_that_cannot_be_run_has_no_version_and_the_launch_will_say_why(tmp_path: Path) -> None:
    assert ask(spec(str(tmp_path / "nowhere/python3"), "-m", "sglang.launch_server")) is None


def test_only_sglang_is_asked(tmp_path: Path) -> None:
    assert ask(spec(fake_python(tmp_path, "echo 0.5.19"), "x", engine="emulator")) is None


def test_a_host_with_another_release_than_the_scenario_is_a_conflict() -> None:
    assert version_conflict(spec(version="0.5.15"), "0.5.15.post1") is None
    assert version_conflict(spec(version="0.5.15"), None) is None
    assert version_conflict(spec(), "0.5.9") is None
    conflict = version_conflict(spec(version="0.5.15"), "0.5.23")
    assert conflict is not None
    assert conflict.label == "config_conflict"
    assert conflict.evidence == (
        "engine.version is 0.5.15, but this host has SGLang 0.5.23: change the scenario or the host"
    )


def first_events(spec: LaunchSpec, folder: Path) -> list[StartEvent]:
    async def run() -> list[StartEvent]:
        async with started(spec, folder) as (_, events):
            return events

    return asyncio.run(run())


def test_a_setting_that_the_hosts_release_lacks_is_refused_without_a_launch(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "echo 0.5.9")
    asked = replace(spec(python, "-m", "sglang.launch_server"), settings=(("speculative_adaptive", True),))
    (died,) = first_events(asked, tmp_path)

    assert isinstance(died, ServerDied)
    assert (died.diagnosis.label, died.diagnosis.phase, died.diagnosis.evidence) == (
        "flag_invalid",
        "args",
        "speculative_adaptive is no option of SGLang 0.5.9 (there from 0.5.12 to 0.5.23; rule: release-lacks-option)",
    )
    assert (tmp_path / "asked").read_text() == "asked\n"  # for its version, not to serve


def test_a_server_is_started_in_the_words_of_the_release_that_the_host_has(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'test "$1" = -c && echo 0.5.9 || echo "$@"')
    asked = replace(spec(python, "-m", "sglang.launch_server"), settings=(("cuda_graph_max_bs_decode", 16),))
    first_events(asked, tmp_path)

    assert "--cuda-graph-max-bs 16 " in (tmp_path / "server.log").read_text()
