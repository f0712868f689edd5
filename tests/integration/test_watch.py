"""A run of emulated servers, watched in a browser while it goes on; a viewer that is killed takes nothing along."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import browser, watched
from tests.integration.programs import assert_whole, start, wait_until

__all__ = ["browser"]  # a fixture
pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

# QUICK with a workload for each level: their APIs are by what a fault script tells their requests apart.
SEEN = """\
name: seen
model: {path: example/small-model, bundled_draft: true}
engine:
  kind: emulator
  start_speedup: 100
  faults: HELD
  settings: {speculative_algorithm: NEXTN, max_running_requests: 16}
sweep:
  axes: {speculative_num_steps: [0, 1, 2, 3]}
slots: {gpus: 1, emulated_gpus: 2}
workloads:
  - {name: chat, api: generate, input_tokens: 32, output_tokens: 32, concurrency: [1]}
  - {name: crowd, api: completions, input_tokens: 32, output_tokens: 32, concurrency: [4]}
measure: {warmup_s: 0.2, requests: 8}
timeouts: {silent_s: 900}
objectives:
  - {name: fast, workload: chat, maximize: output_throughput_tok_s, at: {concurrency: 1}}
"""
# Every state lasts until the page has shown it, however late that is.
HELD = """\
start: {slow: weights, until: start-seen}
serving:
  - {fault: stall, path: /generate, request: 4, until: chat-seen}
  - {fault: stall, path: /v1/completions, request: 6, until: crowd-seen}
"""
# What the slots were seen to do, in a set that grows with every change of the page.
REMEMBER = """() => {
  window.doings = new Set();
  window.speeds = new Set();
  const look = () => {
    for (const row of document.querySelectorAll('#now-slots tbody tr')) {
      doings.add(row.cells[2].innerText);
      if (row.cells[4].innerText !== '-') speeds.add(row.cells[4].innerText);
    }
  };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
  look();
}"""


@contextmanager
def viewer(run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`watch --web`, and the address that it printed."""
    program = start("watch", str(run), "--web", "0")
    try:
        assert program.stdout is not None
        line = program.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line + (program.stderr.read() if program.stderr else "")
        yield program, found[0]
    finally:
        program.kill()
        program.communicate()


def page_shows(page: Any, condition: str) -> None:
    """Whole runs take as long as they take on a busy machine."""
    wait_until(lambda: page.evaluate(condition), condition, timeout_s=180)


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


def files_of(run: Path) -> set[str]:
    return {path.name for path in run.rglob("*")}


def all_slots(doing: str) -> str:
    """A condition of a page: both slots do this now."""
    return (
        "(rows => rows.length === 2 && rows.every((row) => row.cells[2].innerText.startsWith("
        f"'{doing}')))([...document.querySelectorAll('#now-slots tbody tr')])"
    )


def held_driver(stack: ExitStack, *arguments: str) -> tuple[subprocess.Popen[str], Callable[[], None]]:
    """A driver that waits at its first line, since its output is a pipe that is full; and what reads the pipe."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writes, bytes(4096))
    os.set_blocking(writes, True)  # it is the driver's too
    program = start(*arguments, stdout=writes)
    os.close(writes)
    output = os.fdopen(reads, "rb")

    def let_go() -> None:
        threading.Thread(target=output.read, daemon=True).start()

    stack.callback(program.communicate)
    stack.callback(program.send_signal, signal.SIGTERM)
    stack.callback(let_go)
    return program, let_go


def test_a_run_is_watched_in_a_browser_to_its_end_and_a_killed_viewer_is_not_missed(
    browser: Any, tmp_path: Path
) -> None:
    (tmp_path / "held.yaml").write_text(HELD)
    (tmp_path / "seen.yaml").write_text(SEEN.replace("HELD", str(tmp_path / "held.yaml")))
    run = tmp_path / "run"
    with ExitStack() as stack:
        program, let_go = held_driver(
            stack, "run", str(tmp_path / "seen.yaml"), "--address", "local", "--run-dir", str(run)
        )
        wait_until(lambda: (run / "manifest.json").exists() or program.poll() is not None, "the run has begun")
        early = fetched_once(stack, run)
        let_go()
        wait_until(lambda: (run / "live.json").exists() or program.poll() is not None, "Ray is up", 200)
        victim, address = stack.enter_context(viewer(run))
        _, other = stack.enter_context(viewer(run))
        context = browser.new_context(viewport={"width": 1100, "height": 900})
        stack.callback(context.close)
        context.set_default_timeout(60_000)
        seen = watched(context.new_page())
        seen.page.goto(other)
        seen.page.evaluate(REMEMBER)
        page_shows(seen.page, all_slots("starting"))
        fetched(address)
        victim.send_signal(signal.SIGKILL)
        (tmp_path / "start-seen").touch()
        page_shows(seen.page, f"{all_slots('chat C=1')} && speeds.size > 1")
        metrics = fetched(f"{other}metrics")
        at_work = json.loads(fetched(f"{other}live.json"))
        (tmp_path / "chat-seen").touch()
        page_shows(seen.page, "doings.has('crowd C=4')")
        (tmp_path / "crowd-seen").touch()
        page_shows(seen.page, "document.querySelector('#state').textContent.startsWith('The run has ended')")
        exit_code = program.wait(timeout=120)
        ended = seen.page.inner_text("#now")
        rows = seen.page.locator("#ranking table.data tbody tr").count()
        requests = [text for text in seen.wrong if not text.startswith(f"request: {other}")]

    assert early["status"] == "starting"
    assert exit_code == 0
    assert_whole(run)
    assert (at_work["status"], at_work["live"]["counts"]["all_points"]) == ("running", 8)
    assert re.search(r'specsweep_slots\{run="run-\w+",state="measuring"\} 2\.0', metrics)
    assert "Ended: complete." in ended
    assert "4 of 4 trials, 8 of 8 points" in ended
    assert rows >= 4
    assert requests == []
    assert "live.json" in files_of(run)
    assert not [name for name in files_of(run) if name.endswith(".tmp")]


def fetched_once(stack: ExitStack, run: Path) -> dict[str, Any]:
    """`watch --once --json`, before any slot has begun."""
    program = start("watch", str(run), "--once", "--json")
    stack.callback(program.kill)
    told: dict[str, Any] = json.loads(program.communicate(timeout=120)[0])
    return told
