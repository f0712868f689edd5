"""A test that fails leaves nothing running that would slow down its neighbours."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.integration import programs
from tests.integration.conftest import pytest_runtest_teardown
from tests.integration.programs import end_started, wait_until

WAITING = "import signal; print(flush=True); signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def begun(monkeypatch: pytest.MonkeyPatch, code: str) -> subprocess.Popen[str]:
    """As `start`, with another program; it has said its first line."""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    monkeypatch.setattr(programs, "_started", [program])
    assert program.stdout is not None
    assert program.stdout.readline() == "\n"
    return program


def test_what_still_runs_at_the_end_of_a_test_is_told_to_end_and_what_has_ended_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = begun(monkeypatch, WAITING)

    end_started()
    end_started()
    assert left.returncode == -signal.SIGTERM


def test_what_does_not_end_when_it_is_told_to_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    left = begun(monkeypatch, DEAF)

    end_started(patience_s=0)
    assert left.returncode == -signal.SIGKILL


def test_a_wait_for_a_program_tells_what_it_said_when_it_has_ended_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = begun(monkeypatch, "import sys; print(flush=True); sys.exit('no cluster')")

    with pytest.raises(AssertionError, match=r"ended with 1 before a server is loaded: .*no cluster"):
        wait_until(lambda: False, "a server is loaded", of=ended)


def test_a_test_is_followed_by_that_also_where_what_it_used_cannot_be_taken_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = begun(monkeypatch, WAITING)

    teardown = pytest_runtest_teardown()
    next(teardown)
    with pytest.raises(KeyError, match="fixture"):
        teardown.throw(KeyError("fixture"))
    assert left.returncode == -signal.SIGTERM
