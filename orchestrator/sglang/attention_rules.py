"""What SGLang refuses about attention backends and KV cache types on a given GPU. Pure.

Source: `attention_hook.py`, `kv_cache_hook.py` and `overrides.py` of SGLang.
"""

from __future__ import annotations

from orchestrator.sglang.gpu_arch import BLACKWELL, GPUS, SM100, SM120, Arch
from orchestrator.sglang.rule_terms import (
    Fault,
    Rule,
    Settings,
    algorithm,
    attention_backends,
    backend_setting,
    number,
    on,
    refuse,
    topk,
    uses_backend,
)

_CPU = frozenset({Arch.CPU})
_TRTLLM_MHA = SM100 | SM120 | {Arch.SM90}
_FP4 = frozenset({"nvfp4", "fp4_mx_block16"})
# For MHA or MLA models; which of the two is served is not known here.
_FP4_AFTER_FA4 = ("triton", "torch_native", "flex_attention", "flashinfer", "trtllm_mla")
_FP4_BACKENDS = (*_FP4_AFTER_FA4, "trtllm_mha")
# The prefill input of an nvfp4 cache, by the backend that reads it.
_NVFP4_PREFILL = {"fp8_e4m3": "flashinfer", "nvfp4": "trtllm_mha"}
_NATIVE_NVFP4 = frozenset({"EAGLE", "EAGLE3", "NGRAM"})


def _backend_only_on(name: str, able: str) -> Rule:
    """A backend that runs on some GPUs only; the caller narrows `archs`."""

    def check(settings: Settings, arch: Arch | None) -> Fault:
        if not uses_backend(settings, name):
            return None
        return backend_setting(settings, name), f"is {name}, which needs {able}; this host has {arch}: take another"

    return Rule(f"{name.replace('_', '-')}-arch", f"Attention backend {name} needs {able}.", check)


def _trtllm_mha_prefill(settings: Settings) -> bool:
    return attention_backends(settings)[0] == "trtllm_mha"


def _kv(settings: Settings) -> str:
    return str(settings.get("kv_cache_dtype", "auto"))


def _nvfp4_prefill_type(settings: Settings, arch: Arch | None) -> str:
    """What the prefill of an nvfp4 cache reads."""
    asked = str(settings.get("prefill_kv_cache_dequant_dtype", "auto"))
    if asked != "auto":
        return asked
    by_backend = {backend: kind for kind, backend in _NVFP4_PREFILL.items()}
    backend = attention_backends(settings)[0]
    return by_backend.get(backend or "", "nvfp4" if arch in SM100 else "fp8_e4m3")


def _fp4_backend(settings: Settings, _: Arch | None) -> Fault:
    prefill, decode = attention_backends(settings)
    if _kv(settings) not in _FP4 or prefill is None or decode is None:
        return None
    able = _FP4_AFTER_FA4 if prefill == "fa4" else _FP4_BACKENDS
    if decode in able or prefill not in {decode, "fa4"}:
        return None
    after = " after prefill by fa4" if prefill == "fa4" else ""
    told = f"is {decode}, but a 4-bit KV cache{after} needs one of: {', '.join(able)}"
    return backend_setting(settings, decode), told


def _nvfp4_prefill_arch(settings: Settings, arch: Arch | None) -> Fault:
    if _kv(settings) != "nvfp4" or _nvfp4_prefill_type(settings, arch) != "nvfp4":
        return None
    told = f"must be fp8_e4m3{on(arch)} (with flashinfer, not trtllm_mha, for prefill); nvfp4 needs SM100 or SM103"
    return "prefill_kv_cache_dequant_dtype", told


def _nvfp4_prefill_backend(settings: Settings, arch: Arch | None) -> Fault:
    if _kv(settings) != "nvfp4":
        return None
    prefill = attention_backends(settings)[0]
    if settings.get("prefill_kv_cache_dequant_dtype", "auto") == "auto":
        if prefill is None or prefill in _NVFP4_PREFILL.values():
            return None
    elif settings.get("prefill_attention_backend") in {None, _NVFP4_PREFILL[_nvfp4_prefill_type(settings, arch)]}:
        return None
    setting = "prefill_attention_backend" if settings.get("prefill_attention_backend") else "attention_backend"
    return setting, f"is {prefill}, which cannot prefill from an nvfp4 KV cache here: leave it out"


