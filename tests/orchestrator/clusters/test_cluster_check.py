"""Cluster files with one thing wrong, and what is told of each."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.clusters.cluster_address import address_fault, is_example
from orchestrator.clusters.cluster_check import check_cluster
from orchestrator.clusters.cluster_file import ClusterFile, read_cluster
from orchestrator.clusters.cluster_ports import FIXED, SERVER_PORTS, WORKER_PORTS
from orchestrator.clusters.cluster_template import ClusterPlan, cluster_text
from orchestrator.clusters.raylet_settings import TUNED, detection_s
from orchestrator.clusters.start_command import ray_start_in
from orchestrator.scenarios.yaml_tree import parse_yaml
from tests.orchestrator.cluster_files import GOOD, RAY, ROOT, changed, found_in, pinned, told

HOSTS = st.ip_addresses(v=4).map(str).filter(lambda a: address_fault(a) is None and not is_example(a))
USERS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x17F, exclude_characters="\x7f\x85"), min_size=1, max_size=12
)


def test_what_we_write_has_neither_fault_nor_warning() -> None:
    assert told(GOOD) == []


@settings(max_examples=25, deadline=None)
@given(st.lists(HOSTS, min_size=1, max_size=6, unique=True), USERS, st.one_of(st.none(), USERS))
def test_a_file_for_any_hosts_and_user_is_read_back_as_it_was_meant(
    hosts: list[str], user: str, key: str | None
) -> None:
    text = cluster_text(ClusterPlan(hosts[0], hosts[1:], user, "python3.11", {"ray[default]": RAY}, key))
    tree = parse_yaml(text.encode(), "c.yaml", "cluster file")
    cluster = read_cluster(tree)

    assert isinstance(cluster, ClusterFile)
    assert [cluster.provider.head_ip, *cluster.provider.worker_ips] == hosts
    assert (cluster.auth.ssh_user, cluster.auth.ssh_private_key) == (user, key)
    assert [f for f in check_cluster(cluster, tree, (3, 11), RAY) if f.is_fault] == []


def test_every_start_has_all_settings_and_fixed_ports() -> None:
    cluster = yaml.safe_load(GOOD)
    head = ray_start_in(cluster["head_start_ray_commands"][1])
    worker = ray_start_in(cluster["worker_start_ray_commands"][1])

    assert head is not None
    assert worker is not None
    # Jobs find the environment's Python by PATH; the shell expands the tilde.
    assert head.env == worker.env == {**TUNED, "PATH": "~/specsweep-venv/bin:$PATH"}
    assert head.open_files == worker.open_files == 65536
    assert {k.option for k in FIXED} <= set(head.options)
    assert {k.option for k in FIXED if not k.head_only} <= set(worker.options)


def test_the_shipped_file_is_what_we_would_write() -> None:
    plan = ClusterPlan(
        "192.0.2.10", ["192.0.2.11", "192.0.2.12"], "specsweep", "python3.11", pinned(), "~/.ssh/id_ed25519"
    )

    assert (ROOT / "ray_cluster.yaml").read_text(encoding="utf-8") == cluster_text(plan)


def test_the_shipped_file_only_lacks_addresses() -> None:
    said = told((ROOT / "ray_cluster.yaml").read_text(encoding="utf-8"))

    assert [line.partition(": ")[2] for line in said] == [
        f"warning: provider.{key}: {ip} is an address for documents, fill in yours"
        for key, ip in (("head_ip", "192.0.2.10"), ("worker_ips[0]", "192.0.2.11"), ("worker_ips[1]", "192.0.2.12"))
    ]


FAULTS = [
    ("typo in provider", "  head_ip:", "  haed_ip:", ":7: fault: provider.haed_ip: is not a key here; did you mean 'head_ip'?"),
    ("typo at the top", "setup_commands:  #", "setup_comands:  #", ": fault: setup_comands: is not a key here; did you mean"),
    ("node types", "max_workers: 2", "available_node_types: {}", ": fault: available_node_types: is not a key here"),
    ("a cloud", "type: local", "type: aws", ":6: fault: provider.type: is 'aws', allowed: 'local'"),
    ("IPv6", "10.0.0.2", "'2001:db8::2'", ":8: fault: provider.worker_ips[0]: 2001:db8::2 is IPv6"),
    ("bad IP", "10.0.0.2", "10.0.0.256", ":8: fault: provider.worker_ips[0]: '10.0.0.256' is no IPv4 address"),
    ("one IP", "[10.0.0.2, 10.0.0.3]", "10.0.0.2", ":8: fault: provider.worker_ips: input should be a valid list"),
    ("head is a worker", "10.0.0.3", "10.0.0.1", ":8: fault: provider.worker_ips[1]: 10.0.0.1 is already provider.head_ip"),
    ("worker twice", "10.0.0.3", "10.0.0.2", ":8: fault: provider.worker_ips[1]: 10.0.0.2 is already provider.worker_ips[0]"),
    ("too few", "max_workers: 2", "max_workers: 1", ":11: fault: max_workers: is 1, so 1 of 2 workers are never started"),
    ("no token", '  "~/.ray/auth_token": "~/.ray/auth_token"', "  {}", ':13: fault: file_mounts: has no "~/.ray/auth_token"'),
    ("auth off", "RAY_AUTH_MODE=token", "RAY_AUTH_MODE=disabled", "RAY_AUTH_MODE=disabled: whoever reaches the ports runs code"),
    ("token in the file", "RAY_AUTH_MODE=token", "RAY_AUTH_MODE=token RAY_AUTH_TOKEN=x", "has the token itself"),
    ("niceness", "RAY_worker_niceness=0", "RAY_worker_niceness=5", "RAY_worker_niceness=5: servers inherit it; write 0"),
    ("no niceness", "RAY_worker_niceness=0", "A=0", "RAY_worker_niceness=0 is missing before `ray start`"),
    ("oom", "RAY_worker_oom_score_adjustment=0", "RAY_worker_oom_score_adjustment=9", "servers inherit it; write 0"),
    ("few files", "ulimit -n 65536", "ulimit -n 1024", "`ulimit -n 1024` is too low"),
    ("dashboard", "--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0", "--dashboard-host=0.0.0.0: reachable from outside"),
    ("no autoscaling", "--autoscaling-config=~/ray_bootstrap_config.yaml", "", "the head would start no worker"),
    ("other port", "$RAY_HEAD_IP:6379", "$RAY_HEAD_IP:6380", "--address ends in :6380, but the head listens on --port=6379"),
    ("other head", "$RAY_HEAD_IP:6379", "10.0.0.9:6379", "--address must be $RAY_HEAD_IP:6379"),
    ("two heads", "--address=$RAY_HEAD_IP:6379", "--head", "--head among the workers"),
    ("no head", "ray start --head", "ray start", "`ray start` lacks --head"),
    ("no start", "ray start --head", "ray status --head", ": fault: head_start_ray_commands: has no `ray start`"),
    ("port twice", "--node-manager-port=6380", "--node-manager-port=6381", "--node-manager-port and --object-manager-port are both 6381"),
    ("port in range", "--metrics-export-port=6385", "--metrics-export-port=12000", "lies among the workers' ports 10002-19999"),
    ("no port", "--node-manager-port=6380", "--node-manager-port=x", "--node-manager-port=x is no port"),
    ("empty range", "--max-worker-port=19999", "--max-worker-port=10002", "no ports for workers (10002-10002)"),
    ("old python", "|| python3.11 -m", "|| python3.9 -m", "uses Python 3.9; Specsweep needs 3.11 to 3.14"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_a_fault_is_told_with_its_line(old: str, new: str, said: str) -> None:
    found = found_in(changed(old, new))

    assert any(f.is_fault and said in f.told("c.yaml") for f in found), told(changed(old, new))
    assert all(f.line is not None for f in found)


WARNINGS = [
    ("slow detection", "RAY_health_check_timeout_ms=3000", "A=0", "a lost host is noticed after about 54 s"),
    ("isolation", "RAY_gcs_rpc_server_reconnect_timeout_s=20", "A=0",
     "without RAY_gcs_rpc_server_reconnect_timeout_s a host that is cut off keeps its servers for minutes"),
    ("no ulimit", "ulimit -n 65536; ", "", "`ulimit -n 65536` is missing before `ray start`"),
    ("auth not said", "RAY_AUTH_MODE=token ", "", "RAY_AUTH_MODE=token is missing before `ray start`"),
    ("random port", "--node-manager-port=6380 ", "", "random ports, which no firewall can know; write --node-manager-port=6380"),
    ("no jobs", "--disable-usage-stats", "--include-dashboard=false", "no jobs can be submitted"),
    ("few workers", "--max-worker-port=19999", "--max-worker-port=10102", "only 101 ports for workers"),
    ("servers' ports", "--max-worker-port=19999", "--max-worker-port=30000", "meet those of servers, 20000-32479"),
    ("other python", "|| python3.11 -m", "|| python3.12 -m", "uses Python 3.12, this is 3.11"),
    ("unknown python", "|| python3.11 -m", "|| python3 -m", "no setup command names its Python"),
    ("other ray", "2.60.0", "2.61.0", "pins Ray 2.61.0, this is 2.60.0"),
    ("no extra", "ray[default]", "ray", "installs ray without [default]"),
    ("min workers", "max_workers: 2", "max_workers: 2\nmin_workers: 0", "min_workers: is 0: Ray starts only so many"),
    ("no workers", "worker_ips: [10.0.0.2, 10.0.0.3]", "worker_ips: []", "provider.worker_ips: is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), [row[1:] for row in WARNINGS], ids=[row[0] for row in WARNINGS])
def test_a_warning_is_told_and_is_no_fault(old: str, new: str, said: str) -> None:
    found = found_in(changed(old, new))

    assert any(said in f.told("c.yaml") for f in found), told(changed(old, new))
    assert [f for f in found if f.is_fault] == []


def test_settings_in_a_command_of_their_own_do_not_reach_ray() -> None:
    """Each command runs in its own shell."""
    text = changed("RAY_worker_niceness=0", "A=0")
    apart = text.replace("ulimit -n 65536; PATH", "ulimit -n 65536; export RAY_worker_niceness=0\n  - >-\n    PATH")
    assert apart != text
    said = told(apart)

    assert sum("RAY_worker_niceness=0 is missing" in line for line in said) == 2
    assert sum("`ulimit -n 65536` is missing" in line for line in said) == 2


def test_settings_that_a_sourced_file_may_hold_are_warned_of_only() -> None:
    sourced = changed("ulimit -n 65536; ", "ulimit -n 65536; . ~/ray.env; ").replace("RAY_worker_niceness=0", "A=0")
    found = found_in(sourced)

    assert [f.is_fault for f in found] == [False, False]
    assert all("unless `. ~/ray.env` sets it" in f.message for f in found)


def test_a_service_that_starts_ray_is_no_fault_but_is_said_to_be_unseen() -> None:
    text = changed("~/specsweep-venv/bin/ray stop", "systemctl restart specsweep-ray").replace("ray start", "true")
    found = found_in(text)

    assert [f.is_fault for f in found] == [False, False]
    assert "starts Ray by `systemctl restart`" in found[0].message


def test_all_faults_are_told_at_once_and_before_the_warnings() -> None:
    found = found_in(
        changed("10.0.0.3", "10.0.0.2")
        .replace("RAY_worker_niceness=0", "A=0")
        .replace("--metrics-export-port=6385", "--block")
    )

    assert [f.is_fault for f in found] == [True] * 3 + [False] * 2


def test_detection_takes_what_was_measured() -> None:
    """With Ray's defaults an isolated host was given up after 62.9 s; with 3 checks of 2 s, a second apart, after 7."""
    quick = {
        "RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "2000", "RAY_health_check_failure_threshold": "3"
    }  # fmt: skip

    assert detection_s({}) == 62.0
    assert detection_s(quick) == 8.0
    assert detection_s(TUNED) == 19.0
    assert detection_s({"RAY_health_check_timeout_ms": "soon"}) == 62.0


def test_no_port_of_ours_meets_another_or_those_of_workers_and_servers() -> None:
    ports = [known.port for known in FIXED]

    assert len(set(ports)) == len(ports)
    assert not [p for p in ports if WORKER_PORTS[0] <= p <= WORKER_PORTS[1] or SERVER_PORTS[0] <= p <= SERVER_PORTS[1]]
    assert WORKER_PORTS[1] < SERVER_PORTS[0]


def test_addresses_of_the_shipped_file_are_no_hosts_of_anybody() -> None:
    provider = yaml.safe_load(Path(ROOT / "ray_cluster.yaml").read_text())["provider"]

    assert all(
        ipaddress.ip_address(a) in ipaddress.ip_network("192.0.2.0/24")
        for a in (provider["head_ip"], *provider["worker_ips"])
    )
