"""A run of emulated servers, watched in a browser while it goes on; a viewer that is killed takes nothing along."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import browser, watched
from tests.integration.programs import QUICK, assert_whole, start, wait_until

__all__ = ["browser"]  # a fixture
pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

# Slow enough to be seen in every state, which is looked at once a second.
SEEN = QUICK.replace("start_speedup: 100", "start_speedup: 40").replace("duration_s: 1", "duration_s: 1.2")
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
    with urllib.request.urlopen(address, timeout=20) as answer:
        return str(answer.read().decode())


def files_of(run: Path) -> set[str]:
    return {path.name for path in run.rglob("*")}


def test_a_run_is_watched_in_a_browser_to_its_end_and_a_killed_viewer_is_not_missed(
    browser: Any, tmp_path: Path
) -> None:
    (tmp_path / "seen.yaml").write_text(SEEN)
    run = tmp_path / "run"
    with ExitStack() as stack:
        program = start("run", str(tmp_path / "seen.yaml"), "--address", "local", "--run-dir", str(run))
        stack.callback(program.communicate)
        stack.callback(program.send_signal, signal.SIGTERM)
        wait_until((run / "manifest.json").exists, "the run has begun")
        early = fetched_once(stack, run)
        wait_until((run / "live.json").exists, "the driver tells its state")
        victim, address = stack.enter_context(viewer(run))
        _, other = stack.enter_context(viewer(run))
        context = browser.new_context(viewport={"width": 1100, "height": 900})
        stack.callback(context.close)
        context.set_default_timeout(60_000)
        seen = watched(context.new_page())
        seen.page.goto(other)
        seen.page.evaluate(REMEMBER)
        fetched(address)
        victim.send_signal(signal.SIGKILL)
        page_shows(seen.page, "[...doings].some((text) => text.startsWith('chat C='))")
        metrics = fetched(f"{other}metrics")
        at_work = json.loads(fetched(f"{other}live.json"))
        page_shows(seen.page, "document.querySelector('#state').textContent.startsWith('The run has ended')")
        exit_code = program.wait(timeout=120)
        doings, speeds = seen.page.evaluate("() => [[...doings], [...speeds]]")
        ended = seen.page.inner_text("#now")
        rows = seen.page.locator("#ranking table.data tbody tr").count()
        requests = [text for text in seen.wrong if not text.startswith(f"request: {other}")]

    assert early["status"] == "starting"
    assert exit_code == 0
    assert_whole(run)
    assert any(text.startswith("starting") for text in doings)
    assert {"chat C=1", "chat C=4"} <= set(doings)
    assert len(speeds) > 1
    assert (at_work["status"], at_work["live"]["counts"]["all_points"]) == ("running", 8)
    assert re.search(r'specsweep_slots\{run="run-\w+",state="(measuring|starting)"\} [12]\.0', metrics)
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
