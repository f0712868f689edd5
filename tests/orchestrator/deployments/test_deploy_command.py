"""From a run to what is deployed: which config, with which settings, and what is refused."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.deployments.deploy_command import DeployRequest, chosen_deployment, deploy
from orchestrator.deployments.served_config import ServedConfig, pinned_settings
from orchestrator.errors import BadInput
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.scenarios.night_scenario import night_scenario
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import LaunchSpec
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import finished_run


def account(spec: LaunchSpec) -> dict[str, Any]:
    """A server that chose its kernels by its GPU."""
    chosen = {"attention_backend": "flashinfer", "page_size": 1, "chunked_prefill_size": 8192, "kv_cache_dtype": "auto"}
    algorithm = dict(spec.settings).get("speculative_algorithm")
    return {"version": "0.5.23", "speculative_algorithm": algorithm, **chosen, **dict(spec.settings)}


def run_of(root: Path, scenario: Scenario) -> Path:
    return finished_run(root, scenario, FakeSlot("a", account=account))


def flags_of(text: str) -> dict[str, list[str]]:
    words = shlex.split(text[text.index("exec ") :].replace("\\\n", " "))
    places = [i for i, word in enumerate(words) if word.startswith("--")]
    return {words[a]: words[a + 1 : b] for a, b in zip(places, [*places[1:], len(words)], strict=True)}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    engine = {
        "kind": "sglang",
        "settings": {"speculative_algorithm": "NEXTN"},
        "env": {"SGLANG_X": "1", "HF_TOKEN": "hf_secret"},
        "extra_args": ["--api-key", "sk-secret", "--log-level", "warning"],
    }
    scenario = small_scenario(engine=engine, slots={"gpus": 1})
    return run_of(tmp_path_factory.mktemp("deploy") / "run", scenario)


def test_the_winner_is_written_as_it_ran_with_what_sglang_chose(measured: Path) -> None:
    deployment = chosen_deployment(DeployRequest(measured, "command"))
    flags = flags_of(deploy(DeployRequest(measured, "command"))[0])

    assert flags["--attention-backend"] == ["flashinfer"]
    assert flags["--chunked-prefill-size"] == ["8192"]
    assert flags["--page-size"] == ["1"]
    assert "--kv-cache-dtype" not in flags
    assert flags["--log-level"] == ["warning"]
    assert deployment.program == ("python3", "-m", "sglang.launch_server")
    assert deployment.variables == (("SGLANG_X", "1"),)
    assert "pinned, since SGLang chose it: page_size: 1" in deployment.provenance
    assert any(
        line.startswith("objective fast: highest output_throughput_tok_s at C=1") for line in deployment.provenance
    )


def test_only_what_all_servers_chose_alike_and_a_release_can_be_told_is_pinned() -> None:
    def pinned(*accounts: dict[str, Any], **settings: Any) -> dict[str, Any]:
        return pinned_settings(ServedConfig(settings, accounts, version="0.5.23"))

    assert pinned({"page_size": 64}, {"page_size": 64}) == {"page_size": 64}
    assert pinned({"page_size": 64}, {"page_size": 1}) == {}
    assert pinned({"page_size": 64}, {}) == {}
    assert pinned({"page_size": 64}, page_size=32) == {}
    assert pinned({"page_size": 64}, page_size="auto") == {"page_size": 64}
    assert pinned({"attention_backend": "a word of its own", "schedule_policy": "fcfs"}) == {}
    assert pinned() == {}


def test_a_server_without_speculation_is_deployed_without_any_flag_of_it(measured: Path) -> None:
    plain = next(
        row for row in _rows(measured) if "speculative_num_steps" not in row["settings"]
    )  # fmt: skip
    text, _ = deploy(DeployRequest(measured, "command", config=plain["config_id"]))

    assert not [name for name in flags_of(text) if name.startswith("--speculative")]


def _rows(root: Path) -> list[dict[str, Any]]:
    import json

    rows: list[dict[str, Any]] = json.loads((root / "ranking.json").read_text())["objectives"]["fast"]["ranking"]
    return rows


@pytest.mark.parametrize("form", ["command", "systemd", "compose", "k8s", "yaml"])
def test_no_secret_of_the_scenario_reaches_any_form(measured: Path, form: str) -> None:
    text, _ = deploy(DeployRequest(measured, form))

    assert "hf_secret" not in text
    assert "sk-secret" not in text
    assert "***" not in text
    assert "HF_TOKEN" in text


def test_the_dialect_is_that_of_the_release_that_was_measured(tmp_path: Path) -> None:
    scenario = small_scenario(
        engine={"kind": "sglang", "version": "0.5.9", "settings": {"cuda_graph_max_bs_decode": 16}},
        slots={"gpus": 1},
        sweep={},
    )

    def old(spec: LaunchSpec) -> dict[str, Any]:
        return {**account(spec), "version": "0.5.9"}

    finished_run(tmp_path / "run", scenario, FakeSlot("a", account=old))
    deployment = chosen_deployment(DeployRequest(tmp_path / "run", "command"))

    assert ("--cuda-graph-max-bs", "16") in deployment.flags
    assert deployment.ready_path == "/health"
    assert deployment.image == "lmsysorg/sglang:v0.5.9"


def test_an_emulated_run_is_written_with_a_loud_warning_and_for_the_real_server(tmp_path: Path) -> None:
    root = run_of(tmp_path / "run", small_scenario())
    text, warnings = deploy(DeployRequest(root, "command"))

    assert len(warnings) == 1
    assert "EMULATED: no GPU was measured" in text
    assert "sglang.launch_server" in text
    assert "--emulator" not in text


def test_a_build_of_a_night_is_written_with_the_engine_that_served_it(tmp_path: Path) -> None:
    nightly = {
        "reference": {"name": "pinned", "command": ["/opt/pinned/bin/python", "-m", "sglang.launch_server"]},
        "candidate": {"name": "tonight", "extra_args": ["--log-level", "warning"], "settings": {"page_size": 16}},
    }
    engine = {"kind": "sglang", "settings": {"speculative_algorithm": "NEXTN"}}
    scenario = small_scenario(engine=engine, slots={"gpus": 1}, nightly=nightly)
    root = run_of(tmp_path / "run", night_scenario(scenario))
    told = {}
    for config_id, settings in rank_run(root).configs.items():
        told[settings["build"]] = deploy(DeployRequest(root, "command", config=config_id))[0]

    assert "/opt/pinned/bin/python" in told["reference"]
    assert "--log-level" not in flags_of(told["reference"])
    assert flags_of(told["candidate"])["--page-size"] == ["16"]
    assert flags_of(told["candidate"])["--log-level"] == ["warning"]
    assert "--build" not in flags_of(told["candidate"])
    assert "the candidate of a night, which picks nothing" in told["candidate"]
    for request in (DeployRequest(root, "command"), DeployRequest(root, "command", objective="fast", config="0")):
        with pytest.raises(BadInput, match=r"is a night: it judges a build and picks none. Give one with --config"):
            deploy(request)


def test_a_run_without_a_winner_deploys_nothing_and_says_why(tmp_path: Path) -> None:
    objective = {"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 1},
                 "limits": ["ttft_p50_ms <= 0.000001"]}  # fmt: skip
    root = run_of(tmp_path / "run", small_scenario(objectives=[objective]))

    with pytest.raises(BadInput, match="objective fast has no winner: no config was measured at C=1"):
        deploy(DeployRequest(root, "command"))


def test_objectives_that_disagree_must_be_named_and_unknown_ids_are_refused_with_those_there_are(
    measured: Path,
) -> None:
    with pytest.raises(BadInput, match="--objective slow: the run has `fast`"):
        deploy(DeployRequest(measured, "command", objective="slow"))
    with pytest.raises(BadInput, match="--config zzz: no measured config has such an id; measured for fast: `"):
        deploy(DeployRequest(measured, "command", config="zzz"))


def test_a_container_of_the_scenario_keeps_its_options_and_gets_a_name_of_its_own(tmp_path: Path) -> None:
    command = ["docker", "run", "--ipc", "host", "-e", "HF_TOKEN=hf_secret", "my/image:3", "python3", "-m",
               "sglang.launch_server"]  # fmt: skip
    scenario = small_scenario(engine={"kind": "sglang", "command": command}, slots={"gpus": 2}, sweep={})
    deployment = chosen_deployment(DeployRequest(run_of(tmp_path / "run", scenario), "command"))

    assert deployment.container == (
        "docker", "run", "--ipc", "host", "-e", "HF_TOKEN", "--network", "host", "--gpus", '"device=0,1"', "--rm",
        "--init", "--name", "small-fast", "my/image:3",
    )  # fmt: skip
    assert deployment.image == "my/image:3"
    assert deployment.program == ("python3", "-m", "sglang.launch_server")


def test_any_other_server_is_deployed_by_its_template(tmp_path: Path) -> None:
    engine = {
        "kind": "command", "command": ["llama-server", "-m", "{model}", "--port", "{port}", "--host", "{host}"],
        "flags": {"depth": "--draft-max"}, "depth": "depth",
    }  # fmt: skip
    model = {"path": "org/model"}
    traffic = [{"name": "chat", "concurrency": [1], "api": "completions"}]
    axes = {"axes": {"depth": [4]}}
    scenario = small_scenario(engine=engine, slots={"gpus": 0}, sweep=axes, model=model, workloads=traffic)
    root = run_of(tmp_path / "run", scenario)
    deployment = chosen_deployment(DeployRequest(root, "command", port=8080))

    assert deployment.argv() == (
        "llama-server", "-m", "org/model", "--port", "8080", "--host", "0.0.0.0", "--draft-max", "4",
    )  # fmt: skip
    with pytest.raises(BadInput, match="is a --config file of SGLang"):
        deploy(DeployRequest(root, "yaml"))


def test_the_command_line_writes_a_file_whole(measured: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["deploy", str(measured), "--as", "systemd", "--out", str(tmp_path / "u.service")])

    assert said.exit_code == 0
    assert "ExecStart=" in (tmp_path / "u.service").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--program", "python 'x"], "No closing quotation"),
        (["--program", " "], "names no program"),
        (["--name", "a b;$c"], "write e.g. a-b-c"),
        (["--host", "x y"], "has letters that do not belong there"),
        (["--image", "a b$c", "--as", "k8s"], "has letters that do not belong there"),
        (["--host-class", "q"], "the run has hosts of one class"),
    ],
)
def test_words_that_no_form_can_hold_are_refused(measured: Path, words: list[str], told: str) -> None:
    result = CliRunner().invoke(main, ["deploy", str(measured), *words])

    assert result.exit_code == 2
    assert told in result.output


DOCKER = [
    "docker", "run", "--cap-add", "SYS_NICE", "-v", "/data/models:/models:ro", "-v", "hf:/root/.cache/huggingface",
    "-e", "NCCL_P2P_DISABLE=1", "-e", "HF_TOKEN=hf_secret", "-w", "/work", "my/image:3", "python3", "-m",
    "sglang.launch_server",
]  # fmt: skip


@pytest.fixture(scope="module")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    engine = {"kind": "sglang", "command": DOCKER, "env": {"SGLANG_ENABLE_SPEC_V2": "1"}}
    scenario = small_scenario(engine=engine, slots={"gpus": 2}, sweep={}, model={"path": "/models/Qwen"})
    return run_of(tmp_path_factory.mktemp("contained") / "run", scenario)


def test_variables_of_the_scenario_reach_a_server_in_a_container(contained: Path) -> None:
    words = chosen_deployment(DeployRequest(contained, "command")).container

    assert "SGLANG_ENABLE_SPEC_V2=1" in words[: words.index("my/image:3")]


def test_compose_has_the_mounts_and_variables_of_the_runs_container(contained: Path) -> None:
    text, _ = deploy(DeployRequest(contained, "compose"))
    whole = yaml.safe_load(text)
    service = whole["services"]["server"]

    assert service["volumes"] == ["/data/models:/models:ro", "hf:/root/.cache/huggingface"]
    assert whole["volumes"] == {"hf": {"external": True}}
    assert service["environment"] == {
        "NCCL_P2P_DISABLE": "1",
        "SGLANG_ENABLE_SPEC_V2": "1",
        "HF_TOKEN": "${HF_TOKEN:?a secret that no run keeps}",
    }
    assert service["working_dir"] == "/work"
    assert "# Options of the run's container that are not said here: '--cap-add SYS_NICE'." in text


def test_a_pod_has_the_mounts_and_variables_of_the_runs_container(contained: Path) -> None:
    text, _ = deploy(DeployRequest(contained, "k8s"))
    pod = next(yaml.safe_load_all(text))["spec"]["template"]["spec"]

    assert pod["volumes"][1:] == [
        {"name": "mount-0", "hostPath": {"path": "/data/models"}},
        {"name": "mount-1", "emptyDir": {}},
    ]
    assert pod["containers"][0]["volumeMounts"][1:] == [
        {"name": "mount-0", "mountPath": "/models", "readOnly": True},
        {"name": "mount-1", "mountPath": "/root/.cache/huggingface", "readOnly": False},
    ]
    assert [v["name"] for v in pod["containers"][0]["env"]] == ["NCCL_P2P_DISABLE", "SGLANG_ENABLE_SPEC_V2", "HF_TOKEN"]


@pytest.mark.parametrize("form", ["compose", "k8s"])
def test_an_image_starts_its_own_python_and_not_that_of_the_runs_host(tmp_path: Path, form: str) -> None:
    engine = {"kind": "sglang", "command": ["venv/bin/python", "-m", "sglang.launch_server"]}
    root = run_of(tmp_path / "run", small_scenario(engine=engine, slots={"gpus": 1}, sweep={}))
    text, _ = deploy(DeployRequest(root, form))

    assert "- python3\n" in text
    assert "- venv/bin/python" not in text
    assert "The run started venv/bin/python -m sglang.launch_server on its host" in text
    assert "- venv/bin/python\n" in deploy(DeployRequest(root, form, program=("venv/bin/python", "-m", "sglang")))[0]


def test_paths_that_a_service_would_look_for_elsewhere_are_told(tmp_path: Path) -> None:
    engine = {"kind": "sglang", "command": ["venv/bin/python", "-m", "sglang.launch_server"]}
    scenario = small_scenario(engine=engine, slots={"gpus": 1}, sweep={}, model={"path": "./models/qwen"})
    text, _ = deploy(DeployRequest(run_of(tmp_path / "run", scenario), "systemd"))

    told = "# paths of the folder in which the run was started, to be written in full: venv/bin/python, ./models/qwen"
    assert told in text.splitlines()


def test_a_server_that_anybody_may_use_is_told_as_such(contained: Path, measured: Path) -> None:
    told = "# it listens on 0.0.0.0 and asks for no key: whoever reaches the port may use it (--host, --api-key)"

    assert told in deploy(DeployRequest(contained, "compose"))[0].splitlines()
    assert told not in deploy(DeployRequest(contained, "compose", host="127.0.0.1"))[0].splitlines()
    assert "asks for no key" not in deploy(DeployRequest(measured, "command"))[0]
