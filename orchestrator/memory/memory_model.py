"""All that a prediction needs to know of a model on a GPU, from its files, a profile or earlier starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.memory.cell_size import cell_size, state_bytes
from orchestrator.memory.estimate import ZERO, Estimate
from orchestrator.memory.graph_budget import ScratchLaw, guessed_laws, kind_of, prefill_scratch
from orchestrator.memory.memory_defaults import MemorySettings, resolve_memory
from orchestrator.memory.model_shape import ModelShape
from orchestrator.memory.pool_budget import PoolModel, pool_model
from orchestrator.memory.quantization import online_quantization
from orchestrator.memory.weight_budget import Checkpoint, bundled_draft_estimate, weights_estimate

# What a process takes before it loads: context, driver, kernels (0.8-1.4 GiB in logs of one GPU); with several GPUs
# communicators besides (3.1 GiB in all on eight H200, 3.7 on four B200).
CONTEXT, COMMUNICATORS = Estimate(1.1, 0.6), Estimate(1.4, 1.4)


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """What the smallest GPU of a slot has: GiB as the driver tells, and free before the load where it is known."""

    total_gib: float
    free_gib: Estimate | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of the model's files: shape, bytes of the checkpoint, the same of a separate draft."""

    shape: ModelShape
    checkpoint: Checkpoint | None = None
    draft_shape: ModelShape | None = None
    draft_checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """The amounts of one config on one rank. `learnt` names what comes from starts, `unknown` what is a guess."""

    ask: MemorySettings
    total_gib: float
    pre: Estimate
    weights: Estimate
    draft: Estimate
    pools: PoolModel
    target_graphs: ScratchLaw
    draft_graphs: ScratchLaw
    prefill_graphs: Estimate = ZERO
    activations: Estimate = ZERO
    after_pools_gib: float = 0.0
    learnt: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    from_files: bool = False


def memory_model(facts: ModelFacts, settings: Mapping[str, Any], room: GpuRoom, version: str | None) -> MemoryModel:
    """From the model's files alone."""
    shape = _as_served(facts.shape, settings)
    ask = resolve_memory(settings, shape, room.total_gib, version)
    checkpoint = facts.checkpoint if shape.quantization == facts.shape.quantization else None
    cell = cell_size(shape, ask)
    separate = facts.draft_shape if ask.algorithm in {"EAGLE", "EAGLE3", "STANDALONE", "DFLASH"} else None
    draft, unknown = _draft(facts, shape, ask, separate)
    if separate is not None:  # a draft model of its own has the target's cell by SGLang's assumption
        layers = max(1, shape.full_layers)
        cell = replace(cell, draft=cell.full * separate.layers / layers)
    target_law, draft_law = guessed_laws(kind_of(shape), shape.vocab)
    return MemoryModel(
        ask=ask,
        total_gib=room.total_gib,
        pre=room.free_gib or free_before_load(room.total_gib, ask.parallel.tp * ask.parallel.pp),
        weights=weights_estimate(shape, ask.parallel, checkpoint),
        draft=draft,
        pools=pool_model(shape, ask, cell, state_bytes(shape, ask)),
        target_graphs=target_law,
        draft_graphs=draft_law,
        prefill_graphs=prefill_scratch(ask, shape.hidden),
        activations=activation_estimate(shape, ask),
        unknown=(*shape.unknown, *unknown),
        from_files=checkpoint is not None,
    )


def free_before_load(total_gib: float, gpus: int) -> Estimate:
    """Free GiB once a process has its context, and its communicators where several GPUs work together."""
    taken = CONTEXT + COMMUNICATORS if gpus > 1 else CONTEXT
    return Estimate(total_gib) - taken


def activation_estimate(shape: ModelShape, ask: MemorySettings) -> Estimate:
    """Working memory of one prefill chunk at its widest layer."""
    tp = ask.parallel.tp
    heads = shape.attention or shape.latent or shape.compressed
    width = 4 * shape.hidden + 3 * shape.dense_width / tp
    if shape.attention:
        width += 3 * shape.attention.heads * shape.attention.head_dim / ask.parallel.attn_tp
    elif heads is not None:
        width += 4 * shape.hidden
    tokens = ask.chunk_tokens if ask.chunk_tokens > 0 else 16384
    gib = tokens * width * shape.element_bytes / 2**30
    return Estimate(gib, gib)


def _as_served(shape: ModelShape, settings: Mapping[str, Any]) -> ModelShape:
    quantization = online_quantization(settings.get("quantization"), shape.quantization)
    return shape if quantization == shape.quantization else replace(shape, quantization=quantization)


def _draft(
    facts: ModelFacts, shape: ModelShape, ask: MemorySettings, separate: ModelShape | None
) -> tuple[Estimate, tuple[str, ...]]:
    """Weights of the draft, and what is unknown about them."""
    if not ask.has_draft_model:
        return ZERO, ()
    if separate is not None:
        return weights_estimate(separate, ask.parallel, facts.draft_checkpoint), ()
    if ask.given.get("speculative_draft_model_path"):
        return Estimate(2.0, 2.0), ("the draft model's config (counted as 2 GiB)",)
    bundled = bundled_draft_estimate(shape, ask.parallel, facts.checkpoint)
    if shape.draft_layers:
        return bundled, ()
    return bundled, ("layers of the bundled draft (counted as one)",)
