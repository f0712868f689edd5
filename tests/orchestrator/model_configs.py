"""Figures of public config.json files, as far as memory depends on them."""

from __future__ import annotations

from typing import Any

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
GDN = {
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4, "head_dim": 256,
}  # fmt: skip


def config(architecture: str, hidden: int, layers: int, heads: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture], "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "torch_dtype": "bfloat16", **more,
    }  # fmt: skip


LLAMA_8B = config("LlamaForCausalLM", 4096, 32, 32, 8, intermediate_size=14336, vocab_size=128256,
                  max_position_embeddings=131072)  # fmt: skip
QWEN3_14B = config("Qwen3ForCausalLM", 5120, 40, 40, 8, head_dim=128, intermediate_size=17408, vocab_size=151936,
                   max_position_embeddings=40960)  # fmt: skip
MIXTRAL = config("MixtralForCausalLM", 4096, 32, 32, 8, intermediate_size=14336, num_local_experts=8, vocab_size=32000)
QWEN3_30B = config("Qwen3MoeForCausalLM", 2048, 48, 32, 4, head_dim=128, intermediate_size=6144,
                   moe_intermediate_size=768, num_experts=128, vocab_size=151936)  # fmt: skip
GPT_OSS_20B = config("GptOssForCausalLM", 2880, 24, 64, 8, head_dim=64, intermediate_size=2880, num_local_experts=32,
                     vocab_size=201088, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 12,
                     max_position_embeddings=131072)  # fmt: skip
GEMMA2_9B = config("Gemma2ForCausalLM", 3584, 42, 16, 8, head_dim=256, intermediate_size=14336, vocab_size=256000,
                   model_type="gemma2")  # fmt: skip
GEMMA3_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
                    "intermediate_size": 10240, "sliding_window": 1024},
    "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304},
}  # fmt: skip
NEMOTRON_H_8B = config("NemotronHForCausalLM", 4096, 52, 32, 8, head_dim=128, intermediate_size=21504,
                       vocab_size=131072, mamba_num_heads=128, mamba_head_dim=64, n_groups=8, ssm_state_size=128,
                       conv_kernel=4,
                       hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-")  # fmt: skip
DEEPSEEK_V2_LITE = config("DeepseekV2ForCausalLM", 2048, 27, 16, 16, kv_lora_rank=512, q_lora_rank=None,
                          qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, intermediate_size=10944,
                          moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, first_k_dense_replace=1,
                          vocab_size=102400)  # fmt: skip
DEEPSEEK_V3 = config("DeepseekV3ForCausalLM", 7168, 61, 128, 128, kv_lora_rank=512, q_lora_rank=1536,
                     qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, intermediate_size=18432,
                     moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, first_k_dense_replace=3,
                     vocab_size=129280, num_nextn_predict_layers=1, max_position_embeddings=163840)  # fmt: skip
DEEPSEEK_V4_FLASH = config("DeepseekV4ForCausalLM", 4096, 43, 64, 1, head_dim=512, qk_rope_head_dim=64,
                           q_lora_rank=1024, o_lora_rank=1024, o_groups=8, index_head_dim=128, index_n_heads=64,
                           n_routed_experts=256, n_shared_experts=1, moe_intermediate_size=2048, vocab_size=129280,
                           sliding_window=128, compress_ratios=[0, 0, *[4, 128] * 20, 4, 0],
                           num_nextn_predict_layers=1, expert_dtype="fp4", quantization_config=FP8,
                           max_position_embeddings=1048576)  # fmt: skip
QWEN35_122B: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "text_config": config(
        "", 3072, 48, 32, 2, **GDN, linear_num_value_heads=64, vocab_size=248320, num_experts=256,
        moe_intermediate_size=1024, shared_expert_intermediate_size=1024, mtp_num_hidden_layers=1,
        max_position_embeddings=262144,
    ),
    "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304},
}  # fmt: skip
QWEN_27B_FP8: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": config(
        "", 5120, 64, 24, 4, **GDN, linear_num_value_heads=48, vocab_size=248320, intermediate_size=17408,
        mtp_num_hidden_layers=1, max_position_embeddings=262144,
    ),
    "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304},
    "quantization_config": FP8,
}  # fmt: skip
