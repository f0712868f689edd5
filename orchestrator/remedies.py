"""Label of a death -> what is done about it: the tables behind docs/recovery.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator import recovery_moves as moves
from orchestrator.failed_lineage import Change, Situation
from orchestrator.outcome import Label
from orchestrator.recovery_moves import Step


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
    """What a label asks for: its moves in order, and what to tell the user where nothing can be done.

    `in_turn`: a move that did not help makes way for the next, rather than going further the same way.
    """

    kind: Kind
    advice: str
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
_FEWER_WEIGHTS = "no memory setting helps: more GPUs per server (tp_size), a quantized model, or a smaller draft"
_FIX = "the same start would end the same way"

REMEDIES: Mapping[Label, Remedy] = {
    Label.KV_BUDGET: Remedy(
        Kind.REPAIR,
        "less must share the GPU: a shorter draft, a quantized model, more GPUs per server (tp_size)",
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
        "see who else holds memory of this GPU (specsweep hosts)",
        (_any_of(moves.lower_fraction), _any_of(moves.cap_tokens), _FEWER),
        in_turn=True,
    ),
    Label.STATE_POOL: Remedy(
        Kind.REPAIR,
        "the states of this model do not fit: a smaller state (mamba_ssm_dtype bfloat16), a shorter draft, more GPUs",
        (
            _any_of(moves.other_window_share),
            _any_of(moves.larger_state_share),
            _any_of(moves.smaller_state_cache),
            _FEWER,
            _LAST,
        ),
        in_turn=True,
    ),
    Label.OOM_GRAPH_TARGET: Remedy(
        Kind.REPAIR, "a shorter draft, more GPUs per server (tp_size), or decode without graphs", _GRAPHS
    ),
    Label.OOM_GRAPH_DRAFT: Remedy(
        Kind.REPAIR, "a shorter draft, more GPUs per server (tp_size), or decode without graphs", _GRAPHS
    ),
    Label.RUNTIME_OOM: Remedy(
        Kind.REPAIR,
        "fewer requests at once, shorter prompts, more GPUs per server (tp_size)",
        (_any_of(moves.lower_fraction), _any_of(moves.smaller_chunk), _FEWER, _LAST),
        in_turn=True,
    ),
    Label.RUNTIME_POOL: Remedy(
        Kind.REPAIR,
        "fewer requests at once, or a larger pool for states or windows",
        (_FEWER, _any_of(moves.larger_state_share), _LAST),
        in_turn=True,
    ),
    Label.OOM_WEIGHTS: Remedy(Kind.NOTHING, _FEWER_WEIGHTS),
    Label.OUT_OF_MEMORY: Remedy(Kind.NOTHING, "Specsweep does not know which settings of this server take memory"),
    Label.FLAG_INVALID: Remedy(Kind.NOTHING, f"{_FIX}: correct the setting that the line names"),
    Label.CONFIG_CONFLICT: Remedy(Kind.NOTHING, f"{_FIX}: change the combination that the line names"),
    Label.CAPTURE_ERROR: Remedy(
        Kind.NOTHING, f"{_FIX}: another attention backend, or decode without graphs; memory settings do not help"
    ),
    Label.KERNEL_ARCH: Remedy(Kind.NOTHING, f"{_FIX}: an image, wheel or backend made for this GPU"),
    Label.JIT_TOOLCHAIN: Remedy(Kind.NOTHING, f"{_FIX}: CUDA toolkit, ninja and headers must be found on the host"),
    Label.CUDA_IMA: Remedy(Kind.NOTHING, "a bug, not a lack of memory: another backend, topk 1, or no graphs"),
    Label.MODEL_MISSING: Remedy(Kind.NOTHING, f"{_FIX}: the model's path, name or access"),
    Label.READY: Remedy(Kind.NOTHING, "it shows no failure"),
    Label.BENIGN: Remedy(Kind.NOTHING, "it shows no failure"),
    Label.GPU_OCCUPIED: Remedy(Kind.CLEAN, "find who holds the GPU: specsweep hosts"),
    Label.PORT_IN_USE: Remedy(Kind.CLEAN, "the next start takes another port; see who listens there"),
    Label.HOST_OOM: Remedy(
        Kind.ALONE, "smaller caches in host memory (hicache_size, hicache_ratio), fewer slots per host"
    ),
    Label.SEGFAULT_ABORT: Remedy(Kind.ELSEWHERE, "a bug, or what an earlier server left in shared memory"),
    Label.SOFTWARE_BUG: Remedy(Kind.ELSEWHERE, "a bug of the server: report it with its log"),
    Label.GPU_UNEQUAL: Remedy(Kind.ELSEWHERE, "a slot of equal cards (slots.labels)"),
    Label.SHM_OR_DISK: Remedy(Kind.ELSEWHERE, "more room in /dev/shm or on the disk of the host"),
    Label.NCCL_INIT: Remedy(Kind.ELSEWHERE, "network between the GPUs of the host"),
    Label.NCCL_TIMEOUT: Remedy(Kind.ELSEWHERE, "find the rank that died first"),
    Label.NET_CONFIG: Remedy(Kind.ELSEWHERE, "network settings of the host"),
    Label.PEER_RANK_FAILED: Remedy(Kind.ELSEWHERE, "the cause is in another rank's log"),
    Label.HEALTH_STALE: Remedy(Kind.ELSEWHERE, "the detokenizer fell silent: CPU of the host"),
    Label.MODEL_DOWNLOAD: Remedy(Kind.ELSEWHERE, "network to the hub, or a local copy of the model"),
    Label.WATCHDOG_HANG: Remedy(
        Kind.ELSEWHERE, "kernels that are compiled at the first request, or a pool that starves"
    ),
    Label.START_TIMEOUT: Remedy(Kind.ELSEWHERE, "a longer timeouts.start_s, or a faster disk"),
    Label.STOP_REQUESTED: Remedy(Kind.ELSEWHERE, "something else on the host stopped the server"),
    Label.CLIENT_ERRORS: Remedy(Kind.ELSEWHERE, "what the server answered"),
    Label.HUNG: Remedy(Kind.ELSEWHERE, "the server's log"),
    Label.HOST_LOST: Remedy(Kind.ELSEWHERE, "the host"),
    Label.COMMAND_NOT_FOUND: Remedy(Kind.ELSEWHERE, "engine.command must exist on every host"),
    Label.USER_COMMAND: Remedy(Kind.ELSEWHERE, "the command's own words"),
    Label.UNKNOWN: Remedy(Kind.ELSEWHERE, "the server's log"),
}
