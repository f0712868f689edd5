"""What is watched while a point runs: the load actor's own speed, and the server's counters before and after."""

from __future__ import annotations

import gc
import math
import re
import time
from array import array
from collections.abc import Mapping, Sequence
from types import MappingProxyType

# Sums over all labels; SGLang advances them when a request ends, so differences are exact for a drained window.
# What is counted -> its name in the metrics; older releases write `sglang:`, newer ones `sglang_`.
SGLANG_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "verified": "sglang[:_]spec_verify_calls_total",
        "generated": "sglang[:_]generation_tokens_total",
        "requests": "sglang[:_]num_requests_total",
    }
)


def counter_patterns(named: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """What to look for in the metrics: the counters that the scenario names, else SGLang's."""
    return {what: re.escape(name) for what, name in named} if named else SGLANG_COUNTERS


def read_counters(exposition: str | None, patterns: Mapping[str, str] = SGLANG_COUNTERS) -> dict[str, float] | None:
    """The counters found in the text of `/metrics`, by what they count; None if the server has no metrics."""
    if exposition is None:
        return None
    found: dict[str, float] = {}
    for what, pattern in patterns.items():
        samples = re.findall(rf"^(?:{pattern})(?:\{{.*\}})? (\S+)", exposition, re.MULTILINE)
        if samples:
            found[what] = sum(map(float, samples))
    return found


def counter_delta(name: str, before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> float | None:
    """How much a counter grew, None if it is not there; one that appears in between has grown from 0."""
    if before is None or after is None or name not in after:
        return None
    grown = after[name] - before.get(name, 0.0)
    return grown if grown >= 0 else None


class GcWatch:
    """Stops for garbage collection. What lives when the load begins is left out of collections while it runs."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self.longest_s = 0.0

    def begin(self) -> None:
        """Collect, so that what is left over from warm-up costs nothing later, and watch."""
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._saw)

    def end(self) -> None:
        """Later calls change nothing."""
        if self._saw in gc.callbacks:
            gc.callbacks.remove(self._saw)
            gc.unfreeze()

    def _saw(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.monotonic()
        else:
            self.longest_s = max(self.longest_s, time.monotonic() - self._began_s)


class OwnSpeed:
    """How the process itself does between `begin` and `end`: CPU seconds, event-loop lag, lateness of sends, stops for
    garbage collection, bytes that waited unread in its sockets.

    Call `prepare` before the moment at which the load begins.
    """

    def __init__(self) -> None:
        self._began_s = self._began_cpu_s = 0.0
        self.began_unix_s: float | None = None
        self._running = False
        self._lags_s = array("d")
        self._lateness_s = array("d")
        self._backlogs_kib = array("d")
        self._gc = GcWatch()
        self.duration_s = 0.0
        self.cpu_s = 0.0

    def prepare(self) -> None:
        """What takes time itself."""
        self._gc.begin()

    def begin(self) -> None:
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()
        self.began_unix_s = time.time()
        self._running = True

    def end(self) -> None:
        """Later calls change nothing."""
        if self._running:
            self._running = False
            self.duration_s = time.monotonic() - self._began_s
            self.cpu_s = time.process_time() - self._began_cpu_s
        self._gc.end()

    def saw_lag(self, seconds: float) -> None:
        """How much later than asked the event loop woke a sleeper."""
        if self._running:
            self._lags_s.append(max(seconds, 0.0))

    def saw_send(self, late_ns: int) -> None:
        """How much later than it could have been a scheduled request was sent, waiting at a gate left out."""
        self._lateness_s.append(max(late_ns, 0) / 1e9)

    def saw_backlog(self, kib: float) -> None:
        """Bytes that the system had received for us and we had not read."""
        if self._running:
            self._backlogs_kib.append(kib)

    @property
    def loop_lag_p99_ms(self) -> float:
        """One hiccup is none: of fewer than 100 looks the p99 would be the largest, so the second largest is told."""
        return percentile(sorted(self._lags_s)[:-1] if len(self._lags_s) < 100 else self._lags_s, 99) * 1e3

    @property
    def schedule_delay_p99_ms(self) -> float:
        return percentile(self._lateness_s, 99) * 1e3

    @property
    def gc_pause_max_ms(self) -> float:
        return self._gc.longest_s * 1e3

    @property
    def backlog_p99_kib(self) -> float | None:
        return percentile(self._backlogs_kib, 99) if self._backlogs_kib else None


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile, 0 if there are no values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)] if ordered else 0.0
