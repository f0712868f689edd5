"""How a server ends: exit codes, last words, and nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tests.actors.emulator.faulty import faulty
from tests.actors.emulator.planning import DEEPSEEK, QWEN, chain
from tests.actors.emulator.running import READY, Emulator, emulator

SIGQUIT_WORDS = "Received sigquit from a child process. It usually means the child failed."


def ends_with(running: Emulator) -> int:
    return running.process.wait(timeout=60)


def test_a_start_without_memory_for_the_cache_kills_itself(tmp_path: Path) -> None:
    with emulator(
        tmp_path, QWEN + "--mem-fraction-static 0.85 --max-running-requests 512" + chain(10), 1000
    ) as running:
        assert ends_with(running) == -signal.SIGKILL
        log = running.log
    assert "Scheduler hit an exception: Traceback (most recent call last):" in log
    assert "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n" in log
    tail = log.splitlines()[-2:]
    pid = running.process.pid
    assert tail[0].endswith(SIGQUIT_WORDS)
    assert tail[1].endswith(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")


def test_a_start_without_memory_for_graphs_gives_the_hints(tmp_path: Path) -> None:
    with emulator(tmp_path, DEEPSEEK + "--mem-fraction-static 0.70" + chain(1), 1000) as running:
        assert ends_with(running) == -signal.SIGKILL
        log = running.log
    words = "CUDA out of memory. Tried to allocate 7.50 GiB. GPU 1 has a total capacity of 94.97 GiB of which 2.30 GiB"
    assert f"torch.OutOfMemoryError: {words}" in log
    assert f"Exception: Capture cuda graph failed: {words}" in log
    assert "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)" in log
    assert "TP1] Scheduler hit an exception" in log


def test_sigterm_before_the_port_is_open_is_deadly(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path m", speedup=1) as running:
        running.wait_for("Load weight begin.")
        running.process.terminate()
        assert ends_with(running) == -signal.SIGTERM


def test_sigterm_while_serving_drains_and_exits_with_zero(tmp_path: Path) -> None:
    with faulty(tmp_path, "serving: {fault: stall, request: 1, token: 1, until: go}", speedup=100) as running:
        answers: list[int] = []

        def ask() -> None:
            body = {"text": "hello", "sampling_params": {"max_new_tokens": 40}, "rid": "r1", "stream": True}
            answers.append(running.generate(**body).events[-2]["meta_info"]["completion_tokens"])

        client = threading.Thread(target=ask)
        client.start()
        running.wait_for("#new-token: 2,")
        running.process.terminate()
        running.wait_for("SIGTERM received.")
        assert running.call("GET", "/health").status == 503
        running.wait_for("Remaining number of requests 1.")
        (tmp_path / "go").touch()
        client.join()
        assert ends_with(running) == 0
        log = running.log
    assert answers == [40]
    assert "SIGTERM received. signum=None frame=None. Draining requests and shutting down..." in log
    assert "Gracefully exiting... Remaining number of requests 1. Remaining requests remaining_rids=['r1']." in log
    assert "Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[]." in log
    assert log.splitlines()[-2].endswith(f"INFO:     Finished server process [{running.process.pid}]")


def test_aborting_everything_ends_a_stream_and_makes_the_server_idle(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path m") as running:
        running.wait_for(READY)
        reasons: list[str] = []

        def ask() -> None:
            answer = running.generate(text="hello", sampling_params={"max_new_tokens": 4000}, stream=True)
            reasons.append(answer.events[-2]["meta_info"]["finish_reason"]["type"])

        client = threading.Thread(target=ask)
        client.start()
        running.wait_for("#new-token: 2,")
        assert running.call("POST", "/flush_cache").status == 400
        assert running.call("POST", "/abort_request", {"abort_all": True}).status == 200
        client.join()
        assert reasons == ["abort"]
        assert running.call("POST", "/flush_cache").status == 200


def test_children_are_named_like_sglangs_and_die_with_the_main_process(tmp_path: Path) -> None:
    with emulator(tmp_path, QWEN + "--max-running-requests 8", 1000) as running:
        running.wait_for(READY)
        children = running.children()
        titles = [child.cmdline()[0] for child in children]
        running.process.kill()
        running.process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
    assert titles == [sys.executable, *(f"sglang::scheduler_TP{rank}" for rank in range(4)), "sglang::detokenizer"]
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


def test_a_scheduler_that_is_killed_takes_the_server_down(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path m") as running:
        running.wait_for(READY)
        pid = running.children()[1].pid
        os.kill(pid, signal.SIGKILL)
        assert ends_with(running) == -signal.SIGKILL
        words = f"Subprocess scheduler_0 (pid={pid}) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
        assert words in running.log


def test_a_taken_port_fails_like_uvicorn_and_then_like_the_warm_up(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with emulator(tmp_path, "--model-path m", speedup=1000, port=port) as running:
            assert ends_with(running) == -signal.SIGKILL
            log = running.log
    words = f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {port}): address already in use"
    assert f"ERROR:    {words}" in log
    assert "Initialization failed. warmup error: Traceback" in log
    assert READY not in log


@pytest.mark.parametrize(
    ("flags", "code"),
    [("--cuda-graph-max-bs 16", 2), ("--speculative-algorithm EAGLE3", 1), ("--emulator-profile nosuch", 2)],
)
def test_wrong_arguments_end_before_anything_is_logged(tmp_path: Path, flags: str, code: int) -> None:
    with emulator(tmp_path, "--model-path m " + flags) as running:
        assert ends_with(running) == code
        assert "server_args=" not in running.log


def test_importing_the_entry_point_is_cheap() -> None:
    code = "import sys, actors.emulator.__main__; sys.exit('aiohttp' in sys.modules or 'ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
