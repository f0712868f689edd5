"""What to change, with the numbers that the evidence holds."""

from __future__ import annotations

import pytest

from actors.diagnosis.advice import advice, explanation
from orchestrator.outcome import Diagnosis, Label, Phase

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 1 has a total capacity of {} "
    "GiB of which {} "
    "is free."
)


def first(label: Label, evidence: str, rule: str = "") -> str:
    return advice(Diagnosis(label, Phase.LAUNCH, evidence, rule=rule))[0]


@pytest.mark.parametrize(
    ("label", "evidence", "told"),
    [
        (
            "oom_graph_target",
            OOM.format("7.50 GiB", "94.97", "2.30 GiB"),
            "lower --mem-fraction-static by at least 0.07 (5.20 GiB more were needed)",
        ),
        (
            "oom_graph_draft",
            OOM.format("128.00 MiB", "95.01", "125.56 MiB"),
            "lower --mem-fraction-static by at least 0.02 (2.4 MiB more were needed)",
        ),
        (
            "runtime_oom",
            "NPU out of memory. Tried to allocate 72.00 MiB (NPU 0; 61.27 GiB total capacity; 5.04 MiB free;",
            "lower --mem-fraction-static by at least 0.02 (67.0 MiB more were needed)",
        ),
        (
            "oom_graph_target",
            "CUDA out of memory. Tried to allocate 2.00 GiB. 1.00 GiB is free",
            "lower --mem-fraction-static: 1.00 GiB more were needed at least",
        ),
        ("oom_graph_target", "RuntimeError: CUDA error: out of memory", "lower --mem-fraction-static; one small step"),
        (
            "oom_weights",
            OOM.format("896.00 MiB", "93.09", "739.81 MiB"),
            "0.15 GiB more were needed at least, before all weights were in",
        ),
        (
            "kv_budget",
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.01. Raise "
            "--mem-fraction-static above 0.011 (minimum viable",
            "raise --mem-fraction-static above 0.011, better by 0.05",
        ),
        (
            "kv_budget",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
            "mem_fraction_static=0.93",
            "--mem-fraction-static is 0.93 already: make the weights smaller",
        ),
        (
            "state_pool",
            "RuntimeError: Not enough GPU memory for hybrid (total_rest_memory=1.27 GB, mamba_cache_per_req=74.81 MB)",
            "1.27 GiB were left and one request's state takes 74.8 MiB",
        ),
        (
            "state_pool",
            "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
            "max_mamba_cache_size=0 (total_rest_memory=-4.39 GB, mamba_cache_per_req=140.78 MB).",
            "raise --mem-fraction-static: -4.39 GiB were left, and one request's state takes 0.14 GiB",
        ),
        (
            "runtime_oom",
            OOM.format("192.00 MiB", "31.89", "13.22 GiB"),
            "13.22 GiB were free and 0.19 GiB wanted: not in one piece",
        ),
        (
            "gpu_occupied",
            "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
            "pre_model_load_memory=34.35, local_gpu_memory=94.31, local_gpu_memory * 0.9=84.879",
            "look at the GPU of this server that has least free: 34.35 GiB, and 94.31 GiB on another",
        ),
        (
            "gpu_occupied",
            "ValueError: Free memory on device cuda:3 (34.35/39.49 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 35.54 GiB).",
            "make room for 1.19 GiB more on this GPU",
        ),
        (
            "kv_budget",
            "ValueError: To serve at least one request with the models's max seq len (262144), (8.00 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (5.10 GiB).",
            "make room for 2.90 GiB more on this GPU",
        ),
        (
            "config_conflict",
            "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).",
            "allow at most 614 sequences",
        ),
        (
            "runtime_pool",
            "RuntimeError: Prefill out of memory. Try to lower your batch size. Try to allocate 8192 tokens. "
            "Available full tokens: 8070656 (full_available_size=7936 + ...",
            "8192 tokens were wanted and 7936 free",
        ),
        ("watchdog_hang", "Watchdog timeout (self.watchdog_timeout=300)", "if it was the first use of a kernel, raise"),
        (
            "shm_or_disk",
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x",
            "give the container more",
        ),
        ("shm_or_disk", "OSError: [Errno 28] No space left on device", "free or enlarge it"),
        ("gpu_unequal", "RuntimeError: The memory capacity is unbalanced. Some GPUs may", "use cards of the same size"),
    ],
)
def test_the_first_advice(label: str, evidence: str, told: str) -> None:
    assert first(Label(label), evidence).startswith(told)


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ("Process 11 has 75.33 GiB memory in use.", "lower --mem-fraction-static"),
        ("Process 60 has 17179869184.00 GiB memory in use. Process 61 has 1.00 GiB memory in use.", "lower --mem-"),
        (
            "Process 11 has 70.10 GiB memory in use. Including non-PyTorch memory, this process has 8.00 GiB memory in "
            "use.",
            "look who else is on this GPU, and end it or leave it room: process 11 70.10 GiB",
        ),
        (
            "Process 11 has 70.10 GiB memory in use. Process 12 has 8.00 GiB memory in use.",
            "look who else is on this GPU, and end it or leave it room: process 11 70.10 GiB, process 12 8.00 GiB",
        ),
    ],
)
def test_others_on_the_gpu_are_named(held: str, told: str) -> None:
    assert first(Label.OOM_KV_ALLOC, f"{OOM.format('7.50 GiB', '94.97', '2.30 GiB')} {held}").startswith(told)


