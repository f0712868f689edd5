"""What a search costs and whether its pick is right, on simulated campaigns with hidden seeds."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.joint_space import LEVELS, POINT_S, Truth
from orchestrator.search import Ask, Dead, ObjectiveValue, Scored, Search, Told
from orchestrator.trial import EngineConfig

HOSTS = 4
HOST_SPREAD, NOISE, START_EFFECT = 0.05, 0.02, 0.015


@dataclass(frozen=True, slots=True)
class Question:
    """An objective of a campaign: the levels it looks at, and what it makes of their speeds."""

    name: str
    levels: tuple[int, ...]

    def of(self, speed: Mapping[int, float]) -> float:
        return math.exp(sum(math.log(speed[level]) for level in self.levels) / len(self.levels))


AGENTIC = Question("agentic", (1,))
BALANCED = Question("balanced", LEVELS)


@dataclass
class World:
    """The hidden part of a campaign: hosts, noise of starts and points. Draws are by trial, not by order."""

    truth: Callable[[EngineConfig], Truth]
    seed: int
    _hosts: list[float] = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self._hosts = [rng.gauss(0, HOST_SPREAD) for _ in range(HOSTS)]

    def measured(self, config: EngineConfig, repeat: int, host: int, speed: float, level: int) -> float:
        start = random.Random(f"{self.seed}/{config.config_id}/{repeat}").gauss(0, START_EFFECT)
        noise = random.Random(f"{self.seed}/{config.config_id}/{repeat}/{level}").gauss(0, NOISE)
        return speed * math.exp(self._hosts[host] + start + noise)


@dataclass
class Campaign:
    """Runs a search on hosts that each take one trial at a time; GPU-hours are those of all hosts together."""

    world: World
    questions: Sequence[Question]
    gpu_s: float = 0.0
    starts: int = 0
    results: dict[tuple[str, int], Told] = field(default_factory=dict)

    def run(self, search: Search) -> None:
        clock, running, free = 0.0, [], list(range(HOSTS))
        ran: dict[str, list[int]] = {}
        while True:
            asks = list(search.ask(HOSTS)) if free else []
            waiting = [*getattr(self, "_left", []), *asks]
            while waiting and free:
                # As the queue does: a config goes to the host on which it ran least.
                ask = waiting.pop(0)
                host = min(free, key=lambda h: (ran.get(ask.config.config_id, []).count(h), h))
                free.remove(host)
                ran.setdefault(ask.config.config_id, []).append(host)
                told, seconds = self._trial(ask, host)
                heapq.heappush(running, (clock + seconds, len(self.results), host, ask, told))
                self.results[ask.key] = told
                self.gpu_s += seconds
                self.starts += 1
            self._left = waiting
            if not running:
                return
            clock, _, host, ask, told = heapq.heappop(running)
            free.append(host)
            search.tell(ask.config, ask.repeat, told)

    def _trial(self, ask: Ask, host: int) -> tuple[Told, float]:
        truth = self.world.truth(ask.config)
        if truth.speed is None:
            return Dead("oom_graph_target", "out of memory"), truth.start_s
        levels = sorted({level for q in self.questions for level in q.levels})
        seen = {level: self.world.measured(ask.config, ask.repeat, host, truth.speed[level], level) for level in levels}
        values = {q.name: ObjectiveValue(q.of(seen)) for q in self.questions}
        return Scored(f"host{host}", values), truth.start_s + POINT_S * len(levels)
