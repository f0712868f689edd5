"""A start of an emulated server without a process: its log lines, read as ours are, become a PastStart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from actors.emulator.flags import parse_flags
from actors.emulator.memory import MemoryPlan, plan_memory
from actors.emulator.profiles import Profile
from actors.emulator.resolution import resolve
from actors.emulator.startup import Say, joining, ready_line, timeline
from actors.servers.startup import StartupTimeline
from orchestrator.outcome import Label, PhaseFact
from orchestrator.sglang.dialect import dialect_of, spell
from orchestrator.starts.start_history import PastStart

_GRAPH = {"target": Label.OOM_GRAPH_TARGET, "draft": Label.OOM_GRAPH_DRAFT}


@dataclass(frozen=True)
class EmulatedStart:
    """What the emulator did with these settings, and what we keep of it."""

    plan: MemoryPlan
    past: PastStart


def emulated_start(profile: Profile, settings: dict[str, Any]) -> EmulatedStart:
    """The truth of one start."""
    words = spell(settings, dialect_of(None))
    _, values = parse_flags(["--model-path", profile.model_path, *words])
    resolved = resolve(values, profile)
    plan = plan_memory(resolved, profile)
    log = StartupTimeline()
    log.advance("[2026-11-29 12:00:00] server_args={}", 0.0)
    for event in (*joining(profile), *timeline(resolved, plan, profile)):
        if isinstance(event, Say):
            log.advance(f"[2026-11-29 12:00:00 TP0] {event.text}", 0.0)
    if plan.death is None:
        log.advance(f"[2026-11-29 12:00:00 TP0] {ready_line(resolved, plan)}", 0.0)
    return EmulatedStart(plan, _past(settings, plan, log.phases))


def _past(settings: dict[str, Any], plan: MemoryPlan, phases: tuple[PhaseFact, ...]) -> PastStart:
    death = plan.death
    label = None
    if death is not None:
        loading = Label.KV_BUDGET if death.phase == "kv" else Label.OOM_WEIGHTS
        label = _GRAPH[(death.graph or "").split()[0]] if death.graph else loading
    return PastStart(
        host="gpu-a",
        gpu_count=4,
        version="0.5.23",
        settings=settings,
        phases=phases,
        outcome="infeasible" if death else "measured",
        label=label,
        evidence=f"{death.error}: {death.message}" if death else None,
    )
