"""Wishes to stop: the first, its echo, and a second one; one that nothing of ours can hold."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.history.history_store import HistoryStore
from orchestrator.nights.night import Verdict
from orchestrator.run_files.journal import read_events
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.stop_signals import EarlyInterrupt, StopWish
from orchestrator.sweeps import run_command
from orchestrator.sweeps.run_command import RunRequest
from orchestrator.sweeps.sweep import SweepResult
from tests.fakes.slot import FakeSlot
from tests.orchestrator import killed_night
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import sweep_on


def test_a_wish_that_is_delivered_twice_is_one_and_one_that_comes_later_is_a_second() -> None:
    now_s = [100.0]
    wish = StopWish(lambda: now_s[0])

    assert not wish.is_echo()
    now_s[0] = 100.4
    assert wish.is_echo()
    now_s[0] = 100.6
    assert not wish.is_echo()


def test_a_wish_is_raised_or_while_it_is_held_remembered() -> None:
    early = EarlyInterrupt()
    with early.listening():
        with early.held():
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            early.check()
    raised = EarlyInterrupt()
    with raised.listening(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_night_that_is_ended_while_it_leaves_ray_is_on_disk_by_then(tmp_path: Path) -> None:
    """Ray sets SIGTERM to its default there, and nothing of ours holds it any more."""
    words = [sys.executable, "-m", killed_night.__name__, str(tmp_path)]
    assert subprocess.run(words, timeout=200, check=False).returncode == -signal.SIGTERM

    (night,) = HistoryStore.at(str(tmp_path / "history")).read().nights
    assert night.verdict is Verdict.SAME
    for file in ("night.json", "result.json"):
        assert json.loads((tmp_path / "run" / file).read_text())["verdict"] == "same"
    assert "Is tonight worse than pinned?" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_leaves_ray_once_its_result_and_its_report_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []

    def sweep(scenario: Scenario, directory: RunDirectory, _: object, wanted: Any, *__: object) -> SweepResult:
        files = (directory.paths.result, directory.paths.report, directory.paths.ranking)
        wanted.connected.callback(lambda: there.extend(file.exists() for file in files))
        return sweep_on(directory, scenario, [FakeSlot("h/0")])[1]

    monkeypatch.setattr(run_command, "sweep_on_cluster", sweep)
    request = RunRequest(None, "local", run_dir=tmp_path / "run", offers=False, given=small_scenario())
    run_command.run(request, Console(file=io.StringIO()))

    assert there == [True, True, True]


def test_who_stops_a_run_while_its_directory_is_closed_finds_it_whole_and_the_run_ended_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sweep(scenario: Scenario, directory: RunDirectory, *_: object) -> SweepResult:
        return sweep_on(directory, scenario, [FakeSlot("h/0")])[1]

    def close(directory: RunDirectory, *, complete: bool) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        closed(directory, complete=complete)

    closed = RunDirectory.close
    monkeypatch.setattr(run_command, "sweep_on_cluster", sweep)
    monkeypatch.setattr(RunDirectory, "close", close)
    request = RunRequest(None, "local", run_dir=tmp_path / "run", offers=False, given=small_scenario())
    with pytest.raises(KeyboardInterrupt):
        run_command.run(request, Console(file=io.StringIO()))

    *_, last = read_events(tmp_path / "run/journal.jsonl")
    assert (last["event"], last["complete"]) == ("run_ended", True)
    assert json.loads((tmp_path / "run/result.json").read_text())["exit_code"] == 130
    assert not (tmp_path / "run/ranking.json").exists()
