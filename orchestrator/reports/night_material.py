"""Reads what the report of a night's run begins with: the verdict as it was kept, or how far its pairs have come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.nightly.night_json import NightTold
from orchestrator.nightly.night_pairs import build_names, pair_counts
from orchestrator.nightly.night_run import kept_night, night_frame
from orchestrator.nightly.night_series import NightTables, night_series
from orchestrator.nights.night import Measured
from orchestrator.nights.night_terms import rules_of
from orchestrator.nights.night_text import in_order
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.reports.report_part import NightMaterial, NightParts
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.workload_traffic import load_levels
from orchestrator.searches.point_need import goals_of
from orchestrator.trial import LoadLevel

Rows = Sequence[Mapping[str, Any]]


def read_night(
    root: Path, manifest: Mapping[str, Any], scenario: Scenario, ranking: RunRanking, trials: Rows, loads: Rows
) -> NightMaterial:
    """Of a run that `rank_run` has just read. Nothing is judged here: that takes the history, and is done once."""
    rules = rules_of(scenario)
    kept = kept_night(root, rules)
    if kept is not None and kept.night.gap is None:
        return NightMaterial(kept, is_judged=True)
    values = [value for part in ranking.parts or (ranking,) for value in part.values]
    tables = NightTables(trials, loads, values)
    began_at = str(manifest["starts"][0]["started_at"])
    return NightMaterial(
        kept or NightTold(night_frame(root, scenario, began_at, tables), rules),
        is_judged=kept is not None,
        counts=pair_counts(scenario, tables, manifest.get("host_classes", ())),
        measured=night_series(scenario, tables),
    )


def night_parts(scenario: Scenario, material: NightMaterial) -> NightParts:
    """What is drawn of it: both builds of each config, most closely where the series are that decided it."""
    by_name = {(w.name, str(level)): (w.name, level) for w in scenario.workloads for level in load_levels(w)}
    deciding: list[Measured] = [one.measured for one in in_order(material.told.night.series)] or list(material.measured)
    looked_at = [by_name.get((one.key.workload, one.key.level)) for one in deciding]
    goals: list[tuple[str, LoadLevel] | None] = [
        (goal.aim.workload, goal.aim.level) if goal.aim.level else None for goal in goals_of(scenario)
    ]
    places = dict.fromkeys(place for place in (*looked_at, *goals) if place is not None)
    return NightParts(build_names(scenario), tuple(places))
