"""What a reader of a ranking must know besides the numbers: damage, hosts and slots that went, what was left open."""

from __future__ import annotations

from typing import Any

from orchestrator.plural import plural
from orchestrator.recoveries.run_repairs import RunRepairs
from orchestrator.run_files.point_table import MeasuredPoint
from orchestrator.run_files.run_configs import RunConfig, open_choices
from orchestrator.scenarios.config_label import run_labels
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sglang.dialect import ignored_variables

# In the note about points that are gone.
DAMAGED = "measured points are gone from dataset/ or damaged"


def damage(missing: list[str]) -> tuple[str, ...]:
    """What was measured once and cannot be read any more: the ranking is without it."""
    if not missing:
        return ()
    names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    return (f"{len(missing)} {DAMAGED} ({names}): --resume measures them again",)


def refused_slots(trials: list[dict[str, Any]]) -> list[str]:
    """Slots that went out of use in the middle of the run: fewer hosts measured the rest."""
    refused = {trial["slot"]: trial["slot_refused"] for trial in trials if trial.get("slot_refused")}
    return [f"slot {slot} was not used any more: {why}" for slot, why in sorted(refused.items())]


def reused_notes(points: list[MeasuredPoint]) -> list[str]:
    """What was not measured in this run."""
    origins: dict[str, list[str]] = {}
    for point in points:
        if point.load.get("reused_from"):
            origins.setdefault(point.load["reused_from"], []).append(point.load["began_at"])
    return [
        f"{len(times)} of {len(points)} points were taken over from run {run} (measured "
        f"{' to '.join(sorted({min(times)[:10], max(times)[:10]}))})"
        for run, times in origins.items()
    ]


def engine_notes(scenario: Scenario, *, emulated: bool) -> list[str]:
    """Why the numbers of a run are no evidence. `emulated`: a server said of itself that it is a stand-in."""
    notes = []
    if scenario.engine.kind == "emulator" or emulated:
        notes.append(
            "engine=emulator: modelled servers, no GPU was measured; never compare these numbers with real ones"
        )
    if scenario.engine.settings.get("load_format") == "dummy":
        notes.append("load_format=dummy: random weights; acceptance and speeds are artefacts, not evidence")
    if scenario.engine.settings.get("device") == "cpu":
        notes.append("device=cpu: these speeds say nothing about a GPU")
    if scenario.engine.allow_faked:
        names = ", ".join(scenario.engine.allow_faked)
        notes.append(f"engine.allow_faked: {names}; servers may have made up what was measured, it is no evidence")
    return notes


def run_notes(scenario: Scenario, configs: dict[str, RunConfig], points: list[MeasuredPoint]) -> tuple[str, ...]:
    """What a reader of the numbers must know."""
    accounts = (account for config in configs.values() for account in config.accounts)
    notes = engine_notes(scenario, emulated=any(account.engine == "emulator" for account in accounts))
    env = {name: value for config in configs.values() for name, value in config.env.items()}
    for version in sorted({c.version for c in configs.values() if c.version}):
        notes += ignored_variables(env, version)
    notes += reused_notes(points)
    warned = [p for p in points if p.metrics.warnings]
    if warned:
        example = warned[-1].metrics.warnings[0]
        notes.append(
            f"Warnings at {len(warned)} of {plural(len(points), 'point')} (dataset/points has them all), e.g. {example}"
        )
    return tuple(notes)


def open_notes(configs: dict[str, RunConfig], repairs: RunRepairs) -> list[str]:
    """What SGLang chose by itself, and not alike for all configs."""
    labels = run_labels({config_id: config.settings for config_id, config in configs.items()}, repairs.repaired)
    told = []
    for name, values in open_choices(configs).items():
        rarest_first = sorted(values.items(), key=lambda item: len(item[1]))
        shown = "; ".join(f"{value} for {_names([labels[c] for c in ids])}" for value, ids in rarest_first)
        told.append(f"{name} was left open and resolved differently: {shown} (set it, unless that is meant)")
    return told


def _names(labels: list[str]) -> str:
    return f"{len(labels)} configs" if len(labels) > 3 else " and ".join(labels)
