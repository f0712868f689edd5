"""What a server on several hosts tells of its start, out of what its ranks tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.outcome import Phase, PhaseFact
from orchestrator.server_start import LaunchSpec, ServerReady, StartProgress

# What ranks wait for each other in one exchange: NCCL 600 s, the barrier after loading 480 s.
MARGIN_S = 60.0
WAIT_S = 600.0 + MARGIN_S
_ALONE = frozenset({Phase.LAUNCH, Phase.ARGS, Phase.SPAWN, Phase.SERVING})
_PHASES = tuple(Phase)


def rank_specs(spec: LaunchSpec, nnodes: int, dist_init_addr: str) -> list[LaunchSpec]:
    """What each host is to launch, rank 0 first. Only rank 0 answers requests, and so has a key."""
    whole = _patient(replace(spec, nnodes=nnodes, dist_init_addr=dist_init_addr))
    followers = [replace(whole, node_rank=rank, network_key=None) for rank in range(1, nnodes)]
    return [whole, *followers]


def _patient(spec: LaunchSpec) -> LaunchSpec:
    """A rank that waits for a slower one is silent and idle, which is no hang until torch itself gives up."""
    given = dict(spec.settings).get("dist_timeout")
    wait_s = max(WAIT_S, given + MARGIN_S if isinstance(given, int | float) else 0.0)
    budgets = tuple(
        replace(b, silent_s=wait_s, silent_source="ranks may wait for each other")
        if b.phase not in _ALONE and b.silent_s < wait_s
        else b
        for b in spec.phase_budgets
    )
    return replace(spec, phase_budgets=budgets, phase_timeout_s=max(spec.phase_timeout_s, wait_s))


def slowest(told: Iterable[StartProgress]) -> StartProgress:
    """Of the last that each rank told: the rank that got least far. Free memory is the least of all."""
    ranks = list(told)
    last = min(ranks, key=_how_far)
    free = [p.free_gib for p in ranks if p.phase is last.phase and p.free_gib is not None]
    return replace(last, free_gib=min(free, default=None))


def _how_far(progress: StartProgress) -> tuple[int, float]:
    share = progress.done / progress.total if progress.done is not None and progress.total else 0.0
    return _PHASES.index(progress.phase), share


def span_phases(of_ranks: Sequence[Sequence[PhaseFact]]) -> tuple[PhaseFact, ...]:
    """The phases of all ranks as those of one server: the first to come begins one, the last to leave ends it, the
    fullest GPU tells the free memory. In the order of rank 0, whose details count.
    """
    merged: dict[Phase, PhaseFact] = {}
    for facts in of_ranks:
        for fact in facts:
            merged[fact.phase] = _joined(merged[fact.phase], fact) if fact.phase in merged else fact
    return tuple(merged.values())


def _joined(one: PhaseFact, other: PhaseFact) -> PhaseFact:
    ended = [s for s in (one.ended_s, other.ended_s) if s is not None]
    free = [gib for gib in (one.free_gib, other.free_gib) if gib is not None]
    return replace(
        one,
        began_s=min(one.began_s, other.began_s),
        ended_s=max(ended, default=None),
        free_gib=min(free, default=None),
        detail=one.detail or other.detail,
    )


def span_ready(ranks: Sequence[ServerReady]) -> ServerReady:
    """Rank 0's account; the start took as long as that of the slowest, and has the phases of all."""
    phases = span_phases([ready.phases for ready in ranks])
    return replace(ranks[0], start_s=max(ready.start_s for ready in ranks), phases=phases)
