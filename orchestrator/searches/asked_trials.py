"""What the searches of a run asked for and left out, as its journal keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

from orchestrator.scenarios.engine_build import engine_of
from orchestrator.scenarios.scenario import Scenario
from orchestrator.searches.search import Step
from orchestrator.searches.search_state import SearchState
from orchestrator.trial import EngineConfig, Point, freeze_settings, is_secret_variable

# Trials of the reference config have repeats from here on; no search asks for as many.
FIRST_REFERENCE = 1000


@dataclass(frozen=True, slots=True)
class AskedTrial:
    """One server start that results asked for, on hosts of a class (empty: a run on one class). `why`: for the user."""

    config: EngineConfig
    repeat: int
    host_class: str = ""
    why: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.host_class, self.config.config_id, self.repeat

    def as_json(self) -> dict[str, Any]:
        """For the journal. Variables named like secrets are left out, as everywhere."""
        env = {name: value for name, value in self.config.env if not is_secret_variable(name, value)}
        return {
            "config_id": self.config.config_id,
            "settings": dict(self.config.settings),
            "env": env,
            "repeat": self.repeat,
            "why": self.why,
            **({"build": self.config.build} if self.config.build else {}),
            **({"host_class": self.host_class} if self.host_class else {}),
        }

    @classmethod
    def of_json(cls, told: dict[str, Any], scenario: Scenario) -> Self:
        """From the journal; what it does not keep is the scenario's."""
        build = told.get("build", "")
        env = {**engine_of(scenario, build).env, **told["env"]}
        config = EngineConfig(freeze_settings(told["settings"]), tuple(sorted(env.items())), build)
        return cls(config, told["repeat"], told.get("host_class", ""), told["why"])

    @property
    def is_reference(self) -> bool:
        """Whether it checks a host, and is no candidate's."""
        return self.repeat >= FIRST_REFERENCE


class AskedTrials:
    """Keeps what is asked for while a run goes on. `append` writes an event of the journal durably."""

    def __init__(self, scenario: Scenario, state: SearchState, append: Callable[..., None]) -> None:
        self._state = state
        self._append = append
        asked = [AskedTrial.of_json(told, scenario) for told in state.asked]
        self._asked = {trial.key: trial for trial in asked}
        self._now = {trial.key: trial for trial in asked[state.asked_before :]}

    @property
    def all(self) -> Iterable[AskedTrial]:
        """Of all starts of the run, each once, in the order of asking."""
        return self._asked.values()

    def find(self, host_class: str, config_id: str, repeat: int) -> AskedTrial | None:
        """What was asked as this, None if nothing was."""
        return self._asked.get((host_class, config_id, repeat))

    @property
    def of_this_start(self) -> Iterable[AskedTrial]:
        """What was asked since the run was begun or resumed; of a run that only is looked at, by its last start."""
        return self._now.values()

    def begin_start(self) -> None:
        """The run is resumed: what was asked before need not be asked again."""
        self._now = {}

    def ask(self, trial: AskedTrial) -> None:
        """Before anything is started for it."""
        self._asked[trial.key] = self._now[trial.key] = trial
        self._append("trial_asked", **trial.as_json())

    def spare(self, point: Point, reason: str) -> None:
        """A point that is not measured, since what it would show is known or does not matter."""
        told = {"point_id": point.point_id, "trial_id": point.trial_id, "config_id": point.config_id,
                "repeat": point.repeat, "workload": point.spec.workload, "level_kind": point.spec.level.kind,
                "level": point.spec.level.value, "reason": reason}  # fmt: skip
        self._state.spared[point.point_id] = told
        self._append("point_spared", **told)

    def steps_of(self, host_class: str) -> tuple[Step, ...]:
        """What the search on these hosts decided in all starts of the run."""
        return tuple(
            Step(told["name"], told["text"], told["dropped"], told["objective"], told.get("facts", {}))
            for told in self._state.steps
            if told["host_class"] == host_class
        )

    def step(self, step: Step, host_class: str) -> None:
        """A decision of a search."""
        told = {
            "name": step.name, "text": step.text, "objective": step.objective, "dropped": dict(step.dropped),
            "host_class": host_class, **({"facts": dict(step.facts)} if step.facts else {}),
        }  # fmt: skip
        if told not in self._state.steps:  # a resumed search decides the same again
            self._state.steps.append(told)
            self._append("search_step", **told)

    def begin_block(self, host: str, number: int) -> None:
        """A host gets reference trials, under this number from now on."""
        if host not in self._state.blocks:
            self._state.blocks[host] = number
            self._append("block_began", host=host, number=number)

    @property
    def spared(self) -> dict[str, dict[str, Any]]:
        """What was spared, by point id."""
        return self._state.spared
