"""The search that a scenario asks for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.scenarios.config_label import config_labels
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import expand
from orchestrator.searches.ceiling_line import Guess, no_guess
from orchestrator.searches.ceiling_lines import ceiling_lines
from orchestrator.searches.ceiling_search import CeilingSearch
from orchestrator.searches.config_places import places_of
from orchestrator.searches.doubt import Doubt
from orchestrator.searches.grid_search import GridSearch
from orchestrator.searches.halving_decision import HalvingRules
from orchestrator.searches.halving_search import HalvingSearch
from orchestrator.searches.memory_order import directions_with
from orchestrator.searches.optuna_search import OptunaRules, OptunaSearch
from orchestrator.searches.point_need import goals_of
from orchestrator.searches.pooled_fit import Spread
from orchestrator.searches.race import RaceGoal, RaceRules
from orchestrator.searches.search import Search, Step
from orchestrator.searches.search_space import search_space
from orchestrator.trial import EngineConfig


def search_of(
    scenario: Scenario,
    configs: Sequence[EngineConfig] | None = None,
    guess: Guess = no_guess,
    before: Sequence[Step] = (),
) -> Search:
    """A search that was told nothing yet. BadInput where it needs what is not installed.

    `configs`: those of the sweep, if they are expanded already; `guess`: of configs in the order of the memory they
    need, the index of the last that should fit; `before`: what the search decided in earlier starts of the run.
    """
    keys = scenario.search
    if keys.method == "optuna":
        return OptunaSearch(search_space(scenario), race_goals(scenario), optuna_rules(scenario), before)
    configs = tuple(expand(scenario)) if configs is None else configs
    if keys.method == "grid":
        return GridSearch(configs, scenario.measure.repeats)
    if keys.method == "ceiling":
        lines = ceiling_lines(configs, keys.knobs, directions_with(keys.directions))
        return CeilingSearch(lines, keys.verify, guess)
    halving = HalvingRules(keys.eta, keys.screen, keys.infer, keys.finalists, keys.max_repeats, keys.budget_trials)
    labels = config_labels({config.config_id: config.as_dict() for config in configs})
    directions = directions_with(keys.directions)
    races = race_rules(scenario, configs)
    return HalvingSearch(configs, race_goals(scenario), races, halving, labels, directions=directions)


def optuna_rules(scenario: Scenario) -> OptunaRules:
    """Of a search that draws."""
    keys = scenario.search
    spread = Spread(keys.noise, keys.host_spread)
    return OptunaRules(keys.optuna_starts, keys.sampler, keys.best, keys.best_repeats, scenario.seed, spread)


def race_rules(scenario: Scenario, configs: Sequence[EngineConfig]) -> RaceRules:
    """Of a search by races among these configs."""
    keys = scenario.search
    return RaceRules(places_of(configs), Spread(keys.noise, keys.host_spread), keys.confidence)


def race_goals(scenario: Scenario) -> tuple[RaceGoal, ...]:
    """The objectives as races."""
    return tuple(
        RaceGoal(goal.name, goal.aim.maximize, goal.near_tie, tuple(tie.maximize for tie in goal.ties))
        for goal in goals_of(scenario)
    )


def judge_of(scenario: Scenario, configs: Sequence[EngineConfig]) -> Doubt | None:
    """Who says which points of a trial cannot matter any more; None where all are measured, as of a grid."""
    if scenario.search.method != "halving":
        return None
    rules = race_rules(scenario, configs)
    return Doubt(rules.places, rules.spread)
