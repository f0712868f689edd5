"""Free memory after the weights -> pools: KV tokens of target and draft, recurrent states, tables. Pure.

The order and the words are SGLang's (`_profile_available_bytes`, `_handle_max_mamba_cache`, `resolve_max_num_reqs` in
`mem_cache/kv_cache_configurator.py`; `model_runner_kv_cache_mixin.py` up to 0.5.15).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.memory.cell_size import CellSize
from orchestrator.memory.estimate import GIB
from orchestrator.memory.memory_defaults import MemorySettings
from orchestrator.memory.model_shape import ModelShape
from orchestrator.outcome import Label

MULTIMODAL_CACHE_GIB = 100 / 1024
STATE_SLOTS, EXTRA_BUFFER_SLOTS = 3, 2
WINDOW_EVICTION = 128
V4_TAILS = 4


@dataclass(frozen=True, slots=True)
class StatePool:
    """Slots of recurrent state, GiB of them, and GiB of those in between that each draft token of a request needs."""

    slots: int
    gib: float
    between_gib: float

    @property
    def total_gib(self) -> float:
        return self.gib + self.between_gib


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why SGLang would not start: label, and by how many GiB it is short (positive)."""

    label: Label
    why: str
    short_gib: float


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The pools of one rank. `rest_gib` is what the static fraction leaves for them; `running` requests fit at once."""

    rest_gib: float
    kv_tokens: int = 0
    kv_gib: float = 0.0
    draft_kv_gib: float = 0.0
    window_tokens: int = 0
    window_gib: float = 0.0
    state: StatePool | None = None
    table_gib: float = 0.0
    running: int = 0
    is_capped: bool = False
    refusal: Refusal | None = None

    @property
    def total_gib(self) -> float:
        """GiB that the pools take."""
        state = self.state.total_gib if self.state else 0.0
        return self.kv_gib + self.draft_kv_gib + self.window_gib + state + self.table_gib


@dataclass(frozen=True, slots=True)
class PoolModel:
    """What pools are made of: bytes per token, bytes per state. `legacy_states`: states between are reserved for every
    asked request before the rest is divided (SGLang up to 0.5.12). `request_bytes` are kept per running request,
    `window_tails` windows of each request are kept for reuse where the window pool is sized by requests.
    """

    cell: CellSize
    state_bytes: float
    state_slots: int
    legacy_states: bool
    padding_slot: bool
    multimodal: bool
    window: int = 0
    window_tails: int = 0
    request_bytes: float = 0.0
    draft_counted: bool = True


def pool_model(shape: ModelShape, ask: MemorySettings, cell: CellSize, state_bytes: float) -> PoolModel:
    """The rules of the release for this model."""
    return PoolModel(
        cell=cell,
        state_bytes=state_bytes,
        state_slots=slots_per_request(ask, is_gdn=shape.state is not None and shape.state.kind == "gdn"),
        legacy_states=not ask.since("0.5.15"),
        padding_slot=ask.since("0.5.19"),
        multimodal=shape.vision is not None and ask.since("0.5.19"),
        window=shape.window,
        window_tails=0 if shape.compressed is None or ask.given.get("disable_radix_cache") else V4_TAILS,
        request_bytes=_request_bytes(shape, ask),
        draft_counted=ask.since("0.5.15"),
    )


def _request_bytes(shape: ModelShape, ask: MemorySettings) -> float:
    """DeepSeek-V4: the ring of states of its coarsest layers, for each running request."""
    c = shape.compressed
    if c is None:
        return 0.0
    ring = 256 if ask.speculating else 128
    return ring * 2 * c.head_dim * 4.0 * c.ratios.count(128)


def slots_per_request(ask: MemorySettings, *, is_gdn: bool) -> int:
    """State slots that a running request holds; more of them with the radix cache, and with its extra buffer."""
    if ask.given.get("disable_radix_cache"):
        return 1
    strategy = ask.given.get("mamba_radix_cache_strategy") or "auto"
    if strategy == "auto":
        overlaps = not ask.given.get("disable_overlap_schedule")
        strategy = "extra_buffer" if ask.since("0.5.15") and is_gdn and overlaps else "no_buffer"
    extra = {"extra_buffer": EXTRA_BUFFER_SLOTS, "extra_buffer_lazy": 1}.get(str(strategy), 0)
    if extra == EXTRA_BUFFER_SLOTS and ask.given.get("disable_overlap_schedule"):
        extra = 1
    return STATE_SLOTS + extra


def plan_pools(pre_gib: float, loaded_gib: float, ask: MemorySettings, model: PoolModel) -> PoolPlan:
    """`pre_gib` was free before any weights, `loaded_gib` is free now."""
    rest = loaded_gib - pre_gib * (1 - ask.fraction) - (MULTIMODAL_CACHE_GIB if model.multimodal else 0.0)
    if rest <= 0:
        return PoolPlan(rest, refusal=Refusal(Label.KV_BUDGET, _no_room(ask.fraction, 1 - loaded_gib / pre_gib), -rest))
    state, left, refusal = None, rest, None
    if model.state_bytes:
        state, left, refusal = _plan_states(rest, ask, model)
    if refusal is not None:
        return PoolPlan(rest, state=state, refusal=refusal)
    left -= model.request_bytes * ((ask.running_per_rank or 0) + 1) / GIB
    window_tokens = _window_cap(ask, model)
    cell = model.cell if model.draft_counted else replace(model.cell, draft=0.0)
    if window_tokens is not None:
        left -= window_tokens * cell.window / GIB
        cell = replace(cell, window_ratio=0.0)
    tokens = _paged(left * GIB / cell.total, ask.page_tokens)
    capped = ask.total_tokens is not None and ask.total_tokens < tokens
    if capped and ask.total_tokens is not None:
        tokens = _paged(ask.total_tokens, ask.page_tokens)
    if tokens <= 0:
        short = max(-left, cell.total * ask.page_tokens / GIB - left)
        why = "nothing is left for the KV cache after the state pool" if state else "not one page of KV cache fits"
        return PoolPlan(rest, state=state, refusal=Refusal(Label.KV_BUDGET, why, short))
    running = running_requests(tokens, ask, None if state is None else state.slots // model.state_slots)
    if running <= 0:
        return PoolPlan(rest, state=state, refusal=_no_slot(state, model))
    if window_tokens is None:
        window_tokens = int(tokens * cell.window_ratio)
    table = (running + 1) * (ask.context_length + 4 + ask.draft_tokens) * 4 / GIB
    return PoolPlan(
        rest, tokens, tokens * cell.full / GIB, tokens * cell.draft / GIB, window_tokens,
        window_tokens * cell.window / GIB, state, table, running, capped,
    )  # fmt: skip


def _no_room(fraction: float, needed: float) -> str:
    """In words, with the smallest fraction that would leave anything."""
    if needed >= 1:
        return "weights leave nothing for the KV cache under any mem_fraction_static"
    return f"weights leave nothing under mem_fraction_static {fraction:g} (needs more than {needed:.3f})"


def running_requests(tokens: int, ask: MemorySettings, by_states: int | None) -> int:
    """Requests that one attention rank runs at once."""
    if ask.running_requests is None:
        wanted = int(max(2048, min(4096, tokens / ask.context_length * 512)))
    else:
        wanted = ask.running_per_rank or 1
    found = min(wanted, tokens // 2)
    return found if by_states is None else min(found, by_states)


def _plan_states(rest: float, ask: MemorySettings, model: PoolModel) -> tuple[StatePool | None, float, Refusal | None]:
    """State pool, GiB left for KV tokens, or why there is no start."""
    one = model.state_bytes / GIB
    padding, drafts = int(model.padding_slot), ask.draft_tokens if ask.speculating else 0
    if ask.given.get("enable_linear_replayssm_spec"):
        drafts = 0
    running, asked = ask.running_per_rank or 1, ask.given.get("max_mamba_cache_size")
    between = one * drafts * running
    left = rest - between if model.legacy_states else rest
    short = 0.0  # a number that was asked for is no matter of memory
    if asked is not None:
        slots = int(asked) // ask.parallel.attn_dp
    elif ask.given.get("disable_radix_cache") and ask.running_requests is not None:
        slots = running
    else:
        share = float(ask.given.get("mamba_full_memory_ratio") or 0.9)
        budget = max(0.0, left) * share / (1 + share)
        if model.legacy_states or not drafts:
            slots, least = int(budget / one) - padding, one * (1 + padding)
        else:
            each, aside = one * (1 + drafts / model.state_slots), one * (1 + drafts) * padding
            slots, least = int((budget - aside) / each), aside + each
        short = least * (1 + share) / share - left
    if model.legacy_states and left <= 0:
        why = f"states for {drafts} draft tokens of {running} requests need {between:.1f} GiB of {rest:.1f}"
        return None, left, Refusal(Label.KV_BUDGET, why, -left)
    if slots <= 0:
        return None, left, Refusal(Label.STATE_POOL, "no slot of recurrent state fits", max(short, 0.0))
    if not model.legacy_states:
        between = one * drafts * (min(running, slots // model.state_slots) + padding)
        left = rest - between
    pool = StatePool(slots, (slots + padding) * one, between)
    return pool, left - pool.gib, None


def _no_slot(state: StatePool | None, model: PoolModel) -> Refusal:
    have = state.slots if state else 0
    why = f"{have} slots of recurrent state hold no request, which takes {model.state_slots}"
    return Refusal(Label.STATE_POOL, why, (model.state_slots - have) * model.state_bytes / GIB)


def _window_cap(ask: MemorySettings, model: PoolModel) -> int | None:
    """Tokens of the window pool where SGLang sizes it by the asked running requests, None where it takes a ratio.

    By requests: without the radix cache, or for DeepSeek-V4 unless a ratio is given.
    """
    running = ask.running_per_rank
    by_requests = ask.given.get("disable_radix_cache") or (
        model.window_tails and ask.given.get("swa_full_tokens_ratio") is None
    )
    if not model.cell.window or running is None or ask.chunk_tokens <= 0 or not by_requests:
        return None
    each = model.window + WINDOW_EVICTION * ask.draft_tokens + ask.page_tokens
    each += 2 * ask.draft_tokens if ask.speculating else ask.page_tokens
    tails = model.window_tails * (model.window + ask.page_tokens)
    return (each + tails) * running + 2 * ask.chunk_tokens + ask.page_tokens


def _paged(tokens: float, page: int) -> int:
    return int(tokens) // page * page
