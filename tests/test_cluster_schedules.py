"""Recipes that measure every night on Kubernetes and in CI: each is parsed by its own rules."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.schedules import (
    COMMANDS,
    DEPLOY,
    GITHUB,
    GITLAB,
    JOB,
    PARTS,
    is_schedule,
)


@pytest.mark.parametrize(("schema", "recipe", "place", "wrong"), [
    ("github-workflows", "nightly-github.yml", ("jobs", "nightly", "runs-on"), None),
    ("gitlab-ci", "nightly-gitlab.yml", ("nightly", "artifacts", "when"), "ever"),
])  # fmt: skip
def test_recipes_for_ci_are_as_the_schema_of_the_ci_system_has_them(
    schema: str, recipe: str, place: tuple[str, ...], wrong: str | None
) -> None:
    """Those that check-jsonschema ships, which are the ones of schemastore and GitLab."""
    shipped = pytest.importorskip("check_jsonschema", reason="pip install -e '.[dev]' brings the schemas")
    told = json.loads((Path(shipped.__file__).parent / f"builtin_schemas/vendor/{schema}.json").read_text("utf-8"))
    tree = yaml.safe_load((DEPLOY / recipe).read_text("utf-8"))
    tree = {"on" if key is True else key: value for key, value in tree.items()}  # YAML takes `on` for a truth value
    check = jsonschema.validators.validator_for(told)(told)

    assert [error.message for error in check.iter_errors(tree)] == []
    part = tree
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = wrong
    assert not check.is_valid(tree)


# What KubeRay's resources ray.io/v1 have, as far as we use it.
RAY_JOB = {
    "entrypoint": str, "submissionMode": str, "backoffLimit": int, "activeDeadlineSeconds": int,
    "shutdownAfterJobFinishes": bool, "ttlSecondsAfterFinished": int, "runtimeEnvYAML": str, "rayClusterSpec": dict,
}  # fmt: skip
RAY_CLUSTER = {"rayVersion": str, "authOptions": dict, "headGroupSpec": dict, "workerGroupSpecs": list}
HEAD_GROUP = {"serviceType": str, "rayStartParams": dict, "template": dict}
WORKER_GROUP = {
    "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, "rayStartParams": dict, "template": dict,
}  # fmt: skip


@pytest.mark.parametrize("name", ["nightly", "rayjob", "raycluster"])
def test_what_kuberay_is_given_has_its_fields_and_passes_its_own_checks(name: str) -> None:
    """An unknown field is dropped by the API server without a word; a number as a start parameter is refused."""
    stored = JOB if name == "nightly" else yaml.safe_load((DEPLOY / f"{name}.yaml").read_text("utf-8"))
    spec = stored["spec"]
    if stored["kind"] == "RayJob":
        assert {key: type(value) for key, value in spec.items()} == RAY_JOB
        assert spec["submissionMode"] in {"K8sJobMode", "HTTPMode", "SidecarMode"}
        assert spec["shutdownAfterJobFinishes"] or not spec["ttlSecondsAfterFinished"]
        assert (spec["activeDeadlineSeconds"] > 0, spec["backoffLimit"] >= 0) == (True, True)
        assert isinstance(yaml.safe_load(spec["runtimeEnvYAML"]), dict)
        spec = spec["rayClusterSpec"]
    assert {key: type(value) for key, value in spec.items()} == RAY_CLUSTER
    assert spec["authOptions"] == {"mode": "token"}
    assert {key: type(value) for key, value in spec["headGroupSpec"].items()} == HEAD_GROUP
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert {type(value) for value in group["rayStartParams"].values()} == {str}
        assert group["template"]["spec"]["containers"][0]["name"].startswith("ray-")
    for group in spec["workerGroupSpecs"]:
        assert {key: type(value) for key, value in group.items()} == WORKER_GROUP
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", stored["metadata"]["name"].replace("NIGHT", "20261130-0115"))


def test_a_night_on_kubernetes_runs_on_the_cluster_of_a_sweep_and_keeps_what_it_found() -> None:
    sweep = yaml.safe_load((DEPLOY / "rayjob.yaml").read_text("utf-8"))
    changed = {"entrypoint", "activeDeadlineSeconds"}

    assert {k: v for k, v in JOB["spec"].items() if k not in changed} == {
        k: v for k, v in sweep["spec"].items() if k not in changed
    }
    assert (JOB["apiVersion"], JOB["kind"]) == (sweep["apiVersion"], sweep["kind"])
    places = [
        word for word in shlex.split(JOB["spec"]["entrypoint"]) if word.startswith("/") and "scenarios" not in word
    ]
    assert len(places) == 5
    assert all(place.startswith("/results/") for place in places)  # the volume that stays


def test_the_cron_job_starts_one_night_at_a_time_and_never_again_the_same() -> None:
    spec = PARTS["CronJob"]["spec"]
    job = spec["jobTemplate"]["spec"]

    assert is_schedule(spec["schedule"])
    assert (spec["concurrencyPolicy"], spec["timeZone"]) == ("Forbid", "Etc/UTC")
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert job["activeDeadlineSeconds"] > JOB["spec"]["activeDeadlineSeconds"]


def test_the_cron_job_may_do_what_its_script_does_and_nothing_else() -> None:
    script = cron_job_script()
    (rule,) = PARTS["Role"]["rules"]

    verbs = {verb for verb in ("create", "get", "delete", "apply", "patch") if f"kubectl {verb} " in script}
    assert verbs == {"create", "get", "delete"}
    assert set(rule["verbs"]) == verbs | {"list"}  # by which delete finds what has a label
    assert (rule["apiGroups"], rule["resources"]) == (["ray.io"], ["rayjobs"])
    names = {part["metadata"]["name"] for part in PARTS.values()}
    assert names == {PARTS["RoleBinding"]["roleRef"]["name"], PARTS["RoleBinding"]["subjects"][0]["name"]}


def cron_job_script() -> str:
    (container,) = PARTS["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/bin/sh", "-euc"]
    (script,) = container["args"]
    return str(script)


KUBECTL = """#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
  create*) cat "$3" >"$MADE"; echo rayjob.ray.io/night;;
  *jobDeploymentStatus*) [ "$(grep -c jobDeploymentStatus "$LOG")" -ge 2 ] && printf %s "$STATUS" || exit 1;;
  *jobStatus*) printf %s "$ENDS";;
