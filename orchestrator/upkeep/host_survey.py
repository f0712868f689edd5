"""Every host of a cluster asked for its report and its clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.host.host_report import host_clock, host_report
from orchestrator.host_report import HostReport
from orchestrator.hosts.host_match import HostFacts
from orchestrator.scenarios.scenario import Scenario
from orchestrator.slots.cluster import Cluster
from orchestrator.upkeep.host_warnings import HostSeen

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A host and its report; `silence` says why there is none."""

    host: HostFacts
    report: HostReport | None
    seen: HostSeen | None = None
    silence: str = ""


def survey(cluster: Cluster, scenario: Scenario | None = None) -> list[Surveyed]:
    """All hosts at the same time, then their clocks one by one. A host that does not answer is told, not raised."""
    command = tuple(scenario.engine.command or ()) if scenario else ()
    model = scenario.model.path if scenario else None
    paths = tuple(scenario.model.path_by_host.items()) if scenario else ()
    found = []
    for host, answer in cluster.ask_each(host_report, command, model, paths):
        if not isinstance(answer, HostReport):
            found.append(Surveyed(host, None, silence=str(answer).splitlines()[-1] if str(answer) else "no answer"))
            continue
        off_s, error_s = clock_off(lambda host=host: _clock_of(cluster, host))  # type: ignore[misc]
        found.append(Surveyed(host, answer, HostSeen(host.name, host.gpus, answer, off_s, error_s)))
    return sorted(found, key=lambda known: known.host.name)


def clock_off(
    ask: Callable[[], float | None], now: Callable[[], float] = time.time, rounds: int = _ROUNDS
) -> tuple[float | None, float]:
    """How far another clock is ahead of ours, and the error of that, seconds; by the quickest of some answers.

    It was asked half way between question and answer, give or take that half.
    """
    best: tuple[float | None, float] = (None, 0.0)
    for _ in range(rounds):
        before = now()
        told = ask()
        after = now()
        if told is None:
            continue
        error_s = (after - before) / 2
        if best[0] is None or error_s < best[1]:
            best = (told - (before + after) / 2, error_s)
    return best


def _clock_of(cluster: Cluster, host: HostFacts) -> float | None:
    answers: list[tuple[HostFacts, Any]] = cluster.ask_each(host_clock, nodes={host.node_id})
    return next((answer for _, answer in answers if isinstance(answer, float)), None)
