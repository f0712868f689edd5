"""Which SGLang a server command would start, asked of the same interpreter or container before the first launch."""

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
from orchestrator.server_start import LaunchSpec
from orchestrator.sglang.dialect import release_numbers

_PROBE = "import importlib.metadata as m; print(m.version('sglang'))"
_TIMEOUT_S = 60.0
# The image may have to be unpacked first.
_CONTAINER_TIMEOUT_S = 180.0
_PYTHON = re.compile(r"^python[\d.]*$")
_VERSION = re.compile(r"^\d+\.\d+[\w.+-]*$")

_found: dict[tuple[object, ...], str | None] = {}


async def installed_version(spec: LaunchSpec, env: Mapping[str, str]) -> str | None:
    """The version, e.g. `0.5.15`; None for an engine other than SGLang, or a command that does not show it.

    Asked once for a command, its folder and its search path.
    """
    if spec.engine != "sglang":
        return None
    probe = version_probe(spec.command or (sys.executable, "-m", "sglang.launch_server"), env)
    if probe is None:
        return None
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


async def _ask(probe: tuple[str, ...], env: Mapping[str, str], cwd: str | None) -> str | None:
    """What the probe printed, if that is a version."""
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
    except OSError:
        return None  # the launch will fail in the same way, and say so
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), limit_s)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return None
    lines = printed.decode(errors="replace").split()
    return lines[-1] if lines and _VERSION.match(lines[-1]) else None
