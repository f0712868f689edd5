"""Who decides in a run what its plan does not: searches over configs, and over rates within a trial."""

from __future__ import annotations

from orchestrator.journal import finished_work
from orchestrator.planner import is_probed
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


def missing_work(scenario: Scenario, run: RunDirectory) -> bool:
    """Whether a run has anything left to start."""
    return bool(run.plan(scenario, (), finished_work(run.state)).trials)
