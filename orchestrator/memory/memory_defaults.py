"""What SGLang makes of memory settings that were left open, release by release. Pure.

Sources: `server_args.py` of 0.5.9, 0.5.12 and 0.5.15, `arg_groups/memory_hook.py`, `cuda_graph_hook.py` and
`speculative_hook.py` of 0.5.19 to 0.5.23. A version counts as the release whose options it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.memory.model_shape import ModelShape, Vision
from orchestrator.memory.weight_budget import Parallel
from orchestrator.sglang.dialect import dialect_of, is_since
from orchestrator.sglang.rule_terms import algorithm, attention_dp, number, page_size, topk

# With speculation, running requests that were not given.
SPECULATIVE_RUNNING = 48
MIB_FLOOR, BIG_GPU_MIB = 10 * 1024, 60 * 1024
AUTO_STEPS = {"STANDALONE": (3, 1, 4), "LlamaForCausalLM": (5, 4, 8), "Grok1ForCausalLM": (5, 4, 8)}
ELSE_STEPS = (3, 1, 4)
V4_PAGE_TOKENS = 256
NGRAM_DRAFT_TOKENS, BLOCK_DRAFT_TOKENS = 12, 16


@dataclass(frozen=True, slots=True)
class Tier:
    """GPUs below so many MiB: tokens of a prefill chunk, largest captured decode batch at tp < 4 and from 4 on."""

    below_mib: int
    chunk_tokens: int
    batch: int
    batch_tp4: int


TIERS = (
    Tier(20 * 1024, 2048, 8, 8),
    Tier(35 * 1024, 4096, 48, 160),
    Tier(60 * 1024, 4096, 32, 160),
    Tier(90 * 1024, 8192, 256, 512),
    Tier(160 * 1024, 8192, 256, 512),
    Tier(1 << 40, 16384, 512, 512),
)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What a server runs with, as far as memory depends on it. `algorithm` is None without speculation.

    `decode_sizes` are the batches that graphs are captured for, `prefill_sizes` the token counts; empty: no graphs.
    """

    release: str
    parallel: Parallel
    fraction: float
    chunk_tokens: int
    running_requests: int | None
    total_tokens: int | None
    page_tokens: int
    context_length: int
    kv_dtype: str
    algorithm: str | None
    steps: int
    draft_tokens: int
    branches: int
    decode_sizes: tuple[int, ...]
    prefill_sizes: tuple[int, ...]
    given: Mapping[str, Any]

    @property
    def speculating(self) -> bool:
        return self.algorithm is not None

    @property
    def has_draft_model(self) -> bool:
        """Whether weights and a KV pool of a draft are there."""
        return self.algorithm not in {None, "NGRAM"}

    @property
    def running_per_rank(self) -> int | None:
        """Asked running requests of one attention rank."""
        return None if self.running_requests is None else max(1, self.running_requests // self.parallel.attn_dp)

    def since(self, release: str) -> bool:
        """Whether the rules are those of this release or a later one."""
        return is_since(self.release, release)


def resolve_memory(
    settings: Mapping[str, Any], shape: ModelShape, total_gib: float, version: str | None
) -> MemorySettings:
    """The settings of one config with every default of its release filled in.

    `settings` carry today's names; `total_gib` is what the driver says that the smallest GPU of the host has.
    """
    release = dialect_of(version).release
    parallel = Parallel(
        int(number(settings, "tp_size", 1)), int(number(settings, "pp_size", 1)), attention_dp(settings)
    )
    mib = total_gib * 1024
    tier = _tier(mib, release)
    chunk = int(number(settings, "chunked_prefill_size", tier.chunk_tokens))
    kind = algorithm(settings)
    steps, branches, drafts = _speculation(settings, kind, shape)
    running = settings.get("max_running_requests")
    batch = _largest_batch(settings, tier, parallel, release)
    sizes = _decode_sizes(settings, batch, kind is not None)
    prefill = _prefill_sizes(settings, chunk, shape, release)
    fraction = settings.get("mem_fraction_static")
    if fraction is None:
        counted = batch if sizes or not is_since(release, "0.5.15") else 0
        asked = _Asked(settings, shape, parallel, chunk, counted, len(prefill), release)
        fraction = default_fraction(mib, asked)
    if running is None and kind not in {None, "UNO"}:
        running = SPECULATIVE_RUNNING
    return MemorySettings(
        release=release,
        parallel=parallel,
        fraction=float(fraction),
        chunk_tokens=chunk,
        running_requests=running,
        total_tokens=settings.get("max_total_tokens"),
        page_tokens=max(page_size(settings), V4_PAGE_TOKENS if shape.compressed else 1),
        context_length=int(number(settings, "context_length", shape.context_length)),
        kv_dtype=str(settings.get("kv_cache_dtype") or "auto"),
        algorithm=kind,
        steps=steps,
        draft_tokens=drafts,
        branches=branches,
        decode_sizes=sizes,
        prefill_sizes=prefill,
        given=settings,
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    settings: Mapping[str, Any]
    shape: ModelShape
    parallel: Parallel
    chunk: int
    batch: int
    prefill_buckets: int
    release: str

    def since(self, release: str) -> bool:
        return is_since(self.release, release)


def default_fraction(gpu_mib: float, asked: _Asked) -> float:
    """`mem_fraction_static` where it is left open: what is left of the GPU after SGLang's reserve, to 3 digits."""
    reserved = 512 + 1.5 * max(_activation_tokens(asked), 2048) + 1024 * asked.parallel.tp * asked.parallel.pp / 8
    reserved += _graph_reserve(asked)
    if gpu_mib > BIG_GPU_MIB:
        reserved = max(reserved, MIB_FLOOR)
    reserved += _reserve_on_top(asked)
    fraction = round((gpu_mib - reserved) / gpu_mib, 3)
    settings = asked.settings
    only_text = settings.get("language_only") or settings.get("language_model_only")
    return fraction * vision_factor(asked.shape.vision) if asked.shape.vision and not only_text else fraction


def vision_factor(vision: Vision) -> float:
    """By how much the fraction shrinks for an image encoder, compared with a ViT-L/14."""
    ratio = vision.layers * vision.hidden**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (ratio - 1.0)))


