"""What SGLang refuses about the numbers of drafts: steps, topk, draft tokens, verification, adaptivity. Pure.

Source: `speculative_hook.py` of SGLang (before 0.5.15 `server_args.py`).
"""

from __future__ import annotations

from orchestrator.sglang.gpu_arch import Arch
from orchestrator.sglang.rule_terms import (
    Fault,
    Rule,
    Settings,
    algorithm,
    attention_dp,
    backend_setting,
    is_drafting_by_steps,
    number,
    page_size,
    refuse,
    spelled_attention_dp,
    topk,
    uses_backend,
)

# Where SGLang's own choice, whatever the model, is one of the backends that can verify a tree in pages.
_ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
_EAGLE = frozenset({"EAGLE", "EAGLE3"})


def _steps_given(settings: Settings, _: Arch | None) -> Fault:
    if not is_drafting_by_steps(settings) or settings.get("speculative_num_steps") is not None:
        return None
    if settings.get("speculative_adaptive"):
        return None
    return "speculative_algorithm", "needs speculative_num_steps; left open, SGLang would choose by model type"


def _chain_tokens(settings: Settings, _: Arch | None) -> Fault:
    steps, tokens = settings.get("speculative_num_steps"), settings.get("speculative_num_draft_tokens")
    if not is_drafting_by_steps(settings) or topk(settings) != 1 or None in {steps, tokens}:
        return None
    assert steps is not None
    if tokens == steps + 1:
        return None
    told = f"is {tokens}, but with speculative_eagle_topk 1 it is always speculative_num_steps + 1 = {steps + 1}"
    return "speculative_num_draft_tokens", told


def _page_tree(settings: Settings, arch: Arch | None) -> Fault:
    return _page_tree_on(settings, arch, ("flashinfer", "fa3", "triton"))


def _page_tree_before_triton(settings: Settings, arch: Arch | None) -> Fault:
    return _page_tree_on(settings, arch, ("flashinfer", "fa3"))


def _page_tree_on(settings: Settings, arch: Arch | None, able: tuple[str, ...]) -> Fault:
    backend = settings.get("attention_backend")
    if not is_drafting_by_steps(settings) or topk(settings) <= 1 or page_size(settings) <= 1 or backend in able:
        return None
    if backend is None and arch is not Arch.CPU:  # what SGLang takes for plain attention can; other models tell it
        return None
    names = f"{', '.join(able[:-1])} or {able[-1]}"
    told = f"is {topk(settings)} with page_size {page_size(settings)}: needs attention_backend {names}"
    return "speculative_eagle_topk", told


def _ngram_page_tree(settings: Settings, _: Arch | None) -> Fault:
    if algorithm(settings) != "NGRAM" or topk(settings) <= 1 or page_size(settings) <= 1:
        return None
    if settings.get("attention_backend") == "flashinfer":
        return None
    told = (
        f"is {topk(settings)} with page_size {page_size(settings)}: a tree of NGRAM in pages needs attention_backend "
        "flashinfer, else page_size 1"
    )
    return "speculative_ngram_max_bfs_breadth", told


def _ngram_sam_budget(settings: Settings, _: Arch | None) -> Fault:
    if algorithm(settings) != "NGRAM" or settings.get("speculative_ngram_external_corpus_path") is None:
        return None
    budget = number(settings, "speculative_ngram_external_sam_budget", 0)
    most = number(settings, "speculative_num_draft_tokens", 12) - 1
    if 0 < budget <= most:
        return None
    told = f"is {budget}; with an external corpus it lies between 1 and speculative_num_draft_tokens - 1 = {most}"
    return "speculative_ngram_external_sam_budget", told


def _samples_rejections(settings: Settings) -> bool:
    by_block = settings.get("speculative_use_block_verification") and algorithm(settings) in _EAGLE
    return algorithm(settings) is not None and bool(settings.get("speculative_use_rejection_sampling") or by_block)


def _how_sampled(settings: Settings) -> str:
    by_itself = settings.get("speculative_use_rejection_sampling")
    return "speculative_use_rejection_sampling" if by_itself else "speculative_use_block_verification"


def _accepts_by_threshold(settings: Settings) -> bool:
    thresholds = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
    return any(number(settings, name, 1.0) != 1.0 for name in thresholds)


def _adaptive_unsupported(settings: Settings, _: Arch | None) -> Fault:
    if not settings.get("speculative_adaptive") or algorithm(settings) is None:
        return None
    reasons = {
        f"{algorithm(settings)} (only EAGLE, EAGLE3 and NEXTN adapt)": algorithm(settings) not in _EAGLE,
        f"speculative_eagle_topk {topk(settings)} (only 1)": topk(settings) != 1,
        "attention-DP": attention_dp(settings) > 1,
        "enable_multi_layer_eagle": bool(settings.get("enable_multi_layer_eagle")),
        "enable_two_batch_overlap": bool(settings.get("enable_two_batch_overlap")),
        "enable_pdmux": bool(settings.get("enable_pdmux")),
    }
    met = [reason for reason, is_so in reasons.items() if is_so]
    if not met:
        return None
    return "speculative_adaptive", f"does not work with {met[0]}; SGLang would keep the steps fixed: leave one out"


