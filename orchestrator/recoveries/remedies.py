"""Label of a death -> what is done about it: the tables behind docs/recovery.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.outcome import Label
from orchestrator.recoveries import recovery_moves as moves
from orchestrator.recoveries.failed_lineage import Change, Situation
from orchestrator.recoveries.recovery_moves import Step


class Kind(StrEnum):
    """What a label asks for."""

    REPAIR = "repair"  # other memory settings
    CLEAN = "clean"  # the same once more on this slot, whose own clean-up comes before
    ELSEWHERE = "elsewhere"  # the same once more, on another host if there is one
    ALONE = "alone"  # the same once more while no other server of the run is up
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Move:
    """Changes that go together: its leading steps of which one at least has something to change, and the others."""

    steps: tuple[Step, ...]
    leading: int

    def changes(self, now: Situation) -> tuple[Change, ...]:
        """Empty where the leading steps can do nothing."""
        made = [step(now) for step in self.steps]
        return tuple(c for c in made if c is not None) if any(made[: self.leading]) else ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a label asks for: its moves in order. What a user may do is the diagnosis's to say.

    `in_turn`: a move that did not help makes way for the next, rather than going further the same way.
    """

    kind: Kind
    moves: tuple[Move, ...] = ()
    in_turn: bool = False

    def moves_after(self, deaths: int) -> tuple[Move, ...]:
        """The moves in the order in which they are tried, after so many deaths by the same label."""
        first = deaths % len(self.moves) if self.in_turn and self.moves else 0
        return (*self.moves[first:], *self.moves[:first])


def _any_of(*steps: Step) -> Move:
    return Move(steps, len(steps))


def _first_of(*steps: Step) -> Move:
    """The others would not help by themselves."""
    return Move(steps, 1)


_FEWER = _any_of(moves.fewer_requests)
_LAST = _any_of(moves.fewer_requests_than_offered)
# Between a KV cache without room and graphs without room, only less of everything helps.
_GRAPHS = (
    _any_of(moves.cap_capture, moves.lower_fraction),
    _first_of(moves.fewer_requests, moves.cap_capture, moves.shorter_context),
    _first_of(moves.shrink_capture, moves.shorter_context),
    _LAST,
)

REMEDIES: Mapping[Label, Remedy] = {
    Label.KV_BUDGET: Remedy(
        Kind.REPAIR,
        (
            _any_of(moves.fewer_requests_for_the_pool),
            _any_of(moves.raise_fraction),
            _first_of(moves.raise_to_where_graphs_failed, moves.shrink_capture),
            _first_of(moves.fewer_requests, moves.cap_capture, moves.shorter_context),
            _LAST,
        ),
    ),
    Label.OOM_KV_ALLOC: Remedy(
        Kind.REPAIR,
        (_any_of(moves.lower_fraction), _any_of(moves.cap_tokens), _FEWER),
        in_turn=True,
    ),
    Label.STATE_POOL: Remedy(
        Kind.REPAIR,
        (
            _any_of(moves.other_window_share),
            _any_of(moves.raise_fraction_for_states),
            _any_of(moves.larger_state_share),
            _any_of(moves.smaller_state_cache),
            _FEWER,
            _LAST,
        ),
        in_turn=True,
    ),
    Label.OOM_GRAPH_TARGET: Remedy(Kind.REPAIR, _GRAPHS),
    Label.OOM_GRAPH_DRAFT: Remedy(Kind.REPAIR, _GRAPHS),
    Label.RUNTIME_OOM: Remedy(
        Kind.REPAIR,
        (_any_of(moves.lower_fraction), _any_of(moves.smaller_chunk), _FEWER, _LAST),
        in_turn=True,
    ),
    Label.RUNTIME_POOL: Remedy(
        Kind.REPAIR,
        (_FEWER, _any_of(moves.larger_state_share), _LAST),
        in_turn=True,
    ),
    Label.OOM_WEIGHTS: Remedy(Kind.NOTHING),
    Label.OUT_OF_MEMORY: Remedy(Kind.NOTHING),
    Label.FLAG_INVALID: Remedy(Kind.NOTHING),
    Label.CONFIG_CONFLICT: Remedy(Kind.NOTHING),
    Label.CAPTURE_ERROR: Remedy(Kind.NOTHING),
    Label.KERNEL_ARCH: Remedy(Kind.NOTHING),
    Label.JIT_TOOLCHAIN: Remedy(Kind.NOTHING),
    Label.CUDA_IMA: Remedy(Kind.NOTHING),
    Label.MODEL_MISSING: Remedy(Kind.NOTHING),
    Label.READY: Remedy(Kind.NOTHING),
    Label.BENIGN: Remedy(Kind.NOTHING),
    Label.GPU_OCCUPIED: Remedy(Kind.CLEAN),
    Label.PORT_IN_USE: Remedy(Kind.CLEAN),
    Label.HOST_OOM: Remedy(Kind.ALONE),
    Label.SEGFAULT_ABORT: Remedy(Kind.ELSEWHERE),
    Label.SOFTWARE_BUG: Remedy(Kind.ELSEWHERE),
    Label.GPU_UNEQUAL: Remedy(Kind.ELSEWHERE),
    Label.SHM_OR_DISK: Remedy(Kind.ELSEWHERE),
    Label.NCCL_INIT: Remedy(Kind.ELSEWHERE),
    Label.NCCL_TIMEOUT: Remedy(Kind.ELSEWHERE),
    Label.NET_CONFIG: Remedy(Kind.ELSEWHERE),
    Label.PEER_RANK_FAILED: Remedy(Kind.ELSEWHERE),
    Label.HEALTH_STALE: Remedy(Kind.ELSEWHERE),
    Label.MODEL_DOWNLOAD: Remedy(Kind.ELSEWHERE),
    Label.WATCHDOG_HANG: Remedy(Kind.ELSEWHERE),
    Label.START_TIMEOUT: Remedy(Kind.ELSEWHERE),
    Label.STOP_REQUESTED: Remedy(Kind.ELSEWHERE),
    Label.CLIENT_ERRORS: Remedy(Kind.ELSEWHERE),
    Label.HUNG: Remedy(Kind.ELSEWHERE),
    Label.HOST_LOST: Remedy(Kind.ELSEWHERE),
    Label.COMMAND_NOT_FOUND: Remedy(Kind.ELSEWHERE),
    Label.USER_COMMAND: Remedy(Kind.ELSEWHERE),
    Label.UNKNOWN: Remedy(Kind.ELSEWHERE),
}
