"""What SGLang refuses about parallelism, memory, scheduling, graphs and MoE kernels. Pure.

Source: `parallel_hook.py`, `validation_hook.py`, `moe_hook.py`, `overrides.py` and `cuda_graph_config.py` of SGLang.
"""

from __future__ import annotations

from orchestrator.sglang.gpu_arch import SM100, Arch
from orchestrator.sglang.rule_terms import (
    Fault,
    Rule,
    Settings,
    algorithm,
    attention_dp,
    number,
    page_size,
    refuse,
    spelled_attention_dp,
)

_NVFP4_ONLINE_RUNNERS = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutedsl", "flashinfer_megamoe")
# MoE runner -> quantizations it takes; a quantization that is not given is the checkpoint's, and not known here.
_RUNNER_TAKES: dict[str, tuple[str, ...]] = {
    "flashinfer_cutlass": ("modelopt_fp4", "modelopt_fp8", "modelopt_mixed"),
    "flashinfer_trtllm": (
        "modelopt_fp4", "nvfp4_online", "fp8", "mxfp8", "modelopt_fp8", "modelopt_mixed", "compressed-tensors",
    ),
    "flashinfer_trtllm_routed": (
        "fp8", "mxfp8", "modelopt_fp4", "modelopt_mixed", "nvfp4_online", "minimax_m3_nvfp4",
    ),
}  # fmt: skip


def _removed_graph_backend(settings: Settings, _: Arch | None) -> Fault:
    for phase in ("decode", "prefill"):
        name = f"cuda_graph_backend_{phase}"
        if settings.get(name) == "tc_piecewise":
            return name, "is tc_piecewise, which is gone: take breakable, full or disabled"
    if "tc_piecewise" in str(settings.get("cuda_graph_config", "")):
        return "cuda_graph_config", "names tc_piecewise, which is gone: take breakable, full or disabled"
    return None


def _runner_quantization(settings: Settings, _: Arch | None) -> Fault:
    runner, quantization = settings.get("moe_runner_backend"), settings.get("quantization")
    takes = _RUNNER_TAKES.get(str(runner))
    if takes is None or quantization is None or quantization in takes:
        return None
    return "moe_runner_backend", f"is {runner}, which takes quantization {', '.join(takes)}, not {quantization}"


def _expert_size(settings: Settings, _: Arch | None) -> Fault:
    runner, experts = settings.get("moe_runner_backend"), number(settings, "ep_size", 1)
    tensor = number(settings, "tp_size", 1)
    if runner not in {"flashinfer_cutlass", "flashinfer_cutedsl"} or experts in {1, tensor}:
        return None
    return "ep_size", f"is {experts}; with moe_runner_backend {runner} it is 1 or tp_size {tensor}"


def _attention_dp_divides(settings: Settings, _: Arch | None) -> Fault:
    ranks, tensor = attention_dp(settings), settings.get("tp_size")
    if ranks <= 1 or tensor is None or tensor % ranks == 0:
        return None
    named = spelled_attention_dp(settings)
    setting = named if named == "attn_dp_size" else "dp_size"
    return setting, f"makes {ranks} attention-DP ranks, which do not divide tp_size {tensor}"


def _context_divides(settings: Settings, _: Arch | None) -> Fault:
    ranks, tensor = number(settings, "attn_cp_size", 1), settings.get("tp_size")
    if ranks <= 1 or tensor is None or tensor % (ranks * attention_dp(settings)) == 0:
        return None
    told = f"is {ranks}; times {attention_dp(settings)} attention-DP ranks it must divide tp_size {tensor}"
    return "attn_cp_size", told


def _chunk_in_pages(settings: Settings, _: Arch | None) -> Fault:
    chunk = settings.get("chunked_prefill_size")
    if chunk is None or chunk <= 0 or settings.get("disaggregation_mode") == "decode":
        return None
    per_rank = chunk // attention_dp(settings)
    if per_rank % page_size(settings) == 0:
        return None
    ranks = f" over {attention_dp(settings)} attention-DP ranks" if attention_dp(settings) > 1 else ""
    return "chunked_prefill_size", f"is {chunk}{ranks}, which is no multiple of page_size {page_size(settings)}"


def _pipeline_speculation(settings: Settings, _: Arch | None) -> Fault:
    kind, stages = algorithm(settings), number(settings, "pp_size", 1)
    if stages <= 1 or kind in {None, "DSPARK", "DFLASH", "UNO"}:
        return None
    if kind == "EAGLE" and settings.get("disaggregation_mode") == "prefill":
        return None
    return "pp_size", f"is {stages}; speculation needs 1 (EAGLE on a PD prefill server excepted)"


