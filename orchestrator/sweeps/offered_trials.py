"""Trials that are offered while a run goes on, and which of them a slot takes. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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

    A trial may have a follower, which the slot that takes it does next. Both are a pair, which goes only to a host
    where it ran no more often than on any other, and waits for one that is busy. So does a trial that is to run
    elsewhere than its config did.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._runs: Counter[tuple[str, str]] = Counter()
        self._took_s: dict[str, float] = {}
        self._offered = 0
        self._followers: dict[str, Trial] = {}
        self._elsewhere: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, trials: Sequence[Trial], followers: Mapping[str, Trial] | None = None, elsewhere: Collection[str] = ()
    ) -> None:
        """`followers` by the ids of the trials that they follow; `elsewhere`: ids of those that are to run there."""
        self._followers |= followers or {}
        self._elsewhere |= set(elsewhere)
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

    def follow(self, leader: Trial, follower: Trial) -> None:
        """Whoever takes `leader`, which was handed back, takes the other next."""
        self._followers[leader.trial_id] = follower

    def follower_of(self, trial: Trial) -> Trial | None:
        """What the slot that has taken this does next; asked once."""
        return self._followers.pop(trial.trial_id, None)

    def take(self, host: str, slots: int, hosts: Collection[str] = ()) -> Trial | None:
        """The next one for a slot on this host; `slots` work for the class, on these `hosts`."""
        waiting = [w for w in self._waiting.values() if self._has_turn(w, host, hosts)]
        if not waiting:
            return None
        if self._is_ending(slots):
            longest_s = max(w.guess_s for w in waiting)
            waiting = [w for w in waiting if w.guess_s * _ALIKE >= longest_s]
        chosen = min(waiting, key=lambda w: (self._runs[host, w.config_id], w.trial.repeat, w.number))
        del self._waiting[chosen.trial.trial_id]
        self.ran(host, chosen.config_id)
        if (follower := self._followers.get(chosen.trial.trial_id)) is not None:
            self.ran(host, follower.config.config_id)
        return chosen.trial

    def _has_turn(self, waiting: _Waiting, host: str, hosts: Collection[str]) -> bool:
        """Pairs of one config are counted by its members, of which either may lead."""
        follower = self._followers.get(waiting.trial.trial_id)
        if follower is None and waiting.trial.trial_id not in self._elsewhere:
            return True
        members = (waiting.config_id, *((follower.config.config_id,) if follower else ()))
        ran = {name: sum(self._runs[name, member] for member in members) for name in {*hosts, host}}
        return ran[host] == min(ran.values())

    def _is_ending(self, slots: int) -> bool:
        if slots < 2:
            return False
        guesses = [waiting.guess_s for waiting in self._waiting.values()]
        return math.fsum(guesses) <= _ENDING * slots * max(guesses)

    def clear(self) -> None:
        self._waiting.clear()
        self._followers.clear()
        self._elsewhere.clear()
