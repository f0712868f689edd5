"""config.json -> ModelShape. What it cannot tell of an unknown family is named, never guessed silently. Pure.

Which architectures get a pool of their own for sliding windows: `configs/model_config.py` of SGLang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from orchestrator.errors import BadInput
from orchestrator.memory.model_shape import (
    ELEMENT_BYTES,
    Attention,
    CompressedAttention,
    Experts,
    LatentAttention,
    ModelShape,
    RecurrentState,
    Vision,
)
from orchestrator.memory.quantization import checkpoint_quantization

Config = Mapping[str, Any]

# By words in the architecture's name. Their attention, MLP and norms are laid out as the keys of config.json say.
KNOWN_FAMILIES = (
    "Llama", "Qwen", "Mistral", "Mixtral", "Ministral", "Gemma", "Deepseek", "GptOss", "Glm", "Phi3", "Granite",
    "NemotronH", "Olmo", "InternLM", "Yi", "Baichuan", "Exaone", "MiniMax", "Ernie", "Kimi", "Bailing", "Falcon",
    "SmolLM", "Seed", "Hunyuan", "Longcat", "Pixtral", "Dots", "MiMo", "Step3", "LFM2", "Lfm2", "Jamba", "Bamba",
)  # fmt: skip
_WINDOW_POOL = ("GptOss", "Llama4", "Gemma4", "MiMoV2", "Step3p", "DeepseekV4", "DiffusionGemma", "Laguna", "Mellum")
_TELLING = ("vocab_size", "num_attention_heads")
# What the classes of these models fill in where a config.json is silent.
_DEFAULTS: Mapping[str, Config] = {
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "tie_word_embeddings": True,
        "max_position_embeddings": 131072,
    },
    "gemma2": {"tie_word_embeddings": True},
    "gemma": {"tie_word_embeddings": True},
}
_NO_GATE = ("Falcon", "NemotronH", "GPTNeoX", "OPT", "Bloom")


def model_shape(config: Config) -> ModelShape:
    """The shape that a config.json describes; BadInput if it is none of a language model."""
    text = _with_defaults(_text_part(config))
    architecture = str((config.get("architectures") or text.get("architectures") or ["unknown"])[0])
    missing = [name for name in ("hidden_size", "num_hidden_layers") if not _int(text, name)]
    if missing:
        raise BadInput(f"config.json: has no {', '.join(missing)}, so it is not the config of a language model")
    element = ELEMENT_BYTES.get(str(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype")), 2.0)
    quantization, unclear = checkpoint_quantization({**text, **config}, element)
    layers = _int(text, "num_hidden_layers")
    kinds = _layer_kinds(text, layers)
    state = _state(text, kinds)
    attending = layers - (state.layers if state else 0) - kinds.count("mlp")
    window_layers = kinds.count("window") if _has_window_pool(architecture) else 0
    dense_width, dense_layers, experts = _feed_forward(text, layers, kinds)
    unknown = [unclear] if unclear else []
    unknown += [f"{name} (left to the model's own default)" for name in _TELLING if not _int(text, name)]
    if not any(word in architecture for word in KNOWN_FAMILIES):
        unknown.append(f"architecture {architecture} (read like a Llama)")
    return ModelShape(
        architecture=architecture,
        hidden=_int(text, "hidden_size"),
        layers=layers,
        vocab=_int(text, "vocab_size"),
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        context_length=_int(text, "max_position_embeddings") or 4096,
        element_bytes=element,
        quantization=quantization,
        full_layers=attending - window_layers,
        attention=None if _latent(text) or _compressed(text) else _attention(text),
        latent=None if _compressed(text) else _latent(text),
        compressed=_compressed(text),
        state=state,
        window_layers=window_layers,
        window_attention=_window_attention(text) if window_layers else None,
        window=(_int(text, "sliding_window", "window_size") or 128) if window_layers or _compressed(text) else 0,
        window_pool=window_layers > 0,
        dense_width=dense_width,
        dense_layers=dense_layers,
        experts=experts,
        draft_layers=_int(text, "num_nextn_predict_layers") or _int(text, "mtp_num_hidden_layers"),
        vision=_vision(config),
        gated_mlp=not any(word in architecture for word in _NO_GATE),
        unknown=tuple(unknown),
    )


def _text_part(config: Config) -> Config:
    """Multimodal configs hold the language model's below a key."""
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            return _text_part(inner)
    return config


def _with_defaults(text: Config) -> Config:
    return {**_DEFAULTS.get(str(text.get("model_type")), {}), **text}


