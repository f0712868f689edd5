"""`specsweep rank`: everything computed anew from the raw tables of a run, printed, and its report written anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.errors import BadInput
from orchestrator.nightly.night_json import night_json
from orchestrator.nightly.night_pairs import counts_line
from orchestrator.nightly.night_run import kept_night
from orchestrator.nightly.nightly_output import show_night
from orchestrator.nights.night_terms import rules_of
from orchestrator.paths import RunPaths
from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import RunRanking, only_objective
from orchestrator.rankings.shown_ranking import shown_ranking
from orchestrator.reports.night_material import read_night
from orchestrator.reports.report_command import leave_reports
from orchestrator.run_files.run_manifest import read_manifest, stored_scenario
from orchestrator.run_files.run_rows import RunRows
from orchestrator.scenarios.night_scenario import is_night, resume_command
from orchestrator.scenarios.scenario import Scenario
from orchestrator.terminal import print_json


@dataclass(frozen=True)
class RankRequest:
    """The arguments of `rank`, parsed."""

    run_dir: Path
    objective: str | None = None
    anew: bool = False
    as_json: bool = False


def rank(request: RankRequest, console: Console) -> None:
    """Print it; BadInput for what is no run. Of a night, which ranks nothing, the verdict as it was kept."""
    manifest = read_manifest(request.run_dir)
    scenario = stored_scenario(request.run_dir, manifest)
    if is_night(scenario) and request.objective is not None:
        raise BadInput(f"--objective: {request.run_dir} is a night, which ranks nothing; leave it out for the verdict")
    ranked = shown_ranking(request.run_dir, anew=request.anew)
    if is_night(scenario):
        _show_night(request, manifest, scenario, ranked, console)
    elif request.as_json:
        print_json(only_objective(ranked, request.objective).as_json(), console)
    else:
        print_rankings(only_objective(ranked, request.objective), console)
    if ranked.unkept is None:  # which is told by now
        leave_reports(request.run_dir, ranked, None if request.as_json else console)


def _show_night(
    request: RankRequest, manifest: dict[str, Any], scenario: Scenario, ranked: RunRanking, console: Console
) -> None:
    """A verdict needs the history, so it is not judged here; without one, how far its pairs have come."""
    kept = kept_night(request.run_dir, rules_of(scenario))
    if kept is not None:
        if request.as_json:
            print_json(night_json(kept), console)
        else:
            show_night(kept, console)
        return
    rows = RunRows(RunPaths(request.run_dir))
    material = read_night(request.run_dir, manifest, scenario, ranked, rows.trials(), rows.loads())
    how = resume_command(scenario, request.run_dir)
    if request.as_json:
        pairs = [{"config": one.config, "label": one.label, "host_class": one.host_class, "wanted": one.wanted,
                  "measured": one.measured, "died": one.died, "broken": one.broken, "half": one.half}
                 for one in material.counts]  # fmt: skip
        print_json({"verdict": None, "headline": "no verdict yet", "pairs_so_far": pairs}, console)
        return
    text = f"no verdict yet: {counts_line(material.counts)} measured. While it does not run, it goes on with: {how}"
    console.print(text, style="bold yellow", markup=False, soft_wrap=True, highlight=False)