esac
"""


@pytest.mark.parametrize(("status", "ends", "code"), [
    ("Complete", "SUCCEEDED", 0), ("Complete", "FAILED", 1), ("Complete", "STOPPED", 1), ("Complete", "", 1),
    ("Failed", "FAILED", 1), ("Failed", "", 1), ("ValidationFailed", "", 1),
])  # fmt: skip
def test_the_cron_job_waits_for_its_night_and_ends_as_it_did(status: str, ends: str, code: int, tmp_path: Path) -> None:
    for name, text in (("kubectl", KUBECTL), ("sleep", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "rayjob.yaml").write_text(PARTS["ConfigMap"]["data"]["rayjob.yaml"])
    script = cron_job_script().replace("/job/", f"{tmp_path}/").replace("/tmp/rayjob.yaml", f"{tmp_path}/made.yaml")
    told = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": f"{tmp_path}/log", "MADE": f"{tmp_path}/sent.yaml"}

    said = subprocess.run(
        ["/bin/sh", "-euc", script], env=told | {"ENDS": ends, "STATUS": status}, capture_output=True, check=False,
        timeout=20,
    )  # fmt: skip

    assert said.returncode == code
    sent = yaml.safe_load((tmp_path / "sent.yaml").read_text())
    assert re.fullmatch(r"specsweep-nightly-\d{8}-\d{4}", sent["metadata"]["name"])
    assert len(sent["metadata"]["name"]) <= 47  # what KubeRay takes
    assert "NIGHT" not in sent["spec"]["entrypoint"]


def test_the_workflow_is_one_night_at_a_time_with_secrets_in_the_environment_only() -> None:
    job = GITHUB["jobs"]["nightly"]
    asked = GITHUB[True]  # YAML takes `on` for a truth value

    assert all(is_schedule(entry["cron"]) for entry in asked["schedule"])
    assert GITHUB["concurrency"] == {"group": "specsweep-nightly", "cancel-in-progress": False}
    assert GITHUB["permissions"] == {"contents": "read"}
    assert job["runs-on"] == ["self-hosted", "specsweep"]
    for step in job["steps"]:
        assert "${{" not in step.get("run", "")  # what somebody types into a form is no code
        assert "continue-on-error" not in step
    assert job["steps"][2]["if"] == "${{ !cancelled() }}"  # a night that regressed has its report as well
    kept = job["steps"][2]["with"]["path"].split()
    assert kept == ["nightly.xml", "nightly.html", "nightly.json"]
    assert set(kept) <= set(COMMANDS["github"])


def test_the_pipeline_is_one_night_at_a_time_and_keeps_its_report_however_it_ended() -> None:
    job = GITLAB["nightly"]

    assert (job["resource_group"], job["interruptible"]) == ("specsweep-nightly", False)
    assert "allow_failure" not in job  # a night that could not be measured is no pass
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule"'}]
    assert job["artifacts"]["when"] == "always"
    kept = {*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]}
    assert kept == {"nightly.md", "nightly.html", "nightly.json", "nightly.xml"}
    assert kept <= set(COMMANDS["gitlab"])