CAPACITY_RULES: tuple[Rule, ...] = (
    Rule(
        "memory-fraction-range",
        "`mem_fraction_static` lies between 0 and 1.",
        refuse("mem_fraction_static", "is {mem_fraction_static}; it is a share of GPU memory between 0 and 1",
               lambda s: not 0 < number(s, "mem_fraction_static", 0.5) < 1),
        sglang="runs out of memory, or finds none for the KV cache",
    ),
    Rule(
        "running-requests-positive",
        "`max_running_requests` is positive.",
        refuse("max_running_requests", "is {max_running_requests}; a server that runs no request cannot be measured",
               lambda s: number(s, "max_running_requests", 1) < 1),
        sglang="runs no request",
    ),
    Rule("chunk-in-pages", "`chunked_prefill_size` (per attention-DP rank) is a multiple of the page size.",
         _chunk_in_pages),
    Rule("attention-dp-divides", "Attention-DP ranks divide `tp_size`.", _attention_dp_divides),
    Rule(
        "attention-dp-positive",
        "`attn_dp_size` is positive.",
        refuse("attn_dp_size", "is {attn_dp_size}; it must be 1 or more", lambda s: number(s, "attn_dp_size", 1) < 1),
        since="0.5.23",
    ),
    Rule(
        "attention-dp-or-replicas",
        "`attn_dp_size` above 1 needs `dp_size` 1: replicas do not mix with attention-DP.",
        refuse("dp_size", "is {dp_size} beside attn_dp_size {attn_dp_size}: replicas do not mix with attention-DP",
               lambda s: number(s, "attn_dp_size", 1) > 1 and number(s, "dp_size", 1) > 1),
        since="0.5.23",
    ),
    Rule("context-parallel-divides", "Context parallel size times attention-DP ranks divides `tp_size`.",
         _context_divides),
    Rule(
        "context-parallel-strategy",
        "`enable_prefill_cp` needs a `cp_strategy`.",
        refuse("enable_prefill_cp", "needs cp_strategy zigzag or interleave",
               lambda s: bool(s.get("enable_prefill_cp")) and s.get("cp_strategy") is None),
        since="0.5.15",
    ),
    Rule(
        "decode-context-parallel-alone",
        "`dcp_size` above 1 does not work with `enable_prefill_cp`.",
        refuse("dcp_size", "is {dcp_size}, which does not work with enable_prefill_cp: leave one out",
               lambda s: number(s, "dcp_size", 1) > 1 and bool(s.get("enable_prefill_cp"))),
        since="0.5.19",
    ),
    Rule(
        "decode-context-parallel-exchange",
        "`dcp_comm_backend` a2a and fi_a2a need `dcp_size` above 1.",
        refuse("dcp_comm_backend", "is {dcp_comm_backend}, which needs dcp_size above 1: leave it out",
               lambda s: s.get("dcp_comm_backend") in {"a2a", "fi_a2a"} and number(s, "dcp_size", 1) <= 1),
        since="0.5.19",
    ),
    Rule("pipeline-speculation", "Pipeline parallelism does not speculate, except EAGLE on a PD prefill server.",
         _pipeline_speculation, since="0.5.21"),
    Rule(
        "pipeline-slots-delay",
        "`min_free_slots_delay` needs pipeline size 1.",
        refuse("min_free_slots_delay", "does not work with pp_size {pp_size}: leave it out",
               lambda s: number(s, "pp_size", 1) > 1 and s.get("min_free_slots_delay") is not None),
        since="0.5.19",
    ),
    Rule(
        "replicas-on-one-node",
        "`dp_size` above 1 without attention-DP runs on one node.",
        refuse("dp_size", "is {dp_size} over {nnodes} nodes; replicas run on one node: use attn_dp_size",
               lambda s: attention_dp(s) == 1 and number(s, "dp_size", 1) > 1 and number(s, "nnodes", 1) > 1),
    ),
    Rule(
        "ranks-on-every-node",
        "`tp_size` x `pp_size` is a multiple of `nnodes`.",
        refuse("tp_size", "is {tp_size}; times pp_size {pp_size} it must be a multiple of nnodes {nnodes}",
               lambda s: number(s, "tp_size", 1) * number(s, "pp_size", 1) % number(s, "nnodes", 1) != 0),
    ),
    Rule(
        "dense-tensor-size",
        "`moe_dense_tp_size` is 1 or `tp_size`.",
        refuse("moe_dense_tp_size", "is {moe_dense_tp_size}; it is 1 or tp_size {tp_size}",
               lambda s: s.get("moe_dense_tp_size") not in {None, 1, number(s, "tp_size", 1)}),
    ),
    Rule("expert-size", "`ep_size` is 1 or `tp_size` for MoE runners flashinfer_cutlass and flashinfer_cutedsl.",
         _expert_size),
    Rule(
        "cutlass-expert-size",
        "MoE runner cutlass with fp8 or mxfp8 needs `ep_size` 1.",
        refuse("ep_size", "is {ep_size}, but moe_runner_backend cutlass with quantization {quantization} needs 1",
               lambda s: s.get("moe_runner_backend") == "cutlass" and s.get("quantization") in {"fp8", "mxfp8"}
               and number(s, "ep_size", 1) != 1),
    ),
    Rule("moe-runner-quantization", "A FlashInfer MoE runner takes the quantizations that it has kernels for.",
         _runner_quantization, since="0.5.12"),
    Rule(
        "nvfp4-online-arch",
        "Quantization nvfp4_online needs SM100 or SM103.",
        refuse("quantization", "is nvfp4_online, which needs SM100 or SM103: take modelopt_fp4 or fp8",
               lambda s: s.get("quantization") == "nvfp4_online"),
        since="0.5.15", archs=frozenset(Arch) - SM100,
    ),
    Rule(
        "nvfp4-online-runner",
        "Quantization nvfp4_online needs a FlashInfer MoE runner (trtllm, trtllm_routed, cutedsl or megamoe).",
        refuse("moe_runner_backend", "is {moe_runner_backend}, but quantization nvfp4_online needs flashinfer_trtllm, "
               "flashinfer_trtllm_routed or flashinfer_cutedsl: leave it out",
               lambda s: s.get("quantization") == "nvfp4_online"
               and s.get("moe_runner_backend", "auto") not in {"auto", *_NVFP4_ONLINE_RUNNERS}),
        since="0.5.15",
    ),
    Rule(
        "two-batch-overlap-attention-dp",
        "`enable_two_batch_overlap` without an all-to-all backend needs attention-DP.",
        refuse("enable_two_batch_overlap", "needs attention-DP (attn_dp_size) or a moe_a2a_backend",
               lambda s: bool(s.get("enable_two_batch_overlap")) and s.get("moe_a2a_backend", "none") == "none"
               and attention_dp(s) == 1),
        since="0.5.15",
    ),
    Rule(
        "graph-padding-compile",
        "`disable_cuda_graph_padding` and `enable_torch_compile` exclude each other.",
        refuse("disable_cuda_graph_padding", "and enable_torch_compile exclude each other: leave one out",
               lambda s: bool(s.get("disable_cuda_graph_padding") and s.get("enable_torch_compile"))),
        since="0.5.12",
    ),
    Rule("graph-backend-removed", "CUDA graph backend tc_piecewise is gone.", _removed_graph_backend, since="0.5.23"),
    Rule(
        "graph-context-positive",
        "`cuda_graph_prefill_max_context` is positive.",
        refuse("cuda_graph_prefill_max_context", "is {cuda_graph_prefill_max_context}; it must be positive",
               lambda s: isinstance(v := s.get("cuda_graph_prefill_max_context"), int) and v <= 0),
        since="0.5.23",
    ),
    Rule(
        "priority-policy",
        "`enable_priority_scheduling` needs `schedule_policy` fcfs or lof.",
        refuse("schedule_policy", "is {schedule_policy}, but enable_priority_scheduling needs fcfs or lof",
               lambda s: bool(s.get("enable_priority_scheduling"))
               and s.get("schedule_policy", "fcfs") not in {"fcfs", "lof"}),
    ),
    Rule(
        "retraction-by-priority",
        "`retraction_policy` priority needs `enable_priority_scheduling`.",
        refuse("retraction_policy", "is priority, which needs enable_priority_scheduling",
               lambda s: s.get("retraction_policy") == "priority" and not s.get("enable_priority_scheduling")),
        since="0.5.19",
    ),
    Rule(
        "conservativeness-not-negative",
        "`schedule_conservativeness` is 0 or more.",
        refuse("schedule_conservativeness", "is {schedule_conservativeness}; it must be 0 or more",
               lambda s: number(s, "schedule_conservativeness", 1.0) < 0),
    ),
    Rule(
        "prefill-interval-not-negative",
        "`prefill_decode_interval` is 0 or more.",
        refuse("prefill_decode_interval", "is {prefill_decode_interval}; it must be 0 or more",
               lambda s: number(s, "prefill_decode_interval", 0) < 0),
        since="0.5.19",
    ),
    Rule(
        "metrics-file-folder",
        "`export_metrics_to_file` needs `export_metrics_to_file_dir`.",
        refuse("export_metrics_to_file", "needs export_metrics_to_file_dir",
               lambda s: bool(s.get("export_metrics_to_file")) and s.get("export_metrics_to_file_dir") is None),
    ),
    Rule(
        "dwdp-no-speculation",
        "`dwdp_size` above 1 does not speculate.",
        refuse("dwdp_size", "is {dwdp_size}, which does not speculate: leave it out, or speculative_algorithm",
               lambda s: number(s, "dwdp_size", 1) > 1 and algorithm(s) is not None),
        since="0.5.21",
    ),
)  # fmt: skip
