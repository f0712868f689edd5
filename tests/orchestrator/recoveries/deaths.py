"""Servers that died, and what is decided about their configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.outcome import Label, Phase
from orchestrator.recoveries.failed_lineage import Needs, Situation, Try
from orchestrator.recoveries.failed_start import FailedStart
from orchestrator.recoveries.recovery import Decision, Repair, Rights, decide
from orchestrator.scenarios.scenario_recovery import KNOBS

BASE: dict[str, Any] = {"max_running_requests": 256, "mem_fraction_static": 0.7, "speculative_num_steps": 1}
LOAD = Needs(running=16, tokens=1024)


def died(label: Label, evidence: str = "", **numbers: Any) -> FailedStart:
    return FailedStart(label, Phase.KV_POOL, evidence, **numbers)


def decided(
    failed: FailedStart,
    settings: Mapping[str, Any] = BASE,
    *,
    tries: tuple[Try, ...] = (),
    swept: frozenset[str] = frozenset(),
    may_change: frozenset[str] = frozenset[str](KNOBS),
    starts: int = 1,
    tries_left: int = 3,
) -> Decision:
    now = Situation(settings, failed, LOAD, may_change, tries)
    return decide(now, Rights(tries_left, starts, lambda s: any(s == t.settings for t in tries), swept))


def changed(decision: Decision) -> dict[str, Any]:
    assert isinstance(decision, Repair), decision
    return {change.name: change.now for change in decision.changes}


def try_at(fraction: float, label: Label, **numbers: Any) -> Try:
    return Try({**BASE, "mem_fraction_static": fraction}, died(label, **numbers))
