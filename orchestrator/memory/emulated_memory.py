"""An emulated server's model for predictions: what its profile says of weights, cache and states. Pure.

The scratch of its graphs is left to guesses and to earlier starts, as for a real server: no config.json tells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.emulator.memory import CONTEXT_GIB
from actors.emulator.profiles import Profile
from orchestrator.memory.cell_size import CellSize
from orchestrator.memory.estimate import ZERO, Estimate
from orchestrator.memory.graph_budget import Kind, guessed_laws
from orchestrator.memory.memory_defaults import resolve_memory
from orchestrator.memory.memory_model import MemoryModel
from orchestrator.memory.model_shape import LatentAttention, ModelShape
from orchestrator.memory.pool_budget import PoolModel
from orchestrator.memory.quantization import plain

DRAFT_CELL_SHARE = 1 / 12
ERROR_GIB = 0.01
VOCAB = 150_000


def emulated_memory_model(profile: Profile, settings: Mapping[str, Any], version: str | None) -> MemoryModel:
    """The amounts of one config of emulated servers on one emulated GPU."""
    given = dict(settings)
    if not profile.prefill_graph:
        given["cuda_graph_backend_prefill"] = "disabled"
    shape = _stand_in(profile)
    running = given.get("max_running_requests") or (48 if given.get("speculative_algorithm") else None)
    slots = 1 if given.get("disable_radix_cache") else profile.memory.state_slots
    if profile.memory.state_mib and running and given.get("max_mamba_cache_size") is None:
        given["max_mamba_cache_size"] = running * slots  # it makes states for every asked request
    ask = resolve_memory(given, shape, profile.gpu.total_gib, version)
    scale = profile.tp / ask.parallel.tp
    cell = profile.memory.kv_bytes_per_token * (1.0 if profile.mla else scale)
    target, draft = guessed_laws(_kind(profile), VOCAB)
    return MemoryModel(
        ask=ask,
        total_gib=profile.gpu.total_gib,
        pre=Estimate(profile.gpu.free_gib, ERROR_GIB),
        weights=Estimate(profile.memory.weights_gib * scale, ERROR_GIB),
        draft=Estimate(profile.memory.draft_gib * scale, ERROR_GIB) if ask.has_draft_model else ZERO,
        pools=PoolModel(
            cell=CellSize(cell, cell * DRAFT_CELL_SHARE if ask.has_draft_model else 0.0),
            state_bytes=profile.memory.state_mib * 2**20 * scale,
            state_slots=slots,
            legacy_states=True,
            padding_slot=False,
            multimodal=False,
        ),
        target_graphs=target,
        draft_graphs=draft,
        after_pools_gib=CONTEXT_GIB,
        from_files=True,
    )


def _kind(profile: Profile) -> Kind:
    """As the architecture's name tells it."""
    if "V4" in profile.architecture:
        return "compressed"
    return "experts" if "Moe" in profile.architecture else "dense"


def _stand_in(profile: Profile) -> ModelShape:
    """Only what SGLang's defaults ask of a model: its name, its context, whether it is MLA."""
    latent = LatentAttention(1, 512, 64, 128, 128, 0) if profile.mla else None
    return ModelShape(
        architecture=profile.architecture,
        hidden=0,
        layers=1,
        vocab=VOCAB,
        tied=False,
        context_length=profile.context_length,
        element_bytes=2.0,
        quantization=plain(2.0),
        full_layers=1,
        latent=latent,
    )
