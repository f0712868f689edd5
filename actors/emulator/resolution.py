"""SGLang's rules that turn what was typed into what the server runs with (those that speculation and memory need)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from actors.emulator.profiles import Profile
from actors.emulator.ranks import LocalRanks, local_ranks

SPEC_MAX_RUNNING = 48
NEEDS_DRAFT_PATH = {"STANDALONE", "EAGLE3", "DFLASH"}
EAGLE_FAMILY = {"EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP"}
EAGLE_PROPER = {"EAGLE", "EAGLE3"}
UNSET = {
    "custom_weight_loader": [],
    "dcp_comm_backend": "ag_rs",
    "enable_tf32_matmul": False,
    "enable_tp_lm_head_all_to_all": False,
    "expert_distribution_recorder_buffer_size": 1000,
    "grammar_backend": "xgrammar",
    "hicache_ratio": 2.0,
    "mamba_full_memory_ratio": 0.9,
    "mm_enable_dp_encoder": False,
    "mm_process_config": {},
    "prefill_decode_interval": 0,
    "speculative_moe_runner_backend": "auto",
    "swa_full_tokens_ratio": 0.8,
    "watermark_config": "<redacted>",
}
"""What SGLang makes of options that were not given, whatever the model and the device."""
AUTO_SHAPE = (3, 1, 4)
MAX_BLOCK_DEPTH = 5

# (MiB of the smallest GPU below, chunked prefill tokens, captured decode batch at tp < 4, at tp >= 4)
_TIERS = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (90 * 1024, 8192, 256, 512),
    (160 * 1024, 8192, 256, 512),
    (1 << 40, 16384, 512, 512),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The resolved settings that the models need; `args` is every option by name, as /server_info answers it."""

    args: dict[str, Any]
    warnings: tuple[str, ...]
    algorithm: str | None
    num_steps: int
    topk: int
    draft_tokens: int
    tp: int
    mem_fraction: float
    max_running: int | None
    max_total_tokens: int | None
    chunk_tokens: int
    context_length: int
    capture_decode: tuple[int, ...]
    capture_prefill: tuple[int, ...]

    @property
    def ranks(self) -> LocalRanks:
        """The schedulers of this node."""
        return local_ranks(self.args)

    @property
    def speculating(self) -> bool:
        return self.algorithm is not None

    @property
    def reserved_tokens(self) -> int:
        """Context that EAGLE keeps for the drafts of each request; SGLang counts it to the prompt."""
        return max(self.topk * self.num_steps, self.draft_tokens) if self.algorithm in EAGLE_PROPER else 0

    @property
    def device(self) -> str:
        return "cpu" if self.args["device"] == "cpu" else "cuda"

    @property
    def depth(self) -> int:
        """How many drafts in a row a verify can accept: the steps of a chain or tree, a block's length less one."""
        if self.algorithm in {"DFLASH", "DSPARK", "NGRAM"}:
            return min(MAX_BLOCK_DEPTH, self.draft_tokens - 1)
        return self.num_steps


def resolve(given: dict[str, Any], profile: Profile) -> Settings:
    """Fill in every default in SGLang's order. ValueError or AssertionError where SGLang's own rules raise one."""
    args, warnings = dict(given), list[str]()
    if args["tp_size"] * args["pp_size"] % args["nnodes"]:
        raise AssertionError("tp_size must be divisible by number of nodes")
    args |= {name: value for name, value in UNSET.items() if args[name] is None}
    _resolve_device(args)
    tier = next(t for t in _TIERS if profile.gpu.total_mib < t[0])
    capture = _resolve_graphs(args, tier, profile)
    if args["mem_fraction_static"] is None:
        args["mem_fraction_static"] = _default_fraction(args, profile, capture)
    args["page_size"] = args["page_size"] or 1
    args["attention_backend"] = args["attention_backend"] or "flashinfer"
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    if args["random_seed"] is None:
        args["random_seed"] = random.SystemRandom().randrange(1 << 30)
    steps, topk, draft = _resolve_speculation(args, warnings, profile)
    decode, prefill = capture
    if args["speculative_algorithm"] is not None and args["cuda_graph_bs_decode"] is None:
        decode = capture_list(max(decode, default=0), speculating=True) if decode else ()
    args["cuda_graph_config"] = _graph_config(args, decode, prefill)
    return Settings(
        args=args,
        warnings=tuple(warnings),
        algorithm=args["speculative_algorithm"],
        num_steps=steps,
        topk=topk,
        draft_tokens=draft,
        tp=args["tp_size"],
        mem_fraction=args["mem_fraction_static"],
        max_running=args["max_running_requests"],
        max_total_tokens=args["max_total_tokens"],
        chunk_tokens=args["chunked_prefill_size"] if args["chunked_prefill_size"] > 0 else args["max_prefill_tokens"],
        context_length=args["context_length"] or profile.context_length,
        capture_decode=decode,
        capture_prefill=prefill,
    )


