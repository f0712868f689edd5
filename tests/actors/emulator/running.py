"""A real emulator process for tests, with its log and its HTTP port."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

READY = "The server is fired up and ready to roll!"


# Each once in turn, and none that a connection or whoever binds port 0 could take before the server does.
_FIRST = 5000 + 900 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 6)
_PORTS = itertools.cycle(random.sample(range(_FIRST, _FIRST + 900), 900))


def free_port() -> int:
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            probe.listen(1)
            return port
    raise AssertionError("the cycle has no end")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """SSE events; the terminator stays the string it is."""
        data = [block.removeprefix("data: ") for block in self.text.strip().split("\n\n")]
        return [event if event == "[DONE]" else json.loads(event) for event in data]


@dataclass
class Emulator:
    process: subprocess.Popen[bytes]
    port: int
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8")

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.log:
            assert self.process.poll() is None, self.log[-2000:]
            assert time.monotonic() < end, self.log[-2000:]
            time.sleep(0.02)

    def call(self, method: str, path: str, body: Any = None, key: str | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if payload is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, payload, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, text)

    def generate(self, **body: Any) -> Answer:
        return self.call("POST", "/generate", body)


@contextlib.contextmanager
def emulator(folder: Path, flags: str, speedup: float = 100.0, port: int | None = None) -> Iterator[Emulator]:
    """A started, not necessarily ready, server; killed at the end if it still runs."""
    port = port or free_port()
    log_file = folder / "server.log"
    command = [sys.executable, "-m", "actors.emulator", *shlex.split(flags)]
    command += ["--port", str(port), "--emulator-start-speedup", str(speedup)]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, cwd=Path(__file__).parents[3])
    try:
        yield Emulator(process, port, log_file)
    finally:
        process.kill()
        process.wait()
