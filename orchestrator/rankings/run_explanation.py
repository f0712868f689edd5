"""From the tables of a run to the explanations of its winners. Pure after reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.objectives.aim import PointValue
from orchestrator.rankings.explanation import Died, Explanation, Material, explain
from orchestrator.rankings.not_measured import NotMeasured
from orchestrator.rankings.ranking_row import Ranking
from orchestrator.rankings.server_facts import ServerFacts, server_facts
from orchestrator.scenarios.command_template import depth_names
from orchestrator.scenarios.scenario import Scenario
from orchestrator.trial import Repaired


@dataclass(frozen=True, slots=True)
class Told:
    """What a run tells on one class of hosts. `trials`: rows of the table; `values`: with the ids of the configs that
    stand for others, by `standing`.
    """

    scenario: Scenario
    settings: Mapping[str, dict[str, Any]]
    trials: Sequence[Mapping[str, Any]]
    values: Sequence[PointValue]
    standing: Mapping[str, str]
    repairs: Mapping[str, Repaired]
    died: Sequence[NotMeasured]
    labels: Mapping[str, str]


def explanations_of(rankings: Sequence[Ranking], told: Told) -> tuple[Explanation, ...]:
    """Why each winner of these rankings won; rankings without a winner have none."""
    scenario = told.scenario
    material = Material(
        values=told.values,
        settings=told.settings,
        labels=told.labels,
        servers=_Servers(told),
        near_ties={objective.name: objective.near_tie for objective in scenario.objectives},
        died=tuple(Died(d.config_id, d.label, d.phase, d.served_as) for d in told.died),
        repairs=told.repairs,
        depth_names=depth_names(scenario.engine) if scenario.engine.kind == "command" else ("speculative_num_steps",),
    )
    found = (explain(ranking, material, rankings) for ranking in rankings)
    return tuple(explanation for explanation in found if explanation is not None)


class _Servers(Mapping[str, ServerFacts]):
    """By config id, read when asked for: accounts of servers are large, and explanations name few configs."""

    def __init__(self, told: Told) -> None:
        self._found: dict[str, ServerFacts] = {}
        self._trials: dict[str, list[Mapping[str, Any]]] = {}
        for trial in told.trials:
            standing = told.standing.get(trial["config_id"], trial["config_id"])
            self._trials.setdefault(standing, []).append(trial)

    def __getitem__(self, config_id: str) -> ServerFacts:
        if config_id not in self._found:
            self._found[config_id] = server_facts(self._trials[config_id])
        return self._found[config_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trials)

    def __len__(self) -> int:
        return len(self._trials)
