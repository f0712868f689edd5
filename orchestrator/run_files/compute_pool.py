"""Pure functions over many small tasks: in this process, and in one for each core once there are many."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from orchestrator.run_files import compute_worker

Task = TypeVar("Task")
Result = TypeVar("Result")

# A process takes a second to come up; a task takes milliseconds.
FEWEST_TASKS = 1000
_CHUNK = 50


class _Lost(Exception):
    """A process ended before it answered."""


class _Worker:
    """One process. It ends with its standard input, so with us, however we end; a Ctrl-C is ours alone."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", compute_worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """The results of some tasks; _Lost if there are none, the process's own fault or the function's."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((function, tasks), self._process.stdin)
            self._process.stdin.flush()
            results: list[Any] = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise _Lost from None
        return results

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class ComputePool:
    """Its processes are started when they are first needed. They are no forks: the driver has threads, and Ray.

    Where a process is lost, this one does the rest of the work.
    """

    def __init__(self, fewest_tasks: int = FEWEST_TASKS, processes: int | None = None) -> None:
        self._fewest_tasks = fewest_tasks
        self._count = processes or len(os.sched_getaffinity(0))
        self.workers: list[_Worker] = []
        self._free: SimpleQueue[_Worker] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers:
            worker.close()
        self.workers = []

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order of the tasks. `function` is one of a module, tasks and results can be pickled."""
        done = 0
        if len(tasks) >= self._fewest_tasks and self._count > 1:
            try:
                for results in self._shared(function, tasks):
                    done += len(results)
                    yield from results
            except _Lost:
                self._count = 1
        for task in tasks[done:]:
            yield function(task)

    def _shared(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[list[Result]]:
        """In pieces."""
        if not self.workers:
            self.workers = [_Worker() for _ in range(self._count)]
            self._free = SimpleQueue()
            for worker in self.workers:
                self._free.put(worker)

        def asked(start: int) -> list[Result]:
            worker = self._free.get()
            try:
                return worker.ask(function, tasks[start : start + _CHUNK])
            finally:
                self._free.put(worker)

        threads = ThreadPoolExecutor(self._count, thread_name_prefix="compute")
        try:
            yield from threads.map(asked, range(0, len(tasks), _CHUNK))
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
