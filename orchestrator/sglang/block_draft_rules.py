"""What SGLang refuses about algorithms that draft a block at once: DFLASH, DSPARK, UNO. Pure.

Source: `speculative_hook.py` of SGLang.
"""

from __future__ import annotations

from orchestrator.sglang.gpu_arch import BLACKWELL, Arch
from orchestrator.sglang.rule_terms import (
    Fault,
    Rule,
    Settings,
    algorithm,
    attention_backends,
    attention_dp,
    number,
    refuse,
    spelled_attention_dp,
    topk,
)

_CPU = frozenset({Arch.CPU})
_BLOCK = frozenset({"DFLASH", "DSPARK"})


def _is(kind: str, settings: Settings) -> bool:
    return algorithm(settings) == kind


def _block_setting(settings: Settings) -> str:
    return "speculative_dspark_block_size" if _is("DSPARK", settings) else "speculative_dflash_block_size"


def _block_positive(settings: Settings, _: Arch | None) -> Fault:
    name = _block_setting(settings)
    if algorithm(settings) not in _BLOCK or number(settings, name, 1) > 0:
        return None
    return name, f"is {settings[name]}; it must be positive"


def _block_tokens(settings: Settings, _: Arch | None) -> Fault:
    name = _block_setting(settings)
    block, tokens = settings.get(name), settings.get("speculative_num_draft_tokens")
    if algorithm(settings) not in _BLOCK or block is None or tokens is None:
        return None
    wanted, why = (block + 1, f"{name} + 1") if _is("DSPARK", settings) else (block, name)
    if tokens == wanted:
        return None
    told = f"is {tokens}, but with {algorithm(settings)} it is {why} = {wanted}: leave it out"
    return "speculative_num_draft_tokens", told


def _window_covers_block(settings: Settings, _: Arch | None) -> Fault:
    window = settings.get("speculative_draft_window_size")
    block = settings.get("speculative_dflash_block_size") or settings.get("speculative_num_draft_tokens")
    if not _is("DFLASH", settings) or window is None or block is None or window >= block:
        return None
    return "speculative_draft_window_size", f"is {window}, less than the {block} tokens of a DFLASH block"


