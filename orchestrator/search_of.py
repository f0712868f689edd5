"""The search of a scenario. Provisional."""

from __future__ import annotations

from orchestrator.config_label import config_labels
from orchestrator.config_places import places_of
from orchestrator.doubt import Doubt
from orchestrator.halving_decision import HalvingRules
from orchestrator.halving_search import HalvingSearch
from orchestrator.point_need import Judge, goal_of
from orchestrator.pooled_fit import Spread
from orchestrator.race import RaceGoal, RaceRules
from orchestrator.scenario import Scenario
from orchestrator.search import Search
from orchestrator.sweep_space import expand


def search_of(scenario: Scenario) -> Search:
    configs = list(expand(scenario))
    keys = scenario.search
    goals = [goal_of(o, o.workload or scenario.workloads[0].name) for o in scenario.objectives]
    races = RaceRules(places_of(configs), Spread(keys.noise, keys.host_spread), keys.confidence)
    return HalvingSearch(
        configs,
        [RaceGoal(g.name, g.aim.maximize, g.near_tie, tuple(t.maximize for t in g.ties)) for g in goals],
        races,
        HalvingRules(keys.eta, keys.screen, keys.infer, keys.finalists, keys.max_repeats, keys.budget_trials),
        config_labels({c.config_id: c.as_dict() for c in configs}),
    )


def judge_of(scenario: Scenario) -> Judge | None:
    if scenario.search.method != "halving":
        return None
    keys = scenario.search
    return Doubt(places_of(list(expand(scenario))), Spread(keys.noise, keys.host_spread))
