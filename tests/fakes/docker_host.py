"""A host with the fake Docker on it: its daemon runs, its client is the `docker` (and `sudo`) of PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.fake_docker import MARK, SOCKET, _living

FAKE = Path(__file__).with_name("fake_docker.py")


class DockerHost:
    """What tests ask of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def docker(self, *words: str) -> str:
        """Output of a docker command."""
        return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout

    def names(self) -> list[str]:
        """All containers, running or not."""
        return self.docker("ps", "-a", "--format", "{{.Names}}").split()

    def options(self, name: str) -> list[str]:
        """The options that a container was run with."""
        told: list[str] = json.loads(self.docker("inspect", name))["options"]
        return told

    def env(self, name: str) -> dict[str, str]:
        """The variables that were passed into a container."""
        told: dict[str, str] = json.loads(self.docker("inspect", name))["env"]
        return told

    def living(self, name: str) -> list[int]:
        """Processes inside a container, or left of it."""
        return _living(name)

    def fail_next_removal(self) -> None:
        (self.folder / "busy").touch()


@contextmanager
def docker_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerHost]:
    """Everything of it is gone afterwards. The folder is short, since the path of a socket must be."""
    folder = Path(tempfile.mkdtemp(prefix="fd-", dir="/tmp"))
    _program(folder / "docker", f'exec {sys.executable} -I -S {FAKE} "$@"')
    # As the real one without further rights: nothing of the caller's environment passes but the path.
    _program(folder / "sudo", f'exec env -i PATH="$PATH" {SOCKET}="${SOCKET}" "$@"')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv(SOCKET, str(folder / "socket"))
    daemon = subprocess.Popen([sys.executable, str(FAKE), "daemon"])
    host = DockerHost(folder)
    try:
        while not (folder / "socket").exists():
            assert daemon.poll() is None
            time.sleep(0.01)
        yield host
        for name in host.names():  # some may be going
            subprocess.run(["docker", "rm", "-f", name], check=False, capture_output=True)
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(folder)


def _program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


__all__ = ["MARK", "DockerHost", "docker_host"]