def _resolve_device(args: dict[str, Any]) -> None:
    on_cpu = args["device"] == "cpu"
    args["sampling_backend"] = args["sampling_backend"] or ("pytorch" if on_cpu else "flashinfer")
    if on_cpu:
        args["mm_feature_transport"] = args["mm_feature_transport"] or "cpu"
        args["disable_overlap_schedule"] = bool(args["disable_overlap_schedule"] or args["speculative_algorithm"])
    if args["load_balance_method"] == "auto":
        args["load_balance_method"] = "round_robin"
    if args["encoder_transfer_backend"] == "auto":
        args["encoder_transfer_backend"] = "zmq_to_scheduler"


def _steps(*spans: tuple[int, int, int]) -> list[int]:
    return [size for start, stop, step in spans for size in range(start, stop + 1, step)]


def capture_list(max_batch: int, speculating: bool) -> tuple[int, ...]:
    """Batch sizes that decode graphs are captured for, up to and including `max_batch`."""
    if speculating:
        sizes = _steps((1, 8, 1), (10, 32, 2), (40, 64, 4), (72, 256, 8), (272, max(272, max_batch), 16))
    else:
        sizes = [1, 2, 4, 8, 12, *_steps((16, 256, 8), (272, 511, 16), (512, max(512, max_batch), 32))]
    return tuple(sorted({size for size in sizes if size <= max_batch} | {max_batch}))


def prefill_list(max_tokens: int) -> tuple[int, ...]:
    """Token counts that prefill graphs are captured for."""
    spans = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, max_tokens, 512))
    return tuple(sorted({size for size in _steps(*spans) if size <= max_tokens} | {max_tokens}))


def _disabled(args: dict[str, Any], phase: str) -> bool:
    legacy = args["disable_cuda_graph"] or args[f"disable_{phase}_cuda_graph"]
    return bool(legacy) or args[f"cuda_graph_backend_{phase}"] == "disabled"


