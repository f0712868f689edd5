"""`quantization_config` of a checkpoint, or `quantization` of a server, to bytes per weight. Pure.

Sources: the checkpoint formats themselves (block scales of fp8, groups of GPTQ/AWQ, 16-element blocks of NVFP4 with an
fp8 scale each, 32-element blocks of MXFP4 with one exponent byte each).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.memory.model_shape import Quantization

FP8_BYTES = 1.0
NVFP4_BYTES = 0.5 + 1 / 16
MXFP4_BYTES = 0.5 + 1 / 32
FP8_BLOCK_SCALE = 4 / (128 * 128)

# Values of `--quantization` that quantize a bfloat16 checkpoint while it is loaded -> bytes per weight.
ONLINE = {"fp8": FP8_BYTES, "w8a8_fp8": FP8_BYTES, "w8a8_int8": 1.0, "nvfp4_online": NVFP4_BYTES, "mxfp8": 1 + 1 / 32}


def plain(element_bytes: float) -> Quantization:
    """No quantization."""
    return Quantization("none", element_bytes, element_bytes, element_bytes)


def checkpoint_quantization(config: Mapping[str, Any], element_bytes: float) -> tuple[Quantization, str | None]:
    """The quantization of a checkpoint, and what is unknown about it (None: nothing)."""
    told = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(told, Mapping):
        return plain(element_bytes), None
    method = str(told.get("quant_method") or told.get("quant_algo") or "modelopt").lower()
    each = _bytes_of(method, told)
    if each is None:
        return plain(element_bytes), f"quantization '{method}' (counted as unquantized)"
    experts = MXFP4_BYTES if config.get("expert_dtype") == "fp4" else each
    attention = element_bytes if method == "mxfp4" or _leaves_attention(told) else each
    linear = element_bytes if method == "mxfp4" else each
    return Quantization(method, linear, experts, attention), None


def online_quantization(name: object, checkpoint: Quantization) -> Quantization:
    """The checkpoint's quantization, or that of `--quantization NAME` where it has none of its own."""
    each = ONLINE.get(str(name))
    if checkpoint.method != "none" or each is None:
        return checkpoint
    return Quantization(str(name), each, each, each)


def _bytes_of(method: str, told: Mapping[str, Any]) -> float | None:
    if method in {"fp8", "fbgemm_fp8"}:
        return FP8_BYTES + (FP8_BLOCK_SCALE if told.get("weight_block_size") else 0.0)
    if method in {"gptq", "awq", "awq_marlin", "gptq_marlin", "auto-round", "moe_wna16"}:
        bits, group = _number(told, "bits", _number(told, "w_bit", 4)), _number(told, "group_size", 128)
        return _grouped(bits, group)
    if method in {"mxfp4", "mxfp8"}:
        return MXFP4_BYTES if method == "mxfp4" else 1 + 1 / 32
    if method in {"modelopt", "modelopt_fp4", "modelopt_fp8", "nvfp4"}:
        return _modelopt(method, told)
    if method in {"compressed-tensors", "quark"}:
        return _compressed_tensors(told)
    if method == "bitsandbytes":
        return 0.5 + 4 / 64 if told.get("load_in_4bit") else 1.0
    return None


def _grouped(bits: float, group: float) -> float:
    """Integer weights with a 2-byte scale and a zero point of as many bits for each group."""
    return bits / 8 + ((2 + bits / 8) / group if group > 0 else 0.0)


def _modelopt(method: str, told: Mapping[str, Any]) -> float | None:
    inner = told.get("quantization")
    algorithm = str(told.get("quant_algo") or (inner.get("quant_algo") if isinstance(inner, Mapping) else "") or method)
    if "FP4" in algorithm.upper():
        return NVFP4_BYTES
    return FP8_BYTES if "FP8" in algorithm.upper() else None


def _compressed_tensors(told: Mapping[str, Any]) -> float | None:
    groups = told.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    bits, group = _number(weights, "num_bits", 8), _number(weights, "group_size", 0)
    if bits == 4 and weights.get("type") == "float":
        return NVFP4_BYTES if group == 16 else MXFP4_BYTES
    return bits / 8 + (2 / group if group > 0 else 0.0)


def _leaves_attention(told: Mapping[str, Any]) -> bool:
    """Whether the attention layers are among those that are not quantized."""
    left = told.get("modules_to_not_convert") or told.get("ignore") or told.get("exclude_modules") or ()
    return any("self_attn" in str(name) for name in left) if isinstance(left, list | tuple) else False


def _number(told: Mapping[str, Any], name: str, default: float) -> float:
    value = told.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default
