"""Ending containers from here, where no guard does: after a guard was killed, and before a run's first launch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from actors.guards.guard_orders import Container, Surroundings
from actors.guards.guard_steps import says_gone
from actors.servers.container import RUN_LABEL
from actors.servers.launch import server_environment

_LIMIT_S = 30.0


def remove_container(container: Container, env: Mapping[str, str]) -> str | None:
    """Remove a container by its name, running or not; why that is not known to have worked."""
    try:
        code, said = _ask([*container.runtime, "rm", "-f", container.name], env)
    except (OSError, subprocess.SubprocessError) as error:
        code, said = 1, str(error)
    return None if code == 0 or says_gone(said) else f"container {container.name} may still run: {said}"


def end_without_guard(around: Surroundings, env: Mapping[str, str]) -> str | None:
    """After the guard was killed: the kernel ends the server with it, but neither a container nor private files."""
    for path in around.private_files:
        path.unlink(missing_ok=True)
    return remove_container(around.container, env) if around.container is not None else None


def sweep_containers(runtime: Sequence[str], run_id: str) -> list[str]:
    """Remove every container with the label of this run; their names. Nothing where the runtime does not answer."""
    env = server_environment(os.environ)
    chosen = ("--filter", f"label={RUN_LABEL}={run_id}")
    try:
        code, said = _ask([*runtime, "ps", "-a", *chosen, "--format", "{{.Names}}"], env)
        names = said.split() if code == 0 else []
        return [name for name in names if remove_container(Container(tuple(runtime), name), env) is None]
    except (OSError, subprocess.SubprocessError):
        return []


def run_containers(runtime: Sequence[str]) -> list[tuple[str, str]]:
    """(name, run id) of every container with our label; nothing where the runtime does not answer."""
    env = server_environment(os.environ)
    listed = '{{.Names}}\t{{.Label "' + RUN_LABEL + '"}}'
    try:
        code, said = _ask([*runtime, "ps", "-a", "--filter", f"label={RUN_LABEL}", "--format", listed], env)
    except (OSError, subprocess.SubprocessError):
        return []
    pairs = [line.split("\t") for line in said.splitlines()] if code == 0 else []
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[1]]


def _ask(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip()