def _uses_nvfp4_draft_of(settings: Settings, algorithms: frozenset[str]) -> bool:
    """On SM100, decoding from an nvfp4 cache is always trtllm_mha's."""
    kind = algorithm(settings)
    return _kv(settings) == "nvfp4" and kind is not None and kind in algorithms


def _nvfp4_algorithm(settings: Settings, _: Arch | None) -> Fault:
    kind = algorithm(settings)
    if _kv(settings) != "nvfp4" or kind is None or kind in _NATIVE_NVFP4:
        return None
    told = f"{kind} does not work with kv_cache_dtype nvfp4 here; EAGLE, EAGLE3, NEXTN and NGRAM do"
    return "speculative_algorithm", told


def _nvfp4_draft_backend(settings: Settings, _: Arch | None) -> Fault:
    backend = settings.get("speculative_draft_attention_backend")
    if not _uses_nvfp4_draft_of(settings, frozenset({"EAGLE", "EAGLE3"})) or backend in {None, "trtllm_mha"}:
        return None
    return "speculative_draft_attention_backend", f"is {backend}, but drafts of an nvfp4 KV cache need trtllm_mha"


def _arch_rule(backend: str, able: str, unable: frozenset[Arch], since: str | None = None) -> Rule:
    plain = _backend_only_on(backend, able)
    return Rule(plain.name, plain.says, plain.check, since=since, archs=unable)


