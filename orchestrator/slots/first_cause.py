"""Of the ranks of one server, which one tells why it died: the others only tell that it did. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.outcome import Confidence, Diagnosis, Label, Phase

_HEALTHY = frozenset({Label.READY, Label.BENIGN})
# What a rank says when another one has died.
_CONSEQUENCES = frozenset({Label.PEER_RANK_FAILED, Label.NCCL_TIMEOUT, Label.NCCL_INIT})
# What is seen of a rank that waits for another one, which may be dead or only slow.
_WAITS = frozenset({Label.START_TIMEOUT, Label.HUNG, Label.WATCHDOG_HANG, Label.HEALTH_STALE})
_SURE = (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)
_PHASES = tuple(Phase)


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How one rank ended, or is about to be ended.

    `told`: when that became known, comparable among the ranks, empty if it is not known: seconds, or a log's own stamp.
    `ended_itself`: it is known to have died, and we had not asked it to.
    """

    diagnosis: Diagnosis
    told: tuple[float | str, ...] = ()
    ended_itself: bool = False


def first_cause(ends: Sequence[RankEnd]) -> int:
    """The place of the rank that tells why they died. ValueError if there is none.

    Causes that a log names come first; then a rank that died without a word; then ranks that waited for another, of
    which the one that got least far is the slow one; then those that only tell of another's death; then those that
    were stopped. Among equals sure ones come before guesses, then the earliest, then the first.
    """
    return min(range(len(ends)), key=lambda place: (*_order(ends[place]), place))


def _order(end: RankEnd) -> tuple[int, int, int, bool, tuple[float | str, ...]]:
    label, phase = end.diagnosis.label, end.diagnosis.phase
    slowest = _PHASES.index(phase) if label in _WAITS else 0
    sure = _SURE.index(end.diagnosis.confidence) // 2
    return _kind(end), slowest, sure, not end.told, end.told


def _kind(end: RankEnd) -> int:
    label = end.diagnosis.label
    if label in _HEALTHY:
        return 6
    if label is Label.UNKNOWN:
        return 1 if end.ended_itself else 5
    if label is Label.STOP_REQUESTED:
        return 4
    return 3 if label in _CONSEQUENCES else 2 if label in _WAITS else 0


def told_of_rank(diagnosis: Diagnosis, rank: int, host: str) -> Diagnosis:
    """The diagnosis with the rank and the host that it is of in its evidence."""
    return replace(diagnosis, evidence=f"rank {rank} on {host}: {diagnosis.evidence}")
