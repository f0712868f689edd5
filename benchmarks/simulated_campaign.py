"""A campaign in simulated time: a search, hosts that each take one trial at a time, and a hidden truth with noise."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.joint_space import POINT_S, Truth
from orchestrator.objectives.aim import PointValue, TrialPoints
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.searches.doubt import Doubt
from orchestrator.searches.point_need import Goal, Place, goal_of, point_need
from orchestrator.searches.search import Ask, Dead, ObjectiveValue, Scored, Search, Told
from orchestrator.trial import EngineConfig, LoadLevel

HOSTS = 4
HOST_SPREAD, NOISE, START_EFFECT = 0.05, 0.02, 0.015
SPEED = "output_throughput_tok_s"


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """An objective, and the levels at which its campaign measures."""

    objective: Objective
    levels: tuple[int, ...]

    @property
    def goal(self) -> Goal:
        return goal_of(self.objective, "chat")

    def of(self, speed: dict[int, float]) -> float:
        """What the objective makes of these speeds."""
        value = self.goal.aim.of_trial(trial_points("", "", "", speed))
        assert value is not None
        return value


def trial_points(config_id: str, trial_id: str, host: str, speed: dict[int, float]) -> TrialPoints:
    """The points of a trial that measured these speeds by level."""
    points = {
        ("chat", LoadLevel("concurrency", float(level))): PointValue(
            config_id, "chat", LoadLevel("concurrency", float(level)), 0, {SPEED: value}, trial_id=trial_id, host=host
        )
        for level, value in speed.items()
    }
    return TrialPoints(config_id, trial_id, host, points)


@dataclass
class World:
    """What is hidden. Noise is drawn by trial and level, so that it does not depend on the order of trials."""

    truth: Callable[[EngineConfig], Truth]
    seed: int
    _hosts: list[float] = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(f"hosts {self.seed}")
        self._hosts = [rng.gauss(0, HOST_SPREAD) for _ in range(HOSTS)]

    def measured(self, ask: Ask, host: int, level: int, speed: float) -> float:
        start = random.Random(f"{self.seed} {ask.key}").gauss(0, START_EFFECT)
        noise = random.Random(f"{self.seed} {ask.key} {level}").gauss(0, NOISE)
        return speed * math.exp(self._hosts[host] + start + noise)


@dataclass
class Campaign:
    """`gpu_s`: seconds of all hosts together: starts, deaths, points. A judge spares points that matter no more."""

    world: World
    questions: Sequence[Question]
    judge: Doubt | None = None
    gpu_s: float = 0.0
    starts: int = 0
    trials: list[TrialPoints] = field(default_factory=list)
    _ran: dict[str, list[int]] = field(default_factory=dict)
    _goals: list[Goal] = field(default_factory=list)
    _dead: dict[str, Dead] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._goals = [question.goal for question in self.questions]

    def run(self, search: Search) -> None:
        """To its end."""
        clock, free, waiting = 0.0, list(range(HOSTS)), list[Ask]()
        running: list[tuple[float, int, int, Ask, Told]] = []
        while True:
            waiting += search.ask(HOSTS)
            while waiting and free:
                ask, host = waiting.pop(0), 0
                if (death := self._dead.get(ask.config.config_id)) is not None:
                    # As a run does: what died by its nature is not started again.
                    search.tell(ask.config, ask.repeat, death)
                    continue
                # As the queue does: a config goes to the host on which it ran least.
                ran = self._ran.setdefault(ask.config.config_id, [])
                host = min(free, key=lambda h: (ran.count(h), h))
                free.remove(host)
                ran.append(host)
                told, seconds = self._trial(ask, host)
                self.gpu_s += seconds
                self.starts += 1
                heapq.heappush(running, (clock + seconds, self.starts, host, ask, told))
            if not running:
                assert search.done
                return
            clock, _, host, ask, told = heapq.heappop(running)
            free.append(host)
            if isinstance(told, Dead):
                self._dead[ask.config.config_id] = told
            search.tell(ask.config, ask.repeat, told)

    def _trial(self, ask: Ask, host: int) -> tuple[Told, float]:
        truth = self.world.truth(ask.config)
        if truth.speed is None:
            return Dead("oom_graph_target", "out of memory"), truth.start_s
        goals = self._goals
        planned: list[Place] = [
            ("chat", LoadLevel("concurrency", float(level)))
            for level in sorted({level for question in self.questions for level in question.levels})
        ]
        seen: dict[int, float] = {}
        while True:
            trial = trial_points(ask.config.config_id, str(self.starts), f"host{host}", seen)
            left = [place for place in planned if place not in trial.points]
            if self.judge is not None:
                left = list(point_need(goals, self.trials, trial, planned, self.judge).wanted)
            if not left:
                break
            level = int(left[0][1].value)
            seen[level] = self.world.measured(ask, host, level, truth.speed[level])
        self.trials.append(trial)
        values = {goal.name: ObjectiveValue(goal.aim.of_trial(trial)) for goal in goals}
        return Scored(trial.host, values), truth.start_s + POINT_S * len(seen)
