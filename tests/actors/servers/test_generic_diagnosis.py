"""Why servers of other engines died: real logs of llama.cpp's server, and lines that users of others have published."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.servers.follower import split_log
from actors.servers.generic_diagnosis import diagnose_any
from orchestrator.outcome import Diagnosis, Label, Phase

LOGS = Path(__file__).resolve().parent.parent.parent / "data/logs-other"


def verdict(text: str, exit_code: int | None = 1, **more: object) -> Diagnosis:
    return diagnose_any(split_log(text.encode()), exit_code=exit_code, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("log", "exit_code", "label", "line", "evidence"),
    [
        ("llamacpp-no-model", 1, Label.MODEL_MISSING, 7, "failed to open GGUF file 'nope.gguf'"),
        ("llamacpp-no-gguf", 1, Label.MODEL_MISSING, 7, "invalid magic characters: '# Sp', expected 'GGUF'"),
        ("llamacpp-wrong-flag", 2, Label.FLAG_INVALID, 6, "unrecognized arguments: --paralel 3"),
        ("llamacpp-never-drafts", 2, Label.FLAG_INVALID, 6, "--ngram-m 3 is below --ngram-n 6: ngram_simple would"),
        ("llamacpp-no-memory", 1, Label.OUT_OF_MEMORY, 8, "insufficient memory (attempted to allocate 17578.12 MB)"),
        ("llamacpp-port-taken", 1, Label.PORT_IN_USE, 5, "couldn't bind HTTP server socket, hostname: 127.0.0.1"),
        ("python-no-script", 2, Label.COMMAND_NOT_FOUND, 1, "can't open file 'tests/llamacpp/nothere.py': [Errno 2]"),
        ("click-no-option", 2, Label.FLAG_INVALID, 4, "Error: No such option '--max_batch_sizes'. Did you"),
    ],
)
def test_real_deaths(log: str, exit_code: int, label: Label, line: int, evidence: str) -> None:
    found = verdict((LOGS / f"{log}.log").read_text(), exit_code)

    assert (found.label, found.line_number, found.exit_code) == (label, line, exit_code)
    assert evidence in found.evidence


PUBLISHED = [
    (
        Label.GPU_OCCUPIED,
        "(EngineCore_0 pid=1810465) ERROR 09-03 11:03:37 [core.py:712] ValueError: Free memory on device (7.34/139.72 "
        "GiB) on startup is less than desired GPU memory utilization (0.9, 125.75 GiB). Decrease GPU memory "
        "utilization or reduce GPU memory used by other processes.",
    ),
    (
        Label.KV_BUDGET,
        "vllm-1  | ERROR 11-18 18:07:28 engine.py:366] ValueError: No available memory for the cache blocks. Try "
        "increasing `gpu_memory_utilization` when initializing the engine.",
    ),
    (
        Label.KV_BUDGET,
        "ERROR 04-05 01:12:55 [core.py:390] ValueError: To serve at least one request with the models's max seq len "
        "(1048576), (24.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.97 GiB). Try "
        "increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
    ),
    (
        Label.KV_BUDGET,
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in "
        "KV cache (7344). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the "
        "engine.",
    ),
    (
        Label.OUT_OF_MEMORY,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 22.19 "
        "GiB of which 1.50 MiB is free.",
    ),
    (
        Label.OUT_OF_MEMORY,
        "1.06.520.077 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 51748.72 MiB on device 1: cudaMalloc "
        "failed: out of memory",
    ),
    (Label.FLAG_INVALID, "error: invalid argument: -hf"),
    (Label.FLAG_INVALID, "error: unknown argument: --grammar"),
]


@pytest.mark.parametrize(("label", "line"), PUBLISHED)
def test_published_lines(label: Label, line: str) -> None:
    found = verdict(f"starting\n{line}\nRuntimeError: Engine core initialization failed. See root cause above.\n")

    assert (found.label, found.line_number, found.evidence) == (label, 2, line)


def test_memory_that_ran_out_before_a_retry_is_not_the_end() -> None:
    tried = (
        PUBLISHED[5][1]
        + "\n1.06.520.107 W sched_reserve: compute buffer allocation failed, retrying without "
        + ("pipeline parallelism\n")
    )

    assert verdict(tried, -11).evidence.startswith("ended by SIGSEGV; the log says nothing about why")
    assert verdict(tried + PUBLISHED[5][1]).label is Label.OUT_OF_MEMORY


def test_source_lines_of_a_traceback_are_no_evidence() -> None:
    source = '    raise ValueError("No available memory for the cache blocks. "\n'
    told = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n"

    assert verdict(source + told).line_number == 2


def test_without_a_rule_the_last_exception_is_the_evidence() -> None:
    log = "Traceback (most recent call last):\nKeyError: 'a'\nrecovered\nValueError: no such layout\nbye\n"

    assert verdict(log) == Diagnosis(Label.UNKNOWN, Phase.LAUNCH, "ValueError: no such layout", 4, 1)


def test_a_parent_that_tells_of_a_failed_child_does_not_hide_its_reason() -> None:
    log = "ValueError: no such layout\nRuntimeError: Engine core initialization failed. See root cause above.\n"

    assert verdict(log).evidence == "ValueError: no such layout"


def test_without_any_word_of_a_reason_the_last_line_is_the_evidence() -> None:
    assert verdict("one\ntwo\n\n", 3) == Diagnosis(Label.UNKNOWN, Phase.LAUNCH, "two", 2, 3)
    assert verdict("", 3).evidence == "ended with exit code 3 without a word"


@pytest.mark.parametrize(
    ("exit_code", "label", "evidence"),
    [
        (-11, Label.SEGFAULT_ABORT, "ended by SIGSEGV; the log says nothing about why (last line: loading)"),
        (-6, Label.SEGFAULT_ABORT, "ended by SIGABRT; the log says nothing about why (last line: loading)"),
        (-15, Label.STOP_REQUESTED, "ended by SIGTERM; the log says nothing about why (last line: loading)"),
        (127, Label.COMMAND_NOT_FOUND, "loading"),
    ],
)
def test_the_exit_code_tells_what_no_line_does(exit_code: int, label: Label, evidence: str) -> None:
    found = verdict("loading\n", exit_code)

    assert (found.label, found.evidence) == (label, evidence) if exit_code < 0 else found.label is label


def test_a_sigkill_while_the_kernel_killed_for_memory_is_host_oom() -> None:
    assert verdict("loading\n", -9).label is Label.UNKNOWN
    found = verdict("loading\n", -9, oom_kills=1)
    assert (found.label, found.line_number) == (Label.HOST_OOM, 0)
    assert "the kernel of the host ended 1 process(es) for lack of memory" in found.evidence


def test_words_of_sglang_mean_nothing_here() -> None:
    for line in ("Exit code: -9", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."):
        assert verdict(f"{line}\n").label is Label.UNKNOWN


def test_what_was_said_before_it_served_is_not_why_it_died() -> None:
    log = "CUDA out of memory. Falling back\nserving\ngoodbye\n"

    found = verdict(log, -11, phase=Phase.READY, since_line=2)
    assert (found.label, found.phase) == (Label.SEGFAULT_ABORT, Phase.READY)


def test_what_is_said_after_we_asked_it_to_stop_is_about_the_stop() -> None:
    log = "serving\nValueError: closed\n"

    assert verdict(log, -15, stopped_at_line=1) == Diagnosis(Label.STOP_REQUESTED, Phase.LAUNCH, "serving", 1, -15)


def test_a_start_that_takes_too_long_is_told_with_its_last_line() -> None:
    found = verdict("loading\n", None, timed_out="not ready after 5 s; /health answered 503: ")

    assert found.label is Label.START_TIMEOUT
    assert found.evidence == "not ready after 5 s; /health answered 503: ; last line: loading"
    assert verdict("CUDA out of memory\n", None, timed_out="not ready").label is Label.OUT_OF_MEMORY
