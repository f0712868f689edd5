"""Every kind of bad scenario is refused before anything starts: exit code 2, one message with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.errors import ScenarioError
from orchestrator.scenarios.scenario_file import load_scenario
from tests.orchestrator.scenario_samples import MINIMAL


def refuse(path: Path) -> str:
    """What `plan` says about a file that it must refuse (`run` reads scenarios through the same function)."""
    result = CliRunner().invoke(main, ["plan", str(path)])

    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    message = result.stderr.strip()
    assert message.startswith("specsweep: ")
    return message


EDITS = [
    ("wrong top-level key", "objectives:", "objektives:", ":20: objektives: is not a key here; did you mean 'objectives'?"),
    ("wrong nested key", "  gpus: 1", "  gpu: 1", ":13: slots.gpu: is not a key here; did you mean 'gpus'?"),
    ("wrong key in a list item", "    concurrency: [1, 4]", "    concurency: [1, 4]", ":17: workloads[0].concurency: is not a key here; did you mean 'concurrency'?"),
    ("text for a number", "  gpus: 1", "  gpus: one", ":13: slots.gpus: input should be a valid integer, not 'one'"),
    ("seconds with their unit", "  duration_s: 5", "  duration_s: 5s", ":19: measure.duration_s: input should be a valid number, not '5s'; write a number alone, like 5, in the unit that the key's name ends in"),
    ("share in percent", "slots:", "nightly: {reference: {}, candidate: {}, floors: {start_s: 3%}}\nslots:", "nightly.floors.start_s: input should be a valid number, not '3%'; write a share, like 0.05 for 5%"),
    ("value for a mapping", "slots:", "nightly: {reference: {}, candidate: v0.5.23}\nslots:", "nightly.candidate: must be a mapping of keys, not 'v0.5.23'"),
    ("nothing for a mapping", "slots:", "nightly: {reference: {}, candidate: }\nslots:", "nightly.candidate: must be a mapping of keys, not empty"),
    ("quoted number", "  duration_s: 5", '  duration_s: "5"', ":19: measure.duration_s: input should be a valid number, not '5'"),
    ("negative duration", "  duration_s: 5", "  duration_s: -5", ":19: measure.duration_s: input should be greater than 0, not -5"),
    ("missing key", "name: small\n", "", ": name: is missing"),
    ("unknown engine kind", "kind: emulator", "kind: vllm", ":6: engine.kind: is 'vllm', allowed: 'sglang', 'emulator', 'attach' or 'command'"),
    ("empty axis", "[0, 1, 2]", "[]", ":11: sweep.axes.speculative_num_steps: is an empty axis"),
    ("value twice on an axis", "[0, 1, 2]", "[0, 1, 1]", ":11: sweep.axes.speculative_num_steps[2]: has 1 twice"),
    ("unknown setting", "speculative_num_steps:", "speculative_num_step:", ":11: sweep.axes.speculative_num_step[0]: is not an SGLang 0.5.23 server option; did you mean 'speculative_num_steps'?"),
    ("setting of a wrong type", "[0, 1, 2]", "[0, 1.5]", ":11: sweep.axes.speculative_num_steps[1]: takes a whole number, not 1.5"),
    ("setting outside its choices", "speculative_algorithm: NEXTN", "speculative_algorithm: NEXTN\n    kv_cache_dtype: fp5", ":9: engine.settings.kv_cache_dtype: is 'fp5', allowed: auto, fp8_e5m2"),
    ("setting that Specsweep owns", "speculative_algorithm: NEXTN", "speculative_algorithm: NEXTN\n    port: 30000", ":9: engine.settings.port: is not a setting to sweep: Specsweep chooses a free port"),
    ("impossible slot size", "  gpus: 1", "  gpus: 4", ":13: slots.gpus: is 4, but slots.emulated_gpus gives only 2"),
    ("tp that is not the slot size", "speculative_algorithm: NEXTN", "speculative_algorithm: NEXTN\n    tp_size: 2", ":9: engine.settings.tp_size: makes a server of 2 GPUs (tp x pp x dp), but slots.gpus is 1"),
    ("depth without draft model", "NEXTN", "STANDALONE", ":11: sweep.axes.speculative_num_steps: STANDALONE drafts with a model of its own: give model.draft_path"),
    ("depth without algorithm", "speculative_algorithm: NEXTN", "page_size: 1", ":11: sweep.axes.speculative_num_steps: is 1 but there is no speculative_algorithm"),
    ("negative depth", "[0, 1, 2]", "[-1, 1]", ":11: sweep.axes.speculative_num_steps: is -1; 0 means no speculation"),
    ("contradicting speculation numbers", "speculative_algorithm: NEXTN", "speculative_algorithm: NEXTN\n    speculative_num_draft_tokens: 9", ":9: engine.settings.speculative_num_draft_tokens: is 9, but with speculative_eagle_topk 1 it is always"),
    ("two spellings of one setting", "speculative_algorithm: NEXTN", "cuda_graph_max_bs: 8\n    cuda_graph_max_bs_decode: 16", "engine.settings.cuda_graph_max_bs_decode: contradicts 'cuda_graph_max_bs'"),
    ("memory fraction above one", "speculative_algorithm: NEXTN", "speculative_algorithm: NEXTN\n    mem_fraction_static: 85", ":9: engine.settings.mem_fraction_static: is 85; it is a share of GPU memory between 0 and 1 (rule: memory-fraction-range)"),
    ("rule of SGLang", "speculative_algorithm: NEXTN", "speculative_algorithm: NEXTN\n    speculative_eagle_topk: 4\n    speculative_num_draft_tokens: 8\n    attention_backend: trtllm_mha", ":9: engine.settings.speculative_eagle_topk: is 4, but attention_backend trtllm_mha verifies chains only: take topk 1, or flashinfer (rule: trtllm-mha-chain-only)"),
    ("variable that fakes results", "kind: emulator", "kind: emulator\n  env: {SGLANG_SIMULATE_ACC_LEN: '3'}", ":7: engine.env.SGLANG_SIMULATE_ACC_LEN: SGLANG_SIMULATE_ACC_LEN makes up the acceptance of drafts, and with it every speed: unset it, or name it in engine.allow_faked"),
    ("command that fakes results", "kind: emulator", "kind: emulator\n  command: [env, SGLANG_SIMULATE_UNIFORM_EXPERTS=1, python]", ":7: engine.command[1]: SGLANG_SIMULATE_UNIFORM_EXPERTS makes up the routing to experts"),
    ("argument that fakes results", "kind: emulator", "kind: emulator\n  extra_args: [--env=SGLANG_SIMULATE_ACC_METHOD=multinomial]", ":7: engine.extra_args[0]: SGLANG_SIMULATE_ACC_METHOD makes up"),
    ("fake that is none", "kind: emulator", "kind: emulator\n  allow_faked: [SGLANG_SIMULATE_ACC_LENGTH]", ":7: engine.allow_faked[0]: 'SGLANG_SIMULATE_ACC_LENGTH' is not a variable that makes results up; did you mean 'SGLANG_SIMULATE_ACC_LEN'?"),
    ("duplicate workload names", "    concurrency: [1, 4]\n", "    concurrency: [1, 4]\n  - name: chat\n    concurrency: [2]\n", ":18: workloads[1].name: 'chat' is used twice"),
    ("duplicate YAML key", "measure:", "slots: {}\nmeasure:", ":18: slots: is given twice (first on line 12)"),
    ("no load level", "    concurrency: [1, 4]\n", "", ":16: workloads[0]: has no load level"),
    ("unknown dataset", "    concurrency: [1, 4]", "    dataset: random_texts\n    concurrency: [1, 4]", ":17: workloads[0].dataset: is 'random_texts', allowed: random_text"),
    ("two ways to end a point", "  duration_s: 5", "  duration_s: 5\n  requests: 10", ":18: measure: wants one of duration_s and requests, not both"),
    ("unknown mode of recovery", "  duration_s: 5", "  duration_s: 5\nrecovery: {mode: maybe}", ":20: recovery.mode: is 'maybe', allowed: 'apply', 'suggest' or 'off'"),
    ("recovery that would change the question", "  duration_s: 5", "  duration_s: 5\nrecovery: {may_change: [speculative_num_steps]}", ":20: recovery.may_change[0]: is 'speculative_num_steps', allowed: 'mem_fraction_static'"),
    ("no try at all", "  duration_s: 5", "  duration_s: 5\nrecovery: {tries: 0}", ":20: recovery.tries: input should be greater than or equal to 1, not 0"),
    ("unknown metric", "maximize: output_throughput_tok_s", "maximize: output_throughput", ":22: objectives[0].maximize: is 'output_throughput', which is not a metric; did you mean 'output_throughput_tok_s'?"),
    ("level that is not measured", "at: {concurrency: 1}", "at: {concurrency: 2}", ":23: objectives[0].at.concurrency: is 2, but workload 'chat' is measured at: 1, 4"),
    ("objective on an unknown workload", "at: {concurrency: 1}", "at: {concurrency: 1}\n    workload: batch", ":24: objectives[0].workload: is 'batch', but the workloads are: chat"),
    ("goodput without limits per request", "maximize: output_throughput_tok_s", "maximize: goodput_rps", ":22: objectives[0].maximize: is 'goodput_rps', which needs limits per request: give workload 'chat' an slo"),
    ("limit that cannot be read", "at: {concurrency: 1}", "at: {concurrency: 1}\n    limits: [ttft below 5]", ":24: objectives[0].limits[0]: 'ttft below 5' is not a limit; write e.g. 'ttft_p95_ms <= 500'"),
    ("exclude that leaves nothing", "slots:", '  exclude:\n    - speculative_num_steps: ">= 0"\nslots:', ":12: sweep.exclude: leaves no config to try"),
    ("exclude of a setting that is not varied", "slots:", "  exclude:\n    - {speculative_num_step: 1}\nslots:", ":13: sweep.exclude[0].speculative_num_step: is not varied by this sweep; did you mean 'speculative_num_steps'?"),
    ("exclude with a broken comparison", "slots:", '  exclude:\n    - {speculative_num_steps: "> foo"}\nslots:', ":13: sweep.exclude[0].speculative_num_steps: is '> foo'; write a value, a list of values, or a comparison"),
    ("infinite duration", "  duration_s: 5", "  duration_s: .inf", ":19: measure.duration_s: input should be a finite number, not inf"),
    ("limit with a broken number", "at: {concurrency: 1}", "at: {concurrency: 1}\n    limits: [ttft_p95_ms <= 1.2.3]", ":24: objectives[0].limits[0]: 'ttft_p95_ms <= 1.2.3' is not a limit"),
    ("zip of different lengths", "slots:", "  zip:\n    - {mem_fraction_static: [0.8, 0.9], page_size: [1]}\nslots:", ":13: sweep.zip[0]: has lists of different lengths: mem_fraction_static 2, page_size 1"),
    ("emulator key with a real engine", "kind: emulator", "kind: sglang", "slots.emulated_gpus: is for the emulator, but engine.kind is `sglang`"),
    ("noise for a real engine", "kind: emulator", "kind: sglang\n  noise: {seed: 1}", "engine.noise: is for the emulator, but engine.kind is `sglang`"),
    ("noise without a seed", "kind: emulator", "kind: emulator\n  noise: {host: 0.1}", "engine.noise.seed: is missing"),
    ("noise beyond reason", "kind: emulator", "kind: emulator\n  noise: {seed: 1, host: 5}", "engine.noise.host: input should be less than or equal to 1, not 5"),
    ("faults for a real engine", "kind: emulator", "kind: sglang\n  faults: f.yaml", "engine.faults: is for the emulator, but engine.kind is `sglang`"),
    ("attach without a url", "kind: emulator", "kind: attach", ":5: engine.url: is missing; `attach` loads the server that runs there"),
    ("variable with a bad name", "slots:", "  zip:\n    - {env.1X: [a]}\nslots:", ":13: sweep.zip[0].env.1X[0]: is not a variable: '1X' must be letters"),
    ("variable of ours", "slots:", "  configs:\n    - {env.CUDA_VISIBLE_DEVICES: 1}\nslots:", ":13: sweep.configs[0].env.CUDA_VISIBLE_DEVICES: is not yours to set"),
    ("variable of ours by prefix", "slots:", "  include:\n    - {env.SPECSWEEP_X: 1}\nslots:", ":13: sweep.include[0].env.SPECSWEEP_X: is not yours to set"),
    ("variable that is a secret", "[0, 1, 2]", "[0]\n    env.HF_TOKEN: [a, b]", ":12: sweep.axes.env.HF_TOKEN[0]: is named like a secret"),
    ("variable that is a switch", "[0, 1, 2]", "[0]\n    env.A: [true]", ":12: sweep.axes.env.A[0]: takes text or a number, not True"),
    ("variable with a value twice", "[0, 1, 2]", '[0]\n    env.A: [1, "1"]', ":12: sweep.axes.env.A[1]: has '1' twice"),
    ("variable among the settings", "speculative_algorithm: NEXTN", "env.A: x", ":8: engine.settings.env.A: belongs into engine.env"),
    ("detached container", "kind: emulator", "kind: emulator\n  command: [docker, run, -d, image]", ":7: engine.command: has `-d`: the server must stay in the foreground"),
    ("container without an image", "kind: emulator", "kind: emulator\n  command: [docker, run, --rm]", ":7: engine.command: `docker run` names no image; write it after the options"),
    ("address space of a container", "kind: emulator", "kind: emulator\n  address_space_limit_gib: 8\n  command: [podman, run, image]", ":7: engine.address_space_limit_gib: cannot be set for a container"),
    ("unknown limit", "kind: emulator", "kind: emulator\n  ulimits: {no_file: 5}", ":7: engine.ulimits.no_file: is not a limit here; did you mean 'nofile'? Allowed: nofile"),
    ("unlimited files", "kind: emulator", "kind: emulator\n  ulimits: {nofile: unlimited}", ":7: engine.ulimits.nofile: is 'unlimited'; give a whole number"),
    ("limit below any server", "kind: emulator", "kind: emulator\n  ulimits: {stack: 4096}", ":7: engine.ulimits.stack: is 4096; a server cannot start with less than 65536"),
    ("limit in words", "kind: emulator", "kind: emulator\n  ulimits: {memlock: 8G}", ":7: engine.ulimits.memlock: is '8G'; give a whole number or `unlimited`"),
    ("command without words", "kind: emulator", "kind: emulator\n  before_start: [{command: []}]", ":7: engine.before_start[0].command: "),
    ("command with a misspelt key", "kind: emulator", "kind: emulator\n  after_stop: [{command: [x], timeout: 3}]", ":7: engine.after_stop[0].timeout: is not a key here; did you mean 'timeout_s'?"),
    ("draft paths without a draft", "bundled_draft: true", "bundled_draft: true\n  draft_path_by_host: {a: /b}", ":5: model.draft_path_by_host: needs model.draft_path"),
    ("anchor", "slots:", "slots: &s", ":12: &s: YAML anchors and aliases are not supported"),
    ("alias and merge key", "slots:\n", "slots:\n  <<: *base\n", ":13: *base: YAML anchors and aliases are not supported"),
    ("tab in the indentation", "  gpus: 1", "\tgpus: 1", ":13: has a tab in its indentation; YAML allows spaces only"),
    ("broken YAML", "[0, 1, 2]", "[0, 1, 2", "is not valid YAML: while parsing a flow sequence"),
    ("two documents", "slots:", "---\nslots:", "holds several YAML documents"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "told"), [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_a_bad_scenario_gets_one_message_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in MINIMAL
    path = tmp_path / "bad.yaml"
    path.write_text(MINIMAL.replace(old, new, 1))

    message = refuse(path)

    assert f"{path}" in message
    assert told in message
    assert "\n" not in message


ATTACH = (
    MINIMAL.replace("kind: emulator", "kind: attach\n  url: http://127.0.0.1:1")
    .replace("sweep:\n  axes:\n    speculative_num_steps: [0, 1, 2]\n", "")
    .replace("  emulated_gpus: 2\n", "")
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("kind: attach", "kind: attach\n  before_start: [{command: [x]}]", "engine.before_start: is for servers that"),
        ("kind: attach", "kind: attach\n  after_stop: [{command: [x]}]", "engine.after_stop: is for servers that"),
        ("kind: attach", "kind: attach\n  ulimits: {core: 0}", "engine.ulimits: is for servers that Specsweep starts"),
        ("kind: attach", "kind: attach\n  command: [docker, run, x]", "engine.command: is for servers that"),
        ("bundled_draft: true", "path_by_host: {a: /b}", "model.path_by_host: is for servers that Specsweep starts"),
        ("slots:", "sweep: {include: [{env.A: 1}]}\nslots:", "sweep.include[0].env.A: is for servers that"),
    ],
)
def test_nothing_is_asked_for_a_server_that_is_not_ours(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "attach.yaml"
    path.write_text(ATTACH.replace(old, new, 1))

    assert told in refuse(path)


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin1.yaml"
    path.write_bytes(MINIMAL.replace("name: small", "name: small\ndescription: Größe").encode("latin-1"))

    assert f"{path}:2: is not UTF-8 (byte 0xf6)" in refuse(path)


def test_an_empty_file_a_list_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    empty, listed = tmp_path / "empty.yaml", tmp_path / "list.yaml"
    empty.write_text("# nothing\n")
    listed.write_text("- name: small\n")

    assert "is empty; a scenario starts with `name:`" in refuse(empty)
    assert "must be a mapping of keys, not a list" in refuse(listed)
    assert "no such scenario file" in refuse(tmp_path / "none.yaml")
    assert "is a folder" in refuse(tmp_path)


@pytest.mark.parametrize(
    ("place", "line", "told"),
    [
        ("    dataset: file:prompts.jsonl", ":17: workloads[0].dataset: ", "file:prompts.jsonl: no such file"),
        ("    dataset: 'file:'", ":17: workloads[0].dataset: ", "names no file; write file:PATH"),
        ("    dataset: file:tests", ":17: workloads[0].dataset: ", "file:tests: is a folder; give a file of prompts"),
        ("    dataset: prompts.jsonl", ":17: workloads[0].dataset: ", "did you mean 'file:prompts.jsonl'?"),
        ("    dataset: file:LICENSE\n    mix: [{name: a}, {name: b,\n      dataset: file:no}]",
         ":19: workloads[0].mix[1].dataset: ", "file:no: no such file"),
    ],
)  # fmt: skip
def test_a_dataset_that_is_no_file_is_refused_at_its_line(tmp_path: Path, place: str, line: str, told: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(MINIMAL.replace("- name: chat", f"- name: chat\n{place}"))

    refused = refuse(path)
    assert f"file.yaml{line}" in refused
    assert told in refused


def test_other_files_that_a_scenario_names_are_refused_at_their_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(MINIMAL.replace("kind: emulator", "kind: emulator\n  faults: no.yaml"))

    assert "file.yaml:7: engine.faults: no.yaml: the fault script cannot be read" in refuse(path)


def test_the_minimal_scenario_itself_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(MINIMAL)

    assert CliRunner().invoke(main, ["plan", str(path)]).exit_code == 0


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("measure.duraton_s=3", "measure.duraton_s: is not a key here; did you mean 'duration_s'?"),
        ("measure", "write KEY=VALUE"),
        ("workloads.3.name=x", "'workloads' is a list; give an index from 0 to 0"),
        ("seed=abc", "seed: input should be a valid integer, not 'abc'"),
        ("name.x=1", "'name' is a value, not a mapping"),
        ("seed=[1", "the value is not valid YAML"),
    ],
)
def test_a_bad_override_is_refused(tmp_path: Path, override: str, told: str) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(MINIMAL)

    result = CliRunner().invoke(main, ["plan", str(path), "--set", override])

    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("measure.duraton_s=3", "measure.duraton_s: is not a key here; did you mean 'duration_s'?"),
        ("workloads.0.output_tokens=many", "workloads[0].output_tokens: input should be a valid integer, not 'many'"),
        (
            "measure={duration_s: 5s}",
            "measure.duration_s: input should be a valid number, not '5s'; write a number alone",
        ),
        (
            "objectives.0.at.concurrency=2",
            "objectives[0].at.concurrency: is 2, but workload 'chat' is measured at: 1, 4",
        ),
    ],
)
def test_what_is_wrong_with_an_override_is_told_of_the_command_line_and_of_no_line_of_the_file(
    tmp_path: Path, override: str, told: str
) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(MINIMAL)

    with pytest.raises(ScenarioError) as refused:
        load_scenario(path, (override,))

    assert str(refused.value).startswith(f"command line: {told}")


def test_a_fault_of_the_file_keeps_its_line_beside_an_override(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(MINIMAL.replace("  gpus: 1", "  gpus: one"))

    with pytest.raises(ScenarioError) as refused:
        load_scenario(path, ("measure.duration_s=5",))

    assert str(refused.value) == f"{path}:13: slots.gpus: input should be a valid integer, not 'one'"


def test_a_dataset_file_without_prompts_is_refused_with_its_line(tmp_path: Path) -> None:
    prompts, path = tmp_path / "prompts.jsonl", tmp_path / "file.yaml"
    prompts.write_text('{"prompt": "fine"}\n{"prompt": 3}\n')
    path.write_text(MINIMAL.replace("- name: chat", f"- name: chat\n    dataset: file:{prompts}"))

    assert f"{prompts}:2: 'prompt' is 3; it is a text" in refuse(path)


def test_a_rule_about_the_gpu_that_a_scenario_names_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "gpu.yaml"
    quantized = MINIMAL.replace("NEXTN", "NEXTN\n    quantization: nvfp4_online")
    path.write_text(quantized.replace("  gpus: 1\n", "  gpus: 1\n  accelerator: RTX-PRO-6000\n"))

    assert f"{path}:9: engine.settings.quantization: is nvfp4_online, which needs SM100 or SM103" in refuse(path)
    path.write_text(quantized.replace("  gpus: 1\n", "  gpus: 1\n  accelerator: B200\n"))
    assert CliRunner().invoke(main, ["plan", str(path)]).exit_code == 0


def test_a_fault_script_that_is_missing_or_wrong_is_refused_with_its_place(tmp_path: Path) -> None:
    faults, path = tmp_path / "faults.yaml", tmp_path / "file.yaml"
    path.write_text(MINIMAL.replace("kind: emulator", f"kind: emulator\n  faults: {faults}"))

    assert f"{faults}: the fault script cannot be read: No such file or directory" in refuse(path)
    faults.write_text("start:\n  - {lable: kv_budget}\n")
    assert f"{faults}:2: start[0]: wants one of the keys label, replay" in refuse(path)


@pytest.mark.parametrize("mode", ["off", "'off'", "suggest"])
def test_a_bare_off_is_the_mode_and_not_false(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(f"{MINIMAL}recovery: {{mode: {mode}}}\n")

    assert load_scenario(file).recovery.mode == mode.strip("'")
