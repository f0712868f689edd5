"""What each phase of a server's start may take, and how long it may be silent: learnt from earlier starts. Pure.

The longest that a phase took before, times a factor that is larger the fewer starts are known, plus a floor: starts
differ by cold caches far more than by chance, so the longest counts and not the mean. Captures of graphs are scaled to
the number of graphs. A phase that takes longer is told; only one that is silent too long is ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.outcome import Phase
from orchestrator.server_start import PhaseBudget
from orchestrator.starts.phase_history import PhaseHistory, Taken

FLOOR_S = 30.0
# A wait for a peer, a lock or a slow disk of this length is nothing unusual, however fast the phase was before.
LEAST_SILENCE_S = 60.0
# Starts known -> times the longest of them.
FACTORS = ((5, 2.0), (3, 2.5), (2, 3.0), (1, 4.0))
NO_HISTORY = "default, no earlier start is known"


@dataclass(frozen=True, slots=True)
class PhaseDefault:
    """What a phase may take when no earlier start is known, and why."""

    total_s: float
    silent_s: float
    why: str


DEFAULTS: Mapping[Phase, PhaseDefault] = {
    Phase.LAUNCH: PhaseDefault(180.0, 300.0, "Python imports torch, maybe from a cold network disk"),
    Phase.ARGS: PhaseDefault(180.0, 300.0, "the model's config is fetched, the ranks are spawned"),
    Phase.DIST_INIT: PhaseDefault(180.0, 300.0, "the ranks wait for each other and for NCCL"),
    Phase.WEIGHTS: PhaseDefault(900.0, 600.0, "888 s were seen; network disks and downloads pause for minutes"),
    Phase.DRAFT_WEIGHTS: PhaseDefault(300.0, 600.0, "as weights"),
    Phase.KV_POOL: PhaseDefault(120.0, 300.0, "pools are allocated"),
    Phase.GRAPH_TARGET: PhaseDefault(900.0, 300.0, "kernels may be compiled first, which is busy and says nothing"),
    Phase.GRAPH_DRAFT: PhaseDefault(900.0, 300.0, "as graph_target"),
    Phase.HTTP_BIND: PhaseDefault(120.0, 300.0, "the HTTP server comes up"),
    Phase.WARMUP: PhaseDefault(600.0, 300.0, "the server's own first request may compile kernels"),
    Phase.READY: PhaseDefault(300.0, 300.0, "our first request"),
    Phase.SERVING: PhaseDefault(float("inf"), 120.0, "idle is no hang: the server is asked for a token first"),
}
# The log of any other server says nothing to us, so that its launch is all of its start.
OTHER_LAUNCH = PhaseDefault(1800.0, 600.0, "all of the start of a server of another kind")


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """What the scenario says itself: `timeouts.silent_s`, and `timeouts.phase_s` where it is not the default."""

    silent_s: float | None = None
    phase_s: float | None = None


def phase_budgets(
    past: PhaseHistory,
    settings: Mapping[str, Any],
    limits: SilenceLimits,
    *,
    gpu_count: int,
    other_engine: bool = False,
) -> tuple[PhaseBudget, ...]:
    """A budget for every phase of a start with these settings, and for serving.

    Of `past` those on as many GPUs count, if there are any.
    """
    found = []
    for phase, default in DEFAULTS.items():
        given = OTHER_LAUNCH if other_engine and phase is Phase.LAUNCH else default
        # How long earlier servers served says nothing about how long this one may be silent.
        observed = None if phase is Phase.SERVING else past.taken(phase, settings, gpu_count)
        found.append(_budget(phase, given, observed, limits))
    return tuple(found)


def _budget(phase: Phase, default: PhaseDefault, observed: Taken | None, limits: SilenceLimits) -> PhaseBudget:
    total_s, silent_s = default.total_s, default.silent_s
    source = "default" if phase is Phase.SERVING else NO_HISTORY
    if observed is not None:
        total_s, source = bound_s(observed), told(observed)
        silent_s = min(silent_s, max(LEAST_SILENCE_S, total_s))
    silent_source = source
    if limits.silent_s is not None:
        silent_s, silent_source = limits.silent_s, "timeouts.silent_s"
    elif limits.phase_s is not None and phase is not Phase.SERVING:
        silent_s, silent_source = limits.phase_s, "timeouts.phase_s"
    return PhaseBudget(phase, total_s, silent_s, source, silent_source)


def bound_s(observed: Taken) -> float:
    """The longest that a phase may take after these."""
    factor = next(factor for starts, factor in FACTORS if observed.starts >= starts)
    return round(observed.longest_s * factor + FLOOR_S, 1)


def told(observed: Taken) -> str:
    """Where a bound comes from."""
    starts = f"{observed.starts} earlier starts" if observed.starts > 1 else "1 earlier start"
    return f"{starts} took at most {observed.longest_s:.0f} s"
