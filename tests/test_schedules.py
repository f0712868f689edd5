"""Recipes that measure every night: each is parsed by its own rules, and its command by our own command line."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from orchestrator.cli import main
from tests.unit_files import directives

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
CRON = (DEPLOY / "specsweep-nightly.cron").read_text("utf-8")
SERVICE = (DEPLOY / "specsweep-nightly.service").read_text("utf-8")
TIMER = (DEPLOY / "specsweep-nightly.timer").read_text("utf-8")
GITHUB: dict[Any, Any] = yaml.safe_load((DEPLOY / "nightly-github.yml").read_text("utf-8"))
GITLAB: dict[str, Any] = yaml.safe_load((DEPLOY / "nightly-gitlab.yml").read_text("utf-8"))
PARTS: dict[str, dict[str, Any]] = {
    part["kind"]: part for part in yaml.safe_load_all((DEPLOY / "nightly-cronjob.yaml").read_text("utf-8"))
}
JOB: dict[str, Any] = yaml.safe_load(PARTS["ConfigMap"]["data"]["rayjob.yaml"])
FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def is_schedule(text: str) -> bool:
    """Whether these are the five fields of cron: numbers, ranges, lists, steps."""
    fields = text.split()
    return len(fields) == 5 and all(_is_field(f, *bounds) for f, bounds in zip(fields, FIELDS, strict=True))


def _is_field(field: str, low: int, high: int) -> bool:
    for part in field.split(","):
        found = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", part)
        if found is None:
            return False
        begin, end, step = (None if n is None else int(n) for n in found.groups())
        if step == 0 or (begin is not None and not low <= begin <= (begin if end is None else end) <= high):
            return False
    return True


def cron_lines() -> list[tuple[str, str, str]]:
    """(schedule, user, command) of each line that starts something."""
    told = [line for line in CRON.splitlines() if line and not line.startswith("#") and not re.match(r"[A-Z_]+=", line)]
    split = [line.split(maxsplit=6) for line in told]
    return [(" ".join(fields[:5]), fields[5], fields[6]) for fields in split]


def after(words: Sequence[str], command: str = "nightly") -> list[str]:
    return list(words)[list(words).index(command) + 1 :]


COMMANDS = {
    "cron": after(shlex.split(cron_lines()[0][2])),
    "self-test": after(shlex.split(cron_lines()[1][2])),
    "systemd": after(shlex.split(directives(SERVICE)["ExecStart"][0])),
    "kubernetes": after(shlex.split(JOB["spec"]["entrypoint"])),
    "github": after(shlex.split(GITHUB["jobs"]["nightly"]["steps"][1]["run"])),
    "gitlab": after(shlex.split(GITLAB["nightly"]["script"][0])),
}


def plain(words: Sequence[str], image: str = "") -> list[str]:
    """As the shell passes them on; the image is there where somebody gave one."""
    text = "\n".join(words)
    given = f"--candidate-image\n{image}" if image else ""
    return [w for w in re.sub(r"\$\{CANDIDATE_IMAGE:\+--candidate-image\n?.*?\}", given, text).split("\n") if w]


@pytest.mark.parametrize("recipe", COMMANDS)
def test_what_a_recipe_calls_is_our_own_command_with_options_that_it_has(recipe: str) -> None:
    command = main.commands["nightly"]
    asked = command.make_context("nightly", plain(COMMANDS[recipe])).params

    assert asked["scenario"].name == "nightly.yaml"
    assert (asked["address"], asked["wait_s"]) == ("auto", 3600.0)
    if recipe != "self-test":  # which is in no history
        assert str(asked["history"]).endswith("/history")
        assert asked["junit"] is not None
    assert asked["self_test"] is (recipe == "self-test")
    assert asked["summary"] is not None or recipe == "github"  # there the job's own summary is written


@pytest.mark.parametrize("recipe", ["github", "gitlab"])
def test_an_image_that_somebody_gives_becomes_the_candidate(recipe: str) -> None:
    asked = main.commands["nightly"].make_context("nightly", plain(COMMANDS[recipe], "org/sglang:x")).params

    assert asked["candidate_image"] == "org/sglang:x"


def test_lines_of_cron_have_a_schedule_a_user_and_a_command_that_a_shell_understands() -> None:
    assert [(schedule, user) for schedule, user, _ in cron_lines()] == [
        ("15 1 * * *", "specsweep"), ("15 13 1 * *", "specsweep"),
    ]  # fmt: skip
    for schedule, _, command in cron_lines():
        assert is_schedule(schedule)
        assert "%" not in command  # a new line, for cron
        assert len(command) < 998  # what cron reads of a line
        subprocess.run(["/bin/sh", "-nc", command], check=True)
    assert CRON.endswith("\n")  # cron leaves out a last line without


@pytest.mark.parametrize(("text", "is_one"), [
    ("*/5 0-6 1,15 * 1-5", True), ("60 1 * * *", False), ("1 1 * *", False), ("1 24 * * *", False),
    ("1 6-2 * * *", False), ("*/0 1 * * *", False), ("a 1 * * *", False), ("1 1 0 * *", False),
])  # fmt: skip
def test_what_is_no_schedule_is_seen(text: str, is_one: bool) -> None:
    assert is_schedule(text) is is_one


@pytest.mark.parametrize("recipe", ["cron", "systemd"])
def test_two_nights_never_overlap_and_the_second_ends_as_one_that_was_not_measured(recipe: str, tmp_path: Path) -> None:
    whole = cron_lines()[0][2] if recipe == "cron" else directives(SERVICE)["ExecStart"][0]
    words = shlex.split(whole[whole.index("flock ") :])
    options = words[1 : next(i for i, word in enumerate(words) if word.endswith("nightly.lock"))]
    flock = shutil.which("flock")
    if flock is None:
        pytest.skip("no flock here")
    lock = [flock, *options, str(tmp_path / "lock")]

    inside = subprocess.run([*lock, *lock, "true"], check=False)
    alone = subprocess.run([*lock, "true"], check=False)

    assert (inside.returncode, alone.returncode) == (3, 0)


@pytest.mark.parametrize("recipe", ["cron", "systemd"])
def test_a_stop_reaches_the_night_behind_its_lock_and_a_lock_that_is_not_free_is_told(
    recipe: str, tmp_path: Path
) -> None:
    whole = cron_lines()[0][2] if recipe == "cron" else directives(SERVICE)["ExecStart"][0]
    words = shlex.split(whole[whole.index("flock ") :])
    place = next(i for i, word in enumerate(words) if word.endswith("nightly.lock"))
    flock = shutil.which("flock")
    if flock is None:
        pytest.skip("no flock here")
    lock = [flock, *words[1:place], str(tmp_path / "lock")]
    night = subprocess.Popen([*lock, "sh", "-c", "trap 'exit 3' TERM; echo begun; while :; do sleep 0.02; done"],
                             stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert night.stdout is not None
    for line in night.stdout:
        if line == "begun\n":
            break

    other = subprocess.run([*lock, "true"], capture_output=True, text=True, check=False)
    night.terminate()

    assert (other.returncode, "failed to get lock" in other.stderr) == (3, True)
    assert night.wait(timeout=60) == 3  # of its own: else -15, by flock, which would leave it behind


@pytest.mark.parametrize("recipe", ["cron", "self-test", "github", "gitlab"])
def test_a_time_limit_asks_once_for_an_orderly_end_and_the_code_is_that_of_the_night(recipe: str) -> None:
    whole = {
        "cron": cron_lines()[0][2],
        "self-test": cron_lines()[1][2],
        "github": GITHUB["jobs"]["nightly"]["steps"][1]["run"],
        "gitlab": GITLAB["nightly"]["script"][0],
    }
    words = shlex.split(whole[recipe])
    options = words[words.index("timeout") + 1 :][:3]

    # Without --foreground it signals the night and then the night's whole group: twice is an end at once.
    assert options == ["--foreground", "--preserve-status", "--kill-after=300"]


def test_a_unit_gives_a_night_its_time_an_orderly_end_and_secrets_from_a_file() -> None:
    told, timer = directives(SERVICE), directives(TIMER)

    assert (told["Type"], told["TimeoutStartSec"], told["KillMode"]) == (["oneshot"], ["8h"], ["mixed"])
    assert int(told["TimeoutStopSec"][0]) > 60
    assert told["EnvironmentFile"] == ["/etc/specsweep/nightly.env"]
    assert "SuccessExitStatus" not in told  # 1 and 3 are failures
    assert "Restart" not in told
    assert (timer["OnCalendar"], timer["Persistent"]) == (["*-*-* 01:15:00 UTC"], ["false"])
    assert timer["Unit"] == ["specsweep-nightly.service"]


def systemd(*words: str) -> subprocess.CompletedProcess[str]:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    return subprocess.run([analyze, *words], capture_output=True, text=True, check=False)


def verified_units(folder: Path, wrong: str = "") -> str:
    """What systemd says of all our units, with programs that are there; nothing if all is well."""
    for file in (*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")):
        text = re.sub(r"/opt/specsweep/bin/\w+", "/bin/true", file.read_text("utf-8"))
        (folder / file.name).write_text(text.replace("User=specsweep", f"User=root{wrong}"))
    told = systemd("verify", "--man=no", *(str(file) for file in sorted(folder.iterdir())))
    return "\n".join(line for line in told.stderr.splitlines() if "specsweep" in line)


def test_systemd_takes_all_units_and_the_calendar(tmp_path: Path) -> None:
    assert verified_units(tmp_path) == ""
    assert "'Usr'" in verified_units(tmp_path, "\nUsr=x")
    assert systemd("calendar", directives(TIMER)["OnCalendar"][0]).returncode == 0


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
        timeout=200,
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


def test_no_recipe_holds_a_secret() -> None:
    for file in DEPLOY.glob("*nightly*"):
        assert not re.search(r"(?:TOKEN|KEY|SECRET|PASSWORD)=(?!token\b)\S", file.read_text("utf-8")), file.name
