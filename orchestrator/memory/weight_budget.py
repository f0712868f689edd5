"""Weights of one rank: elements by part of the model, bytes by number format, shares by parallelism. Pure.

Sharding as in SGLang's layers: embeddings and output by vocabulary, attention by heads of the attention ranks, MLPs and
experts by the whole tensor-parallel group; norms, routers and MLA's down projections lie on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.memory.estimate import GIB, Estimate
from orchestrator.memory.model_shape import Attention, ModelShape, RecurrentState

# Rotary tables, padding of vocabularies, scratch of loaders: 0.05-0.15 GiB in the logs of servers of 8 to 32 billion.
LOADED_BESIDES_GIB = 0.08
# A config's arithmetic leaves out biases and small tensors; a checkpoint's size includes what is not loaded.
SHAPE_ERROR, CHECKPOINT_ERROR, UNKNOWN_ERROR = 0.03, 0.015, 0.25
# DeepSeek-V4 in one log: 20.45 GiB on each of eight ranks, where the arithmetic gives 19.9.
COMPRESSED_ERROR = 0.06


@dataclass(frozen=True, slots=True)
class Parallel:
    """Sizes of the groups: tensor, pipeline, and attention data parallelism (which lies inside the tensor group)."""

    tp: int = 1
    pp: int = 1
    attn_dp: int = 1

    @property
    def attn_tp(self) -> int:
        return max(1, self.tp // self.attn_dp)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Bytes of a model's weight files; those of its bundled draft layers, where the files tell them apart."""

    total_bytes: int
    draft_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a model: bytes of all of it, and the share that one rank holds (before pipeline stages)."""

    name: str
    total_bytes: float
    rank_share: float

    @property
    def rank_bytes(self) -> float:
        return self.total_bytes * self.rank_share


def weight_parts(shape: ModelShape, parallel: Parallel) -> tuple[Part, ...]:
    """All parts of the target; the sum of `total_bytes` is the size of its checkpoint without draft layers."""
    plain, formats = shape.element_bytes, shape.quantization
    tp, attn_tp = parallel.tp, parallel.attn_tp
    table = float(shape.vocab * shape.hidden)
    parts = [
        Part("embedding", table * plain, 1 / attn_tp),
        Part("output", 0.0 if shape.tied else table * plain, 1 / tp),
        Part("norms", (2 * shape.layers + 1) * shape.hidden * plain, 1.0),
    ]
    parts += _attention_parts(shape, shape.full_layers + shape.window_layers, attn_tp)
    if shape.state:
        elements = shape.state.layers * _state_elements(shape.hidden, shape.state)
        parts.append(Part("recurrent layers", elements * formats.attention_bytes, 1 / attn_tp))
    dense = shape.dense_layers * shape.mlp_matrices * shape.hidden * shape.dense_width
    parts.append(Part("dense MLPs", dense * formats.linear_bytes, 1 / tp))
    parts += _expert_parts(shape, shape.experts.layers if shape.experts else 0, tp)
    if shape.vision:
        v = shape.vision
        each = 4 * v.hidden**2 + 2 * v.hidden * v.width
        parts.append(Part("image encoder", (v.layers * each + 4 * v.hidden * shape.hidden) * plain, 1 / tp))
    return tuple(part for part in parts if part.total_bytes)


def draft_parts(shape: ModelShape, parallel: Parallel) -> tuple[Part, ...]:
    """A bundled draft: its layers with full attention, and the projection that joins token and hidden state.

    The embedding and the output are the target's; while loading they may be there twice, which is in the error.
    """
    layers = shape.draft_layers or 1
    parts = [*_attention_parts(shape, layers, parallel.attn_tp)]
    if shape.experts:
        parts += _expert_parts(shape, layers, parallel.tp)
    else:
        width = layers * shape.mlp_matrices * shape.hidden * shape.dense_width
        parts.append(Part("dense MLPs", width * shape.quantization.linear_bytes, 1 / parallel.tp))
    joined = layers * 2 * shape.hidden**2
    return (*parts, Part("join of token and state", joined * shape.element_bytes, 1.0))


def weights_estimate(shape: ModelShape, parallel: Parallel, checkpoint: Checkpoint | None) -> Estimate:
    """GiB of the target's weights on the fullest rank."""
    parts = weight_parts(shape, parallel)
    whole, rank = sum(p.total_bytes for p in parts), sum(p.rank_bytes for p in parts) / parallel.pp
    error = UNKNOWN_ERROR if shape.unknown else COMPRESSED_ERROR if shape.compressed else SHAPE_ERROR
    if checkpoint is not None:
        draft = checkpoint.draft_bytes
        if draft is None:
            draft = round(sum(p.total_bytes for p in draft_parts(shape, parallel))) if shape.draft_layers else 0
        rank *= (checkpoint.total_bytes - draft) / whole
        error = CHECKPOINT_ERROR + (0.01 if shape.unknown else 0.0)
    ends = sum(p.rank_bytes for p in parts if p.name in {"embedding", "output"}) / GIB
    uneven = ends * (1 - 1 / parallel.pp)  # the first and last stage hold these alone
    gib = rank / GIB + LOADED_BESIDES_GIB + uneven / 2
    return Estimate(gib, gib * error + 0.1 + uneven / 2)


