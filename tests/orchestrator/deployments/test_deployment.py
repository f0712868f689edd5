"""A deployment in its forms: what a shell, systemd, Compose, Kubernetes and SGLang's config parser read in them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.deployments.deploy_containers import as_compose, as_manifests
from orchestrator.deployments.deploy_text import as_command, as_config_file, as_unit
from orchestrator.deployments.deployment import Deployment, flag_groups, service_name
from orchestrator.sglang.dialect import dialect_of
from tests.unit_files import directives

FLAGS = (
    ("--model-path", "/models/Qwen 3.5"),
    ("--speculative-num-steps", "4"),
    ("--cuda-graph-bs-decode", "1", "2", "16"),
    ("--json-model-override-args", '{"a": "$HOME 100%"}'),
    ("--enable-metrics",),
    ("--host", "0.0.0.0"),
    ("--port", "30000"),
)
SERVER = Deployment(
    name="qwen-agentic",
    program=("python3", "-m", "sglang.launch_server"),
    flags=FLAGS,
    port=30000,
    gpus=4,
    image="lmsysorg/sglang:v0.5.23",
    model_path="/models/Qwen 3.5",
    provenance=("from run r1", "a line\nthat tries: to be a key"),
    start_s=170.0,
    request_s=40.0,
    variables=(("SGLANG_X", "a b$c%d"),),
    ready_path="/ready",
    release="0.5.23",
)
ARGV = [*SERVER.program, *(word for flag in FLAGS for word in flag)]
SECRET = replace(SERVER, secret_flags=("--api-key",), secret_variables=("HF_TOKEN",))


def unit_words(value: str) -> list[str]:
    """A command line as systemd splits it, specifiers and dollars undone."""
    return [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(value)]


def test_a_stop_may_take_twice_the_longest_request_and_a_start_three_times_the_longest_start() -> None:
    assert (SERVER.stop_limit_s, SERVER.start_limit_s) == (110, 510)
    unknown = replace(SERVER, start_s=None, request_s=None)
    assert (unknown.stop_limit_s, unknown.start_limit_s) == (60, 180)


def test_three_starts_that_fail_as_slowly_as_they_may_still_end_the_unit() -> None:
    unit = directives(as_unit(SERVER))
    (window,), (burst,) = unit["StartLimitIntervalSec"], unit["StartLimitBurst"]
    slowest = 3 * (int(unit["TimeoutStartSec"][0]) + int(unit["TimeoutStopSec"][0]) + int(unit["RestartSec"][0]))

    assert int(burst) == 3
    assert int(window) >= slowest
    assert unit["Restart"] == ["on-failure"]
    assert unit["KillMode"] == ["mixed"]


def test_the_command_is_the_same_in_every_form() -> None:
    script = as_command(SERVER)
    command = script[script.index("exec ") + 5 :].replace("\\\n", " ")
    assert shlex.split(command) == ARGV
    assert "export SGLANG_X='a b$c%d'" in script

    (started,) = directives(as_unit(SERVER))["ExecStart"]
    assert unit_words(started) == ["/usr/bin/env", *ARGV]

    service = yaml.safe_load(as_compose(SERVER))["services"]["server"]
    assert [w.replace("$$", "$") for w in (*service["entrypoint"], *service["command"])] == ARGV
    assert service["environment"] == {"SGLANG_X": "a b$$c%d"}

    deployment, _ = yaml.safe_load_all(as_manifests(SERVER))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert [*container["command"], *container["args"]] == ARGV


def test_the_variables_of_a_unit_keep_their_dollars() -> None:
    given = directives(as_unit(SERVER))["Environment"]

    assert given == ['"SGLANG_X=a b$c%%d"', "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1,2,3"]


def test_no_line_of_the_provenance_becomes_a_key() -> None:
    for form in (as_command, as_unit, as_compose, as_manifests, as_config_file):
        assert "\nthat tries" not in form(SERVER)
    assert "that" not in yaml.safe_load(as_config_file(SERVER))


def test_a_unit_starts_only_on_free_gpus_and_is_started_when_the_server_answers() -> None:
    unit = directives(as_unit(SERVER))

    (before,), (after,) = unit["ExecStartPre"], unit["ExecStartPost"]
    assert "nvidia-smi -i 0,1,2,3 --query-gpu=memory.used" in before
    assert "http://127.0.0.1:30000/ready" in after
    assert 'kill -0 "$MAINPID" || exit 1' in unit_words(after)[-1]
    assert "ExecStartPre" not in directives(as_unit(replace(SERVER, gpus=0)))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    server = replace(SECRET, before=(("true", "a b"),))
    file = tmp_path / f"{server.name}.service"
    file.write_text(as_unit(server))
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)],
        check=False, capture_output=True, text=True, timeout=200,
    )  # fmt: skip

    told = [line for line in (said.stdout + said.stderr).splitlines() if file.name in line]
    assert told == []


def test_a_container_of_the_scenario_is_run_by_the_unit_and_ended_by_its_name() -> None:
    docker = ("docker", "run", "--network", "host", "--rm", "--name", "qwen-agentic", "image:1")
    unit = directives(as_unit(replace(SECRET, container=docker, runtime=("docker",))))

    words = unit_words(unit["ExecStart"][0])
    file = "/etc/sglang/qwen-agentic.secret.yaml"
    assert words[: len(docker) + 3] == ["/usr/bin/env", *docker[:-1], "-v", f"{file}:{file}:ro", "image:1"]
    assert unit["ExecStop"] == ["/usr/bin/env docker stop -t 110 qwen-agentic"]
    assert unit["ExecStopPost"] == ["-/usr/bin/env docker rm -f qwen-agentic"]
    assert unit["TimeoutStopSec"] == ["120"]


def test_compose_reserves_the_gpus_waits_for_a_drain_and_gives_up_after_three_failures() -> None:
    service = yaml.safe_load(as_compose(SERVER))["services"]["server"]

    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "device_ids": ["0", "1", "2", "3"], "capabilities": ["gpu"]}
    ]
    assert (service["restart"], service["init"], service["stop_grace_period"]) == ("on-failure:3", True, "110s")
    assert service["healthcheck"]["start_period"] == "510s"
    assert service["volumes"] == ["/models/Qwen 3.5:/models/Qwen 3.5:ro"]
    assert "deploy" not in yaml.safe_load(as_compose(replace(SERVER, gpus=0)))["services"]["server"]


# The fields of the Kubernetes objects that we write, by the API reference (apps/v1, core/v1).
FIELDS: dict[str, set[str]] = {
    "Deployment.spec": {"replicas", "strategy", "progressDeadlineSeconds", "selector", "template"},
    "pod": {"terminationGracePeriodSeconds", "containers", "volumes"},
    "container": {"name", "image", "command", "args", "ports", "env", "resources", "startupProbe", "readinessProbe",
                  "livenessProbe", "lifecycle", "volumeMounts", "workingDir"},
    "probe": {"httpGet", "timeoutSeconds", "periodSeconds", "failureThreshold"},
}  # fmt: skip


@pytest.mark.parametrize(
    "server",
    [SERVER, SECRET, replace(SERVER, gpus=0, model_path="org/model")],
    ids=["plain", "secrets", "cpu"],
)
def test_the_manifests_have_known_fields_and_names_that_meet(server: Deployment) -> None:
    deployment, service = yaml.safe_load_all(as_manifests(server))
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]

    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert set(spec) <= FIELDS["Deployment.spec"]
    assert set(pod) <= FIELDS["pod"]
    assert set(container) <= FIELDS["container"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert set(container[probe]) <= FIELDS["probe"]
    wanted = spec["selector"]["matchLabels"]
    assert wanted.items() <= spec["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"] == wanted
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert "&id" not in as_manifests(server)


def test_kubernetes_never_runs_two_waits_for_the_start_and_for_the_drain() -> None:
    deployment, _ = yaml.safe_load_all(as_manifests(SERVER))
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 510
    assert startup["httpGet"]["path"] == container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert pod["terminationGracePeriodSeconds"] == 120


def merged(text: str, release: str) -> list[str]:
    """The words that SGLang's reader of `--config` files makes of one: plain values and switches, nothing else."""
    options = {s.removeprefix("--"): o for o in dialect_of(release).options.values() for s in o.spellings}
    words: list[str] = []
    for key, value in yaml.safe_load(text).items():
        assert options[key].action in {"_StoreAction", "_StoreTrueAction"}
        if value is True:
            words.append(f"--{key}")
        else:
            words += [f"--{key}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return words


def test_a_config_file_comes_to_the_same_flags_as_the_command() -> None:
    assert merged(as_config_file(SERVER), "0.5.23") == [word for flag in FLAGS for word in flag]


def test_a_flag_that_no_config_file_can_hold_is_told_to_be_given_on_the_command_line() -> None:
    lora = replace(SERVER, flags=(*FLAGS, ("--lora-paths", "a=/l")))
    text = as_config_file(lora)

    assert "# and with these words, which SGLang takes from no file: --lora-paths a=/l" in text
    assert "lora-paths" not in yaml.safe_load(text)


def test_no_form_holds_a_secret_and_each_says_where_it_goes() -> None:
    for form in (as_command, as_unit, as_compose, as_manifests, as_config_file):
        text = form(SECRET)
        assert "***" not in text
        assert "HF_TOKEN" in text
        assert "api-key: ..." in text
    assert "--config /etc/sglang/qwen-agentic.secret.yaml" in as_command(SECRET)
    assert directives(as_unit(SECRET))["EnvironmentFile"] == ["/etc/sglang/qwen-agentic.env"]
    compose: dict[str, Any] = yaml.safe_load(as_compose(SECRET))
    assert compose["services"]["server"]["environment"]["HF_TOKEN"] == "${HF_TOKEN:?a secret that no run keeps}"
    assert compose["services"]["server"]["command"][-2:] == ["--config", "/run/secrets/flags.yaml"]
    assert compose["secrets"] == {"flags": {"file": "./qwen-agentic.secret.yaml"}}


def test_a_server_over_several_hosts_is_told_its_rank_by_variables() -> None:
    two = replace(SERVER, nnodes=2)

    assert as_command(two).endswith(
        '--nnodes 2 \\\n  --node-rank "${NODE_RANK:?}" \\\n  --dist-init-addr "${DIST_INIT_ADDR:?}"\n'
    )
    (started,) = directives(as_unit(two))["ExecStart"]
    assert started.split()[-6:] == shlex.split("--nnodes 2 --node-rank ${NODE_RANK} --dist-init-addr ${DIST_INIT_ADDR}")


def test_names_are_taken_by_all_three_and_flags_keep_their_values() -> None:
    assert service_name("Qwen3.5_122B", "agentic") == "qwen3-5-122b-agentic"
    assert service_name("3rd") == "s-3rd"
    assert re.fullmatch(r"[a-z][a-z0-9-]{0,48}[a-z0-9]", service_name("x" * 49 + "--y"))
    assert flag_groups(("--chunked-prefill-size", "-1", "--enable-metrics")) == (
        ("--chunked-prefill-size", "-1"),
        ("--enable-metrics",),
    )
