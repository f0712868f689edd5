"""Which starts live, which die, and with what words."""

from __future__ import annotations

import pytest

from actors.emulator.memory import Death
from tests.actors.emulator.planning import DEEPSEEK, QWEN, chain, plan


def death_of(command_line: str) -> Death | None:
    return plan(command_line)[1].death


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_reported_depths_start_with_512_running_requests(depth: int) -> None:
    assert death_of(QWEN + "--mem-fraction-static 0.85 --max-running-requests 512" + chain(depth)) is None


def test_depth_ten_dies_at_kv_allocation_with_512_running_requests() -> None:
    death = death_of(QWEN + "--mem-fraction-static 0.85 --max-running-requests 512" + chain(10))
    assert death == Death(
        "kv", "RuntimeError", "Not enough memory. Please try to increase --mem-fraction-static.", None, None
    )


def test_depth_ten_starts_with_half_the_running_requests() -> None:
    assert death_of(QWEN + "--mem-fraction-static 0.85 --max-running-requests 256" + chain(10)) is None


def test_deepseek_without_speculation_starts_at_0_70() -> None:
    _, memory, _ = plan(DEEPSEEK + "--mem-fraction-static 0.70")
    assert memory.death is None
    assert memory.max_running == 16


@pytest.mark.parametrize("running", ["", " --max-running-requests 512", " --max-running-requests 16"])
def test_deepseek_with_speculation_dies_in_draft_graph_capture_at_0_70(running: str) -> None:
    death = death_of(DEEPSEEK + "--mem-fraction-static 0.70" + chain(1) + running)
    assert death is not None
    assert (death.phase, death.graph, death.error) == ("graph", "draft extend", "torch.OutOfMemoryError")
    assert death.message.startswith(
        "CUDA out of memory. Tried to allocate 7.50 GiB. GPU 1 has a total capacity of 94.97 GiB of which "
        "2.30 GiB is free."
    )


def test_deepseek_starts_at_0_60_with_small_captured_batches_and_half_the_running_requests() -> None:
    flags = "--mem-fraction-static 0.60 --cuda-graph-max-bs-decode 16 --max-running-requests 16"
    _, memory, _ = plan(DEEPSEEK + flags + chain(1))
    assert memory.death is None
    assert memory.max_running == 8
    assert memory.graphs[0].sizes == (16, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1)
    assert memory.graphs[0].free_after(3) == pytest.approx(25.39, abs=0.005)
    assert memory.warnings == (
        "max_running_requests was reduced from the requested 16 to 8 (per dp worker) due to the available KV cache "
        "capacity.",
    )


def test_deepseek_at_0_70_fits_once_few_batches_are_captured() -> None:
    assert death_of(DEEPSEEK + "--mem-fraction-static 0.70 --cuda-graph-max-bs-decode 8" + chain(1)) is None


def test_no_kv_token_left_dies_with_the_words_for_too_little_memory() -> None:
    death = death_of("--model-path x --max-total-tokens 0")
    assert death is not None
    assert death.message == "Not enough memory. Please try to increase --mem-fraction-static."


def test_weights_above_the_fraction_name_a_fraction_that_would_do() -> None:
    death = death_of("--model-path x --mem-fraction-static 0.05")
    assert death is not None
    assert death.message == (
        "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.05. "
        "Raise --mem-fraction-static above 0.103 (minimum viable = 1 - available/pre = 0.1021). "
        "If using speculative decoding, draft weights are now counted."
    )
    assert death_of("--model-path x --mem-fraction-static 0.13") is None


def test_too_few_gpus_die_while_weights_load() -> None:
    death = death_of("--model-path Qwen/Qwen3.5-122B-A10B --tp 1")
    assert death is not None
    assert (death.phase, death.gpu) == ("load", 0)


def test_a_token_limit_above_the_profiled_one_is_ignored_with_a_warning() -> None:
    _, memory, _ = plan("--model-path x --max-total-tokens 64Mi")
    assert memory.warnings[0].startswith("max_total_tokens=67108864 is larger than the profiled value ")
    assert memory.kv_tokens < 67108864


def test_a_smaller_token_limit_is_taken() -> None:
    assert plan("--model-path x --max-total-tokens 64k")[1].kv_tokens == 64000


def test_memory_only_falls_from_phase_to_phase() -> None:
    _, memory, _ = plan(QWEN + "--mem-fraction-static 0.85 --max-running-requests 64" + chain(3))
    steps = [memory.free_gib, memory.loaded_gib, memory.pooled_gib, *(graph.end_gib for graph in memory.graphs)]
    assert steps == sorted(steps, reverse=True)
    assert [graph.name for graph in memory.graphs] == ["target verify", "draft decode", "draft extend"]
