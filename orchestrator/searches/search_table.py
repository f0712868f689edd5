"""What a search asked and what it was told: the table from which all is decided. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.searches.search import Ask, Broken, Dead, Scored, Told
from orchestrator.trial import EngineConfig

_T = TypeVar("_T")

# A config whose starts broke so often, without any that worked, is set aside: it says nothing, and costs each time.
MOST_BROKEN = 2


def in_turns(queues: Sequence[Sequence[_T]]) -> list[_T]:
    """The first of each, then the second of each, and so on."""
    longest = max(map(len, queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]


@dataclass
class SearchTable:
    """By config id: what its starts came to, by their numbers."""

    told: dict[str, dict[int, Told]] = field(default_factory=dict)
    _asked: dict[str, set[int]] = field(default_factory=dict)
    _waiting: set[tuple[str, int]] = field(default_factory=set)
    _recalled: list[Ask] = field(default_factory=list)

    def tell(self, config: EngineConfig, repeat: int, told: Told) -> None:
        """The last of a trial counts."""
        self._asked.setdefault(config.config_id, set()).add(repeat)
        self._waiting.discard((config.config_id, repeat))
        self.told.setdefault(config.config_id, {})[repeat] = told

    def give(self, asks: Iterable[Ask]) -> tuple[Ask, ...]:
        """Those that were neither asked nor told before; from now on they are."""
        fresh = []
        for ask in asks:
            numbers = self._asked.setdefault(ask.config.config_id, set())
            if ask.repeat not in numbers:
                numbers.add(ask.repeat)
                self._waiting.add(ask.key)
                fresh.append(ask)
        return tuple(fresh)

    def recall(self, config: EngineConfig, repeat: int, *, elsewhere: bool = False) -> None:
        """An earlier start of the run asked for it and was not told: it is on its way still, and given first of all."""
        ask = Ask(config, repeat, "asked before", elsewhere=elsewhere)
        if repeat not in self._asked.setdefault(config.config_id, set()):
            self._asked[config.config_id].add(repeat)
            self._waiting.add(ask.key)
            self._recalled.append(ask)

    def recalled(self) -> tuple[Ask, ...]:
        """What was recalled, each once; not what was told since."""
        asks, self._recalled = self._recalled, []
        return tuple(ask for ask in asks if ask.key in self._waiting)

    def pending(self, config_id: str) -> int:
        """Starts of a config that were asked and not told."""
        return len(self._asked.get(config_id, set()) - self.told.get(config_id, {}).keys())

    @property
    def waiting(self) -> int:
        """All starts that were asked and not told."""
        return len(self._waiting)

    @property
    def asked(self) -> int:
        """All starts that were asked or told."""
        return sum(map(len, self._asked.values()))

    def next_repeat(self, config_id: str) -> int:
        """The first number that no start of this config has; those of reference trials lie far above."""
        numbers = self._asked.get(config_id, set())
        return next(repeat for repeat in range(len(numbers) + 1) if repeat not in numbers)

    def scored(self, config_id: str) -> list[tuple[int, Scored]]:
        """The measured starts of a config, by number."""
        results = self.told.get(config_id, {})
        return [(repeat, told) for repeat, told in sorted(results.items()) if isinstance(told, Scored)]

    def dead(self, config_id: str) -> Dead | None:
        """Why a config cannot run; None also where another start of it was measured."""
        results = self.told.get(config_id, {}).values()
        if any(isinstance(told, Scored) for told in results):
            return None
        return next((told for told in results if isinstance(told, Dead)), None)

    def broken(self, config_id: str) -> int:
        """How many starts of a config broke."""
        return sum(isinstance(told, Broken) for told in self.told.get(config_id, {}).values())

    def set_aside(self, config_id: str) -> str | None:
        """Why a config that broke again and again is not tried any more."""
        if self.scored(config_id) or self.dead(config_id) or self.broken(config_id) < MOST_BROKEN:
            return None
        reasons = [t.reason for t in self.told[config_id].values() if isinstance(t, Broken)]
        return f"broke {len(reasons)} times: {reasons[-1]}"

    def done_with(self, config_id: str, starts: int, below: int) -> bool:
        """Whether a config has so many measured starts with numbers `below` that, or will get no more."""
        return (
            sum(1 for repeat, _ in self.scored(config_id) if repeat < below) >= starts
            or self.dead(config_id) is not None
            or self.broken(config_id) >= MOST_BROKEN
        )
