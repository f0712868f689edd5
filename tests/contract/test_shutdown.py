"""How a serving process ends. Each variant's server ends here, in a way of its own: this file has to come last."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.contract.servers import SEEN_S, Server, Stream

PROMPT = list(range(400, 420))


def tree(server: Server) -> list[str]:
    """Titles of the children; Python's own helper goes by its program."""
    titles = [child.cmdline()[0] for child in server.children()]
    return sorted("python" if Path(title).name.startswith("python") else title for title in titles)


def test_the_process_tree_is_a_scheduler_a_detokenizer_and_pythons_helper(server: Server) -> None:
    assert tree(server) == ["python", "sglang::detokenizer", "sglang::scheduler"]
    assert all(child.ppid() == server.process.pid for child in server.children())


def gone(processes: list[psutil.Process], seconds: float = SEEN_S) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def in_order(server: Server, *patterns: str) -> None:
    messages = iter(server.messages())
    for pattern in patterns:
        assert any(re.fullmatch(pattern, message) for message in messages), f"missing or out of order: {pattern}"


@pytest.mark.variants("plain")
def test_sigterm_drains_and_ends_with_0(server: Server) -> None:
    children, pid = server.children(), server.process.pid
    sampling = {"max_new_tokens": 1000, "ignore_eos": True, "temperature": 0}
    with server.crawling():
        stream = Stream(server, input_ids=PROMPT, sampling_params=sampling, rid="last")
        stream.event()
        server.process.terminate()
        server.wait_for("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        paths = ("/health", "/health_generate", "/ready")
        assert [server.call("GET", path).status for path in paths] == [503, 503, 503]
        late = server.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 3, "ignore_eos": True})
    assert (late.status, len(late.json["output_ids"])) == (200, 3)
    *_, final, done = stream.rest()
    assert (final["meta_info"]["finish_reason"], done) == ({"type": "length", "length": 1000}, "[DONE]")
    assert server.exit_code() == 0
    assert gone(children)
    kill = rf"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}"
    in_order(
        server,
        r"SIGTERM received\. .*",
        r"Health check request received during shutdown\. Returning 503\.",
        r"Gracefully exiting\.\.\. Remaining number of requests 0\. Remaining requests remaining_rids=\[\]\.",
        kill,
        r"INFO:     Shutting down",
        r"INFO:     Waiting for application shutdown\.",
        r"INFO:     Application shutdown complete\.",
        rf"INFO:     Finished server process \[{pid}\]",
        kill,
    )


@pytest.mark.variants("eagle")
def test_a_killed_scheduler_cuts_streams_and_takes_the_server_with_it(server: Server) -> None:
    children, pid = server.children(), server.process.pid
    scheduler = server.child("sglang::scheduler")
    with server.crawling():
        stream = Stream(server, input_ids=PROMPT, sampling_params={"max_new_tokens": 3500, "ignore_eos": True})
        stream.event()
        os.kill(scheduler.pid, signal.SIGKILL)
        events = stream.rest()
    assert "[DONE]" not in events
    assert all(event["meta_info"]["finish_reason"] is None for event in events)
    assert server.exit_code() == -signal.SIGKILL
    assert gone(children)
    crash = rf"Subprocess scheduler_0 \(pid={scheduler.pid}\) crashed with exit code -9\. "
    in_order(
        server,
        crash + r"Triggering SIGQUIT for cleanup\.\.\.",
        r"SIGQUIT received\. signum=None, frame=None\. It usually means one child failed\.",
        r"Sleeping 5 seconds before crash diagnostics to let GPU activity settle\.",
        r"No live scheduler processes found; skipping py-spy and CUDA coredump\.",
        rf"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}",
    )


@pytest.mark.variants("standalone")
def test_no_child_outlives_a_killed_server(server: Server) -> None:
    children = server.children()
    server.process.kill()
    assert server.exit_code() == -signal.SIGKILL
    assert gone(children)


@pytest.mark.variants("ngram")
def test_aborting_all_shortens_the_drain(server: Server) -> None:
    children = server.children()
    sampling = {"max_new_tokens": 3500, "ignore_eos": True}
    with server.crawling():
        stream = Stream(server, input_ids=PROMPT, sampling_params=sampling, rid="long")
        stream.event()
        server.process.terminate()
        server.wait_for("SIGTERM received.")
        assert server.call("POST", "/abort_request", {"abort_all": True}, admin=True).status == 200
        *_, final, done = stream.rest()
    assert (final["meta_info"]["finish_reason"]["type"], done) == ("abort", "[DONE]")
    assert server.exit_code() == 0
    assert gone(children)
