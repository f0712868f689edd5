"""What SGLang makes of the settings that were typed."""

from __future__ import annotations

import pytest

from tests.actors.emulator.planning import DEEPSEEK, QWEN, chain, plan

CAP_WARNING = (
    "Max running requests is reset to 48 for speculative decoding. "
    "You can override this by explicitly setting --max-running-requests."
)


def test_speculation_caps_running_requests_at_48_unless_told_otherwise() -> None:
    settings, _, _ = plan("--model-path x" + chain(3))
    assert settings.max_running == 48
    assert settings.warnings == (CAP_WARNING,)
    assert plan("--model-path x --max-running-requests 96" + chain(3))[0].max_running == 96


def test_a_chain_has_one_draft_token_more_than_steps() -> None:
    settings, _, _ = plan(
        "--model-path x --max-running-requests 8 --speculative-algorithm EAGLE --speculative-num-steps 4"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 9"
    )
    assert (settings.num_steps, settings.topk, settings.draft_tokens) == (4, 1, 5)
    assert settings.warnings == (
        "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1",
    )


def test_nextn_is_eagle_with_automatic_shape() -> None:
    settings, _, _ = plan("--model-path x --speculative-algorithm nextn")
    assert settings.algorithm == "EAGLE"
    assert (settings.num_steps, settings.topk, settings.draft_tokens) == (3, 1, 4)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("--speculative-algorithm EAGLE --speculative-eagle-topk 1", AssertionError),
        ("--speculative-algorithm EAGLE --speculative-num-steps 3", TypeError),
        ("--speculative-algorithm STANDALONE", ValueError),
        ("--speculative-algorithm EAGLE3", ValueError),
        ("--speculative-algorithm DFLASH", ValueError),
    ],
)
def test_half_given_speculation_is_refused(flags: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        plan("--model-path x " + flags)


def test_ngram_needs_no_draft_model() -> None:
    settings, memory, _ = plan("--model-path x --speculative-algorithm NGRAM")
    assert (settings.num_steps, settings.topk, settings.draft_tokens) == (1, 10, 12)
    assert memory.draft_gib == 0.0


def test_automatic_memory_settings_follow_the_card() -> None:
    settings, _, _ = plan(QWEN)
    assert settings.chunk_tokens == 8192
    assert max(settings.capture_decode) == 512
    assert settings.mem_fraction == 0.854
    assert plan(DEEPSEEK)[0].mem_fraction == 0.853


def test_fewer_running_requests_capture_fewer_batches() -> None:
    settings, _, _ = plan(QWEN + "--max-running-requests 16" + chain(3))
    assert settings.capture_decode == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
    assert plan(QWEN + "--max-running-requests 16")[0].capture_decode == (1, 2, 4, 8, 12, 16)


def test_disabled_graphs_are_not_captured() -> None:
    _, memory, _ = plan("--model-path x --disable-cuda-graph")
    assert memory.graphs == ()
    assert memory.captured_batch == 0
