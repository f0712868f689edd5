"""What SGLang makes of memory settings that are left open. Literal values: from its formulas, by release."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.memory.config_shape import model_shape
from orchestrator.memory.memory_defaults import MemorySettings, capture_sizes, resolve_memory, vision_factor
from orchestrator.memory.model_shape import Vision
from tests.orchestrator import model_configs as models

RTX_PRO_6000, B200, RTX_5090 = 97887 / 1024, 183359 / 1024, 32607 / 1024
NEXTN = {"speculative_algorithm": "NEXTN", "speculative_num_steps": 3, "speculative_eagle_topk": 1}


def resolved(settings: dict[str, Any], gib: float = RTX_PRO_6000, version: str = "0.5.23") -> MemorySettings:
    return resolve_memory(settings, model_shape(models.LLAMA_8B), gib, version)


@pytest.mark.parametrize(
    ("settings", "gib", "version", "fraction"),
    [
        ({}, RTX_PRO_6000, "0.5.23", 0.858),
        ({"tp_size": 8}, RTX_PRO_6000, "0.5.23", 0.844),
        ({}, B200, "0.5.23", 0.854),
        ({"tp_size": 8}, B200, "0.5.23", 0.849),
        # Without prefill graphs nothing is kept for their 58 buckets.
        ({"cuda_graph_backend_prefill": "disabled"}, RTX_PRO_6000, "0.5.23", 0.863),
        # 0.5.9 has no prefill graphs, but keeps 2 GiB for EAGLE and 6 for STANDALONE; 0.5.12 keeps 4.
        ({}, RTX_PRO_6000, "0.5.9", 0.863),
        (NEXTN, RTX_PRO_6000, "0.5.9", 0.842),
        ({**NEXTN, "speculative_algorithm": "STANDALONE"}, RTX_PRO_6000, "0.5.9", 0.8),
        (NEXTN, RTX_PRO_6000, "0.5.12", 0.816),
        (NEXTN, RTX_PRO_6000, "0.5.23", 0.858),
        # Below 60 GiB there is no floor of 10 GiB: 512 + 6144 + 128 + 96 + 50 buckets x 8 = 7280 of 32607 MiB.
        ({}, RTX_5090, "0.5.23", 0.777),
    ],
)
def test_the_static_fraction_is_what_the_reserve_leaves(
    settings: dict[str, Any], gib: float, version: str, fraction: float
) -> None:
    assert resolved(settings, gib, version).fraction == fraction


def test_a_given_fraction_is_taken_as_it_is() -> None:
    assert resolved({"mem_fraction_static": 0.7}).fraction == 0.7


def test_an_image_encoder_lowers_the_default_fraction() -> None:
    assert vision_factor(Vision(24, 1024, 4096)) == pytest.approx(0.95)
    assert vision_factor(Vision(48, 2048, 8192)) == pytest.approx(0.95 * 0.8)  # never below
    assert vision_factor(Vision(27, 1152, 4304)) == pytest.approx(
        0.95 * (1 - 0.1 * (27 * 1152**2 / (24 * 1024**2) - 1))
    )


def test_speculation_alone_sets_48_running_requests() -> None:
    assert resolved({}).running_requests is None
    assert resolved(NEXTN).running_requests == 48
    assert resolved({**NEXTN, "max_running_requests": 200}).running_requests == 200
    assert resolved({"speculative_algorithm": "NGRAM"}).running_requests == 48


def test_captured_batches_follow_size_parallelism_release_and_what_was_asked() -> None:
    assert max(resolved({}).decode_sizes) == 256
    assert max(resolved({"tp_size": 4}).decode_sizes) == 512
    assert max(resolved({"max_running_requests": 16}).decode_sizes) == 16
    assert max(resolved({"max_running_requests": 16}, version="0.5.21").decode_sizes) == 256  # lowered since 0.5.23
    assert max(resolved({}, RTX_5090).decode_sizes) == 48
    assert max(resolved({}, RTX_5090, "0.5.15").decode_sizes) == 24
    assert resolved({"cuda_graph_bs_decode": [8, 2]}).decode_sizes == (2, 8)
    assert resolved({"disable_cuda_graph": True}).decode_sizes == ()


def test_the_lists_of_captured_batches_are_those_of_the_source() -> None:
    assert capture_sizes(20, speculating=False) == (1, 2, 4, 8, 12, 16, 20)
    assert capture_sizes(20, speculating=True) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20)
    assert len(capture_sizes(512, speculating=False)) == 52
    assert capture_sizes(600, speculating=False)[-4:] == (512, 544, 576, 600)


def test_prefill_graphs_are_counted_where_they_are_captured() -> None:
    assert len(resolved({}).prefill_sizes) == 58
    assert len(resolved({}, B200).prefill_sizes) == 74
    assert resolved({}, version="0.5.9").prefill_sizes == ()
    assert resolved({"pp_size": 2}).prefill_sizes == ()
    assert max(resolved({"max_total_tokens": 1000}).prefill_sizes) == 960


def test_draft_numbers_that_are_left_open_are_those_of_the_model() -> None:
    llama = resolved({"speculative_algorithm": "EAGLE3"})
    qwen = resolve_memory({"speculative_algorithm": "NEXTN"}, model_shape(models.QWEN35_122B), RTX_PRO_6000, None)

    assert (llama.steps, llama.branches, llama.draft_tokens) == (5, 4, 8)
    assert (qwen.steps, qwen.branches, qwen.draft_tokens) == (3, 1, 4)
    assert resolved({**NEXTN, "speculative_num_draft_tokens": 9}).draft_tokens == 4  # topk 1: steps + 1
    assert resolved({**NEXTN, "speculative_num_steps": 0}).algorithm is None