def _resolve_graphs(
    args: dict[str, Any], tier: tuple[int, int, int, int], profile: Profile
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if args["chunked_prefill_size"] is None:
        args["chunked_prefill_size"] = tier[1]
    config = (args["cuda_graph_config"] or {}).get("decode", {})
    batch = config.get("max_bs") or args["cuda_graph_max_bs_decode"]
    if batch is None:
        batch = tier[3] if args["tp_size"] >= 4 else tier[2]
        if args["max_running_requests"] is not None:
            batch = min(batch, max(1, args["max_running_requests"]))
    listed = config.get("bs") or args["cuda_graph_bs_decode"]
    decode = tuple(sorted(listed)) if listed else capture_list(batch, speculating=False)
    tokens = args["cuda_graph_max_bs_prefill"] or max(4, args["chunked_prefill_size"])
    prefill = tuple(args["cuda_graph_bs_prefill"] or prefill_list(tokens))
    if _disabled(args, "decode"):
        decode = ()
    if _disabled(args, "prefill") or not profile.prefill_graph:
        prefill = ()
    return decode, prefill


def _default_fraction(args: dict[str, Any], profile: Profile, capture: tuple[tuple[int, ...], ...]) -> float:
    decode, prefill = capture
    reserved = 512 + 1.5 * max(args["chunked_prefill_size"], 2048) + 1024 * args["tp_size"] * args["pp_size"] / 8
    reserved += 2 * max(decode, default=0) + (1536 if profile.mla and prefill else 8 * len(prefill))
    if profile.gpu.total_mib > 60 * 1024:
        reserved = max(reserved, 10240)
    fraction: float = round((profile.gpu.total_mib - reserved) / profile.gpu.total_mib, 3)
    return fraction


def _graph_config(args: dict[str, Any], decode: tuple[int, ...], prefill: tuple[int, ...]) -> dict[str, Any]:
    def phase(sizes: tuple[int, ...], name: str, backend: str) -> dict[str, Any]:
        chosen = args[f"cuda_graph_backend_{name}"] or backend
        return {"backend": chosen if sizes else "disabled", "max_bs": max(sizes, default=0), "bs": list(sizes)}

    return {"decode": phase(decode, "decode", "full"), "prefill": phase(prefill, "prefill", "breakable")}


def _resolve_speculation(args: dict[str, Any], warnings: list[str], profile: Profile) -> tuple[int, int, int]:
    name = args["speculative_algorithm"]
    if name is None:
        return 0, 0, 1
    algorithm = "EAGLE" if name.upper() == "NEXTN" else name.upper()
    args["speculative_algorithm"] = algorithm
    _resolve_draft_path(args, algorithm, profile)
    if args["max_running_requests"] is None:
        args["max_running_requests"] = SPEC_MAX_RUNNING
        warnings.append(
            "Max running requests is reset to 48 for speculative decoding. "
            "You can override this by explicitly setting --max-running-requests."
        )
    warnings += _schedule_warnings(args, algorithm)
    shape = _eagle_shape(args, warnings) if algorithm in EAGLE_FAMILY else _other_shape(args, algorithm)
    args["speculative_num_steps"], args["speculative_eagle_topk"], args["speculative_num_draft_tokens"] = shape
    return shape


def _schedule_warnings(args: dict[str, Any], algorithm: str) -> list[str]:
    said = []
    if args["device"] == "cpu":
        said.append("Overlap schedule is not implemented for speculative decoding on CPU.")
    if args["disable_overlap_schedule"] and algorithm in EAGLE_FAMILY:
        said.append("Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone speculative decoding.")
    if algorithm == "NGRAM":
        said.append("The mixed chunked prefill are disabled because of using ngram speculative decoding.")
    return said


def _resolve_draft_path(args: dict[str, Any], algorithm: str, profile: Profile) -> None:
    path = args["speculative_draft_model_path"]
    if path is not None:
        args["speculative_draft_model_revision"] = args["speculative_draft_model_revision"] or "main"
    elif algorithm in NEEDS_DRAFT_PATH:
        raise ValueError(f"{algorithm} speculative decoding requires setting --speculative-draft-model-path.")
    elif algorithm == "EAGLE" and profile.bundled_draft:
        args["speculative_draft_model_path"] = args["model_path"]


def _eagle_shape(args: dict[str, Any], warnings: list[str]) -> tuple[int, int, int]:
    steps, topk = args["speculative_num_steps"], args["speculative_eagle_topk"]
    draft = args["speculative_num_draft_tokens"]
    if steps is None:
        if topk is not None or draft is not None:
            raise AssertionError
        return AUTO_SHAPE
    if topk is None:
        raise TypeError("'>' not supported between instances of 'NoneType' and 'int'")
    if topk == 1 and draft != steps + 1:
        warnings.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
        )
        draft = steps + 1
    if topk > 1 and args["page_size"] > 1 and args["attention_backend"] not in {"flashinfer", "fa3", "triton"}:
        raise ValueError("speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results.")
    return steps, topk, draft or steps * topk + 1


def _other_shape(args: dict[str, Any], algorithm: str) -> tuple[int, int, int]:
    if algorithm == "NGRAM":
        draft, topk = args["speculative_num_draft_tokens"] or 12, args["speculative_ngram_max_bfs_breadth"]
        return draft // topk, topk, draft
    block = args["speculative_dflash_block_size"] or args["speculative_dspark_block_size"] or 16
    return 1, 1, block
