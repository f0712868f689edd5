"""Which SGLang a server command would start, and with which torch, CUDA and kernels: asked of the same interpreter or
container before the first launch. No server tells its torch, in its answers or its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import PurePath

from actors.servers.container_options import ContainerRefusal, parse_run
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import EngineSoftware, LaunchSpec
from orchestrator.sglang.dialect import release_numbers

# Installed metadata only: to import torch takes seconds and may touch GPUs. The version of SGLang comes last, alone.
_PROBE = """\
import importlib.metadata as m, re
def tell(name, *packages):
    for package in packages:
        try:
            return print('specsweep:', name, m.version(package))
        except Exception:
            pass
tell('torch', 'torch')
try:
    text = m.distribution('torch').locate_file('torch/version.py').read_text()
    for name, version in re.findall(r"(?m)^(cuda|hip)\\b[^=\\n]*= *['\\"]([^'\\"]+)", text):
        print('specsweep:', name, version)
except Exception:
    pass
tell('triton', 'triton', 'pytorch-triton', 'pytorch-triton-rocm')
tell('kernels', 'sglang-kernel', 'sgl-kernel')
tell('flashinfer', 'flashinfer-python')
tell('nccl', 'nvidia-nccl-cu13', 'nvidia-nccl-cu12')
print(m.version('sglang'))
"""
_TIMEOUT_S = 60.0
# The image may have to be unpacked first.
_CONTAINER_TIMEOUT_S = 180.0
_PYTHON = re.compile(r"^python[\d.]*$")
_VERSION = re.compile(r"^\d+\.\d+[\w.+-]*$")
_TOLD = re.compile(r"^specsweep: ([a-z]+) (\S{1,64})$", re.MULTILINE)

_found: dict[tuple[object, ...], EngineSoftware] = {}


async def installed_software(spec: LaunchSpec, env: Mapping[str, str]) -> EngineSoftware:
    """`sglang`, `torch`, `cuda` (`hip` on AMD), `triton`, `kernels`, `flashinfer`, `nccl`: what is there, or why that
    is not known. Asked once for a command, its folder and its search path; never a fault of the start.
    """
    if spec.engine != "sglang":
        return EngineSoftware(unknown=f"engine {spec.engine}: only the interpreter of a started SGLang is asked")
    probe = version_probe(spec.command or (sys.executable, "-m", "sglang.launch_server"), env)
    if probe is None:
        return EngineSoftware(unknown="engine.command shows no Python that could be asked")
    key = (probe, spec.work_dir, env.get("PYTHONPATH"), env.get("PATH"))
    if key not in _found:
        _found[key] = await _ask(probe, env, spec.work_dir)
    return _found[key]


def version_conflict(spec: LaunchSpec, found: str | None) -> Diagnosis | None:
    """Why a host's SGLang is not what the scenario was written for."""
    wanted = spec.version
    if wanted is None or found is None or release_numbers(wanted) == release_numbers(found):
        return None
    told = f"engine.version is {wanted}, but this host has SGLang {found}: change the scenario or the host"
    return Diagnosis(Label.CONFIG_CONFLICT, Phase.ARGS, told)


def version_probe(command: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...] | None:
    """The command that prints the version of the SGLang that `command` runs; None where it cannot be told."""
    try:
        run = parse_run(command)
    except ContainerRefusal:  # the launch will say what is wrong with it
        return None
    if run is None:
        return _probe_of(command, env)
    entry = next((option.value for option in run.given("entrypoint") if option.value), None)
    inner = _probe_of((entry, *run.inner) if entry else run.inner, None)
    if inner is None:
        return None
    kept = (word for option in run.options if option.name not in _OF_THE_SERVER for word in option.words)
    return (*run.start, "--rm", "--entrypoint", inner[0], *kept, run.image, *inner[1:])


def _probe_of(words: tuple[str, ...], env: Mapping[str, str] | None) -> tuple[str, ...] | None:
    """For `python ...` and `sglang serve`, also behind `env A=b` and the like; `env` None: inside a container."""
    at = next((i for i, word in enumerate(words) if _PYTHON.match(PurePath(word).name)), None)
    if at is not None:
        return (*words[:at], words[at], "-c", _PROBE)
    at = next((i for i, word in enumerate(words) if PurePath(word).name == "sglang"), None)
    if at is None or words[at + 1 : at + 2] != ("serve",):
        return None
    interpreter = "python3" if env is None else _interpreter_of(words[at], env)
    return (*words[:at], interpreter, "-c", _PROBE) if interpreter else None


# What belongs to the server alone: its name, GPUs, ports; `--rm` and the entry are set anew.
_OF_THE_SERVER = frozenset(
    {"name", "gpus", "p", "publish", "cidfile", "restart", "d", "detach", "rm", "entrypoint", "init"}
)


def _interpreter_of(script: str, env: Mapping[str, str]) -> str | None:
    """The Python in the first line of a console script."""
    path = shutil.which(script, path=env.get("PATH"))
    if path is None:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a fixed number of bytes of what may be a binary
            first = file.read(512).split(b"\n", 1)[0].decode(errors="replace")
    except OSError:
        return None
    words = first.removeprefix("#!").split()
    return words[-1] if first.startswith("#!") and _PYTHON.match(PurePath(words[-1]).name) else None


async def _ask(probe: tuple[str, ...], env: Mapping[str, str], cwd: str | None) -> EngineSoftware:
    limit_s = _CONTAINER_TIMEOUT_S if "--entrypoint" in probe else _TIMEOUT_S
    try:
        process = await asyncio.create_subprocess_exec(
            *probe,
            env=dict(env),
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:  # the launch will fail in the same way, and say so
        return EngineSoftware(unknown=f"{probe[0]} cannot be run: {error.strerror}")
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), limit_s)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return EngineSoftware(unknown=f"{probe[0]} gave no answer within {limit_s:g} s")
    return software_in(printed.decode(errors="replace"), probe[0])


def software_in(printed: str, asked: str) -> EngineSoftware:
    """What a probe printed; `asked`: the program that it was."""
    versions = dict(_TOLD.findall(printed))
    last = [line.strip() for line in printed.splitlines() if not line.startswith("specsweep:") and line.strip()][-1:]
    if last and _VERSION.match(word := last[0].split()[-1]):
        versions["sglang"] = word
    if "torch" in versions:
        return EngineSoftware(tuple(sorted(versions.items())))
    return EngineSoftware(tuple(sorted(versions.items())), unknown=f"{asked} told no installed torch")