def test_what_was_stored_without_its_rule_is_advised_by_its_evidence() -> None:
    line = "RuntimeError: SWA pool (512 tokens) cannot hold even one request"
    assert first(Label.STATE_POOL, line) == first(Label.STATE_POOL, "cut", rule="window_pool_has_no_room")
    assert first(Label.STATE_POOL, "cut").startswith("set --max-mamba-cache-size")


def test_a_rule_that_does_not_fit_the_label_says_nothing() -> None:
    """GPUs were seen to be occupied by somebody else before the log told of memory."""
    occupied = Diagnosis(
        Label.GPU_OCCUPIED, Phase.KV_POOL, "GPU 0: pid 9; then: RuntimeError: Not enough memory", rule="x"
    )
    assert explanation(occupied) == "somebody else holds the GPU's memory"
    assert advice(occupied) == (
        "find and end the process that holds it (nvidia-smi, fuser /dev/nvidia*); change no option",
    )
    renamed = Diagnosis(Label.GPU_OCCUPIED, Phase.KV_POOL, "x", rule="kv_cache_has_no_room")
    assert advice(renamed) == advice(occupied)
    assert explanation(renamed) == "somebody else holds the GPU's memory"


def test_the_explanation_joins_what_the_label_and_the_rule_mean() -> None:
    told = explanation(Diagnosis(Label.CUDA_IMA, Phase.SERVING, "x", rule="illegal_access"))
    assert told == (
        "a kernel made an illegal access: a bug, not a lack of memory: a kernel wrote or read where it must "
        "not; memory "
        "settings are not the cause"
    )


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        (
            "silent in phase weights for 61 s: no line in its log, idle; allowed are 60 s (3 earlier starts)",
            "find out what it waits for; if it was at work where that cannot be seen, raise timeouts.silent_s",
        ),
        (
            "no sign of progress in phase weights for 900 s; last line: x",
            "its log did not move: raise timeouts.phase_s if it was at work, else find out why it hangs",
        ),
        (
            "not ready after 1800 s; last line: x",
            "look at the phase: raise timeouts.start_s if it still moved, else find out why it hangs",
        ),
    ],
)
def test_a_start_that_we_ended_is_told_by_the_key_of_its_limit(evidence: str, told: str) -> None:
    assert first(Label.START_TIMEOUT, evidence) == told
