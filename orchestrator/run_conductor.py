"""Who decides in a run what its plan does not: searches over configs, and over rates within a trial."""

from __future__ import annotations

from orchestrator.journal import finished_work
from orchestrator.planner import Plan, is_probed
from orchestrator.reference_trials import ReferenceTrials, trials_by_class
from orchestrator.run_directory import RunDirectory
from orchestrator.scenario import Scenario
from orchestrator.search_conductor import SearchConductor


def run_conductor(scenario: Scenario, run: RunDirectory) -> SearchConductor | None:
    """The searches of a run, told all that it measured before; None where its plan says all.

    A grid has no search: all of it is known before, slots get their shares of it, and nothing need be scored.
    """
    if is_probed(scenario):
        return SearchConductor(scenario, run, lambda _: None)
    return None


def run_references(scenario: Scenario, run: RunDirectory, plan: Plan) -> ReferenceTrials:
    """The reference trials of a run with this plan."""
    trials = trials_by_class(plan.trials, len(plan.configs), run.trial_classes)
    return ReferenceTrials(scenario, trials, run.state.of_search.blocks, run.is_done)


def missing_work(scenario: Scenario, run: RunDirectory) -> bool:
    """Whether a run has anything left to start."""
    return bool(run.plan(scenario, (), finished_work(run.state)).trials)
