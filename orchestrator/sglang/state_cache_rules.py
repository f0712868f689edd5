"""What SGLang refuses about linear attention, its state cache, and caches on the host. Pure.

Source: `attention_hook.py`, `mamba_hook.py` and `kv_cache_hook.py` of SGLang.
"""

from __future__ import annotations

from orchestrator.sglang.gpu_arch import BLACKWELL, GPUS, SM100, Arch
from orchestrator.sglang.rule_terms import Fault, Rule, Settings, algorithm, attention_dp, number, on, refuse


def _linear_flashinfer_state(settings: Settings, arch: Arch | None) -> Fault:
    decode = settings.get("linear_attn_decode_backend") or settings.get("linear_attn_backend")
    verify = settings.get("linear_attn_verify_backend")
    if "flashinfer" not in {decode, verify} or settings.get("mamba_ssm_dtype") == "bfloat16":
        return None
    return "mamba_ssm_dtype", f"must be bfloat16 for linear attention decoding by flashinfer{on(arch)}"


def _lmcache_partner(settings: Settings, _: Arch | None) -> Fault:
    if not settings.get("enable_lmcache"):
        return None
    clashes = {
        "enable_hierarchical_cache": bool(settings.get("enable_hierarchical_cache")),
        "disable_radix_cache": bool(settings.get("disable_radix_cache")),
        "a speculative_algorithm": algorithm(settings) is not None,
        "attention-DP": attention_dp(settings) > 1,
        "dcp_size above 1": number(settings, "dcp_size", 1) > 1,
    }
    met = [name for name, is_so in clashes.items() if is_so]
    return ("enable_lmcache", f"does not work with {met[0]}: leave one out") if met else None


def _int8_checkpoint(settings: Settings, _: Arch | None) -> Fault:
    if not settings.get("enable_int8_mamba_checkpoint"):
        return None
    for other in ("enable_hierarchical_cache", "radix_cache_backend", "enable_lmcache"):
        if settings.get(other):
            return "enable_int8_mamba_checkpoint", f"does not work with {other}: leave one out"
    return None


STATE_CACHE_RULES: tuple[Rule, ...] = (
    Rule(
        "flashkda-prefill-only",
        "Linear attention backend flashkda prefills only.",
        refuse("linear_attn_decode_backend", "is flashkda, which prefills only: give it as linear_attn_prefill_backend",
               lambda s: s.get("linear_attn_decode_backend") == "flashkda"),
        since="0.5.15",
    ),
    Rule(
        "linear-attention-state-type",
        "Linear attention decoding (or verifying) by flashinfer on Blackwell needs `mamba_ssm_dtype` bfloat16.",
        _linear_flashinfer_state,
        since="0.5.12", archs=BLACKWELL,
    ),
    Rule(
        "replayssm-chain-only",
        "`enable_linear_replayssm_spec` verifies chains only: topk 1.",
        refuse("speculative_eagle_topk", "is {speculative_eagle_topk}, but enable_linear_replayssm_spec needs 1",
               lambda s: bool(s.get("enable_linear_replayssm_spec"))
               and s.get("speculative_eagle_topk") not in {None, 1}),
        since="0.5.19",
    ),
    Rule(
        "replayssm-one-of-two",
        "`enable_linear_replayssm` and `enable_linear_replayssm_spec` exclude each other.",
        refuse("enable_linear_replayssm", "and enable_linear_replayssm_spec exclude each other: leave one out",
               lambda s: bool(s.get("enable_linear_replayssm") and s.get("enable_linear_replayssm_spec"))),
        since="0.5.19",
    ),
    Rule(
        "stochastic-rounding-type",
        "Stochastic rounding of the state cache needs `mamba_ssm_dtype` float16.",
        refuse("mamba_ssm_dtype", "must be float16 with enable_mamba_cache_stochastic_rounding",
               lambda s: bool(s.get("enable_mamba_cache_stochastic_rounding"))
               and s.get("mamba_ssm_dtype") != "float16"),
        since="0.5.15",
    ),
    Rule(
        "stochastic-rounding-arch",
        "Stochastic rounding of the state cache by triton needs SM100 or SM103.",
        refuse("mamba_backend", "must be flashinfer for enable_mamba_cache_stochastic_rounding on this GPU",
               lambda s: bool(s.get("enable_mamba_cache_stochastic_rounding"))
               and s.get("mamba_backend", "triton") == "triton"),
        since="0.5.15", archs=GPUS - SM100,
    ),
    Rule("int8-checkpoint-alone", "`enable_int8_mamba_checkpoint` needs the built-in radix cache on the GPU.",
         _int8_checkpoint, since="0.5.15"),
    Rule("lmcache-alone", "LMCache works without hierarchical cache, speculation, attention-DP and decode context "
         "parallelism, and with the radix cache.", _lmcache_partner, since="0.5.21"),
    Rule(
        "swa-ratio-range",
        "`swa_full_tokens_ratio` lies above 0 and up to 1.",
        refuse("swa_full_tokens_ratio", "is {swa_full_tokens_ratio}; it lies above 0 and up to 1",
               lambda s: not 0 < number(s, "swa_full_tokens_ratio", 1) <= 1),
    ),
)  # fmt: skip
