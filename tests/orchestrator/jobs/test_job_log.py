"""The log of a job comes in pieces, breaks off, and is read by people and by machine."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.jobs.job_log import JobProgress, LogLines, told_by
from orchestrator.run_files.run_result import Ending, RunResult

RESULT = RunResult(Ending(130, "interrupted", "stopped"), scenario="small", points={"measured": 2, "missing": 4})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # both are about the speed of the machine
@given(
    lines=st.lists(st.sampled_from(["", "a", "b\u00e4", "a b "]), max_size=8),
    readings=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=5),
)
def test_each_line_is_told_once_however_often_the_connection_breaks(
    lines: list[str], readings: list[tuple[int, int]]
) -> None:
    log = "".join(line + "\n" for line in lines)
    reader, told = LogLines(), list[str]()
    for upto, piece in [*readings, (len(log), 3)]:
        reader.begin()
        for start in range(0, min(upto, len(log)), piece):
            told += reader.feed(log[start : min(start + piece, upto)])

    assert told == lines
    assert not reader.unfinished


def test_a_log_tells_directory_progress_and_result_of_its_run() -> None:
    told = told_by(
        "2026-11-30 INFO job_manager.py -- Runtime env is setting up.\n"
        "Run directory: /home/ray/specsweep-runs/small-1\n"
        "01:00 progress  1 of 3 trials, 2 of 6 points, 0 infeasible, 0 failed, 60 s, about 120 s left\n"
        "02:00 progress  2 of 3 trials, 4 of 6 points, 0 infeasible, 1 failed, 120 s (7 lines not shown)\n"
        f"{RESULT.line()}\n"
    )

    assert told.run_dir == "/home/ray/specsweep-runs/small-1"
    assert told.progress == JobProgress(2, 3, 4, 6)
    assert told.result == RESULT


def test_a_result_that_is_torn_or_of_a_later_release_is_no_result() -> None:
    whole = RESULT.line()

    assert told_by(whole[:-5]).result is None
    assert told_by(whole.replace('"schema":1', '"schema":2')).result is None
    assert told_by("specsweep-result: []").result is None
    assert told_by("specsweep-result: null").result is None
