"""Starts of the emulator's memory model as a lineage meets them: what dies, with the numbers that its log gives."""

from __future__ import annotations

from functools import cache
from typing import Any

from actors.emulator.flags import parse_flags
from actors.emulator.memory import MemoryPlan, plan_memory
from actors.emulator.profiles import profile_for
from actors.emulator.resolution import resolve
from orchestrator.outcome import Diagnosis, Infeasible, Label, Measured, Phase, PhaseFact
from orchestrator.planning.planner import make_plan
from orchestrator.recoveries.failed_start import FailedStart, read_failed_start
from orchestrator.recoveries.lineages import Lineages, Recovery
from orchestrator.recoveries.recovery import Repair
from orchestrator.scenarios.scenario import Scenario
from orchestrator.trial import Trial


@cache
def defaults(model: str) -> dict[str, Any]:
    """Every option as it is when only the model is given."""
    return parse_flags(["--model-path", model])[1]


def modelled(scenario: Scenario, trial: Trial) -> MemoryPlan:
    """The memory plan of a trial's server."""
    profile = profile_for(scenario.model.path)
    return plan_memory(resolve({**defaults(scenario.model.path), **dict(trial.config.settings)}, profile), profile)


def death_of(plan: MemoryPlan, trial: Trial, *, numbers: bool) -> FailedStart | None:
    """What would be read of the start if it dies; without `numbers` only its label."""
    death = plan.death
    if death is None:
        return None
    labels = {"load": Label.OOM_WEIGHTS, "draft_load": Label.OOM_WEIGHTS, "kv": Label.KV_BUDGET}
    label = labels.get(death.phase, Label.OOM_GRAPH_DRAFT if "draft" in (death.graph or "") else Label.OOM_GRAPH_TARGET)
    if not numbers:
        return FailedStart(label, Phase.KV_POOL, "the line that shows it")
    log = ""
    for graph in plan.graphs:
        log += f"Capture {graph.name} CUDA graph begin. backend=full, avail mem={graph.begin_gib:.2f} GB\n"
        log += f"Capturing batches (bs={graph.sizes[0]} avail_mem={graph.begin_gib:.2f} GB)\n"
    diagnosis = Diagnosis(label, Phase.KV_POOL, f"{death.error}: {death.message}")
    phases = (
        PhaseFact(Phase.DIST_INIT, 0.0, 0.5, round(plan.free_gib, 2)),
        PhaseFact(Phase.DRAFT_WEIGHTS, 0.5, 1.0, plan.loaded_gib),
    )
    return read_failed_start(diagnosis, phases, dict(trial.config.settings), log=log)


def lineage(scenario: Scenario, *, numbers: bool = True) -> tuple[list[Trial], list[Recovery], MemoryPlan]:
    """Every start of the scenario's first config, what was decided between them, and the plan of the last start."""
    lineages = Lineages(scenario)
    trials, decided = [make_plan(scenario, 1).trials[0]], list[Recovery]()
    while True:
        plan = modelled(scenario, trials[-1])
        failed = death_of(plan, trials[-1], numbers=numbers)
        if failed is None:
            lineages.after(trials[-1], Measured(1), None, 1)
            return trials, decided, plan
        outcome = Infeasible(Diagnosis(failed.label, failed.phase, failed.evidence))
        recovery = lineages.after(trials[-1], outcome, failed, 1)
        assert recovery is not None
        decided.append(recovery)
        following = lineages.trial_to_run(trials[-1])
        if not isinstance(recovery.decision, Repair) or following is None:
            return trials, decided, plan
        trials.append(following)
