"""Trials of one config on every host: they tie the hosts of a run together and show what drifts. Thread-safe.

A block is what one host does in one start of a run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from orchestrator.planning.planner import trial_of
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import config_of, expand
from orchestrator.searches.asked_trials import FIRST_REFERENCE
from orchestrator.trial import EngineConfig, Trial

# Fewer trials a host are not worth one more that only compares hosts; one host need not be tied to others.
LEAST_TRIALS = 4
LEAST_HOSTS = 2
# A shorter block has no time to drift, e.g. to warm up or to be throttled.
LONG_BLOCK_S = 7200.0


class ReferenceTrials:
    """`trials`: how many each class of hosts has to do, as far as is known; `numbers`: of hosts that had blocks before.

    `is_done`: whether a trial needs no start any more.
    """

    def __init__(
        self,
        scenario: Scenario,
        trials: Mapping[str, int],
        numbers: Mapping[str, int],
        is_done: Callable[[Trial], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scenario = scenario
        self._config = reference_config(scenario)
        self._trials = trials
        self._numbers = dict(numbers)
        self._is_done = is_done
        self._clock = clock
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self._ended: set[str] = set()

    def first(self, host: str, host_class: str, hosts: Iterable[str]) -> Trial | None:
        """The one that begins the host's block, once; `hosts` of this class are there by now."""
        with self._lock:
            if host in self._began or self._config is None or not self._is_wanted(host_class, set(hosts)):
                return None
            self._began[host] = self._clock()
            return self._trial(self._config, host, host_class, 0)

    def last(self, host: str, host_class: str) -> Trial | None:
        """The one that ends the host's block, once; None for a short one."""
        with self._lock:
            began_s = self._began.get(host)
            if self._config is None or began_s is None or host in self._ended:
                return None
            if self._clock() - began_s < LONG_BLOCK_S:
                return None
            self._ended.add(host)
            return self._trial(self._config, host, host_class, 1)

    def number(self, host: str) -> int:
        """Of a host among those with blocks, from 0; the same in every start of a run."""
        return self._numbers.setdefault(host, len(self._numbers))

    def _is_wanted(self, host_class: str, hosts: set[str]) -> bool:
        if self._scenario.measure.reference != "auto" or self._numbers:
            return True
        return len(hosts) >= LEAST_HOSTS and self._trials.get(host_class, 0) >= LEAST_TRIALS * len(hosts)

    def _trial(self, config: EngineConfig, host: str, host_class: str, end: int) -> Trial | None:
        repeat = FIRST_REFERENCE + 2 * self.number(host) + end
        trial = trial_of(self._scenario, config, None, repeat, host_class)
        return None if self._is_done(trial) else trial


def reference_config(scenario: Scenario) -> EngineConfig | None:
    """The config that is measured on every host, None where none is wanted."""
    wanted = scenario.measure.reference
    if wanted == "off":
        return None
    return next(expand(scenario), None) if wanted == "auto" else config_of(scenario, dict(wanted))


def trials_by_class(trials: Sequence[Trial], configs: int, classes: Sequence[str]) -> dict[str, int]:
    """How many trials each class has to do: of a plan, or one of each config where a search decides."""
    if not trials:
        return dict.fromkeys(classes, configs)
    return {c: sum(trial.host_class == c for trial in trials) for c in classes}
