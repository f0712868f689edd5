"""Both engines behind one interface: four variants of flags, a start, HTTP calls, the log, the process tree."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.actors.emulator.running import READY, Answer, free_port

ROOT = Path(__file__).parents[2]
SGLANG = ROOT / ".sglang-cpu"
MODELS = ".sglang-cpu/models"
ENGINES = ("emulator", "sglang")
START_LIMIT_S = 600
# Only what never comes is waited for so long.
SEEN_S = 200.0
ADDRESS_SPACE_BYTES = 6 << 30
# Files that hold a server in what a test looks at: on a slow machine it would be over before it was seen.
HELD = ("weights", "warmup")
FAULTS = """
start:
  - {slow: weights, until: weights, bars: false}
  - {slow: warmup, until: warmup}
serving: {fault: crawl, seconds: 0.1, whenever: crawl}
"""
PREFIX = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] (?P<message>.*)$")
ACCESS = re.compile(r'INFO:     127\.0\.0\.1:\d+ - "(?P<call>[A-Z]+ \S+) HTTP/1\.1" (?P<status>\d+ [\w ]+)$')

BASE = (
    f"--model-path {MODELS}/target --device cpu --load-format dummy --attention-backend intel_amx "
    "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled "
    "--context-length 4096 --max-total-tokens 4096 --enable-metrics --decode-log-interval 10"
).split()


@dataclass(frozen=True)
class Variant:
    """Flags beside BASE, and what a server resolves them to."""

    name: str
    flags: str
    max_running: int
    algorithm: str | None = None
    steps: int = 0
    topk: int = 0
    draft_tokens: int = 0
    key: str | None = None
    admin_key: str | None = None

    @property
    def has_draft_model(self) -> bool:
        return self.algorithm in {"EAGLE", "STANDALONE"}

    @property
    def reserved_tokens(self) -> int:
        """EAGLE keeps room in the context for its drafts and counts it to the prompt."""
        return self.draft_tokens if self.algorithm == "EAGLE" else 0

    @property
    def bigram_cache(self) -> bool:
        """EAGLE keys its prefix cache by pairs of tokens: one token less of a prompt is found again."""
        return self.algorithm == "EAGLE"


_DRAFT = "--speculative-draft-model-path " + MODELS
PLAIN = Variant(
    "plain",
    "--max-running-requests 16 --api-key sk-contract --admin-api-key sk-admin",
    max_running=16,
    key="sk-contract",
    admin_key="sk-admin",
)
# No --max-running-requests: SGLang lowers it to 48 under speculation.
EAGLE = Variant(
    "eagle",
    f"--speculative-algorithm EAGLE {_DRAFT}/eagle "
    "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3",
    max_running=48,
    algorithm="EAGLE",
    steps=2,
    topk=1,
    draft_tokens=3,
)
# 6 draft tokens do not fit 3 steps: SGLang adjusts them to 4.
STANDALONE = Variant(
    "standalone",
    f"--max-running-requests 4 --speculative-algorithm STANDALONE {_DRAFT}/draft "
    "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6",
    max_running=4,
    algorithm="STANDALONE",
    steps=3,
    topk=1,
    draft_tokens=4,
)
NGRAM = Variant(
    "ngram",
    "--max-running-requests 4 --speculative-algorithm NGRAM --speculative-num-draft-tokens 4",
    max_running=4,
    algorithm="NGRAM",
    steps=1,
    topk=10,
    draft_tokens=4,
)
VARIANTS = (PLAIN, EAGLE, STANDALONE, NGRAM)

real_marks = (
    pytest.mark.real,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not (SGLANG / ".installed").exists(), reason="tests/sglang_cpu/install.sh has not been run"),
)


def engine_param(engine: str, *values: Any, name: str = "") -> Any:
    """A parameter set of one engine; those of the real one carry its marks."""
    label = f"{engine}-{name}" if name else engine
    return pytest.param(engine, *values, marks=real_marks if engine == "sglang" else (), id=label)


@dataclass
class Server:
    """A running process of either engine."""

    engine: str
    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    variant: Variant = PLAIN
    early: dict[str, int] = field(default_factory=dict)

    @property
    def log(self) -> str:
        """The log stream (stderr)."""
        return (self.folder / "stderr.log").read_text(encoding="utf-8", errors="replace")

    @property
    def access_log(self) -> str:
        """Uvicorn's access log (stdout)."""
        return (self.folder / "stdout.log").read_text(encoding="utf-8", errors="replace")

    def messages(self) -> list[str]:
        """Log lines with SGLang's prefix, without it."""
        found = (PREFIX.match(line) for line in self.log.splitlines())
        return [match["message"] for match in found if match]

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, title: str) -> psutil.Process:
        return next(child for child in self.children() if child.cmdline()[:1] == [title])

    def go_on(self, *held: str) -> None:
        """Let go of what was held (of HELD)."""
        for name in held:
            (self.folder / name).touch()

    @contextlib.contextmanager
    def crawling(self) -> Iterator[None]:
        """Meanwhile each step takes 0.1 s longer, a long answer minutes: it runs for as long as a test needs."""
        (self.folder / "crawl").touch()
        try:
            yield
        finally:
            (self.folder / "crawl").unlink()

    def wait_for(self, text: str, seconds: float = SEEN_S) -> None:
        self.wait_until(lambda: text in self.log, text, seconds)

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = SEEN_S) -> None:
        """Poll until `holds` does; the server has to stay alive."""
        end = time.monotonic() + seconds
        while not holds():
            assert self.process.poll() is None, f"ended before {what}: {self.log[-3000:]}"
            assert time.monotonic() < end, f"no {what}: {self.log[-3000:]}"
            time.sleep(0.05)

    def exit_code(self, seconds: float = SEEN_S) -> int:
        return self.process.wait(timeout=seconds)

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, admin: bool = False
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Bytes are sent as they are, all else as JSON. `headers` replace the key of the variant."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SEEN_S)
        payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        key = self.variant.admin_key if admin else self.variant.key
        if headers is None:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
        if payload is not None:
            headers = {"Content-Type": "application/json", **headers}
        connection.request(method, path, payload, headers)
        return connection, connection.getresponse()

    def call(self, method: str, path: str, body: Any = None, **kwargs: Any) -> Answer:
        connection, response = self.send(method, path, body, **kwargs)
        with contextlib.closing(connection):
            text = response.read().decode()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, text)

    def generate(self, **body: Any) -> Answer:
        return self.call("POST", "/generate", body)

    def complete(self, chat: bool, **body: Any) -> Answer:
        """Six greedy tokens of a short prompt on either OpenAI endpoint, but for what `body` says."""
        prompt = {"messages": [{"role": "user", "content": "hello world"}]} if chat else {"prompt": "hello world"}
        path = "/v1/chat/completions" if chat else "/v1/completions"
        return self.call("POST", path, {**prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": True, **body})

    def flush(self) -> None:
        """Forget all prompts; a request that was just answered may still count as running for a moment."""
        answer = self.call("POST", "/flush_cache?timeout=20", admin=True)
        assert answer.status == 200, answer.text

    def metrics(self) -> dict[str, float]:
        """Samples by name, summed over their labels."""
        totals: dict[str, float] = {}
        for line in self.call("GET", "/metrics").text.splitlines():
            if not line.startswith("#"):
                name = re.split(r"[{ ]", line, maxsplit=1)[0]
                totals[name] = totals.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
        return totals


class Stream:
    """An SSE answer read event by event, while the server goes on."""

    def __init__(self, server: Server, **body: Any) -> None:
        self._connection, self._response = server.send("POST", "/generate", {**body, "stream": True})
        self.status = self._response.status

    def event(self) -> Any:
        """The next event, or None where the connection ends."""
        try:
            for line in iter(self._response.readline, b""):
                if line.startswith(b"data: "):
                    data = line.removeprefix(b"data: ").strip().decode()
                    return data if data == "[DONE]" else json.loads(data)
        except (http.client.IncompleteRead, ConnectionError, json.JSONDecodeError):
            pass
        return None

    def rest(self) -> list[Any]:
        return list(iter(self.event, None))

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def _command(engine: str, flags: Sequence[str], port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    flags = [*flags, "--host", "127.0.0.1", "--port", str(port)]
    if engine == "emulator":
        script = folder / "faults.yaml"
        script.write_text(FAULTS, encoding="utf-8")
        own = ["--emulator-start-speedup", "50", "--emulator-faults", str(script)]
        return [sys.executable, "-m", "actors.emulator", *flags, *own], dict(os.environ)
    env = {
        **os.environ,
        "PYTHONPATH": "tests/sglang_cpu",
        "HF_HUB_OFFLINE": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "SGL_CPU_HELD": str(folder),
    }
    return [str(SGLANG / "venv/bin/python"), "-m", "sglang.launch_server", *flags], env


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))


@contextlib.contextmanager
def launched(
    engine: str, folder: Path, flags: Sequence[str], port: int | None = None, held: Sequence[str] = ()
) -> Iterator[Server]:
    """A started, not necessarily ready, server, which stays in what is `held`; its whole tree is killed at the end."""
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command, env = _command(engine, flags, port, folder)
    for name in set(HELD) - set(held):
        (folder / name).touch()
    with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=err,
            cwd=ROOT,
            env=env,
            start_new_session=True,
            preexec_fn=_limit_memory if engine == "sglang" else None,  # noqa: PLW1509 - the tests have no threads here
        )
    server = Server(engine, process, port, folder)
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def serving(engine: str, variant: Variant, folder: Path) -> Iterator[Server]:
    """A server of that variant that said it is ready."""
    with launched(engine, folder, [*BASE, *variant.flags.split()], held=["warmup"]) as server:
        server.variant = variant
        server.wait_until(lambda: _answers(server), "open port", START_LIMIT_S)
        server.go_on("warmup")
        server.wait_for(READY, START_LIMIT_S)
        yield server


def _answers(server: Server) -> bool:
    """Whether both paths have answered, while the warm-up is held."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.early = {path: server.call("GET", path).status for path in ("/ready", "/health")}
    return bool(server.early)