def bundled_draft_estimate(shape: ModelShape, parallel: Parallel, checkpoint: Checkpoint | None) -> Estimate:
    """GiB of a draft that is part of the model (MTP, NEXTN)."""
    parts = draft_parts(shape, parallel)
    rank = sum(p.rank_bytes for p in parts)
    error = UNKNOWN_ERROR if shape.unknown else 0.1
    if checkpoint is not None and checkpoint.draft_bytes:
        rank *= checkpoint.draft_bytes / sum(p.total_bytes for p in parts)
        error = 0.05
    tables = 2 * shape.vocab * shape.hidden * shape.element_bytes / parallel.tp / GIB
    gib = rank / GIB
    return Estimate(gib + tables / 2, gib * error + 0.1 + tables / 2)


def _attention_parts(shape: ModelShape, layers: int, attn_tp: int) -> list[Part]:
    each = shape.quantization.attention_bytes
    if shape.latent:
        sharded, replicated = _latent_elements(shape)
    elif shape.compressed:
        sharded, replicated = _compressed_elements(shape)
    else:
        return _head_parts(shape, layers, attn_tp)
    # DeepSeek-V4's compressors and indexer stay in the model's own type.
    on_each = shape.element_bytes if shape.compressed else each
    return [
        Part("attention", layers * sharded * each, 1 / attn_tp),
        Part("attention, on every rank", layers * replicated * on_each, 1.0),
    ]


def _head_parts(shape: ModelShape, layers: int, attn_tp: int) -> list[Part]:
    heads = shape.attention
    assert heads is not None
    windows = min(shape.window_layers, layers)
    each = shape.quantization.attention_bytes
    parts = []
    for kind, count in ((heads, layers - windows), (shape.window_attention or heads, windows)):
        query, kept = _query_elements(shape.hidden, kind), shape.hidden * kind.kv_heads * kind.row
        copies = max(1, kind.kv_heads // attn_tp) / kind.kv_heads  # fewer heads than ranks: each rank keeps one
        parts.append(Part("queries and outputs", count * query * each, 1 / attn_tp))
        parts.append(Part("keys and values", count * kept * each, copies))
    return parts


def _query_elements(hidden: int, heads: Attention) -> int:
    return hidden * heads.heads * (heads.head_dim * (2 if heads.gated else 1) + heads.v_head_dim)


def _latent_elements(shape: ModelShape) -> tuple[float, float]:
    m, hidden = shape.latent, shape.hidden
    assert m is not None
    head = m.nope_dim + m.rope_dim
    query = m.query_rank * m.heads * head if m.query_rank else hidden * m.heads * head
    # The absorbed copies of the up projection stay in bfloat16 beside it.
    up = m.kv_rank * m.heads * (m.nope_dim + m.v_dim)
    sharded = query + up + m.heads * m.v_dim * hidden
    replicated = hidden * (m.query_rank + m.kv_rank + m.rope_dim)
    replicated += m.index_dim * (m.query_rank * m.index_heads + hidden) + hidden * m.index_heads
    return sharded, replicated


def _compressed_elements(shape: ModelShape) -> tuple[float, float]:
    c, hidden = shape.compressed, shape.hidden
    assert c is not None
    query = c.query_rank * c.heads * c.head_dim
    output = c.heads * c.head_dim * c.output_rank + c.output_groups * c.output_rank * hidden
    with_index = sum(ratio == 4 for ratio in c.ratios) / max(1, len(c.ratios))
    compressing = sum(ratio > 0 for ratio in c.ratios) / max(1, len(c.ratios))
    replicated = hidden * (c.query_rank + c.head_dim) + compressing * 2 * hidden * c.head_dim * 2
    replicated += with_index * (c.query_rank * c.index_heads * c.index_dim + 4 * hidden * c.index_dim)
    return query + output, replicated


def _state_elements(hidden: int, state: RecurrentState) -> int:
    values = state.value_heads * state.value_dim
    conv = state.conv_channels * state.conv_kernel
    if state.kind == "gdn":
        keys = state.key_heads * state.key_dim
        return hidden * (2 * keys + 2 * values + 2 * state.value_heads) + conv + values * hidden
    if state.kind == "kda":
        keys = state.key_heads * state.key_dim
        low_rank = 2 * state.value_dim * (hidden + values)
        return hidden * (2 * keys + values + state.value_heads) + low_rank + conv + values * hidden
    groups = state.key_heads * state.key_dim
    return hidden * (2 * values + 2 * groups + state.value_heads) + conv + values * hidden


def _expert_parts(shape: ModelShape, layers: int, tp: int) -> list[Part]:
    experts, formats = shape.experts, shape.quantization
    if experts is None or not layers:
        return []
    one = shape.mlp_matrices * shape.hidden
    return [
        Part("experts", layers * experts.count * one * experts.width * formats.expert_bytes, 1 / tp),
        Part("shared experts", layers * one * experts.shared_width * formats.linear_bytes, 1 / tp),
        Part("routers", layers * shape.hidden * experts.count * shape.element_bytes, 1.0),
    ]
