"""config.json -> shape -> bytes of weights, against published sizes and against tensors summed one by one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.memory.config_shape import model_shape
from orchestrator.memory.model_files import checkpoint_of, model_facts
from orchestrator.memory.weight_budget import Checkpoint, Parallel, weight_parts, weights_estimate
from tests.orchestrator import model_configs as models


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (models.LLAMA_8B, 8.03),
        (models.QWEN3_14B, 14.77),
        (models.MIXTRAL, 46.70),
        (models.QWEN3_30B, 30.53),
        (models.GPT_OSS_20B, 20.91),
        (models.GEMMA2_9B, 9.24),
        (models.GEMMA3_4B, 4.30),
        (models.NEMOTRON_H_8B, 8.10),
        (models.DEEPSEEK_V2_LITE, 15.71),
        (models.DEEPSEEK_V3, 671.03),
    ],
)
def test_parameters_come_out_as_published(config: dict[str, Any], billions: float) -> None:
    parts = weight_parts(model_shape(config), Parallel())

    assert sum(part.total_bytes for part in parts) / 2 / 1e9 == pytest.approx(billions, abs=0.01)


def tensors(hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocab: int, tied: bool) -> dict[str, int]:
    """Name -> elements of every tensor of a Llama checkpoint, listed one by one."""
    dim = hidden // heads
    found = {"model.embed_tokens.weight": vocab * hidden, "model.norm.weight": hidden}
    if not tied:
        found["lm_head.weight"] = vocab * hidden
    for i in range(layers):
        at = f"model.layers.{i}."
        found |= {
            at + "self_attn.q_proj.weight": hidden * heads * dim,
            at + "self_attn.k_proj.weight": hidden * kv_heads * dim,
            at + "self_attn.v_proj.weight": hidden * kv_heads * dim,
            at + "self_attn.o_proj.weight": heads * dim * hidden,
            at + "mlp.gate_proj.weight": hidden * width,
            at + "mlp.up_proj.weight": hidden * width,
            at + "mlp.down_proj.weight": hidden * width,
            at + "input_layernorm.weight": hidden,
            at + "post_attention_layernorm.weight": hidden,
        }
    return found


def write_checkpoint(folder: Path, sizes: dict[str, int], config: dict[str, Any]) -> None:
    """A safetensors file of bfloat16 tensors, header only: nobody reads the data."""
    header, end = {}, 0
    for name, elements in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [elements], "data_offsets": [end, end + 2 * elements]}
        end += 2 * elements
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    (folder / "config.json").write_text(json.dumps(config))


@given(
    st.integers(1, 4), st.sampled_from([(4, 2), (4, 4), (8, 1)]), st.integers(1, 300), st.integers(1, 700),
    st.booleans(),
)  # fmt: skip
def test_bytes_of_a_small_model_are_the_sum_of_its_tensors(
    layers: int, counts: tuple[int, int], width: int, vocab: int, tied: bool
) -> None:
    heads, kv_heads = counts
    told = models.config(
        "LlamaForCausalLM", 64, layers, heads, kv_heads, intermediate_size=width, vocab_size=vocab,
        tie_word_embeddings=tied,
    )  # fmt: skip
    parts = weight_parts(model_shape(told), Parallel())

    expected = 2 * sum(tensors(64, layers, heads, kv_heads, width, vocab, tied).values())
    assert sum(part.total_bytes for part in parts) == expected


def test_ranks_hold_their_shares_and_fewer_kv_heads_than_ranks_are_kept_on_each() -> None:
    parts = {p.name: p for p in weight_parts(model_shape(models.LLAMA_8B), Parallel(tp=16))}

    assert parts["queries and outputs"].rank_share == 1 / 16
    assert parts["keys and values"].rank_share == 1 / 8  # one of 8 heads
    assert parts["norms"].rank_share == 1.0


def test_a_checkpoint_counts_as_it_is_and_its_draft_layers_apart(tmp_path: Path) -> None:
    told = models.config("LlamaForCausalLM", 64, 2, 4, 2, intermediate_size=128, vocab_size=512)
    sizes = tensors(64, 2, 4, 2, 128, 512, tied=False)
    write_checkpoint(tmp_path, {**sizes, "mtp.fc.weight": 128 * 64, "model.layers.2.mlp.up_proj.weight": 1000}, told)

    assert checkpoint_of(tmp_path, layers=2) == Checkpoint(
        total_bytes=2 * (sum(sizes.values()) + 128 * 64 + 1000), draft_bytes=2 * (128 * 64 + 1000)
    )
    facts = model_facts(str(tmp_path))
    assert facts is not None
    assert facts.shape.layers == 2


def test_an_index_without_its_files_tells_the_total(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 16060522496}}))

    assert checkpoint_of(tmp_path) == Checkpoint(16060522496)


def test_a_model_in_the_hub_cache_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--org--small" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(models.LLAMA_8B))

    facts = model_facts("org/small")

    assert facts is not None
    assert (facts.shape.hidden, facts.checkpoint) == (4096, None)
    assert model_facts("org/other") is None


@pytest.mark.parametrize(
    ("told", "linear", "experts", "attention"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1.000244140625, 1.000244140625, 1.000244140625),
        ({"quant_method": "mxfp4"}, 2.0, 0.53125, 2.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625, 0.5625, 0.5625),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.51953125, 0.51953125, 0.51953125),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["self_attn"]},
         0.5390625, 0.5390625, 2.0),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
         {"num_bits": 4, "type": "int", "group_size": 32}}}}, 0.5625, 0.5625, 0.5625),
    ],
)  # fmt: skip
def test_number_formats_cost_their_bits_and_their_scales(
    told: dict[str, Any], linear: float, experts: float, attention: float
) -> None:
    found = model_shape({**models.LLAMA_8B, "quantization_config": told}).quantization

    assert (found.linear_bytes, found.expert_bytes, found.attention_bytes) == (linear, experts, attention)


def test_layers_are_told_apart() -> None:
    oss, qwen, nemotron = (model_shape(c) for c in (models.GPT_OSS_20B, models.QWEN35_122B, models.NEMOTRON_H_8B))

    assert (oss.full_layers, oss.window_layers, oss.window, oss.window_pool) == (12, 12, 128, True)
    assert qwen.state is not None
    assert (qwen.full_layers, qwen.state.kind, qwen.state.layers, qwen.draft_layers) == (12, "gdn", 36, 1)
    assert nemotron.state is not None
    assert (nemotron.full_layers, nemotron.state.kind, nemotron.state.layers) == (4, "mamba2", 24)
    assert model_shape(models.GEMMA2_9B).window_layers == 0  # SGLang gives it no pool for windows


def test_what_is_not_known_is_named_and_makes_the_estimate_wide() -> None:
    odd = model_shape({**models.LLAMA_8B, "architectures": ["BrandNewForCausalLM"]})
    plain = weights_estimate(model_shape(models.LLAMA_8B), Parallel(), None)

    assert odd.unknown == ("architecture BrandNewForCausalLM (read like a Llama)",)
    assert weights_estimate(odd, Parallel(), None).error_gib > 6 * plain.error_gib
    odd_format = model_shape({**models.LLAMA_8B, "quantization_config": {"quant_method": "novel"}})
    assert odd_format.unknown == ("quantization 'novel' (counted as unquantized)",)


def test_a_config_of_something_else_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no hidden_size, num_hidden_layers, so it is not the config"):
        model_shape({"architectures": ["Tokenizer"]})
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match="cannot be read as JSON"):
        model_facts(str(tmp_path))
    with pytest.raises(BadInput, match=r"nowhere\.json: no such file"):
        model_facts("org/model", config="nowhere.json")
