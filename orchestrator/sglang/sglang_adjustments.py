"""What SGLang changes by itself, with a warning at most: the server then runs otherwise than its settings say. Pure.

Source: `overrides.py`, `speculative_hook.py`, `attention_hook.py` and `parallel_hook.py` of SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.sglang.gpu_arch import SM100, SM120, Arch
from orchestrator.sglang.rule_terms import (
    Settings,
    algorithm,
    attention_backends,
    attention_dp,
    backend_setting,
    is_drafting_by_steps,
    number,
    page_size,
    topk,
    uses_backend,
)

Note = str | None
_SMALL_PAGES = ("flashmla", "trtllm_mla", "cutedsl_mla", "trtllm_mha", "hpc_ops")
_MIXES = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK"})


def adjustments(settings: Settings, arch: Arch | None) -> list[str]:
    """One sentence for each thing that SGLang 0.5.23 will change in these settings (canonical names)."""
    here = Arch.CPU if settings.get("device") == "cpu" else arch
    return [told for note in _NOTES if (told := note(settings, here)) is not None]


def _pages(settings: Settings, _: Arch | None) -> Note:
    asked, taken = number(settings, "page_size", 1), page_size(settings)
    if taken == asked:
        return None
    backend = next((name for name in _SMALL_PAGES if uses_backend(settings, name)), None)
    where = f"{backend_setting(settings, backend)} {backend}" if backend else "draft attention by trtllm_mha"
    return f"page_size becomes {taken} for {where}"


def _fa4_pages(settings: Settings, arch: Arch | None) -> Note:
    if arch not in SM100 or not uses_backend(settings, "fa4") or topk(settings) > 1 or page_size(settings) == 128:
        return None
    return "page_size becomes 128 for fa4 (models without MLA)"


def _fa3_type(settings: Settings, _: Arch | None) -> Note:
    if settings.get("attention_backend") != "fa3" or settings.get("kv_cache_dtype") != "fp8_e5m2":
        return None
    return "attention_backend fa3 becomes triton, since fa3 reads no fp8_e5m2 KV cache"


def _same_backends(settings: Settings, _: Arch | None) -> Note:
    both = settings.get("attention_backend")
    prefill = settings.get("prefill_attention_backend")
    if both is None or prefill is None or prefill != settings.get("decode_attention_backend") or prefill == both:
        return None
    return f"attention_backend becomes {prefill}, as both prefill and decode ask for it"


def _overlap_on_cpu(settings: Settings, arch: Arch | None) -> Note:
    if arch is not Arch.CPU or settings.get("disable_overlap_schedule"):
        return None
    if not is_drafting_by_steps(settings) and algorithm(settings) != "NGRAM":
        return None
    return "the overlap schedule is off for speculation on a CPU"


def _overlap_in_pipeline(settings: Settings, _: Arch | None) -> Note:
    if number(settings, "pp_size", 1) <= 1 or settings.get("disable_overlap_schedule"):
        return None
    return "the overlap schedule is off for pp_size above 1"


def _mixed_chunk(settings: Settings, _: Arch | None) -> Note:
    kind = algorithm(settings)
    if not settings.get("enable_mixed_chunk") or kind is None or kind in _MIXES:
        return None
    return f"enable_mixed_chunk is off for {kind}"


def _graphs_off(settings: Settings, _: Arch | None) -> Note:
    backend = settings.get("attention_backend")
    return f"CUDA graphs are off for {backend}" if backend in {"torch_native", "flex_attention"} else None


def _running_requests(settings: Settings, _: Arch | None) -> Note:
    if settings.get("max_running_requests") is not None or algorithm(settings) in {None, "UNO"}:
        return None
    return "max_running_requests becomes 48 for speculation"


def _running_per_rank(settings: Settings, _: Arch | None) -> Note:
    running, ranks = settings.get("max_running_requests"), attention_dp(settings)
    if running is None or ranks <= 1:
        return None
    return f"max_running_requests is divided over attention-DP ranks: {max(1, running // ranks)} each"


def _chunk_per_rank(settings: Settings, _: Arch | None) -> Note:
    ranks, chunk = attention_dp(settings), settings.get("chunked_prefill_size")
    if ranks <= 1:
        return None
    each = f": {chunk // ranks} each" if isinstance(chunk, int) and chunk > 0 else ""
    return f"chunked_prefill_size is divided over attention-DP ranks{each}; schedule_conservativeness times 0.3"


def _fixed_steps(settings: Settings, _: Arch | None) -> Note:
    kind, steps = algorithm(settings), settings.get("speculative_num_steps")
    if kind not in {"DFLASH", "DSPARK"} and not (kind == "UNO" and topk(settings) == 1):
        return None
    if steps in {None, 1} and topk(settings) == 1:
        return None
    return f"speculative_num_steps and speculative_eagle_topk become 1 for {kind}"


def _ngram_topk(settings: Settings, _: Arch | None) -> Note:
    given = settings.get("speculative_eagle_topk")
    if algorithm(settings) != "NGRAM" or given in {None, topk(settings)}:
        return None
    return f"speculative_eagle_topk becomes speculative_ngram_max_bfs_breadth {topk(settings)} for NGRAM"


def _nvfp4_draft(settings: Settings, arch: Arch | None) -> Note:
    if settings.get("kv_cache_dtype") != "nvfp4" or arch not in SM100 or algorithm(settings) not in {"EAGLE", "EAGLE3"}:
        return None
    if settings.get("speculative_draft_attention_backend") is not None:
        return None
    return "speculative_draft_attention_backend becomes trtllm_mha for an nvfp4 KV cache"


def _nvfp4_backends(settings: Settings, arch: Arch | None) -> Note:
    if settings.get("kv_cache_dtype") != "nvfp4" or arch not in SM100 | SM120:
        return None
    asked = settings.get("prefill_kv_cache_dequant_dtype", "auto")
    if asked == "auto":
        by_backend = {"flashinfer": "fp8_e4m3", "trtllm_mha": "nvfp4"}
        backend = attention_backends(settings)[0]
        asked = by_backend.get(backend or "", "nvfp4" if arch in SM100 else "fp8_e4m3")
    prefill = "trtllm_mha" if asked == "nvfp4" else "flashinfer"
    return f"an nvfp4 KV cache is prefilled from by {prefill} and decoded from by trtllm_mha"


def _pooled_window(settings: Settings, _: Arch | None) -> Note:
    kind = algorithm(settings)
    if settings.get("speculative_draft_window_size") is None or kind in {None, "EAGLE", "EAGLE3", "DFLASH"}:
        return None
    return f"speculative_draft_window_size has no effect with {kind}"


_NOTES: tuple[Callable[[Settings, Arch | None], Note], ...] = (
    _same_backends, _pages, _fa4_pages, _fa3_type, _graphs_off, _nvfp4_backends, _nvfp4_draft, _overlap_on_cpu,
    _overlap_in_pipeline, _mixed_chunk, _running_requests, _running_per_rank, _chunk_per_rank, _fixed_steps,
    _ngram_topk, _pooled_window,
)  # fmt: skip
