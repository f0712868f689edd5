"""A clock that real threads share: one runs at a time, and time goes on when all wait.

Every simulated thread is either running, asleep until a time, or waiting for a condition. Whoever is due first runs
next; of several that are due at once the one with the lowest order. So the threads of the product run as they stand,
but what they do is a discrete event simulation: it depends on nothing but the times that they ask for.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class _Sleeper:
    """A simulated thread. `turn` counts its waits, so that a wake-up that was overtaken is known."""

    name: str
    order: int
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    turn: int = 0


class VirtualClock:
    """Seconds since the beginning. `expect` names the threads that are to be waited for before time begins."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._lock = threading.Lock()
        self._known: dict[str, _Sleeper] = {}
        self._entered: set[str] = set()
        self._due: list[tuple[float, int, int, int, _Sleeper]] = []
        self._count = itertools.count()
        self._running: _Sleeper | None = None
        self.switches = 0

    def expect(self, name: str) -> None:
        """A thread of this name is about to start; nothing goes on until it has come."""
        with self._lock:
            self._known[name] = _Sleeper(name, len(self._known))

    def is_simulated(self) -> bool:
        """Whether the calling thread is one of the simulation's."""
        return threading.current_thread().name in self._known

    def enter(self) -> None:
        """A simulated thread comes; returns when it is its turn. More calls do nothing."""
        name = threading.current_thread().name
        with self._lock:
            if name in self._entered:
                return
            self._entered.add(name)
            sleeper = self._known[name]
            self._wake_at(self.now_s, sleeper)
            if self._running is None:
                self._hand_on()
        sleeper.go.acquire()

    def sleep_until(self, when_s: float) -> None:
        """Let the others run until then."""
        self._pause(lambda sleeper: self._wake_at(max(when_s, self.now_s), sleeper))

    def sleep(self, seconds: float) -> None:
        """Let the others run for so long."""
        self.sleep_until(self.now_s + seconds)

    def leave(self, name: str) -> None:
        """The thread of this name has ended, or will wait no more; the others go on."""
        with self._lock:
            gone = self._known.pop(name, None)
            self._entered.discard(name)
            if gone is self._running or self._running is None:
                self._hand_on()

    def condition(self) -> VirtualCondition:
        """A condition whose waiters are simulated threads."""
        return VirtualCondition(self)

    def wait(self, waiters: list[Waiting], timeout: float | None) -> None:
        """Be asleep until one of `waiters` is woken, or the timeout."""

        def queue(sleeper: _Sleeper) -> None:
            waiters.append(Waiting(sleeper, sleeper.turn))
            if timeout is not None:
                self._wake_at(self.now_s + timeout, sleeper)

        self._pause(queue)

    def wake(self, waiters: list[Waiting]) -> None:
        """Those are due now."""
        with self._lock:
            for waiting in waiters:
                if waiting.turn == waiting.sleeper.turn:
                    self._wake_at(self.now_s, waiting.sleeper)
            waiters.clear()
            if self._running is None:
                self._hand_on()

    def _pause(self, queue: Callable[[_Sleeper], None]) -> None:
        sleeper = self._known[threading.current_thread().name]
        with self._lock:
            queue(sleeper)
            self._hand_on()
        sleeper.go.acquire()

    def _wake_at(self, when_s: float, sleeper: _Sleeper) -> None:
        heapq.heappush(self._due, (when_s, sleeper.order, next(self._count), sleeper.turn, sleeper))

    def _hand_on(self) -> None:
        self._running = None
        if len(self._entered) < len(self._known):
            return  # somebody has not come yet
        while self._due:
            when_s, _, _, turn, sleeper = heapq.heappop(self._due)
            if turn != sleeper.turn or sleeper.name not in self._known:
                continue  # it was woken by something else before
            self.now_s = when_s
            sleeper.turn += 1
            self._running = sleeper
            self.switches += 1
            sleeper.go.release()
            return


@dataclass(frozen=True, slots=True)
class Waiting:
    """A thread that waits for a condition, and which of its waits that is."""

    sleeper: _Sleeper
    turn: int


class VirtualCondition:
    """As `threading.Condition`: simulated threads wait in virtual time, all others only use it as a lock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waiters: list[Waiting] = []

    def __enter__(self) -> bool:
        if self._clock.is_simulated():
            self._clock.enter()
        return self._lock.__enter__()

    def __exit__(self, *ended: Any) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Until notified or until the timeout in virtual seconds; called with the lock held, once."""
        self._lock.release()
        try:
            self._clock.wait(self._waiters, timeout)
        finally:
            self._lock.acquire()
        return True

    def notify_all(self) -> None:
        """Wake all who wait; they run when whoever runs now waits."""
        self._clock.wake(self._waiters)