def _activation_tokens(asked: _Asked) -> float:
    settings = asked.settings
    if settings.get("disaggregation_mode") == "decode" and asked.since("0.5.15"):
        running = settings.get("max_running_requests") or asked.batch or 1
        return float(running * (settings.get("speculative_num_draft_tokens") or 1))
    return float(asked.chunk if asked.chunk > 0 else number(settings, "max_prefill_tokens", 16384))


def _graph_reserve(asked: _Asked) -> float:
    """MiB that SGLang keeps for graphs: its own estimate, not what graphs take."""
    mode = asked.settings.get("disaggregation_mode")
    reserved = 2.0 * asked.batch if mode != "prefill" or not asked.since("0.5.15") else 0.0
    ranks = asked.parallel.attn_dp
    if ranks > 1 and mode != "prefill":
        reserved += asked.batch * ranks * (3 + (1.5 if asked.batch > 300 else 0))
    if asked.prefill_buckets and mode != "decode":
        is_flat = asked.shape.is_mla and asked.since("0.5.12")
        reserved += 1536 if is_flat else 8 * asked.prefill_buckets
        if asked.since("0.5.19") and asked.settings.get("moe_a2a_backend") == "deepep":
            reserved += 1024
    return reserved


def _reserve_on_top(asked: _Asked) -> float:
    """MiB above the floor: drafts up to 0.5.12, deepep's buffers since 0.5.15."""
    if not asked.since("0.5.15"):
        kind = algorithm(asked.settings)
        if kind in {None, "NGRAM"}:
            return 0.0
        return 6 * 1024 if kind == "STANDALONE" else 1024 * (4 if asked.since("0.5.12") else 2)
    is_decoding = asked.batch and asked.settings.get("disaggregation_mode") != "prefill"
    return 2048 if is_decoding and asked.settings.get("moe_a2a_backend") == "deepep" else 0.0


def _tier(gpu_mib: float, release: str) -> Tier:
    tier = next(t for t in TIERS if gpu_mib < t.below_mib)
    if tier.below_mib == 35 * 1024 and not is_since(release, "0.5.21"):
        return Tier(tier.below_mib, 2048, 24, 80)
    return tier


