"""Which SGLang a server command would start, asked of the same interpreter or container before the first launch."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import PurePath

from orchestrator.dialect import release_numbers
from orchestrator.server_start import LaunchSpec
from orchestrator.trial import Diagnosis, Label, Phase

_PROBE = "import importlib.metadata as m; print(m.version('sglang'))"
_TIMEOUT_S = 60.0
# The image may have to be unpacked first.
_CONTAINER_TIMEOUT_S = 180.0
_PYTHON = re.compile(r"^python[\d.]*$")
_VERSION = re.compile(r"^\d+\.\d+[\w.+-]*$")
_RUNTIMES = frozenset({"docker", "podman", "nerdctl"})

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
    container = next((i for i, word in enumerate(command) if PurePath(word).name in _RUNTIMES), None)
    inner = 0 if container is None else container
    at = next((i for i in range(inner, len(command)) if _PYTHON.match(PurePath(command[i]).name)), None)
    if at is not None and (container is None or at > container + 2):
        return (*_for_probing(command[:at], container), command[at], "-c", _PROBE)
    at = next((i for i in range(inner, len(command)) if PurePath(command[i]).name == "sglang"), None)
    if at is None or command[at + 1 : at + 2] != ("serve",):
        return None
    if container is not None:
        return (*_for_probing(command[:at], container), "python3", "-c", _PROBE)
    interpreter = _interpreter_of(command[at], env)
    return (*command[:at], interpreter, "-c", _PROBE) if interpreter else None


def _for_probing(words: tuple[str, ...], container: int | None) -> tuple[str, ...]:
    """The words before the interpreter; of a container without what belongs to the server: its name, GPUs and ports."""
    if container is None:
        return words
    kept: list[str] = list(words[: container + 2])
    skip = False
    for word in words[container + 2 :]:
        option = word.partition("=")[0]
        if not skip and option not in _OF_THE_SERVER:
            kept.append(word)
        skip = option in _OF_THE_SERVER and "=" not in word and option not in _WITHOUT_VALUE
    return (*kept[: container + 2], *(() if "--rm" in kept else ("--rm",)), *kept[container + 2 :])


_OF_THE_SERVER = frozenset({"--name", "--gpus", "-p", "--publish", "--cidfile", "--restart", "-d", "--detach"})
_WITHOUT_VALUE = frozenset({"-d", "--detach"})


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
    limit_s = _CONTAINER_TIMEOUT_S if any(PurePath(w).name in _RUNTIMES for w in probe) else _TIMEOUT_S
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
