"""All that a real server has and the emulator leaves out on purpose. docs/emulator.md lists each with its reason."""

from __future__ import annotations

METRIC_FAMILIES = frozenset(
    {
        "dp_attention_pairs_total",
        "dp_attention_steps_total",
        "dp_attention_sync_wait_seconds",
        "dp_attention_token_imbalance_ratio",
        "dp_attention_tokens_total",
        "fwd_occupancy",
        "get_loads_duration_seconds",
        "num_unique_running_routing_keys",
        "per_stage_req_latency_seconds",
        "process_cpu_seconds_total",
        "routing_key_all_req_count",
        "routing_key_running_req_count",
        "routing_keys_active",
        "scheduler_process_cpu_seconds_total",
        "scheduler_stage_seconds_total",
    }
)

# Resolved by SGLang for itself: no command line sets them.
SERVER_INFO_KEYS = frozenset(
    {
        "_radix_eviction_policy_explicitly_set",
        "_speculative_draft_quantization_explicitly_set",
        "_swa_full_tokens_ratio_explicitly_set",
        "aux_hidden_state_capture",
        "boundary_reduction",
        "custom_sigquit_handler",
        "enable_cp_tp_group_sharing",
        "grpc_worker_threads",
        "hicache_object_layout",
        "speculative_boundary_reduction",
        "stat_loggers",
        "uses_mamba_radix_cache",
        "watermark_context_window",
        "watermark_default_enabled",
        "watermark_enforce_all",
        "watermark_key",
        "watermark_key_b",
        "watermark_max_probability",
        "watermark_mixing_probability",
    }
)

MODEL_INFO_KEYS = frozenset({"embedding"})
LOAD_KEYS = frozenset({"decode_moments"})

# What only the emulator has, so that nobody takes it for a real server.
EMULATOR_MARKS = frozenset({"engine", "emulator_profile"})