def _largest_batch(settings: Mapping[str, Any], tier: Tier, parallel: Parallel, release: str) -> int:
    listed = settings.get("cuda_graph_bs_decode")
    if isinstance(listed, list | tuple) and listed:
        return int(max(listed))
    told = settings.get("cuda_graph_max_bs_decode")
    if told is not None:
        return int(told)
    batch = tier.batch_tp4 if parallel.tp >= 4 else tier.batch
    running = settings.get("max_running_requests")
    is_lowered = running is not None and is_since(release, "0.5.23")
    return min(batch, max(1, int(running or 1))) if is_lowered else batch


def capture_sizes(max_batch: int, *, speculating: bool) -> tuple[int, ...]:
    """Batches for which decode graphs are captured, up to and including the largest."""
    if speculating:
        spans = ((1, 8, 1), (10, 32, 2), (40, 64, 4), (72, 256, 8), (272, max_batch, 16))
    else:
        spans = ((1, 2, 1), (4, 12, 4), (16, 256, 8), (272, 511, 16), (512, max_batch, 32))
    return tuple(sorted({size for size in _spread(spans) if size <= max_batch} | {max_batch}))


def _spread(spans: tuple[tuple[int, int, int], ...]) -> list[int]:
    return [size for first, last, step in spans for size in range(first, last + 1, step)]


def _decode_sizes(settings: Mapping[str, Any], batch: int, speculating: bool) -> tuple[int, ...]:
    if _graphs_off(settings, "decode"):
        return ()
    listed = settings.get("cuda_graph_bs_decode")
    if isinstance(listed, list | tuple) and listed:
        return tuple(sorted(int(n) for n in listed))
    if settings.get("disable_cuda_graph_padding"):
        return tuple(range(1, batch + 1))
    return capture_sizes(batch, speculating=speculating)


def _prefill_sizes(settings: Mapping[str, Any], chunk: int, shape: ModelShape, release: str) -> tuple[int, ...]:
    """Token counts of prefill graphs; pipeline stages and compressed attention turn them off, image encoders some."""
    asked = settings.get("cuda_graph_backend_prefill")
    if not is_since(release, "0.5.12") and asked in {None, "disabled"}:
        return ()
    if _graphs_off(settings, "prefill") or number(settings, "pp_size", 1) > 1 or shape.compressed:
        return ()
    listed = settings.get("cuda_graph_bs_prefill")
    if isinstance(listed, list | tuple) and listed:
        return tuple(sorted(int(n) for n in listed))
    largest = settings.get("cuda_graph_max_bs_prefill")
    if largest is None:
        cap = (8192 if is_since(release, "0.5.15") else 2048) if shape.is_mla else chunk
        largest = min(chunk, cap) if chunk > 0 else 0
        if settings.get("max_total_tokens") is not None:
            largest = min(largest, int(settings["max_total_tokens"]))
    spans = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, int(largest), 512))
    return tuple(size for size in _spread(spans) if size <= largest)


def _graphs_off(settings: Mapping[str, Any], phase: str) -> bool:
    if settings.get("device") == "cpu" or settings.get("disable_cuda_graph"):
        return True
    return (
        bool(settings.get(f"disable_{phase}_cuda_graph")) or settings.get(f"cuda_graph_backend_{phase}") == "disabled"
    )


def _speculation(settings: Mapping[str, Any], kind: str | None, shape: ModelShape) -> tuple[int, int, int]:
    """Steps, branches and draft tokens; the auto values where none is given."""
    if kind is None:
        return 0, 0, 1
    if kind == "NGRAM":
        drafts = int(number(settings, "speculative_num_draft_tokens", NGRAM_DRAFT_TOKENS))
        return 1, topk(settings), drafts
    if kind in {"DFLASH", "DSPARK", "UNO"}:
        block = settings.get("speculative_dflash_block_size") or settings.get("speculative_dspark_block_size")
        return 1, 1, int(block or number(settings, "speculative_num_draft_tokens", BLOCK_DRAFT_TOKENS))
    auto = AUTO_STEPS.get(kind, AUTO_STEPS.get(shape.architecture, ELSE_STEPS))
    if settings.get("speculative_num_steps") is None:
        return auto
    steps, branches = int(settings["speculative_num_steps"]), topk(settings)
    drafts = int(number(settings, "speculative_num_draft_tokens", steps + 1))
    return steps, branches, steps + 1 if branches == 1 else drafts
