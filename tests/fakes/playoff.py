"""A search that is simple enough to be foreseen: every config once, then the best two once more."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.objectives.aim import TrialPoints
from orchestrator.searches.point_need import Gate, Goal
from orchestrator.searches.search import Ask, Dead, Scored, Step, Told
from orchestrator.server_start import LaunchSpec
from orchestrator.trial import EngineConfig, Point


class Playoff:
    """By the values of one objective, larger is better. `heard`: what it was told, in order. `most`: so many trials are
    asked for and not told at any time.
    """

    def __init__(self, configs: Sequence[EngineConfig], objective: str = "fast", *, most: int | None = None) -> None:
        self._most = most
        self._configs = {config.config_id: config for config in configs}
        self._objective = objective
        self._asked: set[tuple[str, int]] = set()
        self.told: dict[tuple[str, int], Told] = {}
        self.heard: list[tuple[int, int, str]] = []

    def ask(self, slots: int) -> tuple[Ask, ...]:
        wanted = [Ask(config, 0, "first round") for config in self._configs.values()]
        if self._is_over(0):
            wanted = [Ask(self._configs[c], 1, "playoff") for c in self._best()]
        fresh = [ask for ask in wanted if ask.key not in self._asked and ask.key not in self.told]
        if self._most is not None:
            fresh = fresh[: self._most - len(self._asked - self.told.keys())]
        self._asked |= {ask.key for ask in fresh}
        return tuple(fresh)

    def tell(self, config: EngineConfig, repeat: int, told: Told) -> None:
        self.told[config.config_id, repeat] = told
        self.heard.append((config.speculation_depth, repeat, type(told).__name__))

    def recall(self, config: EngineConfig, repeat: int, *, broke: bool = False) -> None:
        """It is asked again if it is still wanted."""

    def _is_over(self, repeat: int) -> bool:
        configs = self._configs if repeat == 0 else self._best()
        return all((config_id, repeat) in self.told for config_id in configs)

    def _best(self) -> list[str]:
        values = {
            config_id: told.values[self._objective].value or 0.0
            for (config_id, repeat), told in self.told.items()
            if repeat == 0 and isinstance(told, Scored)
        }
        return sorted(values, key=lambda c: -values[c])[:2]

    @property
    def done(self) -> bool:
        return self._is_over(0) and self._is_over(1)

    @property
    def steps(self) -> tuple[Step, ...]:
        if not self._is_over(0):
            return ()
        dead = {c: told.label for (c, _), told in self.told.items() if isinstance(told, Dead)}
        return (Step("playoff", f"{len(self._best())} of {len(self._configs)} play off", dead),)


class FarBehind:
    """A judge for whom a config has lost everything as soon as it is below 100 tokens a second."""

    def lost(self, goal: Goal, done: Sequence[TrialPoints], trial: TrialPoints) -> str | None:
        values = [point.metrics["output_throughput_tok_s"] or 0.0 for point in trial.points.values()]
        return "had lost by far" if any(value < 100 for value in values) else None

    def fails(self, gate: Gate, trial: TrialPoints) -> str | None:
        return None


def depth_of(spec: LaunchSpec) -> int:
    """Draft steps of a server."""
    depth = dict(spec.settings).get("speculative_num_steps", 0)
    return depth if isinstance(depth, int) else 0


def deeper_is_faster(spec: LaunchSpec, point: Point) -> float:
    """Slowness of a fake slot: 40 tokens a second without speculation, 40 more with each step."""
    return 1.0 / (1 + depth_of(spec))