def _uno_tree(settings: Settings, _: Arch | None) -> Fault:
    """Q verify nodes of a tree with K candidates and F = steps + 1."""
    if not _is("UNO", settings) or topk(settings) <= 1:
        return None
    steps, width = settings.get("speculative_num_steps"), settings.get("speculative_num_draft_tokens")
    if not steps or steps < 1:
        return "speculative_num_steps", "is needed by a tree of UNO (speculative_eagle_topk above 1)"
    if not width:
        return None
    capacity = sum(topk(settings) ** depth for depth in range(min(steps, 12) + 1))
    most = min(capacity, 128, 2048 // topk(settings), topk(settings) * (steps - 1) + 2)
    if steps + 1 <= width <= most:
        return None
    return (
        "speculative_num_draft_tokens",
        f"is {width}; a tree of UNO with {steps} steps and topk {topk(settings)} has {steps + 1} to {most} tokens",
    )


def _uno_backend(settings: Settings, _: Arch | None) -> Fault:
    other = [backend for backend in attention_backends(settings) if backend not in {None, "fa3"}]
    if not _is("UNO", settings) or not other:
        return None
    return "attention_backend", f"gives {other[0]}, but UNO needs fa3 for prefill and decode"


BLOCK_DRAFT_RULES: tuple[Rule, ...] = (
    Rule(
        "dflash-no-pipeline",
        "DFLASH needs pipeline size 1.",
        refuse("pp_size", "is {pp_size}, but DFLASH needs 1",
               lambda s: _is("DFLASH", s) and number(s, "pp_size", 1) != 1),
        since="0.5.12",
    ),
    Rule(
        "block-drafts-on-gpu-only",
        "DFLASH, DSPARK and UNO run on GPUs only.",
        refuse("speculative_algorithm", "{speculative_algorithm} runs on GPUs only",
               lambda s: algorithm(s) in _BLOCK | {"UNO"}),
        since="0.5.12", archs=_CPU,
    ),
    Rule(
        "dflash-no-attention-dp",
        "DFLASH does not run with attention-DP.",
        refuse(spelled_attention_dp, "makes {ranks} attention-DP ranks, which DFLASH supports from SGLang 0.5.23 on",
               lambda s: _is("DFLASH", s) and attention_dp(s) > 1, ranks=attention_dp),
        since="0.5.12", until="0.5.22",
    ),
    Rule(
        "dflash-attention-dp-lm-head",
        "DFLASH with attention-DP needs `enable_dp_lm_head`.",
        refuse("enable_dp_lm_head", "is needed by DFLASH with attention-DP: set it true",
               lambda s: _is("DFLASH", s) and attention_dp(s) > 1 and not s.get("enable_dp_lm_head")),
        since="0.5.23",
    ),
    Rule(
        "dspark-attention-dp-lm-head",
        "DSPARK with attention-DP needs `enable_dp_lm_head`.",
        refuse("enable_dp_lm_head", "is needed by DSPARK with attention-DP: set it true",
               lambda s: _is("DSPARK", s) and attention_dp(s) > 1 and not s.get("enable_dp_lm_head")),
        since="0.5.19",
    ),
    Rule(
        "dspark-attention-dp-a2a",
        "DSPARK with attention-DP needs `moe_a2a_backend` none, megamoe or mori.",
        refuse("moe_a2a_backend", "is {moe_a2a_backend}, but DSPARK with attention-DP needs none, megamoe or mori",
               lambda s: _is("DSPARK", s) and attention_dp(s) > 1
               and s.get("moe_a2a_backend", "none") not in {"none", "megamoe", "mori"}),
        since="0.5.19",
    ),
    Rule(
        "block-drafts-no-context-parallel",
        "DFLASH and DSPARK with attention-DP need attention context parallel size 1.",
        refuse("attn_cp_size", "is {attn_cp_size}, but {speculative_algorithm} with attention-DP needs 1",
               lambda s: algorithm(s) in _BLOCK and attention_dp(s) > 1 and number(s, "attn_cp_size", 1) != 1),
        since="0.5.19",
    ),
    Rule(
        "dspark-pipeline-prefill-only",
        "DSPARK with pipeline parallelism runs on a PD prefill server only.",
        refuse("pp_size", "is {pp_size}, but DSPARK needs 1 unless disaggregation_mode is prefill",
               lambda s: _is("DSPARK", s) and number(s, "pp_size", 1) != 1
               and s.get("disaggregation_mode") != "prefill"),
        since="0.5.19",
    ),
    Rule("block-size-positive", "The block size of DFLASH or DSPARK is positive.", _block_positive, since="0.5.12"),
    Rule(
        "block-draft-tokens",
        "Draft tokens of DFLASH are its block size, of DSPARK its block size + 1.",
        _block_tokens,
        since="0.5.12",
    ),
    Rule(
        "dspark-draft-tokens",
        "DSPARK drafts at least 2 tokens (block size + 1).",
        refuse("speculative_num_draft_tokens", "is {speculative_num_draft_tokens}, but DSPARK needs at least 2",
               lambda s: _is("DSPARK", s) and number(s, "speculative_num_draft_tokens", 2) < 2),
        since="0.5.19",
    ),
    Rule(
        "dflash-window-covers-block",
        "The draft window of DFLASH is no smaller than its block.",
        _window_covers_block,
        since="0.5.12",
    ),
    Rule(
        "uno-no-parallelism",
        "UNO needs tensor and pipeline size 1.",
        refuse(lambda s: "tp_size" if number(s, "tp_size", 1) != 1 else "pp_size",
               "is not 1; UNO needs tp_size 1 and pp_size 1",
               lambda s: _is("UNO", s) and (number(s, "tp_size", 1), number(s, "pp_size", 1)) != (1, 1)),
        since="0.5.21",
    ),
    Rule(
        "uno-no-attention-parallelism",
        "UNO runs without attention-DP and without context parallelism.",
        refuse(lambda s: spelled_attention_dp(s) if attention_dp(s) > 1 else "attn_cp_size",
               "is not supported by UNO: leave it out",
               lambda s: _is("UNO", s) and (attention_dp(s) > 1 or number(s, "attn_cp_size", 1) != 1)),
        since="0.5.21",
    ),
    Rule(
        "uno-not-on-blackwell",
        "UNO needs attention backend fa3, which Blackwell GPUs do not have.",
        refuse("speculative_algorithm", "UNO needs attention_backend fa3, which this GPU does not have",
               lambda s: _is("UNO", s)),
        since="0.5.21", archs=BLACKWELL,
    ),
    Rule("uno-needs-fa3", "UNO needs attention backend fa3 for prefill and decode.", _uno_backend, since="0.5.21"),
    Rule(
        "uno-draft-tokens-given",
        "UNO needs `speculative_num_draft_tokens` of at least 1.",
        refuse("speculative_algorithm", "UNO needs speculative_num_draft_tokens of at least 1",
               lambda s: _is("UNO", s) and number(s, "speculative_num_draft_tokens", 0) < 1),
        since="0.5.21",
    ),
    Rule("uno-tree", "A tree of UNO is no larger than steps and topk allow, and at most 128 tokens.", _uno_tree,
         since="0.5.21"),
    Rule(
        "uno-lora",
        "UNO needs `uno_lora_path`, and serves no other LoRA.",
        refuse(lambda s: "lora_paths" if s.get("lora_paths") else "enable_lora" if s.get("enable_lora")
               else "speculative_algorithm",
               "and UNO: it needs uno_lora_path and serves no other LoRA",
               lambda s: _is("UNO", s)
               and bool(s.get("uno_lora_path") is None or s.get("enable_lora") or s.get("lora_paths"))),
        since="0.5.21",
    ),
    Rule(
        "uno-no-draft-model",
        "UNO drafts with the target model: no draft path.",
        refuse("speculative_draft_model_path", "is given, but UNO drafts with the target model: leave it out",
               lambda s: _is("UNO", s) and s.get("speculative_draft_model_path") is not None),
        since="0.5.21",
    ),
    Rule(
        "uno-no-determinism",
        "UNO does not run with `enable_deterministic_inference` or `enable_strict_thinking`.",
        refuse(lambda s: next(n for n in ("enable_deterministic_inference", "enable_strict_thinking") if s.get(n)),
               "is not supported by UNO: leave it out",
               lambda s: _is("UNO", s)
               and bool(s.get("enable_deterministic_inference") or s.get("enable_strict_thinking"))),
        since="0.5.21",
    ),
)  # fmt: skip
