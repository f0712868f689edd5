"""Work that is shared among processes comes out as if one had done it, also where they are lost."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

import pytest

from orchestrator.run_files.compute_pool import ComputePool


def doomed(number: int) -> int:
    """Ends any process but that of the test, which the variable names."""
    if number == 70 and str(os.getpid()) != os.environ["TEST_PROCESS"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return number + 1


def noisy(number: int) -> int:
    sys.stdout.write(f"a word on standard output {number}\n")
    return number


def test_results_come_in_the_order_of_the_tasks_and_the_processes_end_with_the_pool() -> None:
    with ComputePool(fewest_tasks=10, processes=2) as pool:
        assert list(pool.map(math.sqrt, [float(i * i) for i in range(500)])) == [float(i) for i in range(500)]
        assert list(pool.map(math.sqrt, [4.0])) == [2.0]
        pids = [worker.pid for worker in pool.workers]
        assert len(pids) == 2

    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_process_that_is_killed_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PROCESS", str(os.getpid()))

    with ComputePool(fewest_tasks=10, processes=2) as pool:
        assert list(pool.map(doomed, range(300))) == list(range(1, 301))


def test_an_error_of_the_function_is_raised_here() -> None:
    with ComputePool(fewest_tasks=10, processes=2) as pool, pytest.raises(ValueError, match="math domain error"):
        list(pool.map(math.sqrt, [4.0] * 100 + [-1.0]))


def test_what_a_function_prints_does_not_get_between_the_results() -> None:
    with ComputePool(fewest_tasks=10, processes=2) as pool:
        assert list(pool.map(noisy, range(60))) == list(range(60))


def test_few_tasks_start_no_process() -> None:
    with ComputePool(processes=2) as pool:
        assert list(pool.map(math.sqrt, [4.0, 9.0])) == [2.0, 3.0]
        assert pool.workers == []
