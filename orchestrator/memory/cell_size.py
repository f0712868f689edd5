"""Bytes that one token keeps on one rank, in the pools of target and draft, and bytes of one recurrent state. Pure.

Sources: `mem_cache/kv_cache_configurator.py`, `model_executor/pool_configurator.py` and `configs/mamba_utils.py` of
SGLang 0.5.23; `model_executor/model_runner_kv_cache_mixin.py` up to 0.5.15.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.memory.memory_defaults import V4_PAGE_TOKENS, MemorySettings
from orchestrator.memory.model_shape import Attention, ModelShape

DSA_BLOCK = 128
V4_STATE_BYTES = 4
DEFAULT_WINDOW_RATIO, V4_WINDOW_RATIO = 0.8, 0.1


@dataclass(frozen=True, slots=True)
class CellSize:
    """Bytes per token and rank. `window` bytes are paid per token of the window pool, which holds `window_ratio` of
    the tokens of the full one; `draft` bytes are those of the draft's own pool. `error` is a share of the sum.
    """

    full: float
    draft: float = 0.0
    window: float = 0.0
    window_ratio: float = 0.0
    error: float = 0.0

    @property
    def total(self) -> float:
        """Bytes per token of the pool by which SGLang counts."""
        return self.full + self.draft + self.window * self.window_ratio


def cell_size(shape: ModelShape, ask: MemorySettings) -> CellSize:
    """What a token costs on one rank."""
    error = 0.25 if shape.unknown else 0.0
    if shape.compressed:
        full, window = _compressed_bytes(shape, ask)
        spread = (shape.layers + 1) / shape.layers if ask.speculating else 1.0
        ratio = float(ask.given.get("swa_full_tokens_ratio") or V4_WINDOW_RATIO)
        # Layouts of this family changed between releases, and differ by backend.
        return CellSize(full, full * (spread - 1), window * spread, ratio, max(error, 0.25))
    layers = -(-shape.full_layers // ask.parallel.pp)
    if shape.latent:
        row = _latent_row_bytes(shape, ask)
        return CellSize(layers * row, _draft_layers(shape, ask) * row, error=error)
    assert shape.attention is not None
    row = _head_row_bytes(shape.attention, shape, ask)
    draft = _draft_layers(shape, ask) * row
    if not shape.window_pool:
        return CellSize(layers * row, draft, error=error)
    windows = -(-shape.window_layers // ask.parallel.pp)
    window = windows * _head_row_bytes(shape.window_attention or shape.attention, shape, ask)
    if ask.given.get("disable_hybrid_swa_memory"):
        return CellSize(layers * row + window, draft, error=error)
    ratio = float(ask.given.get("swa_full_tokens_ratio") or DEFAULT_WINDOW_RATIO)
    return CellSize(layers * row, draft, window, ratio, error)


def element_bytes(dtype: str, shape: ModelShape) -> float:
    """Bytes of an element of the KV cache; `auto` is the model's own type."""
    if dtype.startswith("fp8") or dtype == "mxfp8":
        return 1.0 + (1 / 32 if dtype == "mxfp8" else 0.0)
    if dtype in {"nvfp4", "fp4_e2m1", "fp4_mx_block16"}:
        return 0.5 + 1 / 16
    return shape.element_bytes if dtype == "auto" else 2.0


def state_bytes(shape: ModelShape, ask: MemorySettings) -> float:
    """Bytes of the recurrent state of one slot on one rank, of all layers; 0 for models without one."""
    state = shape.state
    if state is None:
        return 0.0
    tp = ask.parallel.attn_tp
    width = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0}.get(str(ask.given.get("mamba_ssm_dtype")))
    groups = state.key_heads if state.key_heads % tp == 0 else state.key_heads + tp - state.key_heads
    channels = (2 * groups * state.key_dim + state.value_heads * state.value_dim) / tp
    conv = channels * (state.conv_kernel - 1) * 2.0
    temporal = state.value_heads / tp * state.value_dim * state.key_dim * (width or state.state_bytes)
    return (conv + temporal) * state.layers / ask.parallel.pp


def _draft_layers(shape: ModelShape, ask: MemorySettings) -> int:
    """Layers of a bundled draft that share the target's cell (since 0.5.15 its pool is counted with the target's)."""
    return (shape.draft_layers or 1) if ask.has_draft_model else 0


def _head_row_bytes(heads: Attention, shape: ModelShape, ask: MemorySettings) -> float:
    kept = max(1, heads.kv_heads // ask.parallel.attn_tp)
    return kept * heads.row * element_bytes(ask.kv_dtype, shape)


def _latent_row_bytes(shape: ModelShape, ask: MemorySettings) -> float:
    """MLA is not divided by tensor parallelism."""
    m = shape.latent
    assert m is not None
    each = element_bytes(ask.kv_dtype, shape)
    row = (m.kv_rank + m.rope_dim) * each
    if not m.index_dim:
        return row
    if ask.kv_dtype.startswith("fp8"):  # the layout with block scales and bfloat16 rotary part
        row = m.kv_rank + m.kv_rank // DSA_BLOCK * 4 + m.rope_dim * 2
    return row + m.index_dim + m.index_dim // DSA_BLOCK * 4


def _compressed_bytes(shape: ModelShape, ask: MemorySettings) -> tuple[float, float]:
    """DeepSeek-V4: bytes per token of the full pool, and per token of the window pool with the states of ratio 4."""
    c = shape.compressed
    assert c is not None
    row = (c.head_dim - c.rope_dim) + 2 * c.rope_dim + 8
    index = c.index_dim + c.index_dim // DSA_BLOCK * 4
    fours, coarse = c.ratios.count(4), c.ratios.count(128)
    full = fours * (row + index) / 4 + coarse * row / 128
    ring = 16 if ask.speculating else 8
    states = ring / V4_PAGE_TOKENS * 4 * (c.head_dim + c.index_dim) * V4_STATE_BYTES * fours
    return full, row * len(c.ratios) + states
