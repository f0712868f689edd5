"""A stand-in for Docker: a daemon that owns the containers, and the client that talks to it over a socket.

As in the real thing a container is no descendant of the client that ran it, gets no variable but those passed by `-e`
and `--env-file`, outlives a client that is killed, and has a name that no other container may have at the same time.
`fake_docker.py daemon` serves the socket named by FAKE_DOCKER_SOCKET; anything else is the client's command line.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

SOCKET = "FAKE_DOCKER_SOCKET"
MARK = "FAKE_CONTAINER"
SWITCHES = {"--rm", "--init"}


class Container:
    """One container: its process, what it said, and whether it ended."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.name: str = run["name"]
        self.run = run
        env = {"PATH": os.environ["PATH"], **run["env"], MARK: self.name}
        self.process = subprocess.Popen(
            run["command"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Whatever lives inside, as the end of a PID namespace does."""
        while living := _living(self.name):
            for pid in living:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.poll()
            time.sleep(0.01)


def _living(name: str) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if not entry.isdigit():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={name}".encode() in environment:
            found.append(int(entry))
    return found


class Daemon:
    """Answers one request a connection."""

    def __init__(self) -> None:
        self.containers: dict[str, Container] = {}
        self.lock = threading.Lock()

    def serve(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{path}.part")
            server.listen(16)
            Path(f"{path}.part").rename(path)  # whoever sees it can connect
            while True:
                connection, _ = server.accept()
                threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            request = json.loads(stream.readline())
            try:
                getattr(self, request["op"])(request, stream)
            except KeyError as missing:
                _say(stream, error=f"Error response from daemon: No such container: {missing.args[0]}", code=1)
            except BrokenPipeError:
                return

    def run(self, request: dict[str, Any], stream: Any) -> None:
        refusal = self.refusal(request)
        if refusal is not None:
            _say(stream, error=refusal[1], code=refusal[0])
            return
        with self.lock:
            container = self.containers[request["name"]] = Container(request)
        assert container.process.stdout is not None
        connected = True
        for line in container.process.stdout:
            try:
                if connected:
                    _say(stream, out=base64.b64encode(line).decode())
            except BrokenPipeError:
                connected = False  # the client is gone, the container stays
        code = container.process.wait()
        container.kill()
        if request["rm"]:
            with self.lock:
                self.containers.pop(container.name, None)
        if connected:
            _say(stream, code=128 - code if code < 0 else code)

    def refusal(self, request: dict[str, Any]) -> tuple[int, str] | None:
        name, image, program = request["name"], request["image"], request["command"][0]
        if name in self.containers:
            return 125, (
                f'docker: Error response from daemon: Conflict. The container name "/{name}" is already in use by '
                'container "0123". You have to remove (or rename) that container to be able to reuse that name.'
            )
        if image == "missing":
            return 125, (
                "Unable to find image 'missing:latest' locally\ndocker: Error response from daemon: pull access denied "
                "for missing, repository does not exist or may require 'docker login'\n\n"
                "Run 'docker run --help' for more information"
            )
        if shutil.which(program) is None:
            return 127, (
                "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: "
                f'exec: "{program}": executable file not found in $PATH'
                "\n\nRun 'docker run --help' for more information"
            )
        return None

    def signal(self, request: dict[str, Any], stream: Any) -> None:
        self.containers[request["name"]].signal(request["number"])
        _say(stream, code=0)

    def stop(self, request: dict[str, Any], stream: Any) -> None:
        container = self.containers[request["name"]]
        container.signal(signal.SIGTERM)
        deadline = time.monotonic() + request["grace_s"]
        while container.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        container.kill()
        _say(stream, out=base64.b64encode(f"{container.name}\n".encode()).decode(), code=0)

    def rm(self, request: dict[str, Any], stream: Any) -> None:
        busy = Path(os.environ[SOCKET]).with_name("busy")
        if busy.exists():
            busy.unlink()
            _say(stream, error="Error response from daemon: device or resource busy", code=1)
            return
        container = self.containers[request["name"]]
        container.kill()
        with self.lock:
            self.containers.pop(container.name, None)
        _say(stream, code=0)

    def ps(self, request: dict[str, Any], stream: Any) -> None:
        wanted = request["label"]
        lines = ""
        for container in list(self.containers.values()):
            labels = container.run["labels"]
            if wanted is None or wanted in labels or any(label.startswith(f"{wanted}=") for label in labels):
                value = next((label.partition("=")[2] for label in labels if label.startswith("specsweep.run=")), "")
                lines += f"{container.name}\t{value}\n" if ".Label " in request["format"] else f"{container.name}\n"
        _say(stream, out=base64.b64encode(lines.encode()).decode(), code=0)

    def inspect(self, request: dict[str, Any], stream: Any) -> None:
        told = json.dumps(self.containers[request["name"]].run)
        _say(stream, out=base64.b64encode(told.encode()).decode(), code=0)


def _say(stream: Any, **told: Any) -> None:
    stream.write(json.dumps(told) + "\n")
    stream.flush()


def parse_run_options(words: list[str]) -> dict[str, Any]:
    """What the client sends for `run`; only the options that tests use."""
    run: dict[str, Any] = {"op": "run", "name": None, "rm": False, "labels": [], "env": {}, "options": []}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        run["options"].append(option)
        if option == "--rm":
            run["rm"] = True
        if option in SWITCHES:
            continue
        value = rest.pop(0)
        run["options"].append(value)
        if option == "--name":
            run["name"] = value
        elif option == "--label":
            run["labels"].append(value)
        elif option in {"-e", "--env"}:
            name, equals, given = value.partition("=")
            if equals or name in os.environ:
                run["env"][name] = given if equals else os.environ[name]
        elif option == "--env-file":
            for line in Path(value).read_text(encoding="utf-8").splitlines():
                run["env"].setdefault(*line.split("=", 1))
    return {**run, "image": rest[0], "command": rest[1:]}


def ask(request: dict[str, Any], *, proxy: bool = False) -> int:
    """Send a request, print the answer; signals that reach us are passed on to the container."""
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.environ[SOCKET])
    except OSError:
        sys.stderr.write("docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.\n")
        return 125 if proxy else 1
    if proxy:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda n, _: _pass_on(request["name"], n))
    with connection, connection.makefile("rw", encoding="utf-8") as stream:
        _say(stream, **request)
        for line in stream:
            told = json.loads(line)
            if "error" in told:
                sys.stderr.write(told["error"] + "\n")
            if "out" in told:
                sys.stdout.buffer.write(base64.b64decode(told["out"]))
                sys.stdout.buffer.flush()
            if "code" in told:
                return int(told["code"])
    return 125


def _pass_on(name: str, number: int) -> None:
    threading.Thread(target=ask, args=({"op": "signal", "name": name, "number": number},)).start()


def main(words: list[str]) -> int:
    if words == ["daemon"]:
        Daemon().serve(os.environ[SOCKET])
    match words:
        case ["run", *rest]:
            return ask(parse_run_options(rest), proxy=True)
        case ["stop", "-t", grace_s, name]:
            return ask({"op": "stop", "name": name, "grace_s": int(grace_s)})
        case ["rm", "-f", name]:
            return ask({"op": "rm", "name": name})
        case ["inspect", name]:
            return ask({"op": "inspect", "name": name})
        case ["ps", "-a", *rest]:
            label = rest[1].removeprefix("label=") if "--filter" in rest else None
            form = rest[rest.index("--format") + 1] if "--format" in rest else ""
            return ask({"op": "ps", "label": label, "format": form})
    sys.stderr.write(f"docker: '{' '.join(words)}' is not a docker command.\n")
    return 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
