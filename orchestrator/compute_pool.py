"""Pure functions over many small tasks: in this process, and in one for each core once there are many."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# A process takes a second to come up; a task takes milliseconds.
FEWEST_TASKS = 1000
_CHUNK = 50


class ComputePool:
    """Its processes are started when they are first needed, and end with it or with their parent."""

    def __init__(self, fewest_tasks: int = FEWEST_TASKS, processes: int | None = None) -> None:
        self._fewest_tasks = fewest_tasks
        self._processes = processes or len(os.sched_getaffinity(0))
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=kind is None, cancel_futures=True)

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order of the tasks. `function` is one of a module, tasks and results can be pickled."""
        done = 0
        if len(tasks) >= self._fewest_tasks and self._processes > 1:
            try:
                for result in self._started().map(function, tasks, chunksize=_CHUNK):
                    done += 1
                    yield result
            except BrokenProcessPool:  # killed, or they cannot be started from here (a program read from a pipe)
                self._processes = 1
        for task in tasks[done:]:
            yield function(task)

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # Not forked: the driver has threads, and Ray.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self._processes, mp_context=context, initializer=_live_with_parent)
        return self._executor


def _live_with_parent() -> None:
    """Ctrl-C goes to the whole group: the parent says what becomes of us. Without it nobody waits for us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
