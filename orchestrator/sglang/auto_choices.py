"""Settings that, left to SGLang, come out differently on SM100 (B200) and on SM120 (RTX PRO 6000). Pure.

Source: `model_override_base.py`, `overrides.py` and `model_overrides/` of SGLang 0.5.23. A scenario does not say what
kind of model it serves, so rows name the kinds that they are true for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.sglang.rule_terms import Settings, algorithm, attention_backends, is_drafting_by_steps, number

# Quantizations with 4-bit layers; not given, the checkpoint decides.
_MAY_BE_FP4 = frozenset({None, "modelopt", "modelopt_fp4", "modelopt_mixed", "nvfp4_online", "compressed-tensors"})


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """A setting left open: what SGLang takes on SM100 and on SM120, and why that matters."""

    setting: str
    sm100: str
    sm120: str
    why: str


def auto_choices(settings: Settings) -> tuple[AutoChoice, ...]:
    """The open settings of one config (canonical names) that the two GPUs resolve differently."""
    if settings.get("device") not in {None, "cuda"}:
        return ()
    return tuple(choice for row in _ROWS if (choice := row(settings)) is not None)


def _attention(settings: Settings) -> AutoChoice | None:
    if None not in attention_backends(settings) or settings.get("kv_cache_dtype") == "nvfp4":
        return None
    others = "MLA models: trtllm_mla (DeepSeek), flashinfer (other)"
    why = "kernels and page size differ; page_size follows the backend"
    if not _takes_trtllm(settings):
        return AutoChoice("attention_backend", f"flashinfer; {others}", "flashinfer; MLA models: triton", why)
    return AutoChoice(
        "attention_backend",
        f"trtllm_mha with page_size 64 unless given (fa4 if K and V widths differ); {others}",
        "flashinfer with page_size 1 (triton with attention sinks, e.g. GPT-OSS); MLA models: triton",
        why,
    )


def _takes_trtllm(settings: Settings) -> bool:
    """SGLang takes trtllm_mha on SM100 unless it must expect a tree, or pages that were given beside a chain."""
    kind = algorithm(settings)
    if kind is None:
        return True
    branches = settings.get("speculative_eagle_topk")
    if branches is None:
        return kind == "DFLASH"
    return bool(branches == 1) and number(settings, "page_size", 1) == 1


def _page_size(settings: Settings) -> AutoChoice | None:
    if settings.get("page_size") is not None or None not in attention_backends(settings) or not _takes_trtllm(settings):
        return None
    if settings.get("kv_cache_dtype") == "nvfp4":
        return None
    return AutoChoice("page_size", "64", "1", "follows attention_backend; prefix-cache hits are whole pages")


def _moe(settings: Settings) -> AutoChoice | None:
    if settings.get("moe_runner_backend", "auto") != "auto":
        return None
    sm120 = "stays auto (triton); flashinfer_cutlass for modelopt_fp4"
    return AutoChoice(
        "moe_runner_backend", "flashinfer_trtllm", sm120, "MoE models (Qwen3, Qwen3.5, DeepSeek, GLM-4): trtllm-gen "
        "kernels exist for SM100 only",
    )  # fmt: skip


def _fp4_gemm(settings: Settings) -> AutoChoice | None:
    if settings.get("fp4_gemm_runner_backend", settings.get("fp4_gemm_backend", "auto")) != "auto":
        return None
    if settings.get("quantization") not in _MAY_BE_FP4:
        return None
    return AutoChoice("fp4_gemm_runner_backend", "flashinfer_cutedsl", "flashinfer_cutlass", "models in 4 bits")


def _chunk(settings: Settings) -> AutoChoice | None:
    if settings.get("chunked_prefill_size") is not None:
        return None
    return AutoChoice("chunked_prefill_size", "16384", "8192", "follows GPU memory: 160 GiB and more, or 96 GB")


def _graphs(settings: Settings) -> AutoChoice | None:
    given = any(settings.get(n) is not None for n in ("cuda_graph_max_bs_decode", "cuda_graph_bs_decode"))
    running = number(settings, "max_running_requests", 10**9)
    if given or settings.get("cuda_graph_config") is not None or settings.get("disable_cuda_graph") or running <= 256:
        return None
    if number(settings, "tp_size", 1) >= 4:
        return None
    most = min(512, running)
    return AutoChoice(
        "cuda_graph_max_bs_decode", f"{most}", "256", "follows GPU memory; larger batches run without graph"
    )


def _memory(settings: Settings) -> AutoChoice | None:
    if settings.get("mem_fraction_static") is not None:
        return None
    return AutoChoice(
        "mem_fraction_static", "about 0.85 of 179 GiB", "about 0.86 of 96 GiB", "computed from the memory of the GPU"
    )


def _kv_prefill(settings: Settings) -> AutoChoice | None:
    if settings.get("kv_cache_dtype") != "nvfp4" or settings.get("prefill_kv_cache_dequant_dtype", "auto") != "auto":
        return None
    if attention_backends(settings)[0] is not None:
        return None
    return AutoChoice(
        "prefill_kv_cache_dequant_dtype",
        "nvfp4 (by trtllm_mha)",
        "fp8_e4m3 (by flashinfer)",
        "native prefill is SM100's",
    )


def _linear(settings: Settings) -> AutoChoice | None:
    if settings.get("mamba_ssm_dtype") != "bfloat16" or settings.get("linear_attn_decode_backend") is not None:
        return None
    return AutoChoice("linear_attn_decode_backend", "flashinfer", "triton", "hybrid models with a bfloat16 state")


def _fusion(settings: Settings) -> AutoChoice | None:
    if settings.get("flashinfer_allreduce_fusion_backend") is not None or number(settings, "tp_size", 1) == 1:
        return None
    return AutoChoice("flashinfer_allreduce_fusion_backend", "on for listed models", "off", "tensor parallel servers")


def _steps(settings: Settings) -> AutoChoice | None:
    """topk left open beside an algorithm changes which attention backend SM100 takes."""
    if not is_drafting_by_steps(settings) or settings.get("speculative_eagle_topk") is not None:
        return None
    return AutoChoice("speculative_eagle_topk", "also turns trtllm_mha into flashinfer", "-", "give 1 for a chain")


_ROWS: tuple[Callable[[Settings], AutoChoice | None], ...] = (
    _attention, _page_size, _steps, _moe, _fp4_gemm, _kv_prefill, _linear, _fusion, _chunk, _graphs, _memory,
)  # fmt: skip
