"""Which trial a slot takes next: its own, another's, or one that was handed back to be tried once more. Thread-safe."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planning.planner import Plan
from orchestrator.recoveries.remedies import Kind
from orchestrator.sweeps.offered_trials import OfferedTrials
from orchestrator.trial import EngineConfig, Trial

# The end of a run begins when what is left, per slot, is as long as so many of its longest trial.
_ENDING = 2.0
# More trials per slot than these are never the end; what is left is not even added up.
_MANY = 8


@dataclass(frozen=True, slots=True)
class HandedBack:
    """A trial to be tried once more; `how` says whether on another host, or alone."""

    trial: Trial
    how: Kind


class _Share:
    """The trials that slots of one class do, in the order of each. The longest queue is found without adding them up:
    the heap holds what each had left at some time, which is never too little.

    `_guess_s` has what each waiting trial is expected to take: the planner's estimate until one like it was measured.
    """

    def __init__(self) -> None:
        self._guess_s: dict[str, float] = {}
        self._alike: dict[tuple[EngineConfig, int], list[str]] = {}
        self._where: dict[str, int] = {}
        self._queues: dict[int, deque[Trial]] = {}
        self._left_s: dict[int, float] = {}
        self._longest: list[tuple[float, int]] = []
        self.waiting = 0
        self.handed_back: list[tuple[HandedBack, int]] = []
        self.offered = OfferedTrials()
        self.next_of: dict[int, tuple[Trial, Trial]] = {}  # by slot: what it took, and what has to follow that there
        self.open = False
        self.busy = 0

    def add(self, index: int, trials: Sequence[Trial]) -> None:
        self._queues[index] = deque(trials)
        self._left_s[index] = sum(t.estimated_s for t in trials)
        self.waiting += len(trials)
        heapq.heappush(self._longest, (-self._left_s[index], index))
        for trial in trials:
            self._guess_s[trial.trial_id], self._where[trial.trial_id] = trial.estimated_s, index
            self._alike.setdefault(_kind(trial), []).append(trial.trial_id)

    def learn(self, trial: Trial, took_s: float) -> None:
        """A trial was measured in so many seconds: the waiting repeats of its config will take about as long."""
        for other in self._alike.get(_kind(trial), ()):
            if other in self._guess_s:
                self._guess_s[other] = took_s
        self.offered.learn(trial, took_s)

    def take(self, slot: int, hosts: Sequence[str], host: str) -> Trial | None:
        """The slot's next one, else the last one of the slot with most left, else of what was offered; in the end of
        the plan the longest of all. `hosts` are those of all slots that work for the class.
        """
        slots = len(hosts)
        longest = self._longest_at_the_end(slots)
        index, own = (slot, True) if self._queues.get(slot) else (self._most_left(), False)
        if index is None:
            return self.offered.take(host, slots, frozenset(hosts))
        if longest is not None:
            index = self._where[longest]
            trial = next(t for t in self._queues[index] if t.trial_id == longest)
            self._queues[index].remove(trial)
        else:
            trial = self._queues[index].popleft() if own else self._queues[index].pop()
        self._left_s[index] -= trial.estimated_s
        del self._guess_s[trial.trial_id]
        self.waiting -= 1
        return trial

    def _longest_at_the_end(self, slots: int) -> str | None:
        """The longest trial that waits, if so many slots are nearly through: a long one that began last would be
        waited for by all. Before the end the order is random, as it should be for comparisons.
        """
        if slots < 2 or not self._guess_s or self.waiting > _MANY * slots:
            return None
        longest = max(self._guess_s, key=lambda trial_id: self._guess_s[trial_id])
        return longest if sum(self._guess_s.values()) <= _ENDING * slots * self._guess_s[longest] else None

    def _most_left(self) -> int | None:
        while self._longest:
            told, index = self._longest[0]
            if not self._queues[index]:
                heapq.heappop(self._longest)
            elif -told > self._left_s[index]:
                heapq.heapreplace(self._longest, (-self._left_s[index], index))
            else:
                return index
        return None

    def clear(self) -> None:
        for queue in self._queues.values():
            queue.clear()
        self._guess_s.clear()
        self.waiting = 0
        self.handed_back.clear()
        self.offered.clear()
        self.next_of.clear()
        self.open = False

    @property
    def left(self) -> int:
        return self.waiting + len(self.handed_back) + len(self.offered) + len(self.next_of)

    @property
    def is_over(self) -> bool:
        """Whether nothing comes any more: nothing waits, nothing may be handed back, nothing more is offered."""
        return not self.busy and not self.left and not self.open


def _kind(trial: Trial) -> tuple[EngineConfig, int]:
    """Trials of one kind take about as long; after a resumption one may have fewer points to measure."""
    return trial.config, len(trial.points)


class TrialQueue:
    """The trials of each slot in their order. Slots join, `hosts` are those of the ones that are there from the start.

    A slot that is through takes from the one with most left, then waits for what others may hand back. When little is
    left, every slot takes the longest of all, so that they end together. A slot takes only trials of its own class of
    hosts. While a class is open, further trials may be offered to it, and its slots wait for them.
    """

    def __init__(self, plan: Plan, hosts: Sequence[str] = (), classes: Sequence[str] = ()) -> None:
        self._changed = threading.Condition()
        self._shares: dict[str, _Share] = {}
        for index, trials in enumerate(plan.slots):
            for host_class in dict.fromkeys(trial.host_class for trial in trials):
                self._share(host_class).add(index, [t for t in trials if t.host_class == host_class])
        self._hosts: list[str] = []
        self._classes: list[str] = []
        self._alive: set[int] = set()
        self._busy: set[int] = set()
        self._alone = False
        for i, host in enumerate(hosts):
            self.join(host, classes[i] if classes else "")

    def _share(self, host_class: str) -> _Share:
        return self._shares.setdefault(host_class, _Share())

    def join(self, host: str, host_class: str = "") -> int:
        """Another slot takes part; its number."""
        with self._changed:
            self._hosts.append(host)
            self._classes.append(host_class)
            self._alive.add(len(self._hosts) - 1)
            self._changed.notify_all()
            return len(self._hosts) - 1

    def take(self, slot: int) -> Trial | None:
        """The next trial for a slot; blocks while others may still hand one back, None if there is nothing left."""
        with self._changed:
            share = self._share(self._classes[slot])
            while True:
                trial = None if self._alone else self._next(slot, share)
                if trial is not None:
                    self._busy.add(slot)
                    share.busy += 1
                    return trial
                if share.is_over:
                    return None
                self._changed.wait(timeout=1.0)

    def _next(self, slot: int, share: _Share) -> Trial | None:
        """What follows the slot's last trial is first, then what broke elsewhere: begun last of all, it would be waited
        for. What has to be alone is last.
        """
        if slot in share.next_of:
            return share.next_of.pop(slot)[1]
        trial = self._choose(slot, share)
        if trial is not None and (follower := share.offered.follower_of(trial)) is not None:
            share.next_of[slot] = (trial, follower)
        return trial

    def _choose(self, slot: int, share: _Share) -> Trial | None:
        for i, (back, broke_on) in enumerate(share.handed_back):
            if back.how is not Kind.ALONE and self._may_take(slot, broke_on):
                return share.handed_back.pop(i)[0].trial
        hosts = [self._hosts[s] for s in self._alive_in(self._classes[slot])]
        trial = share.take(slot, hosts, self._hosts[slot])
        alone = [i for i, (back, _) in enumerate(share.handed_back) if back.how is Kind.ALONE]
        if trial is None and alone and not self._busy:
            self._alone = True
            return share.handed_back.pop(alone[0])[0].trial
        return trial

    def slots_of(self, host_class: str) -> int:
        """How many slots work for a class."""
        with self._changed:
            return len(self._alive_in(host_class))

    def _alive_in(self, host_class: str) -> set[int]:
        return {s for s in self._alive if self._classes[s] == host_class}

    def _may_take(self, slot: int, broke_on: int) -> bool:
        """A slot on another host if one is left, else another slot, else the same."""
        alike = self._alive_in(self._classes[slot])
        elsewhere = {s for s in alike if self._hosts[s] != self._hosts[broke_on]}
        return slot in (elsewhere or alike - {broke_on} or alike)

    def done(self, slot: int, again: HandedBack | None = None) -> None:
        """The slot's trial ended; `again` is what should be tried once more."""
        with self._changed:
            self._free(slot)
            if again is not None:
                share = self._share(self._classes[slot])
                share.handed_back.append((again, slot))
                leader, follower = share.next_of.get(slot, (None, None))
                if leader is not None and follower is not None and leader.trial_id == again.trial.trial_id:
                    share.offered.follow(*share.next_of.pop(slot))
            self._changed.notify_all()

    def open_class(self, host_class: str) -> None:
        """Trials will be offered to this class, until it is closed."""
        with self._changed:
            self._share(host_class).open = True

    def close_class(self, host_class: str) -> None:
        """No more trials are offered to this class: its slots end when what waits is done."""
        with self._changed:
            self._share(host_class).open = False
            self._changed.notify_all()

    def close(self) -> None:
        """The same for all classes."""
        for host_class in list(self._shares):
            self.close_class(host_class)

    def offer(
        self, host_class: str, trials: Sequence[Trial], followers: Mapping[str, Trial] | None = None,
        elsewhere: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Further trials for any slot of an open class; after `clear` there is none. `followers`: by the ids of trials,
        what their slots take next; `elsewhere`: ids of those that go where their config ran least often.
        """
        with self._changed:
            share = self._share(host_class)
            if share.open:
                share.offered.add(trials, followers, elsewhere)
                self._changed.notify_all()

    def ran(self, host_class: str, host: str, config_id: str) -> None:
        """A trial of a config ran on a host in an earlier start of the run."""
        with self._changed:
            self._share(host_class).offered.ran(host, config_id)

    @property
    def is_open(self) -> bool:
        """Whether more trials may be offered."""
        with self._changed:
            return any(share.open for share in self._shares.values())

    def learn(self, trial: Trial, took_s: float) -> None:
        """A trial was measured; repeats of it that wait will take about as long."""
        with self._changed:
            self._share(trial.host_class).learn(trial, took_s)

    def leave(self, slot: int) -> None:
        """The slot takes no more, whatever it was doing."""
        with self._changed:
            self._alive.discard(slot)
            self._free(slot)
            share = self._share(self._classes[slot])
            if slot in share.next_of:  # nobody takes it in its turn: whoever comes does, so that it comes to an end
                share.offered.add([share.next_of.pop(slot)[1]])
            self._changed.notify_all()

    def _free(self, slot: int) -> None:
        if slot in self._busy:
            self._busy.discard(slot)
            self._share(self._classes[slot]).busy -= 1
        self._alone = self._alone and bool(self._busy)

    def clear(self) -> None:
        """Nothing more is to be taken."""
        with self._changed:
            for share in self._shares.values():
                share.clear()
            self._changed.notify_all()

    @property
    def left(self) -> int:
        """Trials that nobody has taken."""
        with self._changed:
            return sum(share.left for share in self._shares.values())

    def needs(self, host_class: str) -> bool:
        """Whether one more slot of a class may find work: trials that nobody has taken, or more that may be offered."""
        with self._changed:
            share = self._share(host_class)
            return bool(share.left) or share.open
