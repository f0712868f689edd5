"""Which SGLang a command would start, asked before its first launch."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from actors.servers import engine_version
from actors.servers.engine_version import _PROBE, installed_software, version_conflict, version_probe
from orchestrator.server_start import EngineSoftware, LaunchSpec, ServerDied, StartEvent
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


def asked(spec: LaunchSpec, **env: str) -> EngineSoftware:
    return asyncio.run(installed_software(spec, {"PATH": "/usr/bin:/bin", **env}))


def ask(spec: LaunchSpec) -> str | None:
    return asked(spec).sglang


def test_the_version_is_what_the_interpreter_prints_and_is_asked_once(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "echo some warning; echo 0.5.19.post1")

    assert [ask(spec(python, "-m", "sglang.launch_server")) for _ in range(2)] == ["0.5.19.post1"] * 2
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.parametrize("prints", ["exit 1", "echo not a version", "true"])
def test_an_interpreter_without_sglang_has_no_version(tmp_path: Path, prints: str) -> None:
    assert ask(spec(fake_python(tmp_path, prints), "-m", "sglang.launch_server")) is None


def test_a_command_that_cannot_be_run_has_no_version_and_the_launch_will_say_why(tmp_path: Path) -> None:
    assert ask(spec(str(tmp_path / "nowhere/python3"), "-m", "sglang.launch_server")) is None


def install(folder: Path, **versions: str) -> None:
    """Packages as pip leaves them, as far as their metadata goes."""
    for package, version in versions.items():
        info = folder / f"{package}-{version}.dist-info"
        info.mkdir(parents=True)
        name = package.replace("_", "-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


CUDA_WHEEL = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.9.1+cu128'
debug = False
cuda: Optional[str] = '12.8'
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = None
"""


def test_the_interpreter_of_the_engine_tells_torch_cuda_and_kernels_without_importing_them(tmp_path: Path) -> None:
    install(tmp_path, torch="2.9.1+cu128", sglang="0.5.23", sgl_kernel="0.3.21", triton="3.5.1",
            flashinfer_python="0.6.2", nvidia_nccl_cu12="2.27.5")  # fmt: skip
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "torch/version.py").write_text(CUDA_WHEEL)

    found = asked(spec(sys.executable, "-m", "sglang.launch_server"), PYTHONPATH=str(tmp_path))

    assert found == EngineSoftware(
        (("cuda", "12.8"), ("flashinfer", "0.6.2"), ("kernels", "0.3.21"), ("nccl", "2.27.5"), ("sglang", "0.5.23"),
         ("torch", "2.9.1+cu128"), ("triton", "3.5.1"))
    )  # fmt: skip


def test_torch_of_amd_has_its_hip_and_a_torch_whose_files_are_elsewhere_its_version(tmp_path: Path) -> None:
    install(tmp_path / "amd", torch="2.9.0+rocm6.4", sglang="0.5.23")
    (tmp_path / "amd/torch").mkdir()
    (tmp_path / "amd/torch/version.py").write_text("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43484'\n")
    install(tmp_path / "bare", torch="2.9.0a0+nv25.10")
    launch = spec(sys.executable, "-m", "sglang.launch_server")

    assert dict(asked(launch, PYTHONPATH=str(tmp_path / "amd")).versions)["hip"] == "6.4.43484"
    bare = asked(launch, PYTHONPATH=str(tmp_path / "bare"))
    assert (dict(bare.versions)["torch"], "cuda" in dict(bare.versions), bare.sglang) == (
        "2.9.0a0+nv25.10",
        False,
        None,
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("./start.sh",), "engine.command shows no Python that could be asked"),
        (("/no/python3", "-m", "sglang.launch_server"), "/no/python3 cannot be run: No such file or directory"),
        (("docker", "run", "image"), "engine.command shows no Python that could be asked"),
    ],
)  # fmt: skip
def test_what_is_not_known_of_the_engines_software_has_a_reason(command: tuple[str, ...], why: str) -> None:
    assert asked(spec(*command)) == EngineSoftware(unknown=why)


def test_an_interpreter_without_torch_or_without_an_answer_in_time_costs_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = fake_python(tmp_path, "echo 0.5.19")
    assert asked(spec(without, "-m", "x")) == EngineSoftware(
        (("sglang", "0.5.19"),), unknown=f"{without} told no installed torch"
    )
    (tmp_path / "slow").mkdir()
    slow = fake_python(tmp_path / "slow", "exec sleep 60")
    monkeypatch.setattr(engine_version, "_TIMEOUT_S", 0.1)
    assert asked(spec(slow, "-m", "x")) == EngineSoftware(unknown=f"{slow} gave no answer within 0.1 s")


def test_a_server_that_died_at_its_start_still_tells_what_it_was(tmp_path: Path) -> None:
    told = 'echo "specsweep: torch 2.9.1"; echo "specsweep: cuda 12.8"; echo 0.5.23'
    python = fake_python(tmp_path, f'test "$1" = -c && {{ {told}; }} || exit 3')
    (*_, died) = first_events(spec(python, "-m", "sglang.launch_server"), tmp_path)

    assert isinstance(died, ServerDied)
    assert died.software == EngineSoftware((("cuda", "12.8"), ("sglang", "0.5.23"), ("torch", "2.9.1")))


def test_only_sglang_is_asked(tmp_path: Path) -> None:
    assert asked(spec("x", engine="attach")) == EngineSoftware(
        unknown="engine attach: only the interpreter of a started SGLang is asked"
    )
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