ATTENTION_RULES: tuple[Rule, ...] = (
    _arch_rule("cutedsl_mla", "SM100 or SM103", frozenset(Arch) - SM100, "0.5.15"),
    _arch_rule("trtllm_mla", "a Blackwell GPU", frozenset(Arch) - BLACKWELL),
    _arch_rule("trtllm_mha", "SM90, SM100, SM103, SM120 or SM121", frozenset(Arch) - _TRTLLM_MHA, "0.5.12"),
    _arch_rule("fa3", "SM80 to SM90", BLACKWELL | _CPU),
    Rule(
        "trtllm-mha-prefill-arch",
        "Attention backend trtllm_mha prefills on SM100 and SM103 only.",
        refuse(lambda s: backend_setting(s, "trtllm_mha"),
               "is trtllm_mha, whose prefill needs SM100 or SM103 before SGLang 0.5.19", _trtllm_mha_prefill),
        until="0.5.18", archs=GPUS - SM100,
    ),
    Rule(
        "trtllm-mha-fp8-prefill",
        "Attention backend trtllm_mha cannot prefill from an fp8_e4m3 KV cache on SM120 and SM121.",
        refuse("kv_cache_dtype",
               "is fp8_e4m3, from which trtllm_mha cannot prefill on this GPU: take kv_cache_dtype auto, or "
               "attention_backend flashinfer",
               lambda s: _trtllm_mha_prefill(s) and _kv(s) == "fp8_e4m3"),
        since="0.5.19", archs=SM120,
    ),
    Rule(
        "trtllm-mha-context-parallel",
        "Prefill by trtllm_mha with context parallelism needs SM100 or SM103.",
        refuse("attn_cp_size", "is {attn_cp_size}, but prefill by trtllm_mha needs 1 on this GPU",
               lambda s: _trtllm_mha_prefill(s) and number(s, "attn_cp_size", 1) > 1),
        since="0.5.19", archs=GPUS - SM100,
    ),
    Rule(
        "cutedsl-mla-decode-only",
        "cutedsl_mla decodes only; it is no prefill backend.",
        refuse("prefill_attention_backend", "is cutedsl_mla, which decodes only: take trtllm_mla, or leave it out",
               lambda s: s.get("prefill_attention_backend") == "cutedsl_mla"),
        since="0.5.15",
    ),
    Rule(
        "mla-kv-type",
        "trtllm_mla takes a KV cache of type auto, bf16 or fp8_e4m3; cutedsl_mla bfloat16 as well.",
        refuse("kv_cache_dtype", "is {kv_cache_dtype}; trtllm_mla and cutedsl_mla take auto, bf16 or fp8_e4m3",
               lambda s: (uses_backend(s, "trtllm_mla") and _kv(s) not in {"auto", "bf16", "fp8_e4m3"})
               or (uses_backend(s, "cutedsl_mla") and _kv(s) not in {"auto", "bf16", "bfloat16", "fp8_e4m3"})),
    ),
    Rule(
        "mxfp8-kv-arch",
        "KV cache type mxfp8 needs a Blackwell GPU.",
        refuse("kv_cache_dtype", "is mxfp8, which needs a Blackwell GPU (SM100 and above): take fp8_e4m3",
               lambda s: _kv(s) == "mxfp8"),
        since="0.5.19", archs=frozenset(Arch) - BLACKWELL,
    ),
    Rule(
        "nvfp4-kv-arch",
        "KV cache type nvfp4 needs SM100, SM103, SM120 or SM121.",
        refuse("kv_cache_dtype", "is nvfp4, which needs SM100, SM103, SM120 or SM121: take fp8_e4m3 or fp4_mx_block16",
               lambda s: _kv(s) == "nvfp4"),
        since="0.5.19", archs=frozenset(Arch) - SM100 - SM120,
    ),
    Rule(
        "fp4-kv-on-gpu-only",
        "4-bit KV caches are for GPUs.",
        refuse("kv_cache_dtype", "is {kv_cache_dtype}, which needs a GPU: take auto", lambda s: _kv(s) in _FP4),
        since="0.5.19", archs=_CPU,
    ),
    Rule("fp4-kv-backend", "A 4-bit KV cache needs an attention backend that reads it.", _fp4_backend),
    Rule(
        "fp4-kv-no-unified-memory",
        "4-bit KV caches do not work with `enable_unified_memory`.",
        refuse("enable_unified_memory", "does not work with kv_cache_dtype {kv_cache_dtype}: leave one out",
               lambda s: _kv(s) in _FP4 and bool(s.get("enable_unified_memory"))),
        since="0.5.21",
    ),
    Rule(
        "prefill-dequant-needs-nvfp4",
        "`prefill_kv_cache_dequant_dtype` is for KV cache type nvfp4.",
        refuse("prefill_kv_cache_dequant_dtype", "is for kv_cache_dtype nvfp4 only: leave it out",
               lambda s: _kv(s) != "nvfp4" and s.get("prefill_kv_cache_dequant_dtype", "auto") != "auto"),
        since="0.5.21",
    ),
    Rule(
        "nvfp4-prefill-arch",
        "Prefill straight from an nvfp4 KV cache needs SM100 or SM103.",
        _nvfp4_prefill_arch,
        since="0.5.21", archs=SM120,
    ),
    Rule(
        "nvfp4-prefill-backend",
        "An nvfp4 KV cache is prefilled from by flashinfer (as fp8_e4m3) or trtllm_mha (as nvfp4).",
        _nvfp4_prefill_backend,
        since="0.5.21",
    ),
    Rule(
        "nvfp4-decode-backend",
        "An nvfp4 KV cache is decoded from by trtllm_mha.",
        refuse("decode_attention_backend", "is {decode_attention_backend}, but an nvfp4 KV cache needs trtllm_mha: "
               "leave it out",
               lambda s: _kv(s) == "nvfp4" and s.get("decode_attention_backend") not in {None, "trtllm_mha"}),
        since="0.5.21",
    ),
    Rule(
        "nvfp4-kv-algorithm",
        "KV cache type nvfp4 on SM100 and SM103 speculates with EAGLE, EAGLE3, NEXTN and NGRAM only.",
        _nvfp4_algorithm,
        since="0.5.21", archs=SM100,
    ),
    Rule(
        "nvfp4-kv-ngram-breadth",
        "NGRAM from an nvfp4 KV cache on SM100 and SM103 needs breadth 1.",
        refuse("speculative_ngram_max_bfs_breadth", "is {breadth}, but NGRAM with kv_cache_dtype nvfp4 needs 1 here",
               lambda s: _uses_nvfp4_draft_of(s, frozenset({"NGRAM"})) and topk(s) != 1, breadth=topk),
        since="0.5.21", archs=SM100,
    ),
    Rule(
        "nvfp4-kv-draft-backend",
        "Drafts from an nvfp4 KV cache on SM100 and SM103 need draft attention backend trtllm_mha.",
        _nvfp4_draft_backend,
        since="0.5.21", archs=SM100,
    ),
    Rule(
        "nvfp4-kv-no-host-cache",
        "KV cache type nvfp4 on SM100 and SM103 works without hierarchical cache, LMCache and PD disaggregation.",
        refuse("kv_cache_dtype", "is nvfp4, which works without hierarchical cache, LMCache and PD disaggregation here",
               lambda s: _kv(s) == "nvfp4" and bool(s.get("enable_hierarchical_cache") or s.get("enable_lmcache")
                                                    or s.get("disaggregation_mode", "null") != "null")),
        since="0.5.21", archs=SM100,
    ),
)  # fmt: skip
