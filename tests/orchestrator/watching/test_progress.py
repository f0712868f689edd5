"""What a run tells where there is no terminal: a log that can be read, however many slots there are."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.happening import PointEnded, TrialAsked, TrialBegan, TrialEnded
from orchestrator.jobs.job_log import JobProgress, told_by
from orchestrator.outcome import Cancelled, Diagnosis, Failed, Label, Measured, Outcome, Phase
from orchestrator.planning.planner import make_plan
from orchestrator.recoveries.failed_start import FailedStart
from orchestrator.recoveries.lineages import Recovery
from orchestrator.recoveries.recovery import Again
from orchestrator.recoveries.remedies import Kind
from orchestrator.server_start import StartProgress
from orchestrator.terminal import console
from orchestrator.watching.progress import Progress
from tests.fakes.slot import report
from tests.orchestrator.scenario_samples import small_scenario

PLAN = make_plan(small_scenario(), 1)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=400)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_routine_lines_are_rationed_and_those_left_out_are_counted() -> None:
    now, said = [0.0], quiet()
    shown = Progress(PLAN, ["host/0"], said, clock=lambda: now[0])
    point = PLAN.trials[0].points[0]
    for _ in range(100):
        shown.saw("host/0", PointEnded(point, 1, report(point, 10), ""))
    assert len(lines(said)) == 40

    now[0] = 50.0
    for _ in range(100):
        shown.saw("host/0", PointEnded(point, 1, report(point, 10), ""))
    shown.say_summary()

    assert len(lines(said)) == 51
    assert lines(said)[-1] == (
        "00:50 progress  0 of 3 trials, 200 of 6 points, 0 infeasible, 0 failed, 50 s; 150 lines not shown"
    )


def test_a_summary_says_what_the_slots_do_and_is_read_by_status() -> None:
    said = quiet()
    shown = Progress(PLAN, [f"host/{i}" for i in range(6)], said, clock=lambda: 0.0)
    for i in range(6):
        shown.saw(f"host/{i}", TrialBegan(PLAN.trials[0], 1, ""))
    shown.saw("host/0", replace(StartProgress("t", Phase.WEIGHTS, 412.0), done=3, total=12))
    shown.say_summary()

    (summary,) = lines(said)
    assert "; host/0 speculative_num_steps=" in summary
    assert ": starting: weights 3/12; host/1 " in summary
    assert summary.endswith("; and 2 more slots")
    assert told_by(summary).progress == JobProgress(0, 3, 0, 6)
    assert not any(ord(c) < 32 for c in summary)


def test_the_last_line_tells_how_far_the_run_came() -> None:
    said = quiet()
    with Progress(PLAN, ["host/0"], said, clock=lambda: 0.0):
        pass

    assert lines(said) == ["00:00 progress  0 of 3 trials, 0 of 6 points, 0 infeasible, 0 failed, 0 s"]


@pytest.mark.parametrize(("ci", "is_live"), [("true", False), ("1", False), ("false", True), ("", True)])
def test_logs_of_ci_get_plain_lines_whatever_colours_are_forced(
    ci: str, is_live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("CI", ci)

    assert console().is_terminal is is_live


def test_a_trial_that_was_stopped_is_not_counted_as_done() -> None:
    said = quiet()
    shown = Progress(PLAN, ["host/0", "host/1"], said, clock=lambda: 0.0)
    outcomes: tuple[Outcome, ...] = (Measured(2), Cancelled("interrupted"))
    for i, outcome in enumerate(outcomes):
        shown.saw(f"host/{i}", TrialBegan(PLAN.trials[i], 1, ""))
        shown.saw(f"host/{i}", TrialEnded(PLAN.trials[i], 1, outcome, None, "", b""))
    shown.say_summary()

    assert lines(said)[-1].startswith("00:00 progress  1 of 3 trials, ")


def test_nobody_knows_how_long_a_search_will_take() -> None:
    said = quiet()
    shown = Progress(PLAN, ["host/0"], said, clock=lambda: 0.0)
    shown.saw("", TrialAsked(PLAN.trials[0], "first start"))
    shown.saw("host/0", TrialBegan(PLAN.trials[0], 1, ""))
    shown.saw("host/0", TrialEnded(PLAN.trials[0], 1, Measured(2), None, "", b""))
    shown.say_summary()

    assert lines(said)[-1] == (
        "00:00 progress  1 of 4 trials, 0 of 8 points, 0 infeasible, 0 failed, 0 s, a search goes on"
    )


def test_a_trial_that_is_tried_again_counts_once_by_how_it_ends_at_last() -> None:
    said = quiet()
    shown = Progress(PLAN, ["host/0", "host/1"], said, clock=lambda: 0.0)
    trial = PLAN.trials[0]
    lost = Failed(Diagnosis(Label.HOST_LOST, Phase.SERVING, "the host is gone"))
    again = Recovery(Again(Kind.ELSEWHERE), FailedStart(Label.HOST_LOST, Phase.SERVING, "the host is gone"), True)
    shown.saw("host/0", TrialBegan(trial, 1, ""))
    shown.saw("host/0", TrialEnded(trial, 1, lost, None, "", b"", recovery=again))
    shown.saw("host/1", TrialBegan(trial, 2, ""))
    shown.saw("host/1", TrialEnded(trial, 2, Measured(2), None, "", b""))
    shown.say_summary()

    summary = lines(said)[-1]
    assert summary == (
        "00:00 progress  1 of 3 trials, 0 of 6 points, 0 infeasible, 0 failed, 1 tried again, 0 s, about 0 s left"
    )
    assert told_by(summary).progress == JobProgress(1, 3, 0, 6)


def test_a_search_that_is_over_does_not_go_on_in_the_last_line() -> None:
    said = quiet()
    with Progress(PLAN, ["host/0"], said, clock=lambda: 0.0) as shown:
        shown.saw("", TrialAsked(PLAN.trials[0], "first start"))
        shown.saw("host/0", TrialBegan(PLAN.trials[0], 1, ""))
        shown.saw("host/0", TrialEnded(PLAN.trials[0], 1, Measured(2), None, "", b""))

    assert lines(said)[-1] == "00:00 progress  1 of 4 trials, 0 of 8 points, 0 infeasible, 0 failed, 0 s"


def test_a_terminal_that_cannot_draw_over_itself_gets_lines() -> None:
    """TERM=dumb: rich would show nothing at all there until the end."""
    file = io.StringIO()
    dumb = Console(file=file, force_terminal=True, width=200, _environ={"TERM": "dumb"})
    point = PLAN.trials[0].points[0]

    with Progress(PLAN, ["host/0"], dumb, clock=lambda: 0.0) as shown:
        shown.saw("host/0", PointEnded(point, 1, report(point, 10), ""))

    assert file.getvalue().splitlines() == [
        f"00:00 host/0  -: {point.text}: 10 requests",
        "00:00 progress  0 of 3 trials, 1 of 6 points, 0 infeasible, 0 failed, 0 s",
    ]
