"""A server on two nodes: what each of them says, and how one takes the other with it.

The real one runs on two hosts made of namespaces (root is needed), each with a /dev/shm of its own: by that its ranks
find out which of them share a host.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from actors.diagnosis import diagnose
from actors.servers.follower import split_log
from actors.servers.launch import server_argv
from actors.servers.span_network import VARIABLES
from benchmarks.host_rig import HostRig
from benchmarks.rig_network import why_impossible
from orchestrator.outcome import Label, Phase
from orchestrator.server_start import LaunchSpec
from orchestrator.trial import freeze_settings
from tests.actors.emulator.running import READY, free_port
from tests.contract.servers import ADDRESS_SPACE_BYTES, MODELS, ROOT, SEEN_S, SGLANG, engine_param

SETTINGS = {
    "device": "cpu", "load_format": "dummy", "attention_backend": "torch_native", "tp_size": 2,
    "cuda_graph_backend_decode": "disabled", "cuda_graph_backend_prefill": "disabled", "context_length": 4096,
    "max_total_tokens": 4096, "max_running_requests": 4, "disable_custom_all_reduce": True,
}  # fmt: skip
CPU = {
    "PYTHONPATH": "tests/sglang_cpu", "HF_HUB_OFFLINE": "1", "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1",
    "SGLANG_CPU_OMP_THREADS_BIND": "0|0",
}  # fmt: skip
UP = "Dummy health check server started in background thread at "
# What node 1 says of its start, in this order; the lines of the first scheduler there.
FOLLOWER = (
    r"server_args=\{.*",
    r"Init parallel begin\.",
    r"Init parallel ends\. elapsed=\d+\.\d\d s",
    r"Memory baseline taken\. mem usage=-?\d+\.\d\d GB",
    r"Load weight begin\. avail mem=\d+\.\d\d GB",
    r"multimem all-gather disabled because the TP group spans across nodes\.",
    r"Load weight end\. elapsed=.*",
    r"KV Cache is allocated\. dtype: torch\.bfloat16, #tokens: 4096, .*",
    r"Memory pool end\. avail mem=\d+\.\d\d GB",
    r"Init Unified Radix Cache\. .*",
    r"Tree cache initialized: .*",
    re.escape(UP) + r"\S+:\d+",
)

# gloo's words, by whether the other side had sent something that was not read yet.
LOST = (
    r"RuntimeError: \[\S+pair\.cc:\d+\] (?:Read error \[\S+\]:\d+: Connection reset by peer"
    r"|Connection closed by peer \[\S+\]:\d+)\. This is typically caused by a remote worker "
)


@dataclass
class Node:
    """One node; `process` waits for it and ends as it does."""

    process: subprocess.Popen[str]
    folder: Path

    @property
    def log(self) -> str:
        return (self.folder / "stderr.log").read_text(encoding="utf-8", errors="replace")

    def messages(self) -> list[str]:
        found = (re.match(r"\[[^\]]*\] (.*)", line.rpartition("\r")[2]) for line in self.log.splitlines())
        return [match[1] for match in found if match]

    def tree(self) -> list[psutil.Process]:
        return [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]

    @property
    def main(self) -> psutil.Process:
        return next(p for p in self.tree() if "--node-rank" in p.cmdline() and "python" in p.name())

    @property
    def scheduler(self) -> psutil.Process:
        return next(p for p in self.tree() if p.cmdline()[:1] and p.cmdline()[0].startswith("sglang::scheduler"))

    def wait_for(self, text: str, seconds: float = 600.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.log:
            assert self.process.poll() is None, self.log[-3000:]
            assert time.monotonic() < end, self.log[-3000:]
            time.sleep(0.05)

    def exit_code(self) -> int:
        return self.process.wait(timeout=SEEN_S)


def spec_of(engine: str, rank: int, address: str) -> LaunchSpec:
    command = (str(SGLANG / "venv/bin/python"), "-m", "sglang.launch_server") if engine == "sglang" else ()
    extra = () if engine == "sglang" else ("--emulator-start-speedup", "50")
    return LaunchSpec(
        "run", "trial", "sglang" if engine == "sglang" else "emulator", command, f"{MODELS}/target",
        freeze_settings(SETTINGS), (), extra, nnodes=2, node_rank=rank, dist_init_addr=address,
    )  # fmt: skip


def started(argv: tuple[str, ...], folder: Path, env: dict[str, str]) -> tuple[str, ...]:
    """The words that start a node with its log in a folder."""
    folder.mkdir(parents=True)
    (folder / "stderr.log").touch()
    limit = f"ulimit -v {ADDRESS_SPACE_BYTES >> 10}; " if "sglang.launch_server" in argv else ""
    quoted = " ".join(f"'{word}'" for word in (*(f"{k}={v}" for k, v in env.items()), *argv))
    return "bash", "-c", f"{limit}exec env {quoted} >'{folder}/stdout.log' 2>'{folder}/stderr.log'"


@contextlib.contextmanager
def on_loopback(folder: Path) -> Iterator[list[Node]]:
    meeting, port = f"127.0.0.1:{free_port()}", free_port()
    nodes = []
    for rank in (0, 1):
        argv = server_argv(spec_of("emulator", rank, meeting), f"127.0.0.{rank + 1}", port)
        words = started((sys.executable, *argv[1:]), folder / f"node{rank}", {})
        nodes.append(Node(subprocess.Popen(words, text=True, cwd=ROOT), folder / f"node{rank}"))
    try:
        yield nodes
    finally:
        for node in nodes:
            node.process.kill()
            node.process.wait()


@contextlib.contextmanager
def on_hosts(folder: Path) -> Iterator[list[Node]]:
    if why := why_impossible():
        pytest.skip(why)
    rig, nodes = HostRig([0, 0]), []
    try:
        rig.boot_all()
        for rank, host in enumerate(rig.hosts):
            argv = server_argv(spec_of("sglang", rank, f"{rig.hosts[0].address}:25000"), host.address, 30100)
            told = dict(zip(VARIABLES, (host.address, "eth0", "eth0"), strict=True))
            words = started(argv, folder / f"node{rank}", {**CPU, **told, "TMPDIR": str(host.folder / "tmp")})
            nodes.append(Node(rig.popen(host, *words), folder / f"node{rank}"))
        yield nodes
    finally:
        rig.end()
        for node in nodes:
            node.process.communicate()


@pytest.fixture
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Node]]:
    """Both nodes, ready."""
    with (on_hosts if request.param == "sglang" else on_loopback)(tmp_path) as pair:
        pair[1].wait_for(UP)
        pair[0].wait_for(READY)
        yield pair


both = pytest.mark.parametrize("nodes", [engine_param("emulator"), engine_param("sglang")], indirect=True)


@both
def test_node_1_starts_as_node_0_but_for_what_serves_and_dies_with_its_scheduler(nodes: list[Node]) -> None:
    first, second = nodes
    messages = iter(second.messages())
    for pattern in FOLLOWER:
        assert any(re.fullmatch(pattern, message) for message in messages), f"missing or out of order: {pattern}"
    assert "max_total_num_tokens=" not in second.log
    assert "TP0]" not in second.log
    assert "TP1]" not in first.log

    second.scheduler.kill()
    assert (second.exit_code(), first.exit_code()) == (0, -9)
    assert re.search(r"Scheduler or DataParallelController \d+ terminated with -9\n", second.log)
    assert re.search(LOST, first.log)
    told = [diagnose(split_log(node.log.encode()), exit_code=code) for node, code in ((first, -9), (second, 0))]
    assert [(d.label, d.phase) for d in told] == [
        (Label.PEER_RANK_FAILED, Phase.SERVING),
        (Label.HOST_OOM, Phase.SERVING),
    ]


@both
def test_node_0_ends_both_in_order_and_node_1_waits_for_it(nodes: list[Node]) -> None:
    first, second = nodes
    os.kill(second.main.pid, signal.SIGTERM)
    second.wait_for(
        "SIGTERM received on node_rank 1; waiting for the rank-0 ShutdownReq broadcast to stop the schedulers."
    )
    assert second.process.poll() is None
    os.kill(first.main.pid, signal.SIGTERM)
    assert (first.exit_code(), second.exit_code()) == (0, 0)
    assert re.search(r"Scheduler or DataParallelController \d+ terminated with 0\n", second.log)
