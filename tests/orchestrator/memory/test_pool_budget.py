"""Pools against the logs of real servers: same free memory in, same tokens and slots out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.memory.cell_size import cell_size, state_bytes
from orchestrator.memory.config_shape import model_shape
from orchestrator.memory.estimate import GIB
from orchestrator.memory.memory_defaults import resolve_memory
from orchestrator.memory.pool_budget import PoolPlan, plan_pools, pool_model
from orchestrator.outcome import Label
from tests.orchestrator import model_configs as models


def planned(
    config: dict[str, Any], settings: dict[str, Any], pre: float, loaded: float, version: str = "0.5.23"
) -> PoolPlan:
    shape = model_shape(config)
    ask = resolve_memory(settings, shape, 95.6, version)
    model = pool_model(shape, ask, cell_size(shape, ask), state_bytes(shape, ask))
    return plan_pools(pre, loaded, ask, model)


def test_llama_on_an_80_gib_card_gets_the_tokens_that_its_log_tells() -> None:
    plan = planned(models.LLAMA_8B, {"mem_fraction_static": 0.88}, pre=78.81, loaded=63.72, version="0.5.9")

    assert plan.kv_tokens == pytest.approx(444500, rel=0.0005)  # the log's figure; free memory has two digits there
    assert plan.kv_gib == pytest.approx(54.26, abs=0.01)
    assert plan.running == 2048
    assert 63.72 - plan.total_gib == pytest.approx(8.34, abs=0.15)  # 1 GiB of it: the table of request tokens


def test_qwen3_14b_on_a_48_gib_card_gets_the_tokens_that_its_log_tells() -> None:
    plan = planned(models.QWEN3_14B, {"mem_fraction_static": 0.88}, pre=47.24, loaded=19.67, version="0.5.9")

    assert plan.kv_tokens == pytest.approx(91749, rel=0.0005)
    assert 19.67 - plan.total_gib == pytest.approx(5.27, abs=0.15)


def test_a_hybrid_divides_between_states_and_tokens_as_its_log_tells() -> None:
    plan = planned(models.QWEN_27B_FP8, {"mem_fraction_static": 0.85, "max_running_requests": 32}, 78.48, 50.01)

    assert plan.state is not None
    assert plan.state.slots == pytest.approx(124, abs=1)
    assert plan.state.gib == pytest.approx(0.34 + 17.58, abs=0.15)
    assert plan.kv_tokens == pytest.approx(330323, rel=0.005)
    assert plan.running == 25  # 125 slots, 5 of them for a request


def test_360_slots_of_state_take_what_the_log_tells_and_serve_72_requests() -> None:
    settings = {"mem_fraction_static": 0.7, "max_mamba_cache_size": 360, "max_running_requests": 200}
    plan = planned(models.QWEN_27B_FP8, {**settings, "kv_cache_dtype": "fp8_e4m3"}, pre=115.0, loaded=95.0)

    assert plan.state is not None
    assert plan.state.gib == pytest.approx(0.99 + 50.77, abs=0.02)
    assert plan.running == 72
    assert plan.kv_gib / plan.kv_tokens == pytest.approx(6.98 / 228520, rel=0.001)


@pytest.mark.parametrize(
    ("config", "settings", "full", "draft"),
    [
        (models.LLAMA_8B, {}, 131072, 0),
        (models.LLAMA_8B, {"tp_size": 4, "kv_cache_dtype": "fp8_e4m3"}, 16384, 0),
        (models.LLAMA_8B, {"tp_size": 16}, 16384, 0),  # one head on each rank, not half of one
        (models.QWEN35_122B, {"tp_size": 4}, 12288, 0),
        (models.QWEN35_122B, {"tp_size": 4, "speculative_algorithm": "NEXTN"}, 12288, 1024),
        (models.DEEPSEEK_V3, {"tp_size": 8}, 70272, 0),  # MLA is not divided
        (models.DEEPSEEK_V3, {"tp_size": 8, "speculative_algorithm": "NEXTN"}, 70272, 1152),
    ],
)
def test_bytes_of_a_token_on_one_rank(
    config: dict[str, Any], settings: dict[str, Any], full: float, draft: float
) -> None:
    shape = model_shape(config)
    cell = cell_size(shape, resolve_memory(settings, shape, 95.6, None))

    assert (cell.full, cell.draft) == (full, draft)


def test_a_window_pool_holds_a_share_of_the_tokens() -> None:
    shape = model_shape(models.GPT_OSS_20B)
    cell = cell_size(shape, resolve_memory({}, shape, 95.6, None))

    assert (cell.full, cell.window, cell.window_ratio) == (24576, 24576, 0.8)
    assert cell.total == pytest.approx(24576 * 1.8)


def test_one_recurrent_state_is_divided_by_tensor_parallelism() -> None:
    shape = model_shape(models.QWEN_27B_FP8)

    def mib(**settings: Any) -> float:
        return state_bytes(shape, resolve_memory(settings, shape, 95.6, None)) / 2**20

    assert mib() == 48 * (48 * 128 * 128 * 4 + 10240 * 3 * 2) / 2**20  # 146.8 MiB: float32 states, bfloat16 convolution
    assert mib(tp_size=2) == mib() / 2
    assert mib(mamba_ssm_dtype="bfloat16") == 48 * (48 * 128 * 128 * 2 + 10240 * 3 * 2) / 2**20


def test_weights_over_the_fraction_give_the_fraction_that_would_do() -> None:
    plan = planned(models.LLAMA_8B, {"mem_fraction_static": 0.88}, pre=138.1, loaded=12.25)

    assert plan.refusal is not None
    assert plan.refusal.label is Label.KV_BUDGET
    assert plan.refusal.short_gib == pytest.approx(138.1 * 0.12 - 12.25)
    assert "needs more than 0.911" in plan.refusal.why  # the log of that server asks for 0.9113


def test_old_releases_die_of_states_for_every_asked_request_new_ones_run_fewer() -> None:
    deep = {
        "tp_size": 4, "mem_fraction_static": 0.85, "max_running_requests": 64, "speculative_algorithm": "NEXTN",
        "speculative_num_steps": 10, "speculative_eagle_topk": 1,
    }  # fmt: skip
    old = planned(models.QWEN35_122B, deep, pre=93.6, loaded=33.5, version="0.5.12")
    new = planned(models.QWEN35_122B, deep, pre=93.6, loaded=33.5, version="0.5.23")

    assert old.refusal is not None
    assert old.refusal.label is Label.KV_BUDGET
    assert old.refusal.short_gib == pytest.approx(25.19 - 19.46, abs=0.1)
    assert new.refusal is None
    assert new.running < 48


def test_too_few_slots_for_one_request_is_a_death_of_the_state_pool() -> None:
    plan = planned(models.QWEN_27B_FP8, {"mem_fraction_static": 0.85, "max_mamba_cache_size": 3}, 78.48, 50.01)

    assert plan.refusal is not None
    assert plan.refusal.label is Label.STATE_POOL


def test_a_cap_on_tokens_holds_and_is_told() -> None:
    plan = planned(models.LLAMA_8B, {"mem_fraction_static": 0.88, "max_total_tokens": 100_000}, 78.81, 63.72)

    assert (plan.kv_tokens, plan.is_capped) == (100_000, True)
    assert not planned(
        models.LLAMA_8B, {"mem_fraction_static": 0.88, "max_total_tokens": 10**7}, 78.81, 63.72
    ).is_capped


def test_what_a_state_pool_lacks_is_what_would_give_it_one_slot() -> None:
    settings: dict[str, Any] = {
        "mem_fraction_static": 0.4375, "max_running_requests": 1, "tp_size": 4, "speculative_algorithm": "NEXTN",
        "speculative_num_steps": 2, "speculative_eagle_topk": 1,
    }  # fmt: skip
    refusal = planned(models.QWEN_27B_FP8, settings, 20.0, 20.0 * 0.5859375, "0.5.23").refusal
    assert refusal is not None
    assert refusal.label is Label.STATE_POOL
    assert refusal.short_gib > 0
    lacking = planned(models.QWEN_27B_FP8, settings, 20.0, 20.0 * 0.5859375 + refusal.short_gib - 0.001, "0.5.23")
    enough = planned(models.QWEN_27B_FP8, settings, 20.0, 20.0 * 0.5859375 + refusal.short_gib + 0.001, "0.5.23")
    assert lacking.state is None
    assert enough.state is not None
    assert enough.state.slots == 1


@given(
    st.sampled_from([models.LLAMA_8B, models.QWEN_27B_FP8, models.GPT_OSS_20B, models.DEEPSEEK_V4_FLASH]),
    st.floats(20, 180), st.floats(0.01, 0.99), st.floats(0.3, 0.95), st.integers(0, 6), st.integers(1, 600),
    st.sampled_from(["0.5.9", "0.5.15", "0.5.23"]),
)  # fmt: skip
def test_pools_never_take_more_than_the_fraction_leaves(
    config: dict[str, Any], pre: float, share: float, fraction: float, steps: int, running: int, version: str
) -> None:
    settings: dict[str, Any] = {"mem_fraction_static": fraction, "max_running_requests": running, "tp_size": 4}
    if steps:
        settings |= {"speculative_algorithm": "NEXTN", "speculative_num_steps": steps, "speculative_eagle_topk": 1}
    plan = planned(config, settings, pre, pre * share, version)

    counted = plan.total_gib - plan.table_gib - (plan.draft_kv_gib if version == "0.5.9" else 0.0)
    assert plan.refusal is not None or counted <= plan.rest_gib + 1 / GIB
    assert plan.refusal is None or plan.refusal.short_gib >= 0
    assert plan.running <= max(running, 0)
