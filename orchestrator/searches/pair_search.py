"""The search of a night: every config in pairs of starts, one of each build, until no series is left open. Pure.

Both members of a pair run on one slot, one after the other; which is first is drawn from the seed, and of two pairs of
a config in turn each order has one. A pair of which a member broke, or whose members came to different hosts, says
nothing and is made anew. A pair of which a member died is a result; a config of which half of the pairs died is not
started any more. One death of more pairs may be chance, so that further pairs decide.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from orchestrator.scenarios.config_label import config_labels
from orchestrator.scenarios.sweep_space import BuildPair
from orchestrator.searches.search import Ask, Broken, Dead, Scored, Step, Told
from orchestrator.searches.search_table import in_turns
from orchestrator.trial import EngineConfig

# A config of which so many pairs in a row broke is given up for the night.
MOST_BROKEN_PAIRS = 3
# So many pairs for each slot are open at once: few, since after a death they are started in vain; enough for a slot
# whose host has had its share of one config to find another.
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class PairRules:
    """`pairs` of each config at first, `most_pairs` where these leave a series open; `seed` of their order: another one
    every night, so that no order has a third pair more night after night.
    """

    pairs: int
    most_pairs: int
    seed: str


# Config ids (without a build) with a series that more pairs may decide, by what was measured so far.
Doubts = Callable[[], Collection[str]]


def no_doubts() -> Collection[str]:
    """The first pairs are all."""
    return ()


def never() -> bool:
    """There is time enough."""
    return False


@dataclass
class _Course:
    """The pairs of one config by number: what its members came to, by build. `void` pairs say nothing."""

    pair: BuildPair
    target: int
    told: dict[int, dict[str, Told]] = field(default_factory=dict)
    void: set[int] = field(default_factory=set)
    broken: int = 0

    @property
    def open(self) -> int:
        return sum(1 for number, told in self.told.items() if number not in self.void and len(told) < 2)

    @property
    def good(self) -> int:
        whole = (t for n, t in self.told.items() if n not in self.void and len(t) == 2)
        return sum(all(isinstance(told, Scored) for told in t.values()) for t in whole)

    @property
    def has_died(self) -> bool:
        """In half of its pairs or more, which is what makes a verdict (night_feasibility.py)."""
        whole = [t for n, t in self.told.items() if n not in self.void and len(t) == 2]
        deaths = sum(any(isinstance(told, Dead) for told in t.values()) for t in whole)
        return deaths > 0 and 2 * deaths >= len(whole)

    @property
    def is_over(self) -> bool:
        """Whether no more pairs of it are made, whatever its series say."""
        return self.has_died or self.broken >= MOST_BROKEN_PAIRS

    @property
    def wanted(self) -> int:
        """Pairs to begin."""
        return 0 if self.is_over else max(0, self.target - self.good - self.open)

    def tell(self, number: int, build: str, told: Told) -> None:
        pair = self.told.setdefault(number, {})
        pair[build] = told
        if len(pair) < 2 or number in self.void:
            return
        hosts = {one.host for one in pair.values() if isinstance(one, Scored)}
        if any(isinstance(one, Broken) for one in pair.values()) or len(hosts) > 1:
            self.void.add(number)
            self.broken += 1
        else:
            self.broken = 0


class PairSearch:
    """Asks for pairs. `doubts` is asked when all wanted pairs are there, `is_late` before any pair begins."""

    def __init__(
        self, pairs: Sequence[BuildPair], rules: PairRules, doubts: Doubts = no_doubts,
        is_late: Callable[[], bool] = never,
    ) -> None:  # fmt: skip
        self._rules = rules
        self._doubts, self._is_late = doubts, is_late
        self._courses = {pair.config_id: _Course(pair, rules.pairs) for pair in pairs}
        self._build_of = {c.config_id: (p.config_id, c.build) for p in pairs for c in p.members}
        labels = config_labels({pair.config_id: pair.base.as_dict() for pair in pairs})
        self._which = {c: f" of {label}" if len(labels) > 1 else "" for c, label in labels.items()}
        self._steps: list[Step] = []
        self._is_done = False

    def ask(self, slots: int) -> tuple[Ask, ...]:
        self._decide()
        room = (_AHEAD * slots if slots > 1 else 1) - sum(course.open for course in self._courses.values())
        wanted = in_turns([[course] * course.wanted for course in self._courses.values()])
        asks: list[Ask] = []
        for course in wanted[: max(0, room)]:
            asks += self._begin(course)
        return tuple(asks)

    def _decide(self) -> None:
        """Whether more pairs are wanted, once all that were wanted are there."""
        courses = self._courses.values()
        if self._is_late():
            if not self._is_done and any(course.wanted for course in courses):
                self._steps.append(Step("time", "max_hours are over: no further pair begins"))
            for course in courses:
                course.target = course.good + course.open
        if any(course.wanted or course.open for course in courses):
            return
        for config_id in () if self._is_late() else sorted(self._doubts()):
            course = self._courses[config_id]
            if not course.is_over and course.good < self._rules.most_pairs:
                course.target = self._rules.most_pairs  # at once: every look at the series may be a false alarm
                more = course.target - course.good
                left = "pair leaves" if course.good == 1 else "pairs leave"
                text = f"{course.good} {left} a series open: {more} more{self._which[config_id]}"
                self._steps.append(Step("pair", text))
        self._is_done = not any(course.wanted for course in courses)

    def _begin(self, course: _Course) -> tuple[Ask, Ask]:
        number = len(course.told)
        course.told[number] = {}
        first, second = course.pair.members
        if candidate_first(self._rules.seed, course.pair.config_id, number):
            first, second = second, first
        leader = Ask(first, number, f"pair {number + 1}, {first.build} first")
        return leader, Ask(second, number, f"pair {number + 1}", leader.key)

    def tell(self, config: EngineConfig, repeat: int, told: Told) -> None:
        found = self._build_of.get(config.config_id)
        if found is None:
            return
        course = self._courses[found[0]]
        for number in range(len(course.told), repeat + 1):  # of an earlier start of the run
            course.told[number] = {}
        was_over, broken = course.is_over, course.broken
        course.tell(repeat, found[1], told)
        if course.broken > broken:
            reasons = [t.reason for t in course.told[repeat].values() if isinstance(t, Broken)]
            why = "; ".join(reasons) or "its members came to different hosts"
            self._steps.append(Step("void", f"pair {repeat + 1}{self._which[found[0]]} says nothing: {why}"))
        if course.is_over and not was_over:
            why = (
                "members of half of its pairs died" if course.has_died else f"{MOST_BROKEN_PAIRS} pairs in a row broke"
            )
            self._steps.append(Step("out", f"no more pairs{self._which[found[0]]}: {why}"))

    def recall(self, config: EngineConfig, repeat: int, *, broke: bool = False) -> None:
        """A pair that an earlier start of the run did not end is made anew: its members were apart."""
        del broke
        found = self._build_of.get(config.config_id)
        if found is not None:
            course = self._courses[found[0]]
            for number in range(len(course.told), repeat + 1):
                course.told[number] = {}
            if repeat not in course.void:
                text = f"pair {repeat + 1}{self._which[found[0]]} says nothing: the run ended in the middle of it"
                self._steps.append(Step("void", text))
            course.void.add(repeat)

    @property
    def done(self) -> bool:
        if not self._is_done:
            self._decide()
        return self._is_done

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self._steps)


def candidate_first(seed: str, config_id: str, number: int) -> bool:
    """Which member of a pair begins: of the pairs 0 and 1, 2 and 3, ... of a config one each."""
    first = random.Random(f"pairs-{seed} {config_id} {number // 2}").random() < 0.5
    return first != bool(number % 2)
