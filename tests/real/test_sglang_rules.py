"""SGLang's own argument resolution says of the rows of the rules what the rules say. No GPU is needed for it."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from typing import Any

import pytest

from orchestrator.sglang.sglang_rules import RULES
from tests.integration.programs import ROOT
from tests.orchestrator.sglang.test_sglang_rules import ROWS

PYTHON = ROOT / ".sglang-cpu/venv/bin/python"
MODEL = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 512, "intermediate_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 1000,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
BY_STEPS = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"}
# Refused by SGLang, but after its arguments are resolved: when the attention backend is made.
LATER = {"fa3-arch"}
# The nearest settings need a kernel package that the CPU build lacks, or fail on this plain model for another reason.
NEAREST_NOT_HERE = {
    "stochastic-rounding-arch", "stochastic-rounding-type", "mla-kv-type", "nvfp4-kv-arch", "fp4-kv-no-unified-memory",
    "prefill-dequant-needs-nvfp4", "nvfp4-decode-backend", "dwdp-no-speculation", "graph-backend-removed",
    "pipeline-speculation", "uno-tree",
}  # fmt: skip

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not (ROOT / ".sglang-cpu/.installed").exists(), reason="tests/sglang_cpu/install.sh has not been run"
    ),
]

NOW = [row for row in ROWS if row[5] is None]
STRICTER = {rule.name for rule in RULES if rule.sglang != "refuses"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(MODEL))
    return str(folder)


def launched(settings: dict[str, Any]) -> dict[str, Any]:
    """What Specsweep would really start for these settings: without speculation at depth 0, else with all it needs."""
    given = {name: value for name, value in settings.items() if value is not None}
    algorithm = str(given.get("speculative_algorithm", ""))
    if given.get("speculative_num_steps") == 0:
        return {name: value for name, value in given.items() if not name.startswith("speculative_")}
    if algorithm in BY_STEPS and "speculative_num_steps" in given:
        given.setdefault("speculative_eagle_topk", 1)
        if given["speculative_eagle_topk"] == 1:
            given.setdefault("speculative_num_draft_tokens", given["speculative_num_steps"] + 1)
    if algorithm in {"EAGLE3", "DFLASH", "DSPARK"}:
        given.setdefault("speculative_draft_model_path", "draft")
    return given


def question(settings: dict[str, Any], arch: Any, model: str) -> str:
    known = str(arch) if arch is not None else "CPU" if settings.get("device") == "cpu" else "SM90"
    device = {"device": "cpu"} if known == "CPU" else {}
    return json.dumps({"settings": {**device, **launched(settings)}, "arch": known, "model": model})


@cache
def answers(model: str) -> tuple[list[str | None], list[str | None]]:
    """What SGLang refuses of the rows, and of their nearest settings; None where it takes them."""
    bad = [question(row[1], row[4], model) for row in NOW]
    good = [question({**row[1], **row[3]}, row[4], model) for row in NOW]
    helpers = ROOT / "tests/sglang_cpu"
    env = {**os.environ, "PYTHONPATH": str(helpers), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(PYTHON), str(helpers / "resolve.py")], input="\n".join(bad + good), capture_output=True, text=True,
        env=env, check=False,
    )  # fmt: skip
    told = [json.loads(line)["refused"] for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(told) == 2 * len(NOW), done.stderr[-2000:]
    return told[: len(NOW)], told[len(NOW) :]


def test_sglang_refuses_what_the_rules_refuse_but_for_those_that_are_stricter_and_say_so(model: str) -> None:
    refused, _ = answers(model)

    taken = [row[0] for row, answer in zip(NOW, refused, strict=True) if answer is None]
    assert set(taken) - STRICTER - LATER == set()


def test_sglang_takes_the_nearest_settings_that_the_rules_let_pass(model: str) -> None:
    _, taken = answers(model)

    refused = {row[0]: answer for row, answer in zip(NOW, taken, strict=True) if answer is not None}
    assert {name: told for name, told in refused.items() if name not in NEAREST_NOT_HERE} == {}
