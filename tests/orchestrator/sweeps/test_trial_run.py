"""What a trial asks of its slot, and what it passes on to be shown."""

from __future__ import annotations

import threading
from io import StringIO

import pytest
from rich.console import Console

from orchestrator.happening import TrialBegan, TrialEnded
from orchestrator.outcome import Phase
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.server_start import LoadSeen, StartProgress
from orchestrator.sweeps.trial_run import TrialRun
from orchestrator.watching.progress import Progress
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario


@pytest.mark.parametrize(
    ("batches", "stopped_by", "seen"),
    [
        (2, "requests", LoadSeen(tokens_came=True)),
        (0, "hung", LoadSeen(tokens_came=False, hung_s=77.0)),
        (2, "hung", LoadSeen(tokens_came=True, hung_s=77.0)),
    ],
)
def test_whoever_judges_the_server_is_told_what_its_load_saw(batches: int, stopped_by: str, seen: LoadSeen) -> None:
    scenario = small_scenario(timeouts={"request_s": 77.0})
    trial = make_plan(scenario, 1).trials[0]
    slot = FakeSlot("host/0", batches=batches)
    slot.stopped_by = stopped_by

    happened = list(TrialRun(slot, trial, 1, launch_spec(scenario, "run", trial), threading.Event()).run())

    assert slot.loads_seen[0] == seen
    assert isinstance(happened[-1], TrialEnded)


def test_what_a_start_has_to_tell_is_said_once_with_the_config_that_it_is_about() -> None:
    scenario = small_scenario()
    plan = make_plan(scenario, 1)
    console = Console(file=StringIO(), width=200)
    shown = Progress(plan, ["host/0"], console, clock=lambda: 0.0)
    shown.saw("host/0", TrialBegan(plan.trials[0], 1, "2026-11-29T10:00:00Z"))
    shown.saw("host/0", StartProgress("t", Phase.WEIGHTS, 412.0, notes=("weights: 412 s by now",)))
    shown.saw("host/0", StartProgress("t", Phase.WEIGHTS, 413.0))

    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert told.count("weights: 412 s by now") == 1
    assert told.startswith("00:00 host/0  ")
