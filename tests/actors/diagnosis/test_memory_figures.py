"""Sizes in messages about memory, in the words of every allocator and release that is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.diagnosis import diagnose
from actors.diagnosis.memory_figures import MemoryFigures, ProcessOnGpu, read_memory_figures
from actors.emulator.last_words import WORDS
from actors.servers.follower import split_log

LOGS = Path(__file__).parents[2] / "data" / "logs"


def sizes(figures: MemoryFigures) -> tuple[float | None, float | None, float | None]:
    return (figures.wanted_gib, figures.free_gib, figures.total_gib)


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("09-oom-weights-failed-linear-occupied-gpu-vllm", (896 / 1024, 739.81 / 1024, 93.09)),
        ("107-runtime-oom-olmocr-7b-a100", (4.93, 3.79, 79.14)),
        ("20-oom-kvalloc-2x3090-compose-prefix", (32 / 1024, 13 / 1024, 23.52)),
        ("21-oom-statepool-mamba-wsl2-rtxpro6000", (18.56, None, None)),
        ("24-oom-graph-draft-extend-short-by-3mb", (128 / 1024, 125.56 / 1024, 95.01)),
        ("25-oom-graph-target-v4pro-16gpu-eagle", (672 / 1024, 200.75 / 1024, 140.06)),
        ("27-oom-graph-8xh200-mfs086-still-fails", (1.31, 1.24, 139.80)),
        ("67-gpu-occupied-orphan-vllm-free-less-than-desired", (35.54, 34.35, 39.49)),
        ("failing-alloc_ulimit4g", (7093621888 / (1 << 30), None, None)),
    ],
)
def test_sizes_in_real_logs_of_servers_that_died(log: str, told: tuple[float | None, ...]) -> None:
    died = diagnose(split_log((LOGS / f"{log}.log").read_bytes()), exit_code=1)

    assert sizes(read_memory_figures(died.evidence)) == pytest.approx(told)


def test_all_other_logs_tell_no_size_of_an_allocation() -> None:
    telling = {
        path.stem
        for path in LOGS.glob("*.log")
        if sizes(read_memory_figures(diagnose(split_log(path.read_bytes()), exit_code=1).evidence)) != (None,) * 3
    }

    assert {name.partition("-")[0] for name in telling} == {"09", "107", "20", "21", "24", "25", "27", "67", "failing"}


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (  # torch 2.1 and 2.2, as it spells it
            "CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacty of 15.77 GiB of which 281.12 "
            "MiB is free. Including non-PyTorch memory, this process has 15.49 GiB memory in use.",
            (1.25, 281.12 / 1024, 15.77),
        ),
        (  # nothing is free: torch says it in bytes
            "HIP out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 0 bytes "
            "is free. Of the allocated memory 3.63 GiB is allocated by PyTorch, and 14.44 MiB is reserved",
            (0.25, 0.0, 4.0),
        ),
        (  # torch before 2.1
            "CUDA out of memory. Tried to allocate 62.00 MiB (GPU 0; 12.00 GiB total capacity; 10.57 GiB already "
            "allocated; 0 bytes free; 10.71 GiB reserved in total by PyTorch)",
            (62 / 1024, 0.0, 12.0),
        ),
        (
            "NPU out of memory. Tried to allocate 260.00 MiB (NPU 0; 28.50 GiB total capacity; 10.24 GiB already "
            "allocated; 10.24 GiB current active; 149.57 MiB free; 10.28 GiB reserved in total by PyTorch)",
            (260 / 1024, 149.57 / 1024, 28.5),
        ),
        (
            "NPU out of memory. NPUWorkspaceAllocator tried to allocate 1.89 GiB(NPU 7; 60.96 GiB total capacity; "
            "1.82 GiB free). If you want to reduce memory usage, take a try to set the environment variable",
            (1.89, 1.82, 60.96),
        ),
        (
            "MUSA out of memory. Tried to allocate 28.00 GiB. GPU 0 has a total capacity of 79.92 GiB of which 9.25 "
            "GiB is free. Of the allocated memory 13.18 GiB is allocated by PyTorch",
            (28.0, 9.25, 79.92),
        ),
        (
            "XPU out of memory. Tried to allocate 59.61 GiB. GPU 0 has a total capacity of 28.55 GiB.",
            (59.61, None, 28.55),
        ),
        (
            "MPS backend out of memory (MPS allocated: 17.36 GB, other allocations: 512.00 MB, max allowed: 18.13 GB). "
            "Tried to allocate 512.00 MB on private pool.",
            (0.5, 18.13 - 17.36 - 0.5, 18.13),
        ),
        (  # a limit of its own: what the card has free was not what it lacked
            "CUDA out of memory. Tried to allocate 6.36 GiB. GPU 0 has a total capacity of 15.89 GiB of which 14.57 "
            "GiB is free. 1.59 GiB allowed; Of the allocated memory 0 bytes is allocated by PyTorch",
            (6.36, None, 15.89),
        ),
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 34359738368 bytes. Error code 12",
            (32.0, None, None),
        ),
        (
            "int8 states: needs ~12.50GB but only 10.25GB HBM is free. Lower --int8-mamba-ckpt-size",
            (12.5, 10.25, None),
        ),
        (
            "(8.00 GiB KV cache is needed, which is larger than the available KV cache memory (5.10 GiB).",
            (8.0, 5.1, None),
        ),
        ("UserWarning: Not enough free disk space. The location only has 3421.60 MB free disk space.", (None,) * 3),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", (None,) * 3),
    ],
)
def test_sizes_in_the_words_of_each_allocator(message: str, told: tuple[float | None, ...]) -> None:
    assert sizes(read_memory_figures(message)) == pytest.approx(told)


def test_what_the_emulator_dies_with_tells_the_sizes_that_sglang_would() -> None:
    told = {label: read_memory_figures(words.error) for label, words in WORDS.items()}

    assert {label: sizes(figures) for label, figures in told.items() if figures != MemoryFigures()} == {
        "oom_weights": (0.875, 739.81 / 1024, 94.97),
        "oom_kv_alloc": (32 / 1024, 13 / 1024, 94.97),
        "state_pool": (None, None, None),
        "oom_graph_target": (7.5, 2.3, 94.97),
        "oom_graph_draft": (0.125, 125.56 / 1024, 94.97),
        "runtime_oom": (4.93, 3.79, 94.97),
        "gpu_occupied": (None, 94.31, None),
        "gpu_unequal": (None, 30.55, None),
    }
    assert told["gpu_occupied"].least_free_gib == 34.35
    assert told["state_pool"].state_rest_gib == 1.27


def test_what_was_short_is_known_only_where_less_was_free_than_was_wanted() -> None:
    oom = "Tried to allocate {}. GPU 1 has a total capacity of 94.97 GiB of which {} is free."

    assert read_memory_figures(oom.format("7.50 GiB", "2.30 GiB")).short_gib == pytest.approx(5.2)
    assert read_memory_figures(oom.format("192.00 MiB", "13.22 GiB")).short_gib is None
    assert read_memory_figures("Tried to allocate 7.50 GiB.").short_gib is None


def test_who_else_is_on_the_gpu_but_not_what_a_driver_does_not_know() -> None:
    seen = read_memory_figures(
        "GPU 0 has a total capacity of 11.63 GiB of which 2.61 GiB is free. Process 5545 has 256.00 MiB memory in use. "
        "Process 5800 has 17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 8.19 GiB"
    )

    assert seen.others == (ProcessOnGpu(5545, 0.25),)


@pytest.mark.parametrize(
    ("message", "fraction", "least"),
    [
        (
            "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.3. Raise "
            "--mem-fraction-static above 0.396 (minimum viable = 1 - available/pre = 0.3950).",
            0.3,
            0.395,
        ),
        ("under --mem-fraction-static=0.3. Raise --mem-fraction-static above 0.396 (minimum vi", 0.3, 0.396),
        ("Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.93", 0.93, None),
        ("Please try to increase --mem-fraction-static.", None, None),
    ],
)
def test_fractions_in_effect_and_the_least_that_can_work(
    message: str, fraction: float | None, least: float | None
) -> None:
    figures = read_memory_figures(message)

    assert (figures.fraction, figures.least_fraction) == (fraction, least)


def test_the_budget_of_recurrent_states_may_be_less_than_nothing() -> None:
    said = "Computed max_mamba_cache_size=-31 (total_rest_memory=-8.63 GB, mamba_cache_per_req=140.78 MB). Try: (1)"
    figures = read_memory_figures(said)

    assert figures.state_rest_gib == -8.63
    assert figures.state_each_gib == pytest.approx(140.78 / 1024)
