"""Diagnoses of real logs of dead servers, and of the traps in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.diagnosis import diagnose
from actors.servers.follower import split_log
from orchestrator.outcome import Diagnosis, Label, Phase

LOGS = Path(__file__).parents[2] / "data" / "logs"
BEGIN = (
    "[2026-08-07 17:35:50] server_args={'model_path': 'm'}\n[2026-08-07 17:35:50] Load weight begin. avail mem=9 GB\n"
)
LOADED = BEGIN + "[2026-08-07 17:35:59] Load weight end. type=M, avail mem=7.00 GB, mem usage=2.00 GB.\n"
POOLED = LOADED + "[2026-08-07 17:35:59] Memory pool end. avail mem=2.30 GB\n"
VERIFYING = POOLED + "[2026-08-07 17:36:00] Capture target verify CUDA graph begin. backend=full, avail mem=2.30 GB\n"
READY = POOLED + "[2026-08-07 17:36:00] The server is fired up and ready to roll!\n[2026-08-07 17:36:01] Decode batch\n"
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.50 GiB. "
    "GPU 1 has a total capacity of 94.97 GiB of which 2.30 GiB is free"
)
ECHOES = (
    "\n[2026-08-07 17:36:09] Received sigquit from a child process. It usually means the child failed.\n"
    "[2026-08-07 17:36:09] kill_process_tree called: parent_pid=1, include_parent=True, pid=1\n"
)


def stored(name: str, exit_code: int | None = None) -> Diagnosis:
    return diagnose(split_log((LOGS / f"{name}.log").read_bytes()), exit_code=exit_code)


def told(
    text: str,
    exit_code: int | None = None,
    *,
    stopped_at_line: int | None = None,
    timed_out: str | None = None,
    oom_kills: int = 0,
) -> Diagnosis:
    return diagnose(
        split_log(text.encode()),
        exit_code=exit_code,
        stopped_at_line=stopped_at_line,
        timed_out=timed_out,
        oom_kills=oom_kills,
    )


@pytest.mark.parametrize(
    ("name", "exit_code", "label", "phase", "line", "evidence"),
    [
        ("memfrac_1p5", 1, "host_oom", "kv_pool", 81, "RuntimeError: Rank 0 scheduler died during initialization"),
        ("big_memfrac001", -9, "kv_budget", "kv_pool", 72, "ValueError: Loaded weights leave no GPU memory for the KV"),
        ("maxtok0", -9, "kv_budget", "kv_pool", 79, "RuntimeError: Not enough memory. Please try to increase"),
        ("alloc_ulimit4g", -9, "oom_kv_alloc", "kv_pool", 88, "RuntimeError: [enforce fail at alloc_cpu.cpp:127]"),
        (
            "nomodel",
            1,
            "model_missing",
            "args",
            25,
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested",
        ),
        ("argparse", 2, "flag_invalid", "args", 482, "sglang serve: error: argument --attention-backend: invalid"),
        ("portused", -9, "port_in_use", "http_bind", 58, "[2026-11-29 13:30:11] ERROR:    [Errno 98] error while"),
    ],
)
def test_failed_starts_of_a_real_server(
    name: str, exit_code: int, label: str, phase: str, line: int, evidence: str
) -> None:
    diagnosis = stored(f"failing-{name}", exit_code)
    assert (diagnosis.label, diagnosis.phase, diagnosis.line_number) == (label, phase, line)
    assert diagnosis.evidence.startswith(evidence)
    assert diagnosis.exit_code == exit_code


@pytest.mark.parametrize(
    ("name", "label", "phase"),
    [
        ("07-stop-clean-sigterm-2026-09", "stop_requested", "shutdown"),
        ("09-oom-weights-failed-linear-occupied-gpu-vllm", "oom_weights", "weights"),
        ("102-flag-vllm-flags-given-to-sglang", "flag_invalid", "args"),
        ("14-kvbudget-stuck-between-084-085-spec-l40s", "kv_budget", "kv_pool"),
        ("16-kvbudget-two-servers-per-gpu-rtxpro6000", "kv_budget", "kv_pool"),
        ("18-kvbudget-qwen3-8b-bf16-16gb-mfs093", "kv_budget", "kv_pool"),
        ("19-kvbudget-actually-orphan-workers-npu", "kv_budget", "kv_pool"),
        ("20-oom-kvalloc-2x3090-compose-prefix", "oom_kv_alloc", "kv_pool"),
        ("21-oom-statepool-mamba-wsl2-rtxpro6000", "state_pool", "state_pool"),
        ("24-oom-graph-draft-extend-short-by-3mb", "oom_graph_draft", "graph_draft"),
        ("25-oom-graph-target-v4pro-16gpu-eagle", "oom_graph_target", "graph_target"),
        ("27-oom-graph-8xh200-mfs086-still-fails", "oom_graph_target", "graph_target"),
        ("29-oom-graph-nextn-fusedmoe-8xh20", "capture_error", "graph_target"),
        ("31-capture-flashinfer-headdim-phi35", "capture_error", "graph_target"),
        ("33-capture-draft-extend-attributeerror", "capture_error", "graph_draft"),
        ("34-kernel-sm120-rmsnorm-rtx5090", "capture_error", "graph_target"),
        ("42-watchdog-tp8-then-killed", "watchdog_hang", "serving"),
        ("44-watchdog-decode-hang-r1-c5000", "watchdog_hang", "serving"),
        ("46-watchdog-first-jit-load-a100", "watchdog_hang", "serving"),
        ("56-hostoom-exit-minus9-pinned-table", "host_oom", "weights"),
        ("61-unified-mem-exit-minus15-gb10", "host_oom", "weights"),
        ("62-port-zmq-internal-block-overlap-exit-minus9", "port_in_use", "spawn"),
        ("64-port-http-bind-errno98-after-load", "port_in_use", "http_bind"),
        ("67-gpu-occupied-orphan-vllm-free-less-than-desired", "gpu_occupied", "dist_init"),
        ("69-runtime-pool-hybrid-mamba-prefill-oom", "runtime_pool", "serving"),
        ("71-runtime-pool-full-fallback-crashloop", "runtime_pool", "serving"),
        ("73-runtime-pool-req-slots", "runtime_pool", "serving"),
        ("81-flag-unrecognized-enable-reasoning", "flag_invalid", "args"),
        ("83-flag-unrecognized-speculative-adaptive", "flag_invalid", "args"),
        ("86-config-vllm-mamba-max-num-seqs", "config_conflict", "state_pool"),
        ("91-oom-graph-vllm-cuda-error-form", "oom_graph_target", "graph_target"),
        ("11-oom-weights-gptoss-mxfp4", "unknown", "weights"),
        ("58-trap-exit-minus3-assertion-mi300x", "unknown", "spawn"),
        ("88-model-weights-missing-kt", "unknown", "weights"),
        ("107-runtime-oom-olmocr-7b-a100", "out_of_memory", "serving"),
    ],
)
def test_excerpts_of_logs_from_the_field(name: str, label: str, phase: str) -> None:
    diagnosis = stored(name)
    assert (diagnosis.label, diagnosis.phase) == (label, phase)


def test_the_depth_that_left_no_room_for_the_cache_is_a_budget_and_infeasible() -> None:
    diagnosis = told(LOADED + "RuntimeError: Not enough memory" + ECHOES, -9)
    assert diagnosis == Diagnosis(Label.KV_BUDGET, Phase.KV_POOL, "RuntimeError: Not enough memory", 4, -9)
    assert diagnosis.infeasible


def test_memory_that_ran_out_during_capture_is_seen_behind_the_echoes() -> None:
    bar = "\rCapturing batches (bs=16 avail_mem=2.30 GB):   0%|          | 0/12 [00:00<?, ?it/s]"
    diagnosis = told(VERIFYING + bar + OUT_OF_MEMORY + ECHOES, -9)
    assert diagnosis == Diagnosis(Label.OOM_GRAPH_TARGET, Phase.GRAPH_TARGET, OUT_OF_MEMORY, 6, -9)


@pytest.mark.parametrize(
    ("before", "label", "phase"),
    [
        (BEGIN, "oom_weights", "weights"),
        (LOADED + "[2026-08-07 17:35:59] Load weight begin. avail mem=7.00 GB\n", "oom_weights", "draft_weights"),
        (LOADED, "oom_kv_alloc", "kv_pool"),
        (VERIFYING, "oom_graph_target", "graph_target"),
        (
            VERIFYING + "[2026-08-07 17:36:01] Capture draft extend CUDA graph begin.\n",
            "oom_graph_draft",
            "graph_draft",
        ),
        (READY, "runtime_oom", "serving"),
    ],
)
def test_device_memory_is_named_by_where_it_ran_out(before: str, label: str, phase: str) -> None:
    diagnosis = told(before + OUT_OF_MEMORY + ECHOES, -9)
    assert (diagnosis.label, diagnosis.phase, diagnosis.evidence) == (label, phase, OUT_OF_MEMORY)


def test_the_rank_that_failed_decides_where() -> None:
    log = (
        "[2026-08-07 17:35:50 TP0] Load weight begin. avail mem=9.00 GB\n"
        "[2026-08-07 17:35:50 TP1] Load weight begin. avail mem=9.00 GB\n"
        "[2026-08-07 17:35:59 TP0] Load weight end. type=M, avail mem=7.00 GB, mem usage=2.00 GB.\n"
        "[2026-08-07 17:35:59 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
    )
    assert told(log + OUT_OF_MEMORY).label is Label.OOM_WEIGHTS


def test_a_draft_graph_is_known_by_its_file() -> None:
    frames = (
        "Traceback (most recent call last):\n"
        '  File "/s/srt/managers/scheduler.py", line 1, in init_cuda_graphs\n'
        '  File "/s/srt/speculative/eagle_draft_extend_cuda_graph_runner.py", line 1, in __init__\n'
    )
    assert told(frames + "Exception: Capture cuda graph failed: CUDA out of memory. x").label is Label.OOM_GRAPH_DRAFT


def test_advice_and_prompts_that_mention_memory_are_no_evidence() -> None:
    log = (
        READY
        + "[2026-08-07 17:36:02] Receive: obj=GenerateReqInput(text='torch.OutOfMemoryError: CUDA out of memory. x')\n"
        + "[2026-08-07 17:36:02] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 9\n"
        + "2. if it is an OOM problem, set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
        + "[2026-08-07 17:36:02] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)\n"
    )
    assert told(log).label is Label.UNKNOWN


def test_the_word_oom_beside_another_exit_code_is_no_evidence() -> None:
    death = (
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: {}). If exit code is -9 (SIGKILL), OOM"
    )
    assert told(BEGIN + death.format(-3), 1).label is Label.UNKNOWN
    assert told(BEGIN + death.format(-9), 1).label is Label.HOST_OOM


def test_a_refused_combination_of_flags_is_a_conflict() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "/s/srt/arg_groups/speculative_hook.py", line 9, in check\n'
        "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.\n"
    )
    assert told(log, 1) == Diagnosis(
        Label.CONFIG_CONFLICT,
        Phase.ARGS,
        "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.",
        3,
        1,
    )


def test_a_stop_of_ours_is_no_crash_whatever_the_log_says_after_it() -> None:
    after = "[2026-08-07 17:36:05] Subprocess scheduler_0 (pid=9) crashed with exit code -9. Triggering SIGQUIT\n"
    assert told(READY + after, -15, stopped_at_line=6).label is Label.STOP_REQUESTED
    assert told(READY + after, -9).label is Label.HOST_OOM


def test_a_cause_before_our_stop_stays_the_cause() -> None:
    assert told(LOADED + "RuntimeError: Not enough memory\n", -15, stopped_at_line=4).label is Label.KV_BUDGET


def test_somebody_elses_sigterm_is_a_stop_too() -> None:
    diagnosis = stored("failing-sigterm_midstream", 0)
    assert (diagnosis.label, diagnosis.phase) == (Label.STOP_REQUESTED, Phase.SHUTDOWN)
    assert told(BEGIN, -15).label is Label.STOP_REQUESTED


def test_a_start_that_took_too_long_is_told_with_its_last_line_even_a_bar() -> None:
    bar = "Capturing batches (bs=10 avail_mem=25.39 GB):  25%|##5       | 3/12 [00:13<00:33,  3.70s/it]"
    diagnosis = told(VERIFYING + "\r" + bar, -15, timed_out="not ready after 9 s")
    evidence = f"not ready after 9 s; last line: {bar}"
    assert diagnosis == Diagnosis(Label.START_TIMEOUT, Phase.GRAPH_TARGET, evidence, 6, -15)


def test_a_start_that_took_too_long_without_a_line_has_evidence_too() -> None:
    evidence = "not ready after 9 s, without a line in its log"
    expected = Diagnosis(Label.START_TIMEOUT, Phase.LAUNCH, evidence, 0, -15)
    assert told("", -15, timed_out="not ready after 9 s") == expected


def test_a_cause_in_the_log_comes_before_the_timeout() -> None:
    log = POOLED + "[2026-08-07 17:36:01] ERROR:    [Errno 98] error while attempting to bind on address ('::', 1)\n"
    assert told(log, timed_out="not ready after 9 s").label is Label.PORT_IN_USE


@pytest.mark.parametrize(
    ("text", "exit_code", "label"),
    [
        ("", 127, "command_not_found"),
        ("no such profile\n", 2, "flag_invalid"),
        (READY, 2, "unknown"),
        ("/usr/bin/python3: No module named sglang\n", 1, "command_not_found"),
        ("ModuleNotFoundError: No module named 'sglang.srt'\n", 1, "command_not_found"),
        (READY, -9, "unknown"),
        (READY, 137, "unknown"),
        (READY + ECHOES, -9, "unknown"),
        (READY, 0, "unknown"),
        ("", None, "unknown"),
    ],
)
def test_what_the_exit_code_alone_can_tell(text: str, exit_code: int | None, label: str) -> None:
    assert told(text, exit_code).label == label


@pytest.mark.parametrize(
    ("text", "exit_code", "evidence", "line"),
    [
        ("x\n", -9, "ended by SIGKILL; the log says nothing about why (last line: x)", 0),
        ("x\n", 137, "ended with exit code 137 (SIGKILL); the log says nothing about why (last line: x)", 0),
        ("no reason\n", -11, "ended by SIGSEGV; the log says nothing about why (last line: no reason)", 0),
        ("no reason\n", -15, "ended by SIGTERM; the log says nothing about why (last line: no reason)", 0),
        ("no reason\n", 0, "ended with exit code 0; the log says nothing about why (last line: no reason)", 0),
        ("reason\n", 3, "reason", 1),
        ("", 0, "ended with exit code 0 without a word", 0),
        ("", 1, "ended with exit code 1 without a word", 0),
        ("", 127, "ended with exit code 127 without a word", 0),
        ("", -9, "ended by SIGKILL without a word", 0),
        ("", -200, "ended with exit code -200 without a word", 0),
        ("\n\n", None, "ended without an exit code without a word", 0),
    ],
)
def test_evidence_is_never_empty_and_claims_no_line_that_does_not_show_it(
    text: str, exit_code: int | None, evidence: str, line: int
) -> None:
    diagnosis = told(text, exit_code)
    assert (diagnosis.evidence, diagnosis.line_number) == (evidence, line)


def test_a_stop_before_the_first_line_has_evidence_too() -> None:
    expected = Diagnosis(Label.STOP_REQUESTED, Phase.LAUNCH, "stopped before it wrote a line", 0, -15)
    assert told("", -15, stopped_at_line=0) == expected


def test_a_sigkill_is_the_kernels_if_it_counted_a_kill_for_memory_meanwhile() -> None:
    diagnosis = told(READY, -9, oom_kills=1)
    assert (diagnosis.label, diagnosis.phase, diagnosis.line_number) == (Label.HOST_OOM, Phase.SERVING, 0)
    assert diagnosis.evidence == (
        "ended by SIGKILL; meanwhile the kernel of the host ended 1 process(es) for lack of memory "
        "(last line: [2026-08-07 17:36:01] Decode batch)"
    )
    assert told("", -9, oom_kills=2).evidence == (
        "ended by SIGKILL without a word; meanwhile the kernel of the host ended 2 process(es) for lack of memory"
    )
    handled = READY + "RuntimeError: of some request\n"
    assert told(handled, -9, oom_kills=1).label is Label.HOST_OOM
    assert told(handled, -9).evidence == "RuntimeError: of some request"


def test_a_kill_for_memory_elsewhere_explains_no_other_end() -> None:
    assert told(READY, 1, oom_kills=1).label is Label.UNKNOWN
    assert told(READY + ECHOES, -9, oom_kills=1).label is Label.UNKNOWN
    assert told(LOADED + "RuntimeError: Not enough memory" + ECHOES, -9, oom_kills=1).label is Label.KV_BUDGET


def test_a_line_with_the_exit_code_of_a_killed_child_is_an_out_of_memory() -> None:
    died = "[2026-08-07 17:36:05] Subprocess scheduler_0 (pid=9) crashed with exit code -9. Triggering SIGQUIT\n"
    diagnosis = told(READY + died + ECHOES, -9)
    assert (diagnosis.label, diagnosis.evidence) == (Label.HOST_OOM, died.strip())


def test_evidence_is_cut_to_a_length_that_fits_a_table() -> None:
    assert len(told("ValueError: " + "x" * 10_000).evidence) == 500
    assert len(told("x" * 10_000, -9).evidence) == 500
    assert len(told("x" * 10_000, timed_out="not ready").evidence) == 500


def test_a_long_line_costs_no_time_to_judge() -> None:
    assert told(("a" * 200_000 + " ") * 5).label is Label.UNKNOWN
