"""What the ranks of a server are told of their hosts' networks, and where they meet."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from actors.servers.server_command import ServerPlace, server_command
from actors.servers.span_network import rendezvous, span_env
from orchestrator.server_start import LaunchSpec

SPEC = LaunchSpec("run", "t", "emulator", (), "m", (), (), nnodes=2, dist_init_addr="10.1.0.4:20300")
PLACE = ServerPlace("gpu-a", ("0",), "10.1.0.4", 20000, Path("/tmp/none/server.log"))


@pytest.fixture(autouse=True)
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(family: int, address: str) -> Any:
        return SimpleNamespace(family=family, address=address)

    found = {
        "lo": [known(socket.AF_INET, "127.0.0.1")],
        "docker0": [known(socket.AF_INET, "172.17.0.1")],
        "bond0": [known(socket.AF_PACKET, "10.1.0.4"), known(socket.AF_INET, "10.1.0.4")],
        "ib0": [known(socket.AF_INET6, "fe80::5%ib0")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)


def test_ranks_use_the_interface_that_has_the_address_which_the_cluster_knows() -> None:
    told = {"SGLANG_HOST_IP": "10.1.0.4", "GLOO_SOCKET_IFNAME": "bond0", "NCCL_SOCKET_IFNAME": "bond0"}
    assert span_env("10.1.0.4", {}) == told
    assert span_env("fe80::5", {})["GLOO_SOCKET_IFNAME"] == "ib0"


def test_an_address_that_no_interface_has_and_loopback_choose_none() -> None:
    assert span_env("10.9.9.9", {}) == {"SGLANG_HOST_IP": "10.9.9.9"}
    assert span_env("127.0.0.2", {}) == {"SGLANG_HOST_IP": "127.0.0.2"}


def test_what_the_user_or_the_host_says_is_kept() -> None:
    assert span_env("10.1.0.4", {"NCCL_SOCKET_IFNAME": "ib0", "SGLANG_HOST_IP": "10.2.0.4"}) == {
        "GLOO_SOCKET_IFNAME": "bond0"
    }
    spec = replace(SPEC, env=(("GLOO_SOCKET_IFNAME", "eth7"),))
    env = server_command(spec, PLACE, {"NCCL_SOCKET_IFNAME": "^docker0"}).env
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"], env["SGLANG_HOST_IP"]) == (
        "eth7",
        "^docker0",
        "10.1.0.4",
    )


def test_a_server_on_one_host_is_told_nothing_of_networks() -> None:
    assert "SGLANG_HOST_IP" not in server_command(replace(SPEC, nnodes=1), PLACE, {}).env


def test_a_container_gets_these_variables_unless_its_own_command_gives_them() -> None:
    spec = replace(SPEC, command=("docker", "run", "-e", "NCCL_SOCKET_IFNAME=ib0", "img", "python3", "-m", "x"))
    argv = server_command(spec, PLACE, {}).argv
    assert "NCCL_SOCKET_IFNAME=ib0" in argv
    assert ("GLOO_SOCKET_IFNAME" in argv, "SGLANG_HOST_IP" in argv, "NCCL_SOCKET_IFNAME" in argv) == (True, True, False)


def test_ranks_meet_at_a_port_that_is_free_with_those_behind_it() -> None:
    address = rendezvous("127.0.0.1", 7, 0)
    host, _, port = address.rpartition(":")
    assert host == "127.0.0.1"
    assert 20000 + 7 * 320 < int(port) <= 20000 + 8 * 320 - 8
    with socket.socket() as taken:
        taken.bind(("", int(port) + 3))
        taken.listen()
        assert int(rendezvous("127.0.0.1", 7, 0).rpartition(":")[2]) + 8 <= int(port) + 3
    assert rendezvous("fd00::1", 7, 0).startswith("[fd00::1]:")
