"""Who decides in a run what its plan does not: searches over configs, and over rates within a trial."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.memory.memory_forecast import NoForecast, scenario_forecast
from orchestrator.planning.planner import Plan, is_probed
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.pair_names import config_names
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import build_pairs, expand
from orchestrator.searches.ceiling_line import Guess, no_guess
from orchestrator.searches.pair_search import PairRules, PairSearch, never
from orchestrator.searches.search_of import judge_of, search_of
from orchestrator.sweeps.reference_trials import ReferenceTrials, trials_by_class
from orchestrator.sweeps.search_conductor import SearchConductor
from orchestrator.trial import EngineConfig


@dataclass(frozen=True, slots=True)
class PairGuide:
    """What the pairs of a night follow besides their rules. `doubts`: config ids (without a build) of which a series is
    left open, by what the run directory has so far; `is_late`: whether no further pair may begin.
    """

    doubts: Callable[[Path], Collection[str]]
    is_late: Callable[[], bool] = never


def run_conductor(scenario: Scenario, run: RunDirectory, guide: PairGuide | None = None) -> SearchConductor | None:
    """The searches of a run, told all that it measured before; None where its plan says all.

    A grid has no search: all of it is known before, slots get their shares of it, and nothing need be scored.
    """
    if scenario.search.method == "pairs":
        return SearchConductor(scenario, run, lambda _: _pair_search(scenario, run, guide))
    if run.is_adaptive:
        configs = tuple(expand(scenario))
        guess = ceiling_guess(scenario) if scenario.search.method == "ceiling" else no_guess
        return SearchConductor(
            scenario,
            run,
            lambda host_class: search_of(scenario, configs, guess, run.asked.steps_of(host_class)),
            lambda _: judge_of(scenario, configs),
        )
    return SearchConductor(scenario, run, lambda _: None) if is_probed(scenario) else None


def _pair_search(scenario: Scenario, run: RunDirectory, guide: PairGuide | None) -> PairSearch:
    assert scenario.nightly is not None, "checked with the scenario"
    rules = PairRules(scenario.nightly.pairs, scenario.nightly.most_pairs, f"{scenario.seed} {run.run_id}")
    pairs = build_pairs(scenario)
    names = config_names(scenario, pairs)
    if guide is None:
        return PairSearch(pairs, rules, names=names)
    return PairSearch(pairs, rules, partial(guide.doubts, run.paths.root), guide.is_late, names)


def ceiling_guess(scenario: Scenario) -> Guess:
    """The last config of a line that is predicted to fit, where memory can be predicted."""
    try:
        forecast = scenario_forecast(scenario)
    except NoForecast:
        return no_guess

    def guess(configs: Sequence[EngineConfig]) -> int | None:
        fits = [forecast.of(config.as_dict()).verdict != "does_not_fit" for config in configs]
        return max((i for i, is_fit in enumerate(fits) if is_fit), default=None)

    return guess


def run_references(scenario: Scenario, run: RunDirectory, plan: Plan) -> ReferenceTrials:
    """The reference trials of a run with this plan."""
    trials = trials_by_class(plan.trials, len(plan.configs), run.trial_classes)
    return ReferenceTrials(scenario, trials, run.state.of_search.blocks, run.is_done)


def missing_work(scenario: Scenario, run: RunDirectory, conductor: SearchConductor | None) -> bool:
    """Whether a run has anything left to start, by what its conductor was told."""
    if run.is_adaptive:
        return conductor is not None and not conductor.done
    return bool(run.plan(scenario, (), finished_work(run.state)).trials)
