"""What is shipped for clusters that are not started by `ray up`: every way to start Ray starts it alike."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.clusters.cluster_ports import FIXED, WORKER_PORTS
from orchestrator.clusters.raylet_settings import OPEN_FILES, PRIORITY, TUNED
from orchestrator.scenarios.scenario_file import load_scenario

ROOT = Path(__file__).resolve().parent.parent
CLUSTER: dict[str, Any] = yaml.safe_load((ROOT / "deploy/raycluster.yaml").read_text(encoding="utf-8"))
JOB: dict[str, Any] = yaml.safe_load((ROOT / "deploy/rayjob.yaml").read_text(encoding="utf-8"))
UNITS = {role: (ROOT / f"deploy/specsweep-ray-{role}.service").read_text("utf-8") for role in ("head", "worker")}
CONTAINERFILE = (ROOT / "Containerfile").read_text(encoding="utf-8")


def containers() -> list[dict[str, Any]]:
    spec = CLUSTER["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def unit(role: str) -> dict[str, list[str]]:
    """Directives of a unit, with continued lines joined; some are given several times."""
    found: dict[str, list[str]] = {}
    for line in UNITS[role].replace("\\\n", " ").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "[")):
            found.setdefault(name, []).append(value)
    return found


def test_both_manifests_start_the_same_cluster() -> None:
    assert JOB["spec"]["rayClusterSpec"] == CLUSTER["spec"]
    assert (CLUSTER["apiVersion"], CLUSTER["kind"]) == ("ray.io/v1", "RayCluster")
    assert (JOB["apiVersion"], JOB["kind"]) == ("ray.io/v1", "RayJob")


def test_every_container_has_our_settings_and_the_token_comes_from_the_operator() -> None:
    assert CLUSTER["spec"]["authOptions"] == {"mode": "token"}
    for container in containers():
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        assert env == {name: value for name, value in TUNED.items() if name != "RAY_AUTH_MODE"}


def test_the_cluster_and_its_image_have_the_pinned_ray() -> None:
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert CLUSTER["spec"]["rayVersion"] == pinned[1]
    assert {container["image"] for container in containers()} == {f"specsweep:{pinned[1]}"}


def test_pods_with_gpus_have_whole_hosts_room_in_shared_memory_and_the_models() -> None:
    (group,) = CLUSTER["spec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    volumes = {volume["name"]: volume for volume in group["template"]["spec"]["volumes"]}

    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    assert {m["mountPath"] for m in container["volumeMounts"]} == {"/dev/shm", "/models"}
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]


def test_the_head_serves_nobody_and_keeps_results_on_a_volume_that_stays() -> None:
    head = CLUSTER["spec"]["headGroupSpec"]
    volumes = {volume["name"]: volume for volume in head["template"]["spec"]["volumes"]}

    assert head["rayStartParams"]["num-gpus"] == "0"
    assert head["serviceType"] == "ClusterIP"  # not reachable from outside the cluster
    assert "persistentVolumeClaim" in volumes["results"]
    assert "--run-dir /results/" in JOB["spec"]["entrypoint"]


def test_a_job_has_time_for_an_orderly_end_and_is_never_started_twice() -> None:
    env = yaml.safe_load(JOB["spec"]["runtimeEnvYAML"])["env_vars"]
    stop_s = max(load_scenario(path).timeouts.stop_s for path in sorted((ROOT / "scenarios").glob("[a-z]*.yaml")))

    assert int(env["RAY_JOB_STOP_WAIT_TIME_S"]) > stop_s
    assert JOB["spec"]["backoffLimit"] == 0
    assert JOB["spec"]["shutdownAfterJobFinishes"] is True


def test_what_a_job_calls_is_a_command_of_ours() -> None:
    words = shlex.split(JOB["spec"]["entrypoint"])

    assert words[:4] == ["python", "-m", "orchestrator", "run"]
    assert {word for word in words if word.startswith("--")} == {"--address", "--run-dir"}


@pytest.mark.parametrize("role", ["head", "worker"])
def test_units_start_ray_with_our_settings_limits_and_ports(role: str) -> None:
    told = unit(role)
    words = shlex.split(told["ExecStart"][0])
    options = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
    env = dict(value.split("=", 1) for value in told["Environment"])

    assert {name: env[name] for name in TUNED} == TUNED
    assert env["PATH"].startswith("/opt/specsweep/bin:")  # where a job finds `python`
    assert told["LimitNOFILE"] == [str(OPEN_FILES)]
    assert (told["Nice"], told["OOMScoreAdjust"]) == (["0"], ["0"])
    assert {k.option: options.get(k.option) for k in FIXED if role == "head" or not k.head_only} == {
        k.option: str(k.port) for k in FIXED if role == "head" or not k.head_only
    }
    assert (options["min-worker-port"], options["max-worker-port"]) == tuple(map(str, WORKER_PORTS))
    assert ("--head" in words, "address" in options) == (role == "head", role == "worker")
    assert "--block" in words  # systemd must see it end


@pytest.mark.parametrize("role", ["head", "worker"])
def test_a_host_that_was_declared_lost_starts_anew_and_a_killed_server_stops_nothing_else(role: str) -> None:
    told = unit(role)

    assert told["Restart"] == ["always"]
    assert told["StartLimitIntervalSec"] == ["0"]  # however long the network is away
    assert told["KillMode"] == ["control-group"]  # no server outlives its raylet
    assert told["OOMPolicy"] == ["continue"]
    assert "auth_token" in " ".join(told["Environment"])
    assert "RAY_AUTH_TOKEN=" not in UNITS[role]


def test_the_dashboard_of_a_unit_is_on_loopback() -> None:
    assert "--dashboard-host=127.0.0.1" in UNITS["head"]


def test_the_image_holds_what_is_installed_and_copies_nothing_else() -> None:
    copied = [word for line in CONTAINERFILE.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]]

    assert copied == ["pyproject.toml", "constraints.txt", "README.md", "LICENSE", "orchestrator", "actors"]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert re.search(r"^ARG BASE\nFROM \$\{BASE\}$", CONTAINERFILE, re.MULTILINE)
    for name, value in PRIORITY.items():
        assert f"{name}={value}" in CONTAINERFILE
