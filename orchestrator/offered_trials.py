"""Trials that are offered while a run goes on, and which of them a slot takes. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.trial import Trial

# The end of what is offered begins when what is left, per slot, is as long as so many of its longest trial.
_ENDING = 2.0
# Durations that differ by less than this factor are guesses of the same length.
_ALIKE = 1.25


@dataclass
class _Waiting:
    """`number`: when it was offered; the offer's order is the search's."""

    trial: Trial
    config_id: str
    number: int
    guess_s: float


class OfferedTrials:
    """What waits for any slot of a class of hosts.

    A slot takes the trial whose config has run least often on its host, of these the lowest repeat, of these the one
    that was offered first. So every host has a share of every config, and repeats of one come to different hosts:
    hosts and configs can be told apart afterwards. When little is left, long ones come first, so that all end together.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._runs: Counter[tuple[str, str]] = Counter()
        self._took_s: dict[str, float] = {}
        self._offered = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            config_id = trial.config.config_id
            guess_s = self._took_s.get(config_id, trial.estimated_s)
            self._waiting[trial.trial_id] = _Waiting(trial, config_id, self._offered, guess_s)
            self._offered += 1

    def ran(self, host: str, config_id: str) -> None:
        """A trial of a config ran on a host before; what is taken from here is counted anyway."""
        self._runs[host, config_id] += 1

    def learn(self, trial: Trial, took_s: float) -> None:
        """A trial was measured in so many seconds: other repeats of its config will take about as long."""
        config_id = trial.config.config_id
        self._took_s[config_id] = took_s
        for waiting in self._waiting.values():
            if waiting.config_id == config_id:
                waiting.guess_s = took_s

    def take(self, host: str, slots: int) -> Trial | None:
        """The next one for a slot on this host; `slots` work for the class."""
        if not self._waiting:
            return None
        waiting = list(self._waiting.values())
        if self._is_ending(slots):
            longest_s = max(w.guess_s for w in waiting)
            waiting = [w for w in waiting if w.guess_s * _ALIKE >= longest_s]
        chosen = min(waiting, key=lambda w: (self._runs[host, w.config_id], w.trial.repeat, w.number))
        del self._waiting[chosen.trial.trial_id]
        self.ran(host, chosen.config_id)
        return chosen.trial

    def _is_ending(self, slots: int) -> bool:
        if slots < 2:
            return False
        guesses = [waiting.guess_s for waiting in self._waiting.values()]
        return math.fsum(guesses) <= _ENDING * slots * max(guesses)

    def clear(self) -> None:
        self._waiting.clear()
