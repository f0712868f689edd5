"""The journal survives a crash at any byte."""

from __future__ import annotations

import errno
import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.run_files.journal import Journal, finished_work, read_events, replay


def write_run(path: Path) -> bytes:
    journal = Journal(path)
    journal.append("run_started")
    journal.append("trial_started", trial_id="t1", attempt=1)
    journal.append("point_done", point_id="p1", attempt=1)
    journal.append("trial_ended", trial_id="t1", outcome="measured")
    journal.append("trial_started", trial_id="t2", attempt=1)
    journal.append("trial_ended", trial_id="t2", outcome="infeasible")
    journal.close()
    return path.read_bytes()


def test_a_journal_cut_at_any_byte_reads_as_its_whole_lines_and_goes_on_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = write_run(path)
    lines = whole.splitlines(keepends=True)
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\n")

        assert [e["event"] for e in read_events(path)] == [json.loads(line)["event"] for line in lines[:complete]]

        journal = Journal(path)
        journal.append("run_resumed")
        journal.close()
        assert [e["event"] for e in read_events(path)][complete:] == ["run_resumed"]


def test_measured_points_and_infeasible_trials_are_finished_work_but_failed_trials_are_not(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_run(path)
    journal = Journal(path)
    journal.append("trial_ended", trial_id="t3", outcome="failed")
    journal.close()

    assert finished_work(replay(read_events(path))) == {"p1", "t2", "probed:t1"}


def test_a_trial_that_failed_and_then_turned_out_infeasible_counts_by_its_last_word(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append("trial_ended", trial_id="t", outcome="infeasible")
    journal.append("trial_ended", trial_id="t", outcome="failed")
    journal.close()

    assert finished_work(replay(read_events(path))) == frozenset()


def test_a_start_without_an_outcome_is_torn_and_keeps_what_is_known_of_its_server(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append("trial_started", trial_id="t1", attempt=1, place={"slot": "a"})
    journal.append("trial_ended", trial_id="t1", outcome="failed")
    journal.append("trial_started", trial_id="t1", attempt=2, place={"slot": "b"})
    journal.append("server_ready", trial_id="t1", server={"url": "http://127.0.0.1:1"})
    journal.close()
    torn = replay(read_events(path)).torn_trials()

    assert [(t.attempt, t.place, t.server) for t in torn.values()] == [
        (2, {"slot": "b"}, {"url": "http://127.0.0.1:1"})
    ]


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """As on a disk with room for so many bytes: what goes further is written in part, then refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_line_that_a_full_disk_tore_is_cut_off_at_once_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append("run_started")
    with files_end_at(path.stat().st_size + 10), pytest.raises(OSError, match="File too large") as refused:
        journal.append("point_done", point_id="p1", attempt=1)
    assert refused.value.errno == errno.EFBIG
    assert path.read_bytes() == b'{"event":"run_started"}\n'

    journal.append("run_ended", complete=False)
    journal.close()
    assert [e["event"] for e in read_events(path)] == ["run_started", "run_ended"]


def test_of_a_trial_that_has_ended_its_servers_account_is_not_kept_in_memory_and_what_hosts_did_is(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.note("trial_started", trial_id="t", attempt=1, place={})
    journal.note("server_ready", trial_id="t", server={"resolved": {"large": "account"}})
    assert replay(read_events(tmp_path / "journal.jsonl")).begun["t"].server == {"resolved": {"large": "account"}}

    journal.append("trial_ended", trial_id="t", config_id="c", outcome="measured")
    journal.append("host_lost", host="h1", at="", reason="", slots=[])
    journal.close()
    state = replay(read_events(tmp_path / "journal.jsonl"))

    assert (state.begun["t"].ended, state.begun["t"].server) == (True, None)
    assert [event["host"] for event in state.of_hosts] == ["h1"]


def test_events_of_one_kind_can_be_left_out_unread_and_nothing_else_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.append("server_ready", trial_id="t1", server={"resolved": "x" * 1000})
    journal.append("server_ready_too", of="server_ready")
    journal.append("point_done", point_id="p1", attempt=1, seconds=float("nan"))
    journal.close()

    kinds = [event["event"] for event in read_events(tmp_path / "j", without="server_ready")]
    assert kinds == ["server_ready_too", "point_done"]
    assert len(list(read_events(tmp_path / "j"))) == 3
