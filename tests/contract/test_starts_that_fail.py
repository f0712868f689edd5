"""Starts that do not come to serving: exit codes and last words. Each has a short-lived server of its own."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from tests.actors.emulator.running import READY
from tests.contract.servers import BASE, EAGLE, ENGINES, SEEN_S, START_LIMIT_S, Server, engine_param, launched

BOTH_ENGINES = pytest.mark.parametrize("engine", [engine_param(engine) for engine in ENGINES])


@BOTH_ENGINES
def test_a_wrong_flag_ends_with_2_and_the_usage(engine: str, tmp_path: Path) -> None:
    with launched(engine, tmp_path, [*BASE, "--kv-cache-dtype", "nosuch"]) as server:
        assert server.exit_code(START_LIMIT_S) == 2
    assert "usage: sglang serve" in server.log
    assert "sglang serve: error: argument --kv-cache-dtype: invalid choice: 'nosuch' (choose from " in server.log
    assert "server_args=" not in server.log


@BOTH_ENGINES
def test_a_model_that_is_not_there_ends_with_1_and_a_traceback(engine: str, tmp_path: Path) -> None:
    flags = [str(tmp_path / "nosuch") if word.endswith("/target") else word for word in BASE]
    with launched(engine, tmp_path, flags) as server:
        assert server.exit_code(START_LIMIT_S) == 1
    assert "Traceback (most recent call last):" in server.log
    assert str(tmp_path / "nosuch") in server.log.splitlines()[-1]
    assert "server_args=" not in server.log


@BOTH_ENGINES
def test_no_memory_for_the_cache_kills_the_tree(engine: str, tmp_path: Path) -> None:
    flags = [*BASE, "--max-total-tokens", "0"]
    with launched(engine, tmp_path, flags) as server:
        assert server.exit_code(START_LIMIT_S) == -signal.SIGKILL
    pid = server.process.pid
    said = server.messages()
    assert any(message.startswith("Scheduler hit an exception: Traceback") for message in said)
    assert "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static." in server.log
    assert said[-2] == "Received sigquit from a child process. It usually means the child failed."
    assert said[-1] == f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}"
    assert READY not in server.log


@BOTH_ENGINES
def test_sigterm_while_loading_is_deadly_and_leaves_nothing(engine: str, tmp_path: Path) -> None:
    with launched(engine, tmp_path, [*BASE, *EAGLE.flags.split()], held=["weights"]) as server:
        server.wait_for("server_args=", START_LIMIT_S)
        server.wait_for("Init parallel begin.", START_LIMIT_S)
        if engine == "sglang":
            server.wait_until(lambda: _is_bound(server), "processes that are bound to it", START_LIMIT_S)
        children = server.children()
        server.process.terminate()
        assert server.exit_code() == -signal.SIGTERM
        _, alive = psutil.wait_procs(children, timeout=SEEN_S)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


def _is_bound(server: Server) -> bool:
    """SGLang's processes ask to die with their parent once they have imported everything, and then bear a name; one
    that asks after its parent has died is left alone for good (0.5.23).
    """
    return sum(child.name().startswith("sglang::") for child in server.children()) >= 2


class _Stranger(BaseHTTPRequestHandler):
    """Another program on the port: it has a model, and fails to generate."""

    def do_GET(self) -> None:
        body = json.dumps({"is_generation": True, "model_path": "x"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.send_response(500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def taken_port() -> Iterator[int]:
    holder = ThreadingHTTPServer(("127.0.0.1", 0), _Stranger)
    thread = threading.Thread(target=holder.serve_forever)
    thread.start()
    yield holder.server_address[1]
    holder.shutdown()
    holder.server_close()
    thread.join()


@BOTH_ENGINES
def test_a_taken_port_is_told_and_ends_the_server(engine: str, tmp_path: Path, taken_port: int) -> None:
    with launched(engine, tmp_path, BASE, port=taken_port) as server:
        assert server.exit_code(START_LIMIT_S) == -signal.SIGKILL
    where = f"('127.0.0.1', {taken_port})"
    words = f"ERROR:    [Errno 98] error while attempting to bind on address {where}: address already in use"
    said = server.messages()
    assert words in said
    assert any(message.startswith("Initialization failed. warmup error: Traceback") for message in said)
    assert said.index(words) < len(said) - 1
    assert READY not in server.log