def _int(config: Config, *names: str) -> int:
    """The first of these keys that holds a number; 0 if none does."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def _attention(text: Config) -> Attention:
    heads = _int(text, "num_attention_heads") or 1
    head_dim = _int(text, "head_dim") or _int(text, "hidden_size") // heads
    kv_heads = _int(text, "num_key_value_heads") or heads
    v_dim = _int(text, "v_head_dim") or head_dim
    return Attention(heads, kv_heads, head_dim, v_dim, gated=bool(text.get("attn_output_gate", _is_qwen_hybrid(text))))


def _is_qwen_hybrid(text: Config) -> bool:
    return bool(_int(text, "linear_num_value_heads"))


def _window_attention(text: Config) -> Attention:
    plain = _attention(text)
    head_dim = _int(text, "swa_head_dim") or plain.head_dim
    kv_heads = _int(text, "swa_num_key_value_heads") or plain.kv_heads
    return Attention(_int(text, "swa_num_attention_heads") or plain.heads, kv_heads, head_dim,
                     _int(text, "swa_v_head_dim") or head_dim)  # fmt: skip


def _latent(text: Config) -> LatentAttention | None:
    rank = _int(text, "kv_lora_rank")
    if not rank:
        return None
    return LatentAttention(
        heads=_int(text, "num_attention_heads"),
        kv_rank=rank,
        rope_dim=_int(text, "qk_rope_head_dim"),
        nope_dim=_int(text, "qk_nope_head_dim"),
        v_dim=_int(text, "v_head_dim"),
        query_rank=_int(text, "q_lora_rank"),
        index_dim=_int(text, "index_head_dim"),
        index_heads=_int(text, "index_n_heads"),
    )


def _compressed(text: Config) -> CompressedAttention | None:
    ratios = text.get("compress_ratios")
    if not isinstance(ratios, list | tuple):
        return None
    layers = _int(text, "num_hidden_layers")
    return CompressedAttention(
        heads=_int(text, "num_attention_heads"),
        head_dim=_int(text, "head_dim"),
        rope_dim=_int(text, "qk_rope_head_dim"),
        query_rank=_int(text, "q_lora_rank"),
        output_rank=_int(text, "o_lora_rank"),
        output_groups=_int(text, "o_groups") or 1,
        index_dim=_int(text, "index_head_dim"),
        index_heads=_int(text, "index_n_heads"),
        window=_int(text, "sliding_window", "window_size") or 128,
        ratios=tuple(int(r) for r in ratios[:layers]),
    )


def _layer_kinds(text: Config, layers: int) -> list[str]:
    """What each layer is: full, window, state or mlp (a layer without a mixer)."""
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):  # Nemotron-H: M is Mamba, * attention, - and E feed-forward alone
        return [{"M": "state", "*": "full"}.get(letter, "mlp") for letter in pattern]
    types = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(types, list | tuple):
        return [_kind_of(str(name)) for name in types[:layers]]
    if _is_qwen_hybrid(text):
        every = _int(text, "full_attention_interval") or 4
        return ["full" if (i + 1) % every == 0 else "state" for i in range(layers)]
    linear = text.get("linear_attn_config")
    if isinstance(linear, Mapping) and isinstance(linear.get("full_attn_layers"), list):
        full = set(linear["full_attn_layers"])  # counted from 1
        return ["full" if i + 1 in full else "state" for i in range(layers)]
    every = _int(text, "sliding_window_pattern")
    if every > 1 and _int(text, "sliding_window"):
        return ["full" if (i + 1) % every == 0 else "window" for i in range(layers)]
    return ["full"] * layers


def _kind_of(name: str) -> str:
    if "sliding" in name or "window" in name or "chunked" in name:
        return "window"
    return "state" if any(word in name for word in ("linear", "mamba", "conv", "recurrent")) else "full"


def _state(text: Config, kinds: list[str]) -> RecurrentState | None:
    layers = kinds.count("state")
    if not layers:
        return None
    width = {"bfloat16": 2.0, "float16": 2.0}.get(str(text.get("mamba_ssm_dtype")), 4.0)
    kda = text.get("linear_attn_config")
    if isinstance(kda, Mapping):
        heads, dim = _int(kda, "num_heads"), _int(kda, "head_dim")
        return RecurrentState("kda", layers, heads, heads, dim, dim, _int(kda, "short_conv_kernel_size") or 4, width)
    if _is_qwen_hybrid(text):
        kind: Literal["gdn", "mamba2"] = "gdn"
        sizes = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
        key_heads, value_heads, key_dim, value_dim = (_int(text, name) for name in sizes)
        return RecurrentState(kind, layers, key_heads, value_heads, key_dim, value_dim,
                              _int(text, "linear_conv_kernel_dim") or 4, width)  # fmt: skip
    return RecurrentState(
        kind="mamba2",
        layers=layers,
        key_heads=_int(text, "n_groups", "mamba_n_groups") or 1,
        value_heads=_int(text, "mamba_num_heads", "mamba_n_heads", "num_attention_heads"),
        key_dim=_int(text, "ssm_state_size", "mamba_d_state") or 128,
        value_dim=_int(text, "mamba_head_dim", "mamba_d_head") or 64,
        conv_kernel=_int(text, "conv_kernel", "mamba_d_conv") or 4,
        state_bytes=width,
    )


def _feed_forward(text: Config, layers: int, kinds: list[str]) -> tuple[int, int, Experts | None]:
    """Width and number of dense MLPs, and the experts."""
    width = _int(text, "intermediate_size", "ffn_hidden_size")
    count = _int(text, "n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
    if not count:
        listed = kinds.count("mlp")
        return width, listed or layers, None
    dense = _int(text, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    dense += len(text.get("mlp_only_layers") or ())
    every = _int(text, "decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step") or 1
    sparse = (layers - dense) // every
    each = _int(text, "moe_intermediate_size", "expert_ffn_hidden_size", "moe_inter_dim") or width
    shared = _int(text, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    shared = shared or each * _int(text, "n_shared_experts", "num_shared_experts")
    return width, layers - sparse, Experts(count, each, shared, sparse)


def _vision(config: Config) -> Vision | None:
    told = config.get("vision_config")
    if not isinstance(told, Mapping):
        return None
    layers, hidden = _int(told, "num_hidden_layers", "depth"), _int(told, "hidden_size", "embed_dim", "width")
    return Vision(layers or 24, hidden or 1024, _int(told, "intermediate_size") or 4 * (hidden or 1024))


def _has_window_pool(architecture: str) -> bool:
    return any(word in architecture for word in _WINDOW_POOL)
