"""Each rule of SGLang's argument resolution: settings that break it, and the nearest that do not."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.sglang.gpu_arch import Arch
from orchestrator.sglang.options import known_options
from orchestrator.sglang.sglang_rules import RULES, broken_rule

EAGLE = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
TREE = {**EAGLE, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}
NGRAM = {"speculative_algorithm": "NGRAM"}
CORPUS = {**NGRAM, "speculative_ngram_external_corpus_path": "/c"}
ALONE = {"speculative_algorithm": "STANDALONE", "speculative_num_steps": 3}
DFLASH = {"speculative_algorithm": "DFLASH"}
DSPARK = {"speculative_algorithm": "DSPARK"}
UNO = {"speculative_algorithm": "UNO", "speculative_num_draft_tokens": 4, "uno_lora_path": "/l"}
DP = {"attn_dp_size": 2, "tp_size": 4}
OLD_DP = {"enable_dp_attention": True, "dp_size": 2, "tp_size": 4}
NVFP4 = {"kv_cache_dtype": "nvfp4"}
ROUNDING = {"enable_mamba_cache_stochastic_rounding": True}

# rule, settings that break it, the setting told, changes (None removes one) after which nothing is broken, and where.
Row = tuple[str, dict[str, Any], str, dict[str, Any], Arch | None, str | None]
ROWS: list[Row] = [
    ("steps-not-negative", {**EAGLE, "speculative_num_steps": -1}, "speculative_num_steps", {"speculative_num_steps": 0}, None, None),
    ("steps-need-algorithm", {"speculative_num_steps": 1}, "speculative_num_steps", {"speculative_num_steps": 0}, None, None),
    ("steps-given", {"speculative_algorithm": "EAGLE3"}, "speculative_algorithm", {"speculative_num_steps": 1}, None, None),
    ("steps-given", {"speculative_algorithm": "NEXTN"}, "speculative_algorithm", {"speculative_adaptive": True}, None, None),
    ("tree-draft-tokens-given", {**EAGLE, "speculative_eagle_topk": 2}, "speculative_eagle_topk", {"speculative_num_draft_tokens": 6}, None, None),
    ("chain-draft-tokens", {**EAGLE, "speculative_num_draft_tokens": 9}, "speculative_num_draft_tokens", {"speculative_num_draft_tokens": 4}, None, None),
    ("page-tree-backend", {**TREE, "page_size": 64, "device": "cpu"}, "speculative_eagle_topk", {"page_size": 1}, None, None),
    ("page-tree-backend", {**TREE, "page_size": 64, "attention_backend": "fa4"}, "speculative_eagle_topk", {"attention_backend": "triton"}, None, None),
    ("page-tree-backend", {**TREE, "attention_backend": "flashmla"}, "speculative_eagle_topk", {"attention_backend": "fa3"}, None, None),
    ("page-tree-backend-without-triton", {**TREE, "page_size": 64, "attention_backend": "triton"}, "speculative_eagle_topk", {"attention_backend": "fa3"}, None, "0.5.12"),
    ("trtllm-mha-chain-only", {**TREE, "attention_backend": "trtllm_mha"}, "speculative_eagle_topk", {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}, Arch.SM100, "0.5.12.post1"),
    ("flex-attention-no-speculation", {**EAGLE, "attention_backend": "flex_attention"}, "attention_backend", {"speculative_num_steps": 0}, None, None),
    ("ngram-page-tree", {**NGRAM, "page_size": 16, "attention_backend": "triton"}, "speculative_ngram_max_bfs_breadth", {"speculative_ngram_max_bfs_breadth": 1}, None, None),
    ("ngram-page-tree", {**NGRAM, "page_size": 16, "attention_backend": "fa3"}, "speculative_ngram_max_bfs_breadth", {"attention_backend": "flashinfer"}, None, None),
    ("ngram-no-attention-dp", {**NGRAM, **DP}, "attn_dp_size", {"attn_dp_size": 1}, None, None),
    ("ngram-on-gpu-only", {**NGRAM, "device": "cpu"}, "speculative_algorithm", {"device": "cuda"}, None, "0.5.15"),
    ("ngram-sam-budget", CORPUS, "speculative_ngram_external_sam_budget", {"speculative_ngram_external_sam_budget": 11}, None, None),
    ("ngram-sam-budget", {**CORPUS, "speculative_ngram_external_sam_budget": 12}, "speculative_ngram_external_sam_budget", {"speculative_num_draft_tokens": 13}, None, None),
    ("ngram-corpus-tokens", {**CORPUS, "speculative_ngram_external_sam_budget": 1, "speculative_ngram_external_corpus_max_tokens": 0}, "speculative_ngram_external_corpus_max_tokens", {"speculative_ngram_external_corpus_max_tokens": 1}, None, None),
    ("standalone-no-attention-dp", {**ALONE, **OLD_DP}, "enable_dp_attention", {"enable_dp_attention": False}, None, None),
    ("rejection-sampling-algorithm", {**ALONE, "speculative_use_rejection_sampling": True}, "speculative_use_rejection_sampling", {"speculative_algorithm": "EAGLE3"}, None, None),
    ("rejection-sampling-chain-only", {**TREE, "speculative_use_rejection_sampling": True}, "speculative_eagle_topk", {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}, None, None),
    ("rejection-sampling-chain-only", {**TREE, "speculative_use_block_verification": True}, "speculative_eagle_topk", {"speculative_use_block_verification": False}, None, None),
    ("rejection-sampling-no-thresholds", {**EAGLE, "speculative_use_rejection_sampling": True, "speculative_accept_threshold_acc": 0.9}, "speculative_use_rejection_sampling", {"speculative_accept_threshold_acc": 1.0}, None, None),
    ("block-verification-algorithm", {**NGRAM, "speculative_use_block_verification": True}, "speculative_use_block_verification", {"speculative_algorithm": "DFLASH"}, None, None),
    ("block-verification-on-gpu-only", {**EAGLE, "speculative_use_block_verification": True}, "speculative_use_block_verification", {"speculative_use_block_verification": False}, Arch.CPU, None),
    ("adaptive-unsupported", {**TREE, "speculative_adaptive": True}, "speculative_adaptive", {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}, None, None),
    ("adaptive-unsupported", {**EAGLE, **DP, "speculative_adaptive": True}, "speculative_adaptive", {"attn_dp_size": 1}, None, None),
    ("adaptive-candidate-steps", {**EAGLE, "speculative_num_steps": 4, "speculative_adaptive": True}, "speculative_num_steps", {"speculative_num_steps": 5}, None, None),
    ("draft-window-positive", {**EAGLE, "speculative_draft_window_size": 0}, "speculative_draft_window_size", {"speculative_draft_window_size": 1}, None, None),
    ("draft-sink-needs-window", {**EAGLE, "speculative_draft_sink_size": 4}, "speculative_draft_sink_size", {"speculative_draft_window_size": 64}, None, None),
    # DFLASH, DSPARK, UNO
    ("dflash-no-pipeline", {**DFLASH, "pp_size": 2}, "pp_size", {"pp_size": 1}, None, None),
    ("block-drafts-on-gpu-only", {**DFLASH, "device": "cpu"}, "speculative_algorithm", {"device": "cuda"}, None, None),
    ("dflash-no-attention-dp", {**DFLASH, **DP}, "attn_dp_size", {"attn_dp_size": 1}, None, "0.5.21"),
    ("dflash-attention-dp-lm-head", {**DFLASH, **DP}, "enable_dp_lm_head", {"enable_dp_lm_head": True}, None, "0.5.23"),
    ("dspark-attention-dp-lm-head", {**DSPARK, **DP}, "enable_dp_lm_head", {"enable_dp_lm_head": True}, None, None),
    ("dspark-attention-dp-a2a", {**DSPARK, **DP, "enable_dp_lm_head": True, "moe_a2a_backend": "deepep"}, "moe_a2a_backend", {"moe_a2a_backend": "megamoe"}, None, None),
    ("block-drafts-no-context-parallel", {**DSPARK, **DP, "enable_dp_lm_head": True, "attn_cp_size": 2}, "attn_cp_size", {"attn_cp_size": 1}, None, None),
    ("dspark-pipeline-prefill-only", {**DSPARK, "pp_size": 2}, "pp_size", {"disaggregation_mode": "prefill"}, None, None),
    ("block-size-positive", {**DFLASH, "speculative_dflash_block_size": 0}, "speculative_dflash_block_size", {"speculative_dflash_block_size": 1}, None, None),
    ("block-draft-tokens", {**DFLASH, "speculative_dflash_block_size": 8, "speculative_num_draft_tokens": 9}, "speculative_num_draft_tokens", {"speculative_num_draft_tokens": 8}, None, None),
    ("block-draft-tokens", {**DSPARK, "speculative_dspark_block_size": 8, "speculative_num_draft_tokens": 8}, "speculative_num_draft_tokens", {"speculative_num_draft_tokens": 9}, None, None),
    ("dspark-draft-tokens", {**DSPARK, "speculative_num_draft_tokens": 1}, "speculative_num_draft_tokens", {"speculative_num_draft_tokens": 2}, None, None),
    ("dflash-window-covers-block", {**DFLASH, "speculative_draft_window_size": 8, "speculative_dflash_block_size": 16}, "speculative_draft_window_size", {"speculative_draft_window_size": 16}, None, None),
    ("uno-no-parallelism", {**UNO, "tp_size": 2}, "tp_size", {"tp_size": 1}, None, None),
    ("uno-no-parallelism", {**UNO, "pp_size": 2}, "pp_size", {"pp_size": 1}, None, None),
    ("uno-no-attention-parallelism", {**UNO, "attn_cp_size": 2}, "attn_cp_size", {"attn_cp_size": 1}, None, None),
    ("uno-not-on-blackwell", UNO, "speculative_algorithm", {"speculative_algorithm": "NGRAM"}, Arch.SM120, None),
    ("uno-needs-fa3", {**UNO, "attention_backend": "triton"}, "attention_backend", {"attention_backend": "fa3"}, Arch.SM90, None),
    ("uno-draft-tokens-given", {**UNO, "speculative_num_draft_tokens": 0}, "speculative_algorithm", {"speculative_num_draft_tokens": 1}, None, None),
    ("uno-tree", {**UNO, "speculative_eagle_topk": 2, "speculative_num_steps": 3, "speculative_num_draft_tokens": 7}, "speculative_num_draft_tokens", {"speculative_num_draft_tokens": 6}, None, None),
    ("uno-tree", {**UNO, "speculative_eagle_topk": 2}, "speculative_num_steps", {"speculative_num_steps": 3}, None, None),
    ("uno-lora", {**UNO, "enable_lora": True}, "enable_lora", {"enable_lora": False}, None, None),
    ("uno-no-draft-model", {**UNO, "speculative_draft_model_path": "/d"}, "speculative_draft_model_path", {"speculative_draft_model_path": None}, None, None),
    ("uno-no-determinism", {**UNO, "enable_strict_thinking": True}, "enable_strict_thinking", {"enable_strict_thinking": False}, None, None),
    # attention and KV cache
    ("cutedsl-mla-arch", {"decode_attention_backend": "cutedsl_mla"}, "decode_attention_backend", {"decode_attention_backend": "trtllm_mla"}, Arch.SM120, None),
    ("trtllm-mla-arch", {"attention_backend": "trtllm_mla"}, "attention_backend", {"attention_backend": "flashmla"}, Arch.SM90, None),
    ("trtllm-mha-arch", {"attention_backend": "trtllm_mha"}, "attention_backend", {"attention_backend": "flashinfer"}, Arch.SM89, None),
    ("fa3-arch", {"attention_backend": "fa3"}, "attention_backend", {"attention_backend": "flashinfer"}, Arch.SM120, None),
    ("trtllm-mha-prefill-arch", {"attention_backend": "trtllm_mha"}, "attention_backend", {"attention_backend": None, "decode_attention_backend": "trtllm_mha"}, Arch.SM120, "0.5.15"),
    ("trtllm-mha-fp8-prefill", {"attention_backend": "trtllm_mha", "kv_cache_dtype": "fp8_e4m3"}, "kv_cache_dtype", {"prefill_attention_backend": "flashinfer"}, Arch.SM120, None),
    ("trtllm-mha-context-parallel", {"attention_backend": "trtllm_mha", "attn_cp_size": 2, "tp_size": 2}, "attn_cp_size", {"attn_cp_size": 1}, Arch.SM120, None),
    ("cutedsl-mla-decode-only", {"prefill_attention_backend": "cutedsl_mla"}, "prefill_attention_backend", {"prefill_attention_backend": None, "decode_attention_backend": "cutedsl_mla"}, Arch.SM100, None),
    ("mla-kv-type", {"attention_backend": "trtllm_mla", "kv_cache_dtype": "fp8_e5m2"}, "kv_cache_dtype", {"kv_cache_dtype": "fp8_e4m3"}, None, None),
    ("mxfp8-kv-arch", {"kv_cache_dtype": "mxfp8"}, "kv_cache_dtype", {"kv_cache_dtype": "fp8_e4m3"}, Arch.SM90, None),
    ("nvfp4-kv-arch", NVFP4, "kv_cache_dtype", {"kv_cache_dtype": "fp4_mx_block16"}, Arch.SM90, None),
    ("fp4-kv-on-gpu-only", {"kv_cache_dtype": "fp4_mx_block16"}, "kv_cache_dtype", {"kv_cache_dtype": "auto"}, Arch.CPU, None),
    ("fp4-kv-backend", {"kv_cache_dtype": "fp4_mx_block16", "attention_backend": "fa3"}, "attention_backend", {"attention_backend": "triton"}, None, None),
    ("fp4-kv-backend", {"kv_cache_dtype": "fp4_mx_block16", "prefill_attention_backend": "fa4", "decode_attention_backend": "trtllm_mha"}, "decode_attention_backend", {"decode_attention_backend": "triton"}, Arch.SM100, None),
    ("fp4-kv-no-unified-memory", {**NVFP4, "enable_unified_memory": True}, "enable_unified_memory", {"enable_unified_memory": False}, None, None),
    ("prefill-dequant-needs-nvfp4", {"prefill_kv_cache_dequant_dtype": "fp8_e4m3"}, "prefill_kv_cache_dequant_dtype", NVFP4, None, None),
    ("nvfp4-prefill-arch", {**NVFP4, "attention_backend": "trtllm_mha"}, "prefill_kv_cache_dequant_dtype", {"attention_backend": "flashinfer"}, Arch.SM120, None),
    ("nvfp4-prefill-backend", {**NVFP4, "attention_backend": "triton"}, "attention_backend", {"attention_backend": "trtllm_mha"}, Arch.SM100, None),
    ("nvfp4-decode-backend", {**NVFP4, "decode_attention_backend": "triton"}, "decode_attention_backend", {"decode_attention_backend": "trtllm_mha"}, None, None),
    ("nvfp4-kv-algorithm", {**DFLASH, **NVFP4}, "speculative_algorithm", {"speculative_algorithm": "EAGLE", "speculative_num_steps": 1}, Arch.SM100, None),
    ("nvfp4-kv-algorithm", {**DSPARK, **NVFP4}, "speculative_algorithm", {"kv_cache_dtype": "auto"}, Arch.SM100, None),
    ("nvfp4-kv-algorithm", {**ALONE, **NVFP4}, "speculative_algorithm", {"speculative_algorithm": "NEXTN"}, Arch.SM103, None),
    ("nvfp4-kv-ngram-breadth", {**NGRAM, **NVFP4}, "speculative_ngram_max_bfs_breadth", {"speculative_ngram_max_bfs_breadth": 1}, Arch.SM100, None),
    ("nvfp4-kv-draft-backend", {**EAGLE, **NVFP4, "speculative_draft_attention_backend": "triton"}, "speculative_draft_attention_backend", {"speculative_draft_attention_backend": "trtllm_mha"}, Arch.SM100, None),
    ("nvfp4-kv-no-host-cache", {**NVFP4, "enable_hierarchical_cache": True}, "kv_cache_dtype", {"enable_hierarchical_cache": False}, Arch.SM100, None),
    # state caches, host caches
    ("flashkda-prefill-only", {"linear_attn_decode_backend": "flashkda"}, "linear_attn_decode_backend", {"linear_attn_decode_backend": "triton"}, None, None),
    ("linear-attention-state-type", {"linear_attn_decode_backend": "flashinfer"}, "mamba_ssm_dtype", {"mamba_ssm_dtype": "bfloat16"}, Arch.SM120, None),
    ("replayssm-chain-only", {**TREE, "enable_linear_replayssm_spec": True}, "speculative_eagle_topk", {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}, None, None),
    ("replayssm-one-of-two", {"enable_linear_replayssm": True, "enable_linear_replayssm_spec": True}, "enable_linear_replayssm", {"enable_linear_replayssm": False}, None, None),
    ("stochastic-rounding-type", ROUNDING, "mamba_ssm_dtype", {"mamba_ssm_dtype": "float16"}, None, None),
    ("stochastic-rounding-arch", {**ROUNDING, "mamba_ssm_dtype": "float16"}, "mamba_backend", {"mamba_backend": "flashinfer"}, Arch.SM120, None),
    ("int8-checkpoint-alone", {"enable_int8_mamba_checkpoint": True, "enable_hierarchical_cache": True}, "enable_int8_mamba_checkpoint", {"enable_hierarchical_cache": False}, None, None),
    ("lmcache-alone", {**EAGLE, "enable_lmcache": True}, "enable_lmcache", {"speculative_num_steps": 0}, None, None),
    ("swa-ratio-range", {"swa_full_tokens_ratio": 0.0}, "swa_full_tokens_ratio", {"swa_full_tokens_ratio": 1.0}, None, None),
    # parallelism, memory, scheduling, graphs, MoE
    ("memory-fraction-range", {"mem_fraction_static": 1.0}, "mem_fraction_static", {"mem_fraction_static": 0.99}, None, None),
    ("running-requests-positive", {"max_running_requests": 0}, "max_running_requests", {"max_running_requests": 1}, None, None),
    ("chunk-in-pages", {"chunked_prefill_size": 8200, "page_size": 64}, "chunked_prefill_size", {"chunked_prefill_size": 8192}, None, None),
    ("chunk-in-pages", {**DP, "chunked_prefill_size": 64, "page_size": 64}, "chunked_prefill_size", {"chunked_prefill_size": 128}, None, None),
    ("attention-dp-divides", {"attn_dp_size": 3, "tp_size": 4}, "attn_dp_size", {"attn_dp_size": 2}, None, None),
    ("attention-dp-divides", {**OLD_DP, "dp_size": 3}, "dp_size", {"dp_size": 4}, None, None),
    ("attention-dp-positive", {"attn_dp_size": 0}, "attn_dp_size", {"attn_dp_size": 1}, None, None),
    ("attention-dp-or-replicas", {**DP, "dp_size": 2}, "dp_size", {"dp_size": 1}, None, None),
    ("context-parallel-divides", {"attn_cp_size": 3, "tp_size": 4}, "attn_cp_size", {"attn_cp_size": 2}, None, None),
    ("context-parallel-strategy", {"enable_prefill_cp": True}, "enable_prefill_cp", {"cp_strategy": "zigzag"}, None, None),
    ("decode-context-parallel-alone", {"enable_prefill_cp": True, "cp_strategy": "zigzag", "dcp_size": 2}, "dcp_size", {"dcp_size": 1}, None, None),
    ("decode-context-parallel-exchange", {"dcp_comm_backend": "a2a"}, "dcp_comm_backend", {"dcp_size": 2}, None, None),
    ("pipeline-speculation", {**EAGLE, "pp_size": 2}, "pp_size", {"disaggregation_mode": "prefill"}, None, None),
    ("pipeline-slots-delay", {"pp_size": 2, "min_free_slots_delay": 1}, "min_free_slots_delay", {"pp_size": 1}, None, None),
    ("replicas-on-one-node", {"dp_size": 2, "nnodes": 2}, "dp_size", {"nnodes": 1}, None, None),
    ("ranks-on-every-node", {"tp_size": 3, "nnodes": 2}, "tp_size", {"tp_size": 4}, None, None),
    ("dense-tensor-size", {"moe_dense_tp_size": 2, "tp_size": 4}, "moe_dense_tp_size", {"moe_dense_tp_size": 4}, None, None),
    ("expert-size", {"moe_runner_backend": "flashinfer_cutlass", "ep_size": 2, "tp_size": 4}, "ep_size", {"ep_size": 4}, None, None),
    ("cutlass-expert-size", {"moe_runner_backend": "cutlass", "quantization": "fp8", "ep_size": 2}, "ep_size", {"ep_size": 1}, None, None),
    ("moe-runner-quantization", {"moe_runner_backend": "flashinfer_cutlass", "quantization": "fp8"}, "moe_runner_backend", {"quantization": "modelopt_fp8"}, None, None),
    ("nvfp4-online-arch", {"quantization": "nvfp4_online"}, "quantization", {"quantization": "modelopt_fp4"}, Arch.SM120, None),
    ("nvfp4-online-runner", {"quantization": "nvfp4_online", "moe_runner_backend": "triton"}, "moe_runner_backend", {"moe_runner_backend": "flashinfer_cutedsl"}, Arch.SM100, None),
    ("two-batch-overlap-attention-dp", {"enable_two_batch_overlap": True}, "enable_two_batch_overlap", {"moe_a2a_backend": "deepep"}, None, None),
    ("graph-padding-compile", {"disable_cuda_graph_padding": True, "enable_torch_compile": True}, "disable_cuda_graph_padding", {"enable_torch_compile": False}, None, None),
    ("graph-backend-removed", {"cuda_graph_backend_prefill": "tc_piecewise"}, "cuda_graph_backend_prefill", {"cuda_graph_backend_prefill": "breakable"}, None, None),
    ("graph-backend-removed", {"cuda_graph_config": '{"prefill": {"backend": "tc_piecewise"}}'}, "cuda_graph_config", {"cuda_graph_config": '{"prefill": {"backend": "full"}}'}, None, None),
    ("graph-context-positive", {"cuda_graph_prefill_max_context": 0}, "cuda_graph_prefill_max_context", {"cuda_graph_prefill_max_context": 1}, None, None),
    ("priority-policy", {"enable_priority_scheduling": True, "schedule_policy": "lpm"}, "schedule_policy", {"schedule_policy": "lof"}, None, None),
    ("retraction-by-priority", {"retraction_policy": "priority"}, "retraction_policy", {"enable_priority_scheduling": True}, None, None),
    ("conservativeness-not-negative", {"schedule_conservativeness": -0.1}, "schedule_conservativeness", {"schedule_conservativeness": 0}, None, None),
    ("prefill-interval-not-negative", {"prefill_decode_interval": -1}, "prefill_decode_interval", {"prefill_decode_interval": 0}, None, None),
    ("metrics-file-folder", {"export_metrics_to_file": True}, "export_metrics_to_file", {"export_metrics_to_file_dir": "/m"}, None, None),
    ("dwdp-no-speculation", {**EAGLE, "dwdp_size": 2}, "dwdp_size", {"speculative_num_steps": 0}, None, None),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[2]}")
def test_settings_that_break_a_rule_are_told_with_its_name_and_the_nearest_that_do_not_pass(row: Row) -> None:
    name, settings, setting, changes, arch, version = row
    broken = broken_rule(settings, version=version, arch=arch)
    nearest = {key: value for key, value in {**settings, **changes}.items() if value is not None}

    assert broken is not None
    assert (broken.name, broken.setting) == (name, setting)
    assert broken.reason.endswith(f" (rule: {name})")
    assert "{" not in broken.message
    assert broken_rule(nearest, version=version, arch=arch) is None


def test_every_rule_has_such_a_row_and_a_name_of_its_own() -> None:
    names = [rule.name for rule in RULES]

    assert len(names) == len(set(names))
    assert {row[0] for row in ROWS} == set(names)


def test_rows_use_names_that_the_parser_of_sglang_knows() -> None:
    used = {name for row in ROWS for name in {*row[1], row[2], *row[3]}}

    assert used <= set(known_options())


def test_a_rule_about_gpus_is_silent_while_the_gpu_is_unknown_or_able() -> None:
    settings = {"attention_backend": "trtllm_mha", "kv_cache_dtype": "fp8_e4m3"}

    assert broken_rule(settings) is None
    assert broken_rule(settings, arch=Arch.SM100) is None
    assert broken_rule(settings, arch=Arch.SM120) is not None


def test_device_cpu_counts_more_than_the_gpu_of_the_slot() -> None:
    broken = broken_rule({"device": "cpu", "kv_cache_dtype": "nvfp4"}, arch=Arch.SM120)

    assert broken is not None
    assert broken.name == "nvfp4-kv-arch"


def test_rules_hold_in_the_releases_that_have_them() -> None:
    settings = {**TREE, "page_size": 64, "attention_backend": "triton"}

    assert broken_rule(settings, version="0.5.23") is None
    assert broken_rule(settings, version="0.5.15.post2") is None
    assert broken_rule(settings, version="0.5.9") is not None
    assert broken_rule(settings, version="0.0.0.dev1+g1") is None  # a development build is the newest


def test_depth_0_has_no_rules_of_speculation() -> None:
    assert broken_rule({**TREE, "speculative_num_steps": 0, "attention_backend": "trtllm_mha"}) is None
