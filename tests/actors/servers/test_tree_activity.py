"""What is seen of the processes of a server, and which lines of a log are about work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.gpus.gpu_activity import busiest_gpu_percent
from actors.guards.guard import TRIAL_MARK
from actors.servers.follower import Segment
from actors.servers.life_event import Activity
from actors.servers.pulse import tells_tokens, tells_work
from actors.servers.tree_activity import TreeActivity, usages

# A parent that only waits for a child that does the work, as a main process waits for its schedulers.
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', sys.argv[1]])"
SLEEP = "import time; print('ready', flush=True); time.sleep(60)"
SPIN = "print('ready', flush=True)\nwhile True: pass"
# Reads with rests in between: hardly any CPU.
READ = (
    "import time; print('ready', flush=True)\n"
    "while True: open('/dev/zero', 'rb', buffering=0).read(4 << 20); time.sleep(0.05)"
)


@contextmanager
def tree(work: str, env: dict[str, str] | None = None) -> Iterator[int]:
    """The pid of a parent whose child is at work."""
    command = [sys.executable, "-S", "-c", PARENT, work]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, **(env or {})}, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()


def until(activity: TreeActivity, wanted: bool) -> Activity:
    """The first sample that is idle, or busy, as wanted; a busy machine may take its time."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        time.sleep(0.1)
        sample = activity.sample()
        if sample is not None and sample.is_idle is wanted:
            return sample
    raise AssertionError(f"never {'idle' if wanted else 'busy'}")


def test_a_tree_that_sleeps_is_idle_and_its_processes_are_counted() -> None:
    with tree(SLEEP) as pid:
        activity = TreeActivity(pid)
        assert activity.sample() is None, "the first look has nothing to compare with"
        sample = until(activity, True)
        assert (sample.processes, sample.gpu_percent) == (2, None)


def test_a_child_that_uses_a_cpu_is_work_of_its_server() -> None:
    with tree(SPIN) as pid:
        activity = TreeActivity(pid)
        activity.sample()
        assert until(activity, False).busiest_cpu_s > 0.015


def test_a_child_that_only_reads_is_work_too() -> None:
    with tree(READ) as pid:
        activity = TreeActivity(pid)
        activity.sample()
        assert until(activity, False).moved_bytes >= 4 << 20


def test_a_container_is_seen_by_the_mark_of_its_trial_and_its_client_is_no_part_of_it() -> None:
    with tree(SLEEP) as client, tree(SPIN, {TRIAL_MARK: "trial-of-this-test"}):
        activity = TreeActivity(client, trial_id="trial-of-this-test")
        activity.sample()
        assert until(activity, False).processes == 2
        unseen = TreeActivity(client, trial_id="trial-that-nobody-has")
        assert (unseen.sample(), unseen.sample()) == (None, None)


def test_a_gpu_at_work_is_no_idleness_and_is_asked_for_the_gpus_of_the_slot() -> None:
    asked: list[tuple[str, ...]] = []

    def percent(gpu_ids: tuple[str, ...]) -> int:
        asked.append(gpu_ids)
        return 7

    with tree(SLEEP) as pid:
        activity = TreeActivity(pid, ("2", "3"), gpu_percent=percent)
        activity.sample()
        sample = activity.sample()
    assert sample is not None
    assert (sample.is_idle, sample.gpu_percent, asked) == (False, 7, [("2", "3")])


def test_a_process_that_is_gone_is_left_out() -> None:
    assert usages([2**22 + 1]) == {}
    assert list(usages([os.getpid(), 2**22 + 1])) == [os.getpid()]


@pytest.mark.parametrize(
    ("activity", "idle"),
    [
        (Activity(10.0, 8, 0.19), True),  # what watchdogs of a server use that waits
        (Activity(10.0, 8, 0.21), False),
        (Activity(0.25, 8, 0.01), True),  # one tick of the kernel's clock
        (Activity(0.25, 8, 0.02), False),
        (Activity(10.0, 8, 0.0, moved_bytes=(1 << 20) - 1), True),
        (Activity(10.0, 8, 0.0, moved_bytes=1 << 20), False),
        (Activity(10.0, 8, 0.0, gpu_percent=0), True),
        (Activity(10.0, 8, 0.0, gpu_percent=1), False),
    ],
)
def test_idle_is_what_a_waiting_server_does_as_well(activity: Activity, idle: bool) -> None:
    assert activity.is_idle is idle


class NoAnswer(Exception):
    """What NVML raises."""


def nvml() -> Any:
    """Two GPUs; the second does not tell."""

    def rates(handle: int) -> Any:
        if handle == 1:
            raise NoAnswer
        return SimpleNamespace(gpu=42)

    return SimpleNamespace(
        NVMLError=NoAnswer,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID={"GPU-a": 0, "GPU-b": 1}.__getitem__,
        nvmlDeviceGetUtilizationRates=rates,
    )


@pytest.mark.parametrize(
    ("gpu_ids", "percent"), [(("0",), 42), (("GPU-a",), 42), (("0", "1"), None), (("GPU-b",), None), ((), None)]
)
def test_a_gpu_that_does_not_tell_is_not_called_idle(gpu_ids: tuple[str, ...], percent: int | None) -> None:
    assert busiest_gpu_percent(gpu_ids, nvml()) == percent


@pytest.mark.parametrize(
    ("line", "work", "tokens"),
    [
        ("[2026-08-07 17:35:59 TP0] Decode batch, #running-req: 1, #token: 90, gen throughput: 9.1", True, True),
        ("[2026-08-07 17:35:59 TP0] Prefill batch, #new-seq: 1, #new-token: 8", True, True),
        ('[2026-08-07 17:35:59] INFO:     127.0.0.1:4 - "POST /generate HTTP/1.1" 200 OK', True, False),
        ("[2026-08-07 17:35:59 TP0] Cache flushed successfully!", True, False),
        ('[2026-08-07 17:35:59] INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 503 Service Unavailable', False, False),
        ('INFO:     10.0.0.7:4 - "GET /metrics HTTP/1.1" 200 OK', False, False),
        ("Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.", False, False),
        ("tic start time: 19:12:20. last_heartbeat time: 19:12:17", False, False),
    ],
)
def test_lines_that_only_answer_whether_it_lives_are_no_work(line: str, work: bool, tokens: bool) -> None:
    assert (tells_work(Segment(line, 1)), tells_tokens(Segment(line, 1))) == (work, tokens)


def test_this_machine_counts_its_time_and_bytes() -> None:
    before = usages([os.getpid()])[os.getpid()]
    Path(sys.executable).read_bytes()
    after = usages([os.getpid()])[os.getpid()]

    assert after.moved_bytes > before.moved_bytes
    assert after.cpu_s >= before.cpu_s