def _adaptive_candidates(settings: Settings, _: Arch | None) -> Fault:
    steps = settings.get("speculative_num_steps")
    if not settings.get("speculative_adaptive") or settings.get("speculative_adaptive_config") is not None:
        return None
    if algorithm(settings) not in _EAGLE or steps is None or steps in _ADAPTIVE_STEPS:
        return None
    return (
        "speculative_num_steps",
        f"is {steps}; with speculative_adaptive it must be one of its candidates: 1, 3, 5 or 7 "
        "(or give speculative_adaptive_config)",
    )


def _negative_steps(settings: Settings) -> bool:
    steps = settings.get("speculative_num_steps")
    return isinstance(steps, int) and steps < 0


SPECULATION_RULES: tuple[Rule, ...] = (
    Rule(
        "steps-not-negative",
        "`speculative_num_steps` is 0 (no speculation) or more.",
        refuse("speculative_num_steps", "is {speculative_num_steps}; 0 means no speculation, there is nothing below it",
               _negative_steps),
        sglang="crashes",
    ),
    Rule(
        "steps-need-algorithm",
        "Draft steps need a `speculative_algorithm`.",
        refuse("speculative_num_steps",
               "is {speculative_num_steps} but there is no speculative_algorithm (EAGLE, EAGLE3, NEXTN, "
               "STANDALONE, ...)",
               lambda s: s.get("speculative_algorithm") is None and bool(s.get("speculative_num_steps"))),
        sglang="ignores the steps",
    ),
    Rule(
        "steps-given",
        "The EAGLE family and STANDALONE need `speculative_num_steps`, unless adaptive.",
        _steps_given,
        sglang="chooses by model type, or crashes if topk or draft tokens are given",
    ),
    Rule(
        "tree-draft-tokens-given",
        "With topk above 1, `speculative_num_draft_tokens` is given as well.",
        refuse("speculative_eagle_topk", "is {topk}: give speculative_num_draft_tokens as well",
               lambda s: is_drafting_by_steps(s) and topk(s) > 1 and s.get("speculative_num_draft_tokens") is None,
               topk=topk),
        sglang="crashes",
    ),
    Rule(
        "chain-draft-tokens",
        "With topk 1, draft tokens are always steps + 1.",
        _chain_tokens,
        sglang="changes the number, with a warning",
    ),
    Rule(
        "trtllm-mha-chain-only",
        "Attention backend trtllm_mha verifies chains only: topk 1.",
        refuse("speculative_eagle_topk",
               "is {topk}, but {which} trtllm_mha verifies chains only: take topk 1, or flashinfer",
               lambda s: is_drafting_by_steps(s) and topk(s) > 1 and uses_backend(s, "trtllm_mha"),
               topk=topk, which=lambda s: backend_setting(s, "trtllm_mha")),
    ),
    Rule(
        "page-tree-backend",
        "topk above 1 with pages above 1 needs attention backend flashinfer, fa3 or triton (left open: "
        "on a CPU only).",
        _page_tree,
        since="0.5.15",
    ),
    Rule(
        "page-tree-backend-without-triton",
        "As page-tree-backend, but triton cannot do it either.",
        _page_tree_before_triton,
        until="0.5.14",
    ),
    Rule(
        "flex-attention-no-speculation",
        "Attention backend flex_attention does not speculate.",
        refuse("attention_backend", "flex_attention does not speculate: take another, or no speculative_algorithm",
               lambda s: algorithm(s) is not None and s.get("attention_backend") == "flex_attention"),
    ),
    Rule(
        "ngram-page-tree",
        "NGRAM with breadth above 1 and pages above 1 needs attention backend flashinfer.",
        _ngram_page_tree,
    ),
    Rule(
        "ngram-no-attention-dp",
        "NGRAM does not run with attention-DP.",
        refuse(spelled_attention_dp, "makes {ranks} attention-DP ranks, which NGRAM does not support: leave it out",
               lambda s: algorithm(s) == "NGRAM" and attention_dp(s) > 1, ranks=attention_dp),
    ),
    Rule(
        "ngram-on-gpu-only",
        "NGRAM runs on GPUs only.",
        refuse("speculative_algorithm", "NGRAM runs on a CPU from SGLang 0.5.19 on only",
               lambda s: algorithm(s) == "NGRAM"),
        until="0.5.18", archs=frozenset({Arch.CPU}),
    ),
    Rule(
        "ngram-sam-budget",
        "NGRAM with an external corpus: the SAM budget lies between 1 and draft tokens - 1.",
        _ngram_sam_budget,
        since="0.5.12",
    ),
    Rule(
        "ngram-corpus-tokens",
        "NGRAM with an external corpus: its largest number of tokens is positive.",
        refuse("speculative_ngram_external_corpus_max_tokens", "is {speculative_ngram_external_corpus_max_tokens}; "
               "with an external corpus it must be positive",
               lambda s: algorithm(s) == "NGRAM" and s.get("speculative_ngram_external_corpus_path") is not None
               and number(s, "speculative_ngram_external_corpus_max_tokens", 1) <= 0),
        since="0.5.12",
    ),
    Rule(
        "standalone-no-attention-dp",
        "STANDALONE does not run with attention-DP.",
        refuse(spelled_attention_dp,
               "makes {ranks} attention-DP ranks, which STANDALONE does not support: leave it out",
               lambda s: algorithm(s) == "STANDALONE" and attention_dp(s) > 1, ranks=attention_dp),
    ),
    Rule(
        "rejection-sampling-algorithm",
        "Rejection sampling is for EAGLE, EAGLE3 and NEXTN.",
        refuse("speculative_use_rejection_sampling",
               "is for EAGLE, EAGLE3 and NEXTN, but speculative_algorithm is {speculative_algorithm}: leave it out",
               lambda s: algorithm(s) is not None and algorithm(s) not in _EAGLE
               and bool(s.get("speculative_use_rejection_sampling"))),
        since="0.5.15",
    ),
    Rule(
        "rejection-sampling-chain-only",
        "Rejection sampling (which block verification turns on for EAGLE) needs topk 1.",
        refuse("speculative_eagle_topk", "is {topk}, but {how} needs 1",
               lambda s: _samples_rejections(s) and algorithm(s) in _EAGLE and topk(s) != 1,
               topk=topk, how=_how_sampled),
        since="0.5.15",
    ),
    Rule(
        "rejection-sampling-no-thresholds",
        "Rejection sampling ignores the accept thresholds; both must be 1.0.",
        refuse(_how_sampled, "ignores the accept thresholds: leave speculative_accept_threshold_single and _acc at 1.0",
               lambda s: _samples_rejections(s) and algorithm(s) in _EAGLE and _accepts_by_threshold(s)),
        since="0.5.15",
    ),
    Rule(
        "block-verification-algorithm",
        "Block verification is for EAGLE, EAGLE3, NEXTN, DFLASH and DSPARK.",
        refuse("speculative_use_block_verification",
               "is for EAGLE, EAGLE3, NEXTN, DFLASH and DSPARK, but speculative_algorithm is {speculative_algorithm}",
               lambda s: bool(s.get("speculative_use_block_verification"))
               and algorithm(s) not in _EAGLE | {"DFLASH", "DSPARK"} and s.get("speculative_num_steps") != 0),
        since="0.5.23",
    ),
    Rule(
        "block-verification-on-gpu-only",
        "Block verification runs on GPUs only.",
        refuse("speculative_use_block_verification", "runs on GPUs only: leave it out",
               lambda s: bool(s.get("speculative_use_block_verification")) and algorithm(s) is not None),
        since="0.5.23", archs=frozenset({Arch.CPU}),
    ),
    Rule(
        "adaptive-unsupported",
        "Adaptive speculation needs EAGLE, EAGLE3 or NEXTN with topk 1, without attention-DP, multi-layer EAGLE, "
        "two-batch overlap and PD multiplexing.",
        _adaptive_unsupported,
        since="0.5.12", sglang="keeps the steps fixed, with a warning",
    ),
    Rule(
        "adaptive-candidate-steps",
        "Adaptive speculation starts from one of its candidate steps (1, 3, 5, 7 unless configured).",
        _adaptive_candidates,
        since="0.5.15",
    ),
    Rule(
        "draft-window-positive",
        "`speculative_draft_window_size` is positive.",
        refuse("speculative_draft_window_size", "is {speculative_draft_window_size}; it must be positive",
               lambda s: algorithm(s) is not None and number(s, "speculative_draft_window_size", 1) <= 0),
        since="0.5.12",
    ),
    Rule(
        "draft-sink-needs-window",
        "`speculative_draft_sink_size` is not negative and needs a draft window.",
        refuse("speculative_draft_sink_size",
               "is {speculative_draft_sink_size}; it must be 0 or more, beside a speculative_draft_window_size",
               lambda s: algorithm(s) is not None and s.get("speculative_draft_sink_size") is not None
               and (s["speculative_draft_sink_size"] < 0 or s.get("speculative_draft_window_size") is None)),
        since="0.5.21",
    ),
)  # fmt: skip
