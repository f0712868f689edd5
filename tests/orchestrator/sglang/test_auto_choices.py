"""What SGLang chooses by GPU, and what it changes by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.sglang.auto_choices import auto_choices
from orchestrator.sglang.gpu_arch import Arch
from orchestrator.sglang.sglang_adjustments import adjustments
from tests.orchestrator.scenario_samples import MINIMAL

# Each of these, given, decides what would be left open.
EXPLICIT: dict[str, Any] = {
    "attention_backend": "flashinfer",
    "page_size": 1,
    "moe_runner_backend": "triton",
    "fp4_gemm_runner_backend": "flashinfer_cutlass",
    "chunked_prefill_size": 8192,
    "cuda_graph_max_bs_decode": 64,
    "mem_fraction_static": 0.85,
}
CHAIN = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1}


def chosen(settings: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {choice.setting: (choice.sm100, choice.sm120) for choice in auto_choices(settings)}


def test_what_is_given_is_not_left_open_and_the_rest_is() -> None:
    assert chosen(EXPLICIT) == {}
    for name in EXPLICIT.keys() - {"page_size"}:
        assert name in chosen({key: value for key, value in EXPLICIT.items() if key != name})
    assert chosen({"device": "cpu"}) == {}


def test_an_explicit_chain_takes_trtllm_mha_on_sm100_and_an_open_topk_or_a_given_page_size_does_not() -> None:
    open_topk = {key: value for key, value in CHAIN.items() if key != "speculative_eagle_topk"}

    assert chosen({})["attention_backend"][0].startswith("trtllm_mha")
    assert chosen(CHAIN)["attention_backend"][0].startswith("trtllm_mha")
    assert chosen(CHAIN)["page_size"] == ("64", "1")
    for settings in ({**CHAIN, "page_size": 64}, open_topk, {**CHAIN, "speculative_eagle_topk": 4}):
        assert chosen(settings)["attention_backend"][0].startswith("flashinfer")
        assert "page_size" not in chosen(settings)


@pytest.mark.parametrize(
    ("settings", "arch", "told"),
    [
        ({"attention_backend": "trtllm_mha"}, None, ["page_size becomes 64 for attention_backend trtllm_mha"]),
        ({"attention_backend": "trtllm_mha", "page_size": 32}, None, []),
        ({"attention_backend": "fa4"}, Arch.SM100, ["page_size becomes 128 for fa4 (models without MLA)"]),
        ({"attention_backend": "fa4"}, Arch.SM120, []),
        ({"pp_size": 2}, None, ["the overlap schedule is off for pp_size above 1"]),
        ({**CHAIN, "max_running_requests": 8, "device": "cpu"}, None, ["the overlap schedule is off for speculation on a CPU"]),
        ({**CHAIN}, None, ["max_running_requests becomes 48 for speculation"]),
        ({"speculative_algorithm": "NGRAM", "enable_mixed_chunk": True, "max_running_requests": 8}, None, ["enable_mixed_chunk is off for NGRAM"]),
        ({"speculative_algorithm": "DFLASH", "speculative_num_steps": 4, "max_running_requests": 8}, None, ["speculative_num_steps and speculative_eagle_topk become 1 for DFLASH"]),
        ({"kv_cache_dtype": "nvfp4"}, Arch.SM120, ["an nvfp4 KV cache is prefilled from by flashinfer and decoded from by trtllm_mha"]),
        ({"kv_cache_dtype": "nvfp4"}, Arch.SM100, ["an nvfp4 KV cache is prefilled from by trtllm_mha and decoded from by trtllm_mha"]),
    ],
)  # fmt: skip
def test_what_sglang_changes_is_told(settings: dict[str, Any], arch: Arch | None, told: list[str]) -> None:
    assert adjustments(settings, arch) == told


def planned(tmp_path: Path, text: str, *options: str) -> str:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    result = CliRunner().invoke(main, ["plan", str(path), *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_plan_tells_each_open_choice_and_each_change_once_with_the_number_of_configs(tmp_path: Path) -> None:
    text = MINIMAL.replace("NEXTN", "NEXTN\n    attention_backend: trtllm_mha")
    plan = json.loads(planned(tmp_path, text, "--json"))
    shown = planned(tmp_path, text)

    assert {row["setting"]: row["configs"] for row in plan["left_on_auto"]} == {
        "moe_runner_backend": 3, "fp4_gemm_runner_backend": 3, "chunked_prefill_size": 3, "mem_fraction_static": 3,
    }  # fmt: skip
    assert plan["adjustments"] == [{"note": "page_size becomes 64 for attention_backend trtllm_mha", "configs": 3}]
    assert "Left on auto, differs between SM100 (B200) and SM120 (RTX PRO 6000):" in shown
    assert shown.count("page_size becomes 64") == 1


def test_plan_tells_nothing_of_gpus_for_a_server_on_a_cpu(tmp_path: Path) -> None:
    text = MINIMAL.replace("NEXTN", "NEXTN\n    device: cpu")

    assert json.loads(planned(tmp_path, text, "--json"))["left_on_auto"] == []
    assert "Left on auto" not in planned(tmp_path, text)
