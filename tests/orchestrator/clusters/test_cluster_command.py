"""`specsweep cluster init` and `check`, as a user calls them; and Ray's own verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from orchestrator.cli import main
from orchestrator.clusters.ray_schema import ray_verdict
from orchestrator.scenarios.yaml_tree import YamlTree, parse_yaml
from tests.orchestrator.cluster_files import GOOD

HOSTS = ("--head", "10.0.0.1", "--workers", "10.0.0.2,10.0.0.3", "--user", "ray")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def cluster(*words: str) -> Result:
    return CliRunner().invoke(main, ["cluster", *words])


def test_what_init_writes_passes_check_with_no_warning() -> None:
    assert cluster("init", *HOSTS).exit_code == 0

    said = cluster("check", "cluster.yaml")
    assert said.output == "cluster.yaml: no faults, 0 warnings\n"
    assert said.exit_code == 0
    assert yaml.safe_load(Path("cluster.yaml").read_text())["provider"]["worker_ips"] == ["10.0.0.2", "10.0.0.3"]


def test_init_makes_a_token_of_256_bits_that_only_the_user_can_read(home: Path) -> None:
    said = cluster("init", *HOSTS)
    token = home / ".ray/auth_token"

    assert f"token: made {token}" in said.output
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(token.read_text())) == 32
    assert token.read_text() not in said.output


def test_init_never_replaces_a_token(home: Path) -> None:
    (home / ".ray").mkdir(parents=True)
    (home / ".ray/auth_token").write_text("mine")

    said = cluster("init", *HOSTS)
    assert f"token: {home}/.ray/auth_token, which was there already" in said.output
    assert (home / ".ray/auth_token").read_text() == "mine"


def test_a_token_elsewhere_is_the_one_that_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "t"))
    cluster("init", *HOSTS)

    assert yaml.safe_load(Path("cluster.yaml").read_text())["file_mounts"] == {"~/.ray/auth_token": str(tmp_path / "t")}
    assert cluster("check", "cluster.yaml").exit_code == 0


def test_init_writes_over_nothing_without_force() -> None:
    Path("cluster.yaml").write_text("mine")

    said = cluster("init", *HOSTS)
    assert (said.exit_code, Path("cluster.yaml").read_text()) == (2, "mine")
    assert "-o cluster.yaml: is there already; give another one, or --force to write over it" in said.output
    assert cluster("init", *HOSTS, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--head", "10.0.0.300", "--user", "u"), "--head: '10.0.0.300' is no IPv4 address"),
        (("--head", "::1", "--user", "u"), "--head: ::1 is IPv6, which Ray's launcher"),
        (("--head", "10.0.0.1", "--workers", "10.0.0.2,10.0.0", "--user", "u"), "--workers: '10.0.0' is no IPv4"),
        (("--head", "10.0.0.1", "--workers", "10.0.0.1", "--user", "u"), "--workers: 10.0.0.1 is the head"),
        (("--head", "10.0.0.1", "--workers", "a,A", "--user", "u"), "--workers: A is given twice"),
        (("--head", "10.0.0.1", "--user", " "), "--user ' ': give the name of the user"),
        (("--head", "10.0.0.1", "--user", "ray; rm"), "--user 'ray; rm': give the name of the user"),
        (("--head", "10.0.0.1", "--user", "u", "--python", "python3.9"), "--python python3.9: Specsweep needs"),
        (("--head", "10.0.0.1", "--user", "u", "--python", "a; rm"), "--python a; rm: give the name or path"),
        (("--head", "10.0.0.1", "--user", "u", "-o", "."), "-o .: is a folder"),
    ],
)  # fmt: skip
def test_init_refuses_what_cannot_be_right_and_leaves_nothing(words: tuple[str, ...], told: str, home: Path) -> None:
    said = cluster("init", *words)

    assert said.exit_code == 2
    assert told in said.output
    assert not Path("cluster.yaml").exists()
    assert not (home / ".ray").exists()


def test_check_tells_faults_and_warnings_with_lines_and_ends_with_2() -> None:
    Path("c.yaml").write_text(GOOD.replace("RAY_worker_niceness=0", "RAY_worker_niceness=15"))
    said = cluster("check", "c.yaml")

    assert said.exit_code == 2
    assert (
        "c.yaml:24: fault: head_start_ray_commands[1]: RAY_worker_niceness=15: servers inherit it; write 0"
        in said.output
    )
    assert "auth_token is not there yet; `specsweep cluster init` makes one" in said.output
    assert "c.yaml: 2 faults; nothing was started" in said.output


def test_check_tells_machines_the_same() -> None:
    Path("c.yaml").write_text(GOOD.replace("10.0.0.3", "192.0.2.3"))
    told = json.loads(cluster("check", "c.yaml", "--json").output)

    assert told["ray_not_asked"] is None
    assert {(f["line"], f["key"], f["is_fault"]) for f in told["findings"]} == {
        (8, "provider.worker_ips[1]", False),
        (14, "file_mounts.~/.ray/auth_token", False),
    }


def test_a_token_that_others_can_read_is_warned_of(home: Path) -> None:
    cluster("init", *HOSTS)
    (home / ".ray/auth_token").chmod(0o644)

    said = cluster("check", "cluster.yaml")
    assert f"others can read {home}/.ray/auth_token: chmod 600" in said.output
    assert said.exit_code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "c.yaml: no such cluster file; `specsweep cluster init` writes one"),
        ("", "c.yaml: is empty; this is no cluster file"),
        ("a: &x 1\n", "c.yaml:1: &x: YAML anchors and aliases are not supported; write the value out\n"),
        ("a: [1\n", "c.yaml:2: is not valid YAML"),
        ("a: 1\na: 2\n", "c.yaml:2: a: is given twice (first on line 1)"),
    ],
)
def test_a_file_that_is_none_is_bad_input(text: str | None, told: str) -> None:
    if text is not None:
        Path("c.yaml").write_text(text)
    said = cluster("check", "c.yaml")

    assert said.exit_code == 2
    assert told in said.output


def tree_of(text: str) -> YamlTree:
    return parse_yaml(text.encode(), "c.yaml", "cluster file")


def test_ray_itself_takes_what_we_write() -> None:
    verdict = ray_verdict(tree_of(GOOD))

    assert verdict.absent is None
    assert verdict.findings == ()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("setup_commands:  #", "setup_comands:  #", "Ray refuses it: Additional properties are not allowed"),
        ("ssh_user:", "ssh_usr:", "Additional properties are not allowed ('ssh_usr' was unexpected)"),
        ("max_workers: 2", "head_node: {a: 1}", "head_node is not supported for on-premise clusters"),
        ("max_workers: 2", "worker_nodes: {a: 1}", "worker_nodes is not supported for on-premise clusters"),
        ("max_workers: 2", "available_node_types: {a: {}}", "available_node_types is not supported for on-premise"),
        ("  worker_ips: [10.0.0.2, 10.0.0.3]\n", "", "Please supply a `head_ip` and list of `worker_ips`"),
        ("  head_ip: 10.0.0.1  #", "  #", "Please supply a `head_ip`"),
        ("[10.0.0.2, 10.0.0.3]", "10.0.0.2", "is not of type 'array'"),
        ("worker_setup_commands: []", "worker_setup_commands: ls", "Ray refuses it: "),
    ],
)
def test_what_ray_refuses_is_a_finding_of_ours(old: str, new: str, told: str) -> None:
    assert old in GOOD
    (finding,) = ray_verdict(tree_of(GOOD.replace(old, new))).findings

    assert told in finding.message
    assert finding.is_fault


@pytest.mark.parametrize(("old", "new"), [('cluster_name: "specsweep"\n', ""), ("max_workers: 2", "min_workers: 1")])
def test_what_ray_fills_in_or_takes_is_no_finding_of_rays(old: str, new: str) -> None:
    assert old in GOOD
    assert ray_verdict(tree_of(GOOD.replace(old, new))).findings == ()


def test_a_typo_in_provider_is_one_that_only_we_find() -> None:
    text = GOOD.replace("worker_ips:", "workerz: []\n  worker_ips:")

    assert ray_verdict(tree_of(text)).findings == ()
    Path("c.yaml").write_text(text)
    assert "c.yaml:8: fault: provider.workerz: is not a key here" in cluster("check", "c.yaml").output


def test_a_ray_that_has_its_check_elsewhere_is_said_and_the_rest_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.autoscaler._private.util", None)
    Path("c.yaml").write_text(GOOD)
    said = cluster("check", "c.yaml")

    assert "c.yaml: not checked against Ray's own schema: this release of Ray has its check elsewhere" in said.output
    assert "auth_token is not there yet" in said.output
    assert said.exit_code == 0


def test_check_warns_of_a_key_that_is_not_there(home: Path) -> None:
    cluster("init", *HOSTS, "--key", "~/.ssh/mine")

    said = cluster("check", "cluster.yaml")
    assert (
        f"warning: auth.ssh_private_key: {home}/.ssh/mine is not there: `ray up` cannot log in with it" in said.output
    )
    (home / ".ssh").mkdir()
    (home / ".ssh/mine").touch()
    assert cluster("check", "cluster.yaml").output == "cluster.yaml: no faults, 0 warnings\n"


def test_a_scenario_is_no_cluster_file_and_one_line_says_so() -> None:
    Path("s.yaml").write_text("name: x\nmodel: {path: m}\n")

    told = cluster("check", "s.yaml").output
    assert told.startswith("s.yaml:1: fault: is no cluster file: it has none of auth, cluster_name, head_start_ray")
    assert told.count("fault:") == 1
