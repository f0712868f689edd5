"""A failed start in a line: what died, where, on which evidence, and what to change."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from orchestrator.happening import TrialBegan, TrialEnded
from orchestrator.outcome import Cancelled, Diagnosis, Failed, Infeasible, Label, Outcome, Phase
from orchestrator.planning.planner import make_plan
from orchestrator.rankings.not_measured import NotMeasured
from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.recoveries.run_repairs import Story
from orchestrator.watching.progress import Progress
from tests.orchestrator.scenario_samples import small_scenario

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB "
    "of which 1.00 GiB is free."
)


def printed(show: Callable[[Console], None]) -> str:
    written = io.StringIO()
    show(Console(file=written, width=400))
    return written.getvalue()


def told(outcome: Outcome) -> str:
    """The line about the end of a trial, after time, slot and config."""
    plan = make_plan(small_scenario(), 1)
    trial = plan.trials[0]

    def show(console: Console) -> None:
        progress = Progress(plan, ["host-a"], console, clock=lambda: 0.0)
        progress.saw("host-a", TrialBegan(trial, 1, "now"))
        progress.saw("host-a", TrialEnded(trial, 1, outcome, None, "now", b""))

    return printed(show).strip().split(": ", 1)[1]


def test_progress_ends_with_what_to_change() -> None:
    diagnosis = Diagnosis(Label.OOM_GRAPH_TARGET, Phase.GRAPH_TARGET, OOM, 7, -9)
    assert told(Infeasible(diagnosis)) == (
        f"infeasible (oom_graph_target, graph_target): {OOM} -> lower --mem-fraction-static by at least 0.03 (1.00 GiB "
        "more were needed)"
    )


def test_where_nothing_is_to_be_changed_progress_says_nothing_more() -> None:
    stopped = Diagnosis(Label.STOP_REQUESTED, Phase.SHUTDOWN, "SIGTERM received.")
    assert told(Failed(stopped)) == "failed (stop_requested, shutdown): SIGTERM received."
    assert told(Cancelled("stopped")) == "cancelled"


def test_the_table_and_the_json_of_a_ranking_say_what_to_change() -> None:
    config = NotMeasured("c-1", {}, "oom_graph_target", "graph_target", OOM, Story("c-1", None))
    unheard_of = NotMeasured("c-2", {}, "a_label_of_tomorrow", "x", "y", Story("c-2", None))
    ranking = RunRanking("r", "sglang", {"c-1": {}, "c-2": {}}, (), (config,), (unheard_of,))
    infeasible, failed = ranking.as_json()["infeasible"][0], ranking.as_json()["failed"][0]
    assert infeasible["advice"][0] == "lower --mem-fraction-static by at least 0.03 (1.00 GiB more were needed)"
    assert len(infeasible["advice"]) == 4
    assert failed["advice"] == []
    assert "lower --mem-fraction-static by at least 0.03" in printed(lambda console: print_rankings(ranking, console))
