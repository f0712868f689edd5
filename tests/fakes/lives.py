"""Lives of servers for tests of the state machine: rules, the events of a good start, and what comes of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from actors.servers.life_event import (
    AccountGiven,
    Activity,
    Event,
    LaunchBegan,
    LogMoved,
    ProofGiven,
    ServerRuns,
)
from actors.servers.life_state import (
    Action,
    Ended,
    Life,
    Rules,
)
from actors.servers.lifecycle import step
from orchestrator.outcome import Phase
from orchestrator.server_start import PhaseBudget

IDLE = Activity(span_s=10.0, processes=5, busiest_cpu_s=0.02)
BUSY = Activity(span_s=10.0, processes=5, busiest_cpu_s=9.8)
BUDGETS = (
    PhaseBudget(Phase.WEIGHTS, 200.0, 60.0, "3 earlier starts took at most 68 s", "3 earlier starts took at most 68 s"),
    PhaseBudget(Phase.SERVING, float("inf"), 120.0, "default", "default"),
)
LOG = Rules("log", start_s=1800.0, stuck_s=900.0, grace_s=20.0, budgets=BUDGETS)
ANSWER = replace(LOG, proof="answer")
ATTACHED = Rules("attached", 60.0, float("inf"), 20.0)
READY = [
    LaunchBegan(0.0, 30.0),
    ServerRuns(1.0, 5.0),
    LogMoved(2.0, Phase.WEIGHTS),
    LogMoved(3.0, Phase.READY, said_ready=True),
    ProofGiven(4.0),
    AccountGiven(5.0),
]


def lived(rules: Rules, *events: Event) -> tuple[Life, list[Action]]:
    """The life after these events, and all that was to be done."""
    done: list[Action] = []
    life = Life.begin(rules, 0.0)
    for event in events:
        life, actions = step(life, event)
        done += actions
    return life, done


def verdict(life: Life) -> Any:
    assert isinstance(life.state, Ended)
    return life.state.verdict
