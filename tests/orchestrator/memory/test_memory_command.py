"""`specsweep memory` and the memory part of `specsweep plan`, as users see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.memory.gpu_memory import known_memory_gib
from tests.orchestrator import model_configs as models

QWEN = "scenarios/qwen3.5-122b-mtp-depth.yaml"


def said(*arguments: str, code: int = 0) -> str:
    """What a command prints, blanks made single."""
    result = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return " ".join((result.output if not code else result.stderr).split())


def told(*arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)
    return result


@pytest.fixture(autouse=True)
def _no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.memory.memory_forecast.RUNS", tmp_path / "none")


@pytest.fixture
def llama(tmp_path: Path) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(models.LLAMA_8B))
    return str(file)


def test_the_waterfall_of_a_model_by_itself(llama: str) -> None:
    text = said("memory", "--model", llama, "--gpu-gib", "79.65", "--set", "mem_fraction_static=0.88")

    assert "weights 15.04 0.55 63.51 1.15" in text
    assert "KV cache: 443,076 ± 12,477 tokens (54.1 GiB)" in text
    assert "Running requests: 2048, graphs up to batch 256" in text
    assert "Rules of SGLang 0.5.23; mem_fraction_static 0.88; from no earlier start" in text


def test_older_releases_have_rules_of_their_own(llama: str) -> None:
    old = told("memory", "--model", llama, "--gpu-gib", "95.59", "--sglang", "0.5.9")
    new = told("memory", "--model", llama, "--gpu-gib", "95.59")

    assert (old["mem_fraction_static"], new["mem_fraction_static"]) == (0.863, 0.858)
    assert [step["phase"] for step in new["steps"]] == ["dist_init", "weights", "kv_pool", "graph_target"]


def test_a_death_is_told_with_its_reason_and_a_way_out(llama: str) -> None:
    text = said("memory", "--model", llama, "--gpu-gib", "24", "--set", "mem_fraction_static=0.5")

    assert "DOES NOT FIT: short by 3." in text
    assert "weights leave nothing under mem_fraction_static 0.5 (needs more than 0.657)" in text
    assert "mem_fraction_static above 0.7" in text
    assert "graphs of the target" not in text  # nothing comes after a death


def test_a_config_of_a_scenario_is_chosen_by_number_or_id_and_its_requests_are_counted() -> None:
    text = said("memory", QWEN, "--config", "4")
    chosen = told("memory", QWEN, "--config", "4")

    assert "speculative_num_steps=4" in text
    assert "chat: 512 requests of 256 tokens fit at once" in text
    assert chosen["kv_tokens"] == 319009
    assert chosen["requests_that_fit"] == {"chat": 512}
    assert told("memory", QWEN, "--config", chosen["config"].split("(")[1][:6])["config"] == chosen["config"]


def test_a_config_that_is_not_told_is_asked_for_with_the_list() -> None:
    text = said("memory", QWEN, code=2)

    assert "which config? Give --config N or its id: 1: " in text
    assert "speculative_num_steps=10" in text
    assert "--config 9: there is none such" in said("memory", QWEN, "--config", "9", code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give a scenario, or --model with --gpu-gib"),
        (("--model", "org/nowhere"), "--model needs --gpu-gib"),
        (("--model", "org/nowhere", "--gpu-gib", "80"), "no config.json there, and no such model in the hub's cache"),
        (("--model", "nowhere.json", "--gpu-gib", "80"), "nowhere.json: no such file"),
        (("--model", "nowhere.json", "--gpu-gib", "nan"), "--gpu-gib nan: give the GiB of one GPU"),
        (("--model", "nowhere.json", "--gpu-gib", "inf"), "--gpu-gib inf: give the GiB of one GPU"),
        (("--model", "nowhere.json", "--gpu-gib", "80", "--config", "1"), "--config chooses among the configs"),
        ((QWEN, "--config", "1", "--gpu-gib", "40"), "a scenario says it by slots.gpu_memory_gib"),
        ((QWEN, "--config", "1", "--sglang", "0.5.9"), "a scenario says it by engine.version"),
        ((QWEN, "--config", "7"), "--config 7: there is none such"),
        ((QWEN, "--config", "1", "--set", "engine.settings.pp_size=0"), "pp_size: is 0; it must be 1 or more"),
    ],
)
def test_bad_input_is_refused_in_words(arguments: tuple[str, ...], words: str) -> None:
    assert words in said("memory", *arguments, code=2)


def test_a_setting_that_sglang_does_not_have_is_refused(llama: str) -> None:
    text = said("memory", "--model", llama, "--gpu-gib", "80", "--set", "tensor_size=4", code=2)

    assert "--set tensor_size: is not an SGLang 0.5.23 server option" in text
    assert "write NAME=VALUE" in said("memory", "--model", llama, "--gpu-gib", "80", "--set", "tp_size", code=2)


def test_a_number_beyond_the_plan_is_no_beginning_of_an_id() -> None:
    beginnings = {told("memory", QWEN, "--config", str(n))["config"].split("(")[1][0] for n in range(1, 7)}
    digit = next(digit for digit in "789" if digit in beginnings)

    assert f"--config {digit}: there is none such" in said("memory", QWEN, "--config", digit, code=2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("tp_size=0", "tp_size: is 0; it must be 1 or more"),
        ("context_length=-5", "context_length: is -5; it must be 1 or more"),
        ("mem_fraction_static=5", "is 5; it is a share of GPU memory between 0 and 1 (rule: memory-fraction-range)"),
        ("max_running_requests=0", "a server that runs no request cannot be measured"),
        ("tp_size=3", "tp_size: is 3; 3 ranks do not divide the model's 32 attention heads"),
    ],
)
def test_settings_that_no_server_starts_with_are_not_predicted(llama: str, settings: str, words: str) -> None:
    assert words in said("memory", "--model", llama, "--gpu-gib", "80", "--set", settings, code=2)


def test_a_draft_that_is_not_there_is_refused(llama: str) -> None:
    text = said("memory", "--model", llama, "--gpu-gib", "80", "--draft", "/nowhere", code=2)

    assert "--draft /nowhere: no config.json there" in text


def test_the_plan_has_a_line_for_each_config_and_marks_what_cannot_fit() -> None:
    text, plan = said("plan", QWEN), told("plan", QWEN)

    assert "Memory of one GPU in GiB, predicted (from 0 earlier starts):" in text
    assert "speculative_num_steps=10 61.0 1.6" in text
    assert "DOES NOT FIT: kv_budget -1.1" in text
    verdicts = {
        c["settings"]["speculative_num_steps"]: plan["memory"][c["config_id"]]["verdict"] for c in plan["configs"]
    }
    assert verdicts[10] == "does_not_fit"
    assert "does_not_fit" not in {verdicts[depth] for depth in (1, 2, 3, 4, 5)}


def test_a_plan_without_the_model_at_hand_says_so_in_a_line() -> None:
    real = ("--set", "engine.kind=sglang", "--set", "engine.start_speedup=1", "--set", "slots.emulated_gpus=0")
    text = said("plan", QWEN, *real)

    assert "Memory: no config.json of Qwen/Qwen3.5-122B-A10B is here" in text
    assert told("plan", QWEN, *real)["memory"]["why_not"].endswith("give it as model.config")


def test_a_plan_of_real_servers_predicts_from_the_given_config(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(models.QWEN35_122B))
    real = (
        "--set", "engine.kind=sglang", "--set", "engine.start_speedup=1", "--set", "slots.emulated_gpus=0",
        "--set", f"model.config={file}",
    )  # fmt: skip

    assert "give slots.gpu_memory_gib or slots.accelerator" in said("plan", QWEN, *real)
    by_name = told("plan", QWEN, *real, "--set", "slots.accelerator=RTX-PRO-6000")["memory"]
    by_size = told("plan", QWEN, *real, "--set", "slots.gpu_memory_gib=95.5927734375")["memory"]
    assert [p["kv_tokens"] for p in by_name.values()] == [p["kv_tokens"] for p in by_size.values()]
    assert "no such file" in said("plan", QWEN, *real, "--set", "model.config=/nowhere", code=2)


@pytest.mark.parametrize(
    ("product", "gib"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.59),
        ("NVIDIA-B200", 179.06),
        ("NVIDIA H100 80GB HBM3", 79.65),
        ("NVIDIA A100-SXM4-80GB", 80.0),
        ("A100", None),  # sold with 40 and with 80
        ("made-up", None),
        (None, None),
    ],
)
def test_sizes_of_known_gpus(product: str | None, gib: float | None) -> None:
    found = known_memory_gib(product)

    assert (found if found is None else round(found, 2)) == gib
